"""What an engine makes of a directory, and what it does otherwise than trained: data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from eagleconv.drafter.facts import TargetConfig

Shape = tuple[int, ...]
Effect = Literal["refused", "wrong", "open"]


@dataclass(frozen=True, slots=True)
class Deviation:
    """One thing an engine does otherwise than the trainer meant.

    Attributes:
        kind: `architecture`, `config`, `key`, `tensor refused`, `tensor dropped`, `not loaded`.
        effect: `refused`, `wrong`, or `open` where it depends on what the files leave open.
        message: One sentence; `{tensor}` in it stands for the tensor's name, so that deviations
            that differ by nothing else can be told in one sentence.
        source: Where it was read.
        tensor, key: What it is about, or empty.
    """

    kind: Literal["architecture", "config", "key", "tensor refused", "tensor dropped", "not loaded"]
    effect: Effect
    message: str
    source: str
    tensor: str = ""
    key: str = ""

    def sentence(self, tensors: tuple[str, ...] = ()) -> str:
        """Return the message for this tensor, or for several that differ by nothing else."""
        names = tensors or (self.tensor,)
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return self.message.replace("{tensor}", shown)


@dataclass(slots=True)
class Reading:
    """An engine's reading of a directory.

    Attributes:
        facts: What it takes the drafter for; empty where it is refused before.
        deviations: What it does otherwise than trained.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    deviations: list[Deviation] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        """Whether the engine does not start with it."""
        return any(d.effect == "refused" for d in self.deviations)


@dataclass(frozen=True, slots=True)
class Files:
    """What an engine finds.

    Attributes:
        config: Parsed config.json.
        shapes: Stored tensor -> shape.
        trained: Facts as trained, as far as they could be read; open ones are in `open_facts`.
        open_facts: Facts with more than one reading.
        map_is_identity: Whether d2t, as trained, maps to the first target ids.
        map_values_wrong: Why the stored d2t, read as offsets, is not what was trained; or empty.
        target: The target, or None: it is then assumed to fit.
        quantized: Whether a quantiser wrote the file.
        head_is_embedding: Whether the head is the drafter's own embedding, and not stored.
        map_ids: i + d2t[i] of the stored d2t; empty where there is none.
        why_not_loadable: Why no engine loads these files; empty where they do.
    """

    config: Mapping[str, Any]
    shapes: Mapping[str, Shape]
    trained: Mapping[str, Any]
    open_facts: tuple[str, ...]
    map_is_identity: bool
    map_values_wrong: str
    target: TargetConfig | None
    quantized: bool
    head_is_embedding: bool = False
    why_not_loadable: str = ""
    map_ids: tuple[int, ...] = ()

    @property
    def loadable(self) -> bool:
        """Whether these are files an engine loads at all."""
        return not self.why_not_loadable
