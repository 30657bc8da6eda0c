"""What an engine makes of a directory: the keys it reads, the tensors it takes. Data types.

An engine never fails on what it does not look for. Whether it runs a drafter as trained is decided
by reading the directory as it does, and comparing the outcome with what the trainer meant
(`simulate.py`). Everything here is data with a source; a new engine is one more `Loading`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from eagleconv.drafter.names import Rename


@dataclass(frozen=True, slots=True)
class KeyRead:
    """How an engine reads one fact from a flat config.

    Attributes:
        fact: Name of the fact (`DrafterSpec`), or of an ingredient of one (`fc_norm`, `count`).
        homes: Dotted keys in order of precedence; `len(key)` is the length of a list.
        default: What an absent key means; a string that starts with `=` names another fact.
        source: File and lines.
        null: What a present null does: `absent`, `refused` (the engine computes with None), or
            `=` and the fact whose value it takes.
        blocks: Blocks whose class reads it so; empty for all.
        versions: PEP 440 specifier; empty for all.
        runner: Model runner; empty for all.
    """

    fact: str
    homes: tuple[str, ...]
    default: Any
    source: str
    null: str = "absent"
    blocks: tuple[str, ...] = ()
    versions: str = ""
    runner: str = ""


@dataclass(frozen=True, slots=True)
class Lift:
    """One key that an engine lifts from a speculators file to its flat form.

    Attributes:
        key: At the top level of the file.
        to: In the flat form.
        absent: `leave` (whatever transformer_layer_config says stays), or a literal in `default`.
        default: Written where the key is absent and `absent` is `default`.
    """

    key: str
    to: str
    absent: Literal["leave", "default"]
    default: Any = None
    versions: str = ""


@dataclass(frozen=True, slots=True)
class Nested:
    """How an engine flattens one speculators_model_type.

    Attributes:
        base: Key whose dict is the base of the flat form.
        lifts: Keys written over it.
        architectures: model_type of the base (absent: `llama`) -> class; others are refused.
        source: File and lines.
        versions: PEP 440 specifier of the versions that know it; empty for all.
        architecture_versions: Class -> specifier of the versions that have it.
    """

    base: str
    lifts: tuple[Lift, ...]
    architectures: Mapping[str, str]
    source: str
    versions: str = ""
    architecture_versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ignored:
    """Tensors an engine passes over without a word.

    Attributes:
        pattern: Glob on the stored name.
        reason: One sentence.
        source: File and lines.
        when: Fact of the engine's reading -> values for which it holds.
        harmless: Whether nothing that was trained is lost (t2d, rotary buffers).
    """

    pattern: str
    reason: str
    source: str
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    harmless: bool = False


@dataclass(frozen=True, slots=True)
class Missing:
    """What an engine does where a tensor that it allocates is not in the file.

    Attributes:
        pattern: Glob on the canonical name; the first that fits counts.
        when: Fact of the engine's reading -> values for which it holds.
        effect: `refused`, `wrong` (left at 1.0, zero or uninitialised), or `shared` (the target's).
        reason: One sentence.
        source: File and lines.
    """

    pattern: str
    effect: Literal["refused", "wrong", "shared"]
    reason: str
    source: str
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Loading:
    """How an engine reads a directory.

    Attributes:
        engine: Name of the engine.
        architectures: Accepted class name -> block.
        architecture_source: Where the list was read.
        architecture_versions: Class name -> specifier of the versions that have it; others: all.
        positions_raised: Specifier of the versions that raise a drafter's positions to the
            target's; empty for none.
        prefix: Put before a class name that has it neither in front nor at the end.
        no_model_type: What a config without model_type does.
        refused_model_types: model_type -> why it is refused.
        needs_class: Whether model_type must be one transformers knows.
        nested: speculators_model_type -> how it is flattened; empty: the layout is not read.
        reads: Keys of the flat form.
        names: Stored name <-> canonical.
        ignored: Passed over.
        unknown: What a tensor without a place does.
        missing: What a missing tensor does.
        map_at_full: What a d2t does where D = V of the target: `refused`, `ignored`.
        ids_are: Numbering of the layer ids read: `boundary` or `output`.
        ids_source: File and lines.
        window_needs_flag: Blocks whose window needs use_sliding_window: true.
        reads_window: Whether it honours layer_types and sliding_window.
        rope: Which rope spelling wins: `scaling` (transformers 5) or `parameters`.
        rope_types: Values of rope_type it has; empty where they were not read.
        rope_source: Where they were read.
        map_source: Where d2t is read.
        runners: Model runners that differ in what they read.
        tied_source: Where tie_word_embeddings makes the embedding the head; empty: it does not.
    """

    engine: str
    architectures: Mapping[str, str]
    architecture_source: str
    reads: tuple[KeyRead, ...]
    names: tuple[Rename, ...]
    ignored: tuple[Ignored, ...]
    unknown: Literal["refused", "dropped"]
    unknown_source: str
    missing: tuple[Missing, ...]
    map_at_full: Literal["refused", "ignored"]
    ids_are: Literal["boundary", "output"]
    ids_source: str
    prefix: str = ""
    no_model_type: Literal["refused", "llama"] = "refused"
    refused_model_types: Mapping[str, str] = field(default_factory=dict)
    needs_class: bool = True
    nested: Mapping[str, Nested] = field(default_factory=dict)
    window_needs_flag: tuple[str, ...] = ()
    reads_window: bool = True
    rope: Literal["scaling", "parameters"] = "scaling"
    rope_types: tuple[str, ...] = ()
    rope_source: str = ""
    runners: tuple[str, ...] = ("",)
    tied_source: str = ""
    map_source: str = ""
    architecture_versions: Mapping[str, str] = field(default_factory=dict)
    positions_raised: str = ""
