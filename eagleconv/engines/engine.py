"""What an engine does with a variant: data with sources, interpreted by one function."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from eagleconv.drafter.aux_layers import default_boundaries
from eagleconv.drafter.facts import DrafterSpec

#: `unknown`: the engine was not read about it.
Verdict = Literal["supported", "unknown", "silently wrong", "refused"]

_FILE = re.compile(r"[\w./-]+\.(?:py|cpp|h|md)")


def file_of(source: str) -> str:
    """Return the first file a source names; empty where it names none."""
    found = _FILE.search(source)
    return found[0] if found else ""


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
        symbol: A string that occurs in the file of `source` while the fact holds.
        absent_symbol: A string that does not occur there while the fact holds, and does once an
            engine has learnt it.
    """

    when: Mapping[str, tuple[Any, ...]]
    verdict: Verdict
    reason: str
    source: str
    versions: str = ""
    runner: str = ""
    symbol: str = ""
    absent_symbol: str = ""

    @property
    def file(self) -> str:
        """The file of `source`, below the engine's package; empty where it names none."""
        return file_of(self.source)

    def holds(self, version: str, runner: str | None = None) -> bool:
        """Say whether it is a fact of this version and runner; None is every runner."""
        return (runner is None or self.runner in ("", runner)) and in_versions(
            self.versions, version
        )

    def applies(self, found: Mapping[str, Any]) -> bool:
        """Say whether it is about a variant with these traits."""
        return all(found[trait] in values for trait, values in self.when.items())


def not_read(source: str, *about: str) -> tuple[EngineFact, ...]:
    """Return a fact of the verdict `unknown` for each trait nobody read about.

    Args:
        source: What was read, and says nothing of them.
        about: Names of traits; `trait=value` for one value, else it is meant where it is true.
    """
    facts = []
    for words in about:
        trait, _, value = words.partition("=")
        reason = f"{words.replace('=', ' ')} was not read about"
        facts.append(EngineFact({trait: (value or True,)}, "unknown", reason, source))
    return tuple(facts)


@dataclass(frozen=True, slots=True)
class EngineNote:
    """What depends on how an engine is started, or on the target, and not on the variant.

    Attributes:
        text: One sentence.
        source, versions, runner, symbol, absent_symbol: As of an `EngineFact`.
    """

    text: str
    source: str
    versions: str = ""
    runner: str = ""
    symbol: str = ""
    absent_symbol: str = ""

    @property
    def file(self) -> str:
        """The file of `source`; empty where it names none."""
        return file_of(self.source)

    def holds(self, version: str) -> bool:
        """Say whether it is true of this version."""
        return in_versions(self.versions, version)


@dataclass(frozen=True, slots=True)
class Fallback:
    """A variant for which an engine takes another of its runners by itself.

    Attributes:
        runner: The runner that hands over.
        to: The runner that takes it.
        when, source, versions, symbol, absent_symbol: As of an `EngineFact`.
    """

    runner: str
    to: str
    when: Mapping[str, tuple[Any, ...]]
    source: str
    versions: str = ""
    symbol: str = ""
    absent_symbol: str = ""

    @property
    def file(self) -> str:
        """The file of `source`; empty where it names none."""
        return file_of(self.source)


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine, at the versions its facts were read from.

    Attributes:
        name: As on the command line.
        version: The version that is meant where none is named.
        verified: False where the facts come from one unpinned reading; verdicts are then warnings.
        facts: What it does not run as trained; a variant no fact applies to is supported.
        serve: How it is started, with `{drafter}` and `{target}`; empty where not known.
        oldest, newest: The range of versions the facts were read for; empty where unpinned.
        runners: Model runners that differ; one empty name where there is one.
        fallbacks: Variants that one runner hands to another.
        notes: What depends on how it is started.
        package: The distribution that holds the files of the sources; empty where none was read.
    """

    name: str
    version: str
    verified: bool
    facts: tuple[EngineFact, ...]
    serve: str = ""
    oldest: str = ""
    newest: str = ""
    runners: tuple[str, ...] = ("",)
    fallbacks: tuple[Fallback, ...] = ()
    notes: tuple[EngineNote, ...] = ()
    package: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An engine's answer for one variant.

    Attributes:
        engine: The engine.
        verdict: The worst that applies.
        reasons: Why, one sentence each, with its source; empty where supported.
        version: The version asked for.
        runner: The runner asked for; empty for the engine as a whole.
        taken: The runner that takes it, where that is another one.
        notes: How far the answer carries: a version outside what was read, another runner.
    """

    engine: Engine
    verdict: Verdict
    reasons: tuple[tuple[str, str], ...] = field(default_factory=tuple)
    version: str = ""
    runner: str = ""
    taken: str = ""
    notes: tuple[str, ...] = ()


