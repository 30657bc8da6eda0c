"""Rules about one engine: what it refuses, drops, reads otherwise, or cannot compute."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace

from eagleconv.checkpoint.checkpoint import Checkpoint
from eagleconv.drafter.facts import FACT_NAMES
from eagleconv.engines.engine import Engine, traits
from eagleconv.engines.loadings import LOADINGS
from eagleconv.engines.simulate import Deviation, Files, holds, simulate
from eagleconv.rules.finding import EngineVerdict, Severity, Verdict
from eagleconv.rules.rule import Hit, Rule
from eagleconv.rules.subject import Subject

#: Findings of the reader that make the stored map, read as offsets, another one than trained.
_WRONG_MAPS = ("ECV002", "ECV003", "ECV004", "ECV010")


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one engine does otherwise than trained.

    Attributes:
        found: (rule code, deviation).
    """

    engine: Engine
    version: str
    runner: str
    found: tuple[tuple[str, Deviation], ...]


def judgements(s: Subject) -> tuple[Judgement, ...]:
    """Return `judge(s)`, computed once a subject."""
    if s.judged is None:
        s.judged = judge(s)
    return s.judged


def judge(s: Subject) -> tuple[Judgement, ...]:
    """Return, for every engine asked for and each of its runners, what it does otherwise."""
    out = []
    for engine, version in s.engines:
        loading = LOADINGS.get(engine.name)
        for runner in loading.runners if loading else ("",):
            found: list[tuple[str, Deviation]] = []
            if loading is not None:
                reading = simulate(loading, files_of(s), version, runner)
                found += [(_CODE_OF[d.kind], d) for d in reading.deviations]
            found += _facts_against(s, engine, version, runner)
            out.append(Judgement(engine, version, runner, tuple(found)))
    return tuple(out)


def files_of(s: Subject) -> Files:
    """Return the directory as an engine finds it, and what was trained."""
    drafter = s.drafter
    derived = drafter.derived.get("d2t")
    wrong = next((t.message for t in drafter.traps if t.code in _WRONG_MAPS), "")
    if derived is not None and "d2t" in drafter.tensors:
        wrong = "it reads d2t as offsets, and it holds absolute ids"
    known = {n: f for n, f in drafter.facts.items() if f.origin != "open"}
    return Files(
        s.checkpoint.config,
        {name: t.shape for name, t in s.checkpoint.tensors.items()},
        {name: fact.value for name, fact in known.items()},
        tuple(_FACT_OF.get(q.fact, q.fact) for q in drafter.questions),
        derived is not None and not any(derived.data),
        wrong,
        s.target.facts if s.target else None,
        bool(s.checkpoint.config.get("quantization_config")),
        any(t.code == "ECC016" for t in drafter.traps),
        _not_loadable(s.checkpoint),
    )


def _not_loadable(checkpoint: Checkpoint) -> str:
    if checkpoint.form == "side files":
        return "these are a trainer's own files"
    if checkpoint.root and not os.path.exists(os.path.join(checkpoint.source, "config.json")):
        return "config.json and weights are in a directory inside this one"
    return ""


#: Names of questions that are not names of facts.
_FACT_OF = {
    "aux layers": "aux",
    "rope theta": "rope",
    "rope scaling": "rope",
    "partial rotary factor": "rope",
    "attention window": "window",
    "mask token": "mask_token_id",
}


def _facts_against(
    s: Subject, engine: Engine, version: str, runner: str
) -> Iterator[tuple[str, Deviation]]:
    """Yield what an engine cannot compute whatever the files look like."""
    facts = s.drafter.facts
    if any(name not in facts for name in FACT_NAMES):
        return
    plain = {name: facts[name].value for name in FACT_NAMES}
    plain["window"] = plain["window"] or ()
    layers = s.target.facts.num_layers if s.target else None
    # An open fact is None, which no condition names.
    found = traits(SimpleNamespace(**plain), layers)  # type: ignore[arg-type]
    for fact in engine.facts:
        applies = all(found[trait] in values for trait, values in fact.when.items())
        if applies and holds(fact.versions, version) and fact.runner in ("", runner):
            refused = fact.verdict == "refused"
            yield (
                "ECE007" if refused else "ECE008",
                Deviation("config", "refused" if refused else "wrong", fact.reason, fact.source),
            )


def verdict_of(judgement: Judgement, s: Subject) -> EngineVerdict:
    """Return the verdict: the worst of what was found, or `open` where too little could be read."""
    effects = {d.effect for _, d in judgement.found}
    reasons = tuple(
        dict.fromkeys(
            f"{d.message} ({d.source})" if d.source else d.message for _, d in judgement.found
        )
    )
    verdict: Verdict
    if not judgement.engine.verified:
        verdict = "unverified"
    elif "refused" in effects:
        verdict = "refused"
    elif "wrong" in effects:
        verdict = "computes something else"
    elif "open" in effects or s.drafter.questions or s.drafter.unread:
        verdict = "open"
        reasons = (
            *reasons,
            *(q.text for q in s.drafter.questions),
            *(f"{name} could not be read: {why}" for name, why in s.drafter.unread.items()),
        )
    else:
        verdict = "runs as trained"
    return EngineVerdict(
        judgement.engine.name, judgement.version, judgement.runner, verdict, reasons
    )


