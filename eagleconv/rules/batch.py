"""Many checkpoints, each with its own settings, held against one baseline."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from eagleconv.rules import baseline as known
from eagleconv.rules.finding import Validated
from eagleconv.rules.outcome import Checked
from eagleconv.rules.rule import Rule
from eagleconv.rules.selection import resolve, split
from eagleconv.rules.settings import Configuration, Settings


class Validate(Protocol):
    """`eagleconv.validate`."""

    def __call__(
        self,
        source: str,
        *,
        target: str | None,
        engines: Sequence[str],
        context_length: int | None,
        deep: bool,
        select: Sequence[str],
        ignore: Sequence[str],
    ) -> Validated:
        """Check one checkpoint."""


def checkpoints(sources: Iterable[str]) -> tuple[str, ...]:
    """Return each checkpoint once; a file stands for the directory it is in.

    Hooks pass the files that changed, and several may be of one checkpoint.
    """
    found: dict[str, str] = {}
    for source in sources:
        if os.path.isfile(source):
            source = os.path.dirname(source) or os.curdir
        same = os.path.realpath(source) if os.path.lexists(source) else source
        found.setdefault(same, source)
    return tuple(found.values())


def check_all(
    sources: Iterable[str],
    given: Settings,
    configuration: Configuration,
    rules: Sequence[Rule],
    validate: Validate,
) -> tuple[Checked, ...]:
    """Check every checkpoint with the settings that hold for it.

    Args:
        sources: Checkpoints, or files of them.
        given: Settings of the command line.
        configuration: The configuration file.
        rules: All rules.
        validate: Checks one checkpoint.

    Raises:
        UsageError: A selector stands for no rule; nothing was checked then.
    """
    jobs = []
    for source in checkpoints(sources):
        use = configuration.settings_for(source, given)
        select, ignore = (resolve(split(s or ()), rules) for s in (use.select, use.ignore))
        jobs.append((source, use, select, ignore))
    return tuple(
        Checked(
            validate(
                source,
                target=use.target,
                engines=use.engine or (),
                context_length=use.context_length,
                deep=bool(use.deep),
                select=select,
                ignore=ignore,
            ),
            use.fail_on or "error",
        )
        for source, use, select, ignore in jobs
    )


def accept(checked: Sequence[Checked], path: str) -> tuple[tuple[Checked, ...], tuple[str, ...]]:
    """Accept the findings of a baseline.

    Returns:
        The checkpoints with these findings marked, and a line for each stale entry.
    """
    entries = known.read_baseline(path)
    gone = known.stale([c.result for c in checked], entries, path)
    said = tuple(
        f"info: {path}: {e.code} of {e.source} no longer occurs: {e.message}" for e in gone
    )
    marked = tuple(replace(c, result=known.accept(c.result, entries, path)) for c in checked)
    return marked, said


def record(checked: Sequence[Checked], path: str) -> tuple[tuple[Checked, ...], str]:
    """Write all findings as a baseline and accept them, unless something could not be checked.

    Returns:
        The checkpoints, and a line that says what was done.
    """
    unchecked = [c.result.source for c in checked if c.unchecked]
    if unchecked:
        return tuple(checked), f"{path} is not written: {', '.join(unchecked)} was not checked"
    number = known.write_baseline(path, [c.result for c in checked])
    marked = tuple(replace(c, result=known.accept_all(c.result)) for c in checked)
    return marked, f"written: {path}, {number} findings"
