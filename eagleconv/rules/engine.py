"""Rules about one engine: what it refuses, drops, reads otherwise, or cannot compute."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace

from eagleconv.drafter.facts import FACT_NAMES
from eagleconv.engines.deviation import Effect
from eagleconv.engines.engine import Engine, facts_for, nearest, traits
from eagleconv.engines.loadings import LOADINGS
from eagleconv.engines.simulate import Deviation, simulate
from eagleconv.rules.config import misplaced
from eagleconv.rules.engine_files import files_of
from eagleconv.rules.finding import EngineVerdict, Severity, Verdict
from eagleconv.rules.rule import Hit, Rule
from eagleconv.rules.subject import Subject
from eagleconv.target.embedding import compare_embedding


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
                if not reading.refused:
                    found += _misplaced_flags(s)
            found += _facts_against(s, engine, version, runner)
            out.append(Judgement(engine, version, runner, tuple(found)))
    return tuple(out)


def _misplaced_flags(s: Subject) -> Iterator[tuple[str, Deviation]]:
    """Yield flags that say something where no engine looks."""
    for hit in misplaced(s):
        yield "ECE006", Deviation("key", "wrong", hit.message, "rule ECC009", key=hit.key)


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
    facts_here, _, _ = facts_for(engine, found, version, runner or None)
    for fact in facts_here:
        effect: Effect = "refused" if fact.verdict == "refused" else "wrong"
        if fact.verdict == "unknown":
            effect = "open"
        if "own_embedding_same_width" in fact.when:
            compared = compare_embedding(s.drafter, s.target, s.deep) if s.target else None
            if compared is not None and compared.equal:
                continue
            effect = "open" if compared is None else effect
        yield (
            "ECE007" if effect == "refused" else "ECE008",
            Deviation("config", effect, fact.reason, fact.source),
        )


def verdict_of(judgement: Judgement, s: Subject) -> EngineVerdict:
    """Return the verdict: the worst of what was found, or `open` where too little could be read."""
    effects = {d.effect for _, d in judgement.found}
    tensors: dict[tuple[str, str], tuple[str, ...]] = {}
    for _, d in judgement.found:
        tensors[d.message, d.source] = (*tensors.get((d.message, d.source), ()), d.tensor)
    reasons = tuple(
        Deviation("key", "open", message, source).sentence(names)
        + (f" ({source})" if source else "")
        for (message, source), names in tensors.items()
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
        for engine, version in s.engines:
            runners, groups = _grouped(code, s, engine, version)
            for (message, source, effect, key), found in groups.items():
                seen = {runner for runner, _ in found}
                where = "" if seen == runners else f" ({', '.join(sorted(seen))} runner)"
                tensors = tuple(dict.fromkeys(d.tensor for _, d in found if d.tensor))
                stored = [t for t in tensors if t in s.checkpoint.tensors]
                sentence = Deviation("key", "open", message, source).sentence(tensors)
                severity: Severity | None = None
                if not engine.verified or effect == "open":
                    severity = "warning"
                yield Hit(
                    f"{engine.name} {version}{where}: {sentence}"
                    + (f" ({source})" if source else ""),
                    _OPEN_HINT if effect == "open" else "",
                    tensor=stored[0] if stored else "",
                    key=key,
                    engine=engine.name,
                    severity=severity,
                )

    return check


_OPEN_HINT = (
    "what the files leave open settles it: --target with its weights, or the flags of upgrade that "
    "say what it was trained with"
)
_Group = dict[tuple[str, str, str, str], list[tuple[str, Deviation]]]


def _grouped(code: str, s: Subject, engine: Engine, version: str) -> tuple[set[str], _Group]:
    """Return the engine's runners, and its deviations by all but tensor and runner."""
    runners: set[str] = set()
    groups: _Group = {}
    for judgement in judgements(s):
        if (judgement.engine, judgement.version) == (engine, version):
            runners.add(judgement.runner)
            for found, d in judgement.found:
                if found == code:
                    group = groups.setdefault((d.message, d.source, d.effect, d.key), [])
                    group.append((judgement.runner, d))
    return runners, groups


_CODE_OF = {
    "architecture": "ECE001",
    "config": "ECE002",
    "tensor refused": "ECE003",
    "tensor dropped": "ECE004",
    "not loaded": "ECE005",
    "key": "ECE006",
}
_NEEDS = ("engine",)


def _version(s: Subject) -> Iterator[Hit]:
    for engine, version in s.engines:
        _, note = nearest(engine, version)
        if note and engine.verified:
            yield Hit(note, engine=engine.name)


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
    Rule(
        "ECE009",
        "engine-version-not-read",
        "warning",
        "The facts about the engine were read at the version that is asked for.",
        "Engines change how they read drafters from release to release, and the verdict is then "
        "that of the nearest version that was read.",
        "`--engine vllm==9.0`",
        "Name a version in the range that `eagleconv engines NAME` tells, or measure acceptance.",
        needs=_NEEDS,
        check=_version,
    ),
)
