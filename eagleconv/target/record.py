"""What an output records of its target: a fingerprint, never in place of another target's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eagleconv.drafter.read import Drafter
from eagleconv.errors import ConversionError
from eagleconv.target.fingerprint import Fingerprint, take_fingerprint
from eagleconv.target.match import compare, recorded_fingerprint
from eagleconv.target.view import TargetView


def target_record(drafter: Drafter, view: TargetView | None) -> Mapping[str, Any] | None:
    """Return the value of `target` in eagleconv.json; None where no target is known.

    Args:
        drafter: The source, whose own record is kept where there is one.
        view: The target that was given, or None.

    Raises:
        ConversionError: The source records another target.
        SourceError: A file of the target cannot be read.
    """
    kept = (drafter.checkpoint.manifest or {}).get("target")
    if view is None:
        return kept if isinstance(kept, dict) else None
    taken = take_fingerprint(view)
    recorded = recorded_fingerprint(drafter.checkpoint)
    if recorded is None or not isinstance(kept, dict):
        return taken.as_json()
    if recorded.digest == taken.digest:
        return kept
    found = compare(drafter, taken, view)
    if found.verdict == "mismatch":
        level = next(level for level in found.levels if level.verdict == "different")
        raise ConversionError(
            f"{drafter.checkpoint.source} was made for another target than {view.facts.name}: "
            f"{level.name}: {level.sentences[0]}",
            "give that one, or none; `eagleconv match` compares them level by level",
        )
    return taken.as_json() if _says_more(taken, recorded) else kept


def _says_more(taken: Fingerprint, recorded: Fingerprint) -> bool:
    """Say whether a level is known now that was not, and none is lost."""
    return set(taken.missing) < set(recorded.missing)
