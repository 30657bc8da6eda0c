"""What an engine does with a variant: data with sources, interpreted by one function."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from eagleconv.drafter.facts import DrafterSpec

Verdict = Literal["supported", "silently wrong", "refused"]


@dataclass(frozen=True, slots=True)
class EngineFact:
    """One thing an engine does not run as trained.

    Attributes:
        when: Trait -> the values for which it applies; all must hold.
        verdict: What happens.
        reason: One sentence.
        source: File (and lines) where it was read, or how it was run.
        versions: PEP 440 specifier of the versions it holds for; empty for all that are known.
        runner: The model runner it holds for (`V1`, `V2`); empty for all.
        symbol: A string that occurs in the file of `source`, for the test that looks it up.
    """

    when: Mapping[str, tuple[Any, ...]]
    verdict: Verdict
    reason: str
    source: str
    versions: str = ""
    runner: str = ""
    symbol: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine at one version.

    Attributes:
        name: As on the command line.
        version: The version the facts were read from.
        verified: False where the facts come from one unpinned reading; verdicts are then warnings.
        facts: What it does not run as trained; a variant no fact applies to is supported.
        serve: How it is started, with `{drafter}` and `{target}`; empty where not known.
    """

    name: str
    version: str
    verified: bool
    facts: tuple[EngineFact, ...]
    serve: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An engine's answer for one variant.

    Attributes:
        engine: The engine.
        verdict: The worst that applies.
        reasons: Why, one sentence each, with its source; empty where supported.
    """

    engine: Engine
    verdict: Verdict
    reasons: tuple[tuple[str, str], ...] = field(default_factory=tuple)


def traits(spec: DrafterSpec, layers: int | None = None) -> dict[str, Any]:
    """Return what engine facts are conditioned on.

    Args:
        spec: The drafter.
        layers: The target's layer count, if known.
    """
    ids = spec.aux.boundaries or ()
    return {
        "block": spec.block,
        "drafting": spec.drafting,
        "input_norm": spec.input_norm,
        "feedback": spec.feedback,
        "residual": spec.residual,
        "vocabulary": spec.vocabulary,
        "several_layers": spec.num_layers > 1,
        "mixed_windows": len(set(spec.window)) > 1,
        "window": any(spec.window),
        "aux_rule": spec.aux.rule,
        "aux_three": spec.aux.count == 3,
        "taps_embedding": 0 in ids,
        "taps_last": layers is not None and layers in ids,
        "own_embedding_same_width": spec.own_embedding
        and spec.hidden_size == spec.target_hidden_size,
        "attention_bias": spec.attention_bias,
        "output_bias": spec.output_bias,
        "mlp_bias": spec.mlp_bias,
        "fc_bias": spec.fc_bias,
        "own_head": spec.own_head,
        "quantized": spec.quantization is not None,
        "rope_scaling": spec.rope.scaling is not None,
        "partial_rotary": spec.rope.partial_rotary_factor != 1.0,
        "mla_full_rank_q": spec.mla is not None and spec.mla.q_lora_rank is None,
        "hidden_act": spec.hidden_act,
    }


_RANK: tuple[Verdict, ...] = ("supported", "silently wrong", "refused")


def answer(engine: Engine, found: Mapping[str, Any]) -> Answer:
    """Return what an engine does with a variant."""
    reasons = []
    verdict: Verdict = "supported"
    for fact in engine.facts:
        if all(found[trait] in values for trait, values in fact.when.items()):
            reasons.append((fact.reason, fact.source))
            verdict = max(verdict, fact.verdict, key=_RANK.index)
    return Answer(engine, verdict, tuple(reasons))
