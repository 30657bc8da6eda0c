"""Read a checkpoint into the canonical drafter: facts with origins, tensors, open questions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from eagleconv.checkpoint.checkpoint import Checkpoint
from eagleconv.drafter.config_facts import decide
from eagleconv.drafter.contradiction import Contradiction
from eagleconv.drafter.declared import Declared, DerivedTensor
from eagleconv.drafter.evidence import Candidate, candidates
from eagleconv.drafter.facts import (
    FACT_NAMES,
    DrafterSpec,
    Fact,
    Question,
    TargetConfig,
    Trap,
    variant_words,
)
from eagleconv.drafter.families import recognise
from eagleconv.drafter.layouts import CANONICAL, LAYOUTS
from eagleconv.drafter.names import Rename, to_canonical
from eagleconv.drafter.reading import Evidence
from eagleconv.errors import OpenQuestions, SourceError

#: Evidence of a candidate that was taken because nothing fits.
NO_LAYOUT = "its tensors; no known layout fits"
#: What a drafter of no known layout is read as: the engines' flat layout, wrapped or not.
FALLBACK = replace(
    CANONICAL,
    names=(
        *CANONICAL.names,
        Rename("model.{t}", "{t}"),
        Rename("model.fc_norm.{i}", "fc_norm.{i}"),
        Rename("model.midlayer.{m}", "layers.0.{m}"),
        Rename("model.layers.{i}.{m}", "layers.{i}.{m}"),
    ),
)
#: The same for a config with a layer's config inside.
NESTED_FALLBACK = next(layout for layout in LAYOUTS if layout.name == "speculators-eagle3")


@dataclass(frozen=True, slots=True)
class Drafter:
    """A checkpoint, understood.

    Attributes:
        checkpoint: The opened files.
        candidates: The layouts it can be, each with evidence; never empty.
        facts: Every fact by name; open ones have origin `open`.
        questions: What stays open, one per fact.
        traps: What is known to go wrong with such files.
        tensors: Canonical name -> stored name.
        dropped: Stored name -> the rule that drops it.
        derived: Canonical name -> tensor that follows from others and replaces the stored one.
        config: The config at the level of flat layouts (speculators' nested keys lifted).
        target: The target's config, if one was given.
        unread: What could not be read -> why; empty unless contradictions were collected.
    """

    checkpoint: Checkpoint
    candidates: tuple[Candidate, ...]
    facts: Mapping[str, Fact]
    questions: tuple[Question, ...]
    traps: tuple[Trap, ...]
    tensors: Mapping[str, str]
    dropped: Mapping[str, str]
    derived: Mapping[str, DerivedTensor] = field(default_factory=dict)
    target: TargetConfig | None = None
    unread: Mapping[str, str] = field(default_factory=dict)

    @property
    def layout_names(self) -> tuple[str, ...]:
        """Names of the possible layouts."""
        return tuple(c.layout.name for c in self.candidates)

    @property
    def producers(self) -> tuple[str, ...]:
        """Possible producers, each once."""
        return tuple(dict.fromkeys(c.layout.producer for c in self.candidates))

    @property
    def variant(self) -> str:
        """The variant in words."""
        return variant_words(self.facts)

    def spec(self) -> DrafterSpec:
        """Return the facts as a whole.

        Raises:
            OpenQuestions: Some fact is open.
        """
        if self.questions:
            raise OpenQuestions(
                f"{self.checkpoint.source}: {len(self.questions)} "
                f"question{'s' if len(self.questions) > 1 else ''} the files leave open",
                tuple(q.line() for q in self.questions),
                "answer all of them in one call",
            )
        values = {name: self.facts[name].value for name in FACT_NAMES}
        return DrafterSpec(**values, origins=dict(self.facts))


def read_drafter(
    checkpoint: Checkpoint,
    declared: Declared | None = None,
    target: TargetConfig | None = None,
    *,
    collect: bool = False,
) -> Drafter:
    """Understand a checkpoint.

    Args:
        checkpoint: From `open_source`.
        declared: What the user says of it.
        target: Settles layer count and vocabulary.
        collect: Record contradictions as traps and read on: the facts that cannot be read are then
            missing (`unread` says why), and the result is good for a report, not for a conversion.

    Raises:
        SourceError: It is no EAGLE-3 drafter of a known layout, or its tensors contradict it.
    """
    declared = declared or Declared()
    config, names = checkpoint.config, tuple(checkpoint.tensors)
    family = recognise(config, names)
    if family is not None:
        raise SourceError(f"{checkpoint.source} is {family.name}", family.reason)
    found = candidates(config, names, LAYOUTS)
    if not found and collect and looks_like_a_drafter(names):
        nested = "transformer_layer_config" in config
        found = (Candidate(NESTED_FALLBACK if nested else FALLBACK, (NO_LAYOUT,)),)
    if not found:
        raise SourceError(
            f"{checkpoint.source} fits no known layout of EAGLE-3 drafters "
            f"(architectures {config.get('architectures')}, first tensors {list(names)[:3]})",
            "see `eagleconv inspect --help` for the layouts, or report the producer",
        )
    # A layout that has no place for some tensor is none of these.
    whole = tuple(c for c in found if all(to_canonical(n, c.layout.names) for n in names))
    found = whole or found
    tensors, dropped, strange = _canonical_tensors(checkpoint, found)
    reader = Evidence(checkpoint, found, tensors, declared, target, collect=collect)
    for contradiction in strange:
        reader.refuse(contradiction)
    facts = decide(reader)
    return Drafter(
        checkpoint,
        found,
        facts,
        tuple(reader.questions),
        tuple(reader.traps),
        tensors,
        dropped | reader.dropped,
        reader.derived,
        target,
        reader.unread,
    )


def looks_like_a_drafter(names: Iterable[str]) -> bool:
    """Say whether tensors are those of an EAGLE-3 drafter whatever the config says."""
    parts = {part for name in names for part in name.split(".")}
    return "fc" in parts and "hidden_norm" in parts


def _canonical_tensors(
    checkpoint: Checkpoint, found: tuple[Candidate, ...]
) -> tuple[dict[str, str], dict[str, str], list[Contradiction]]:
    """Account for every stored tensor under one of the candidates' tables."""
    strange: list[Contradiction] = []
    tensors: dict[str, str] = {}
    dropped: dict[str, str] = {}
    quantized = checkpoint.config.get("quantization_config") is not None
    for name in checkpoint.tensors:
        row = next(
            (r for c in found if (r := to_canonical(name, c.layout.names)) is not None), None
        )
        if row is None:
            strange.append(
                Contradiction(
                    "ECT001",
                    checkpoint.source,
                    f"tensor {name!r} is not part of the "
                    f"{' / '.join(c.layout.name for c in found)} layout",
                    "every tensor must be accounted for; nothing is dropped unseen",
                    tensor=name,
                )
            )
            continue
        canonical, rule = row
        if canonical is None:
            dropped[name] = rule.reason
            continue
        suffix = canonical.rsplit(".", 1)[-1]
        if suffix not in ("weight", "bias", *("d2t", "t2d", "mask_hidden")) and not quantized:
            strange.append(
                Contradiction(
                    "ECQ002",
                    checkpoint.source,
                    f"tensor {name!r} belongs to a quantised layer, but "
                    "config.json has no quantization_config",
                    "add the quantization_config the checkpoint was written with",
                    tensor=name,
                )
            )
            continue
        if canonical in tensors:
            strange.append(
                Contradiction(
                    "ECT006",
                    checkpoint.source,
                    f"tensors {tensors[canonical]!r} and {name!r} are both {canonical}",
                    "keep one of them",
                    tensor=name,
                )
            )
            continue
        tensors[canonical] = name
    return tensors, dropped, strange