def traits(
    spec: DrafterSpec, layers: int | None = None, target_type: str | None = None
) -> dict[str, Any]:
    """Return what engine facts are conditioned on.

    Args:
        spec: The drafter.
        layers: The target's layer count, if known.
        target_type: The target's `model_type`, if known.
    """
    ids = spec.aux.boundaries or ()
    default = default_boundaries(layers) if layers is not None else None
    wide = spec.target_hidden_size
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
        # Ids that are the default taps of this target do no harm where an engine ignores them.
        "custom_taps": spec.aux.rule == "explicit" and (default is None or ids != default),
        "first_tap": ids[0] if ids else None,
        "taps_embedding": 0 in ids,
        "taps_last": layers is not None and layers in ids,
        # Taps that together are as wide as the drafter look like states fc has been applied to.
        "taps_as_wide": spec.aux.count == 1 and wide == spec.hidden_size,
        "target_type": target_type,
        "own_embedding": spec.own_embedding,
        "own_embedding_same_width": spec.own_embedding and spec.hidden_size == wide,
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


_RANK: tuple[Verdict, ...] = ("supported", "unknown", "silently wrong", "refused")


def in_versions(versions: str, version: str) -> bool:
    """Say whether a version is among those of a specifier; empty is all."""
    return not versions or SpecifierSet(versions).contains(version, prereleases=True)


def nearest(engine: Engine, version: str) -> tuple[str, str]:
    """Return the version whose facts answer for `version`, and a note where it is another one."""
    if not engine.oldest:
        note = f"{engine.name}: facts are from one reading of no pinned version"
        return version, note
    asked = Version(version)
    bounds = (
        (engine.oldest, asked < Version(engine.oldest)),
        (engine.newest, asked > Version(engine.newest)),
    )
    for bound, outside in bounds:
        if outside:
            return bound, (
                f"{engine.name} {version} was not read; the facts are those of {bound}, the nearest "
                f"of {engine.oldest} to {engine.newest}"
            )
    return version, ""


def facts_for(
    engine: Engine, found: Mapping[str, Any], version: str, runner: str | None
) -> tuple[tuple[EngineFact, ...], str | None, list[str]]:
    """Return the facts about a variant, the runner that takes it, and how far they carry.

    Args:
        engine: The engine.
        found: Traits of the variant.
        version: Its version.
        runner: Its model runner; None for all of them.
    """
    known, note = nearest(engine, version)
    notes = [note] if note and engine.verified else []
    taken = runner
    for fallback in engine.fallbacks:
        hands_over = all(found[trait] in values for trait, values in fallback.when.items())
        hands_over = hands_over and in_versions(fallback.versions, known)
        if hands_over and runner in (None, fallback.runner):
            taken = fallback.to
            notes.append(f"it takes its {fallback.to} runner for this by itself")
    facts = (f for f in engine.facts if f.applies(found) and f.holds(known, taken))
    return tuple(facts), taken, notes


def answer(
    engine: Engine,
    found: Mapping[str, Any],
    version: str | None = None,
    runner: str | None = None,
) -> Answer:
    """Return what an engine does with a variant.

    Args:
        engine: The engine.
        found: Traits of the variant.
        version: Its version; None is `engine.version`.
        runner: Its model runner; None asks all of them, and reasons then name the runner.
    """
    version = version or engine.version
    facts, taken, notes = facts_for(engine, found, version, runner)
    reasons = []
    verdict: Verdict = "supported"
    for fact in facts:
        named = f"{fact.runner} runner: " if fact.runner and runner is None else ""
        reasons.append((named + fact.reason, fact.source))
        verdict = max(verdict, fact.verdict, key=_RANK.index)
    other = taken if taken and taken != runner else ""
    return Answer(engine, verdict, tuple(reasons), version, runner or "", other, tuple(notes))