def _check(code: str) -> Callable[[Subject], Iterator[Hit]]:
    def check(s: Subject) -> Iterator[Hit]:
        for judgement in judgements(s):
            verified = judgement.engine.verified
            for found, d in judgement.found:
                if found != code:
                    continue
                severity: Severity | None = None
                if not verified or d.effect == "open":
                    severity = "warning"
                runner = f" ({judgement.runner} runner)" if judgement.runner else ""
                yield Hit(
                    f"{judgement.engine.name} {judgement.version}{runner}: {d.message}"
                    + (f" ({d.source})" if d.source else ""),
                    tensor=d.tensor if d.tensor in s.checkpoint.tensors else "",
                    key=d.key,
                    engine=judgement.engine.name,
                    severity=severity,
                )

    return check


_CODE_OF = {
    "architecture": "ECE001",
    "config": "ECE002",
    "tensor refused": "ECE003",
    "tensor dropped": "ECE004",
    "not loaded": "ECE005",
    "key": "ECE006",
}
_NEEDS = ("engine",)

RULES: tuple[Rule, ...] = (
    Rule(
        "ECE001",
        "engine-has-no-such-class",
        "error",
        "The engine has a class for `architectures`.",
        "vLLM puts `Eagle3` before names that have it neither in front nor at the end, and refuses "
        "what it then does not know; SGLang takes the target's loader "
        "([sglang#9135](https://github.com/sgl-project/sglang/issues/9135)).",
        '`"architectures": ["LlamaEagle3DraftModel"]`',
        "Write the class of the block.",
        "upgrade",
        needs=_NEEDS,
        check=_check("ECE001"),
    ),
    Rule(
        "ECE002",
        "engine-refuses-config",
        "error",
        "The engine accepts the config.",
        "It is refused at start, or computes with None.",
        '`"target_hidden_size": null`',
        "Write what the message asks for.",
        "upgrade",
        needs=_NEEDS,
        check=_check("ECE002"),
    ),
    Rule(
        "ECE003",
        "engine-refuses-tensor",
        "error",
        "The engine has a parameter of that shape for every tensor.",
        "vLLM raises on names it does not know, `model.` prefixes and d2t at full vocabulary among "
        "them ([Automodel#2841](https://github.com/NVIDIA-NeMo/Automodel/pull/2841)).",
        "`model.layers.0.hidden_norm.weight`",
        "Write the names the engine reads.",
        "upgrade",
        needs=_NEEDS,
        check=_check("ECE003"),
    ),
    Rule(
        "ECE004",
        "engine-drops-tensor",
        "error",
        "The engine loads every tensor that was trained.",
        "It starts, answers correctly, and drafts with a part of what was trained.",
        "`fc.bias` in vLLM, q/k norms in SGLang",
        "Choose an engine that reads it, or a layout in which it does.",
        "upgrade, where a key is all that is missing",
        needs=_NEEDS,
        check=_check("ECE004"),
    ),
    Rule(
        "ECE005",
        "engine-leaves-parameter-unloaded",
        "error",
        "Every parameter the engine allocates is in the file.",
        "vLLM and SGLang leave norms at 1.0, d2t at zeros and matrices uninitialised, without a "
        "word.",
        "40 declared layers, one in the file",
        "Get the tensor, or correct the key that asks for it.",
        needs=_NEEDS,
        check=_check("ECE005"),
    ),
    Rule(
        "ECE006",
        "engine-reads-otherwise",
        "error",
        "The engine takes every fact for what it was trained with.",
        "Keys have other homes and other defaults in every engine: 3.1 flags nested, layer ids "
        "vLLM's V2 runner does not look for, a residual that is not read "
        "([vllm#50170](https://github.com/vllm-project/vllm/pull/50170), "
        "[vllm#46488](https://github.com/vllm-project/vllm/pull/46488), "
        "[sglang#25454](https://github.com/sgl-project/sglang/pull/25454)).",
        "layer ids in `eagle_config` only, vLLM's V2 runner",
        "Write the key where the engine reads it.",
        "upgrade",
        needs=_NEEDS,
        check=_check("ECE006"),
    ),
    Rule(
        "ECE007",
        "engine-cannot-run-variant",
        "error",
        "The engine has code for the variant.",
        "It is refused at start.",
        "a q/k norm drafter in SGLang",
        "Choose another engine or version (`eagleconv engines`).",
        needs=_NEEDS,
        check=_check("ECE007"),
    ),
    Rule(
        "ECE008",
        "engine-runs-variant-wrongly",
        "error",
        "The engine computes the variant as it was trained.",
        "The server starts, answers correctly and accepts less, or nothing.",
        "`norm_before_residual: true` in SGLang",
        "Choose another engine or version (`eagleconv engines`).",
        needs=_NEEDS,
        check=_check("ECE008"),
    ),
)
