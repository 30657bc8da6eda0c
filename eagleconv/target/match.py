"""Is this the drafter of this target? Level by level: what is recorded or shown against what is there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from eagleconv.checkpoint.checkpoint import Checkpoint
from eagleconv.checkpoint.manifest import hash_file, read_records
from eagleconv.drafter.read import Drafter
from eagleconv.target import levels as of
from eagleconv.target.adapter import Adapter
from eagleconv.target.files import files_of
from eagleconv.target.fingerprint import Fingerprint, parse_fingerprint
from eagleconv.target.same_weights import compare_weights
from eagleconv.target.verdict import Level
from eagleconv.target.view import TargetView

Overall = Literal["match", "compatible", "mismatch", "unknown"]


@dataclass(frozen=True, slots=True)
class Matched:
    """What was found.

    Attributes:
        drafter: Its source as the user named it, and `drafter_revision` its commit, if any.
        layouts: Every layout the drafter can be.
        variant: The drafter's variant in words.
        target: The target's source; of a fingerprint file, what that was taken from.
        target_revision: Its commit, or empty.
        levels: One by one.
    """

    drafter: str
    drafter_revision: str
    layouts: tuple[str, ...]
    variant: str
    target: str
    target_revision: str
    levels: tuple[Level, ...]

    @property
    def verdict(self) -> Overall:
        """Return the answer of design section 3."""
        verdicts = {level.verdict for level in self.levels}
        if "different" in verdicts:
            return "mismatch"
        if not verdicts - {"unknown"}:
            return "unknown"
        evident = any(level.evidence and level.verdict == "equal" for level in self.levels)
        return "match" if evident and "harmless" not in verdicts else "compatible"

    @property
    def open(self) -> tuple[str, ...]:
        """Return what keeps it from being a `match`, a sentence each, with what would settle it."""
        if self.verdict != "compatible":
            return ()
        out = [
            f"{level.name} differs harmlessly"
            for level in self.levels
            if level.verdict == "harmless"
        ]
        if not any(level.evidence and level.verdict == "equal" for level in self.levels):
            out.append(
                "nothing identifies the target's weights; `eagleconv upgrade --target`, run where "
                "the drafter's own target is at hand, records them"
            )
        return tuple(out)


def recorded_fingerprint(checkpoint: Checkpoint) -> Fingerprint | None:
    """Return the fingerprint that a drafter's eagleconv.json records, if there is one.

    Raises:
        SourceError: It is broken.
    """
    text = (checkpoint.manifest or {}).get("target")
    if not isinstance(text, dict):
        return None
    return parse_fingerprint(text, f"{checkpoint.source}: target in eagleconv.json")


def foreign_weights(checkpoint: Checkpoint) -> str:
    """Say why the weights are not those that eagleconv.json was written for; empty: they are.

    What it records of a target holds for the very weights it was written beside: all bytes of a
    directory are hashed; of a repository, the sha256 that the Hub tells is taken.
    """
    if checkpoint.manifest is None:
        return ""
    records = read_records(checkpoint.manifest)
    for name in checkpoint.weight_files:
        record = records.get(name)
        if record is None:
            return f"{name} is not in it"
        if checkpoint.root:
            found = hash_file(os.path.join(checkpoint.root, name), name).sha256
        elif name in checkpoint.digests:
            found = checkpoint.digests[name]
        elif name.endswith(".json"):
            continue  # an index: it says where tensors lie, and holds none
        else:
            return f"the Hub does not tell what {name} hashes to"
        if found != record.sha256:
            return f"{name} has other bytes than it records"
    return ""


def compare(
    drafter: Drafter,
    target: Fingerprint,
    view: TargetView | None,
    adapters: tuple[Adapter, ...] = (),
) -> Matched:
    """Compare a drafter with a target.

    Args:
        drafter: Read with contradictions collected.
        target: What the target is, without its weights where `view` is given.
        view: The target itself, or None where only its fingerprint is known.
        adapters: Served together with the target.

    Raises:
        SourceError: A file that is there cannot be read.
    """
    checkpoint = drafter.checkpoint
    recorded = recorded_fingerprint(checkpoint)
    doubt = foreign_weights(checkpoint) if recorded is not None else ""
    if doubt:
        recorded = None
    beside = files_of(checkpoint)
    levels = [
        of.shapes(drafter, recorded, target),
        of.taps(drafter, target),
        of.tokenizer(recorded, beside, target),
        of.vocabulary(drafter, target),
        of.template(recorded, beside, target),
        of.positions(recorded, target),
        Level(
            "weights", "unknown", (f"what eagleconv.json records is not of this drafter: {doubt}",)
        )
        if doubt
        else compare_weights(recorded, target, view),
        *of.shown(drafter, view),
        of.names(drafter, recorded, target, view),
    ]
    if adapters:
        levels.append(of.adapters(adapters, recorded))
    return Matched(
        checkpoint.source,
        checkpoint.revision,
        drafter.layout_names,
        drafter.variant,
        target.source if view is None else view.facts.name,
        target.revision,
        tuple(levels),
    )
