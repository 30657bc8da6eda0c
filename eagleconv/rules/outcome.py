"""What the findings of a run come to: an exit code, the same for every format."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from eagleconv.rules.finding import SEVERITIES, Finding, Validated

FailOn = Literal["error", "warning", "info", "never"]
FAIL_ON: tuple[FailOn, ...] = get_args(FailOn)


@dataclass(frozen=True, slots=True)
class Checked:
    """One checkpoint, and what counts as failing for it.

    Attributes:
        result: What validation found.
        fail_on: The least severity that fails.
    """

    result: Validated
    fail_on: FailOn = "error"

    def fails(self, finding: Finding) -> bool:
        """Say whether a finding is one that fails."""
        if finding.accepted or self.fail_on == "never":
            return False
        return SEVERITIES.index(finding.severity) >= SEVERITIES.index(self.fail_on)

    @property
    def failed(self) -> bool:
        """Whether any finding fails."""
        return any(self.fails(finding) for finding in self.result.findings)

    @property
    def unchecked(self) -> str:
        """Why nothing was checked, in one sentence; empty where something was."""
        if self.result.unreadable:
            return self.result.unreadable
        if self.result.checks_run:
            return ""
        skipped = len(self.result.skipped)
        return "nothing was checked: " + (
            f"all {skipped} selected checks were skipped" if skipped else "no check was selected"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run.

    Attributes:
        exit_code: 0 fine, 1 findings, 3 something could not be checked; 3 wins.
        said: Lines for stderr; empty where the report says it all.
    """

    exit_code: int
    said: tuple[str, ...] = ()


def outcome(checked: Sequence[Checked]) -> Outcome:
    """Return the exit code of a run, with both reasons where there are two."""
    unchecked = [c for c in checked if c.unchecked]
    failed = [c for c in checked if c.failed]
    if not unchecked:
        return Outcome(1 if failed else 0)
    said = []
    for c in unchecked:
        named = c.unchecked.startswith(c.result.source)
        said.append(f"error: {'' if named else f'{c.result.source}: '}{c.unchecked}")
        if c.result.hint:
            said.append(f"hint: {c.result.hint}")
    if failed:
        said.append(
            f"exit 3: {len(unchecked)} of {len(checked)} sources could not be checked; "
            f"{len(failed)} failed besides, which alone would be exit 1"
        )
    return Outcome(3, tuple(said))
