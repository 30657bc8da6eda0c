"""What validation finds: data, rendered elsewhere."""

from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "info"]
#: From harmless to harmful.
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
Verdict = Literal["runs as trained", "computes something else", "refused", "open", "unverified"]


@dataclass(frozen=True, slots=True)
class Location:
    """Where a finding is.

    Attributes:
        file: Relative to the checkpoint; empty where it is about no single file.
        tensor: Stored name of a tensor, or empty.
        key: Dotted config key, or empty.
    """

    file: str = ""
    tensor: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a rule found.

    Attributes:
        code: Stable code of the rule, e.g. `ECC003`.
        name: Stable kebab-case name of the rule.
        severity: After all that moves it (engine, configuration).
        message: One sentence: what, where, what was expected.
        location: File, and tensor or key.
        hint: What to do; may be empty.
        engine: The engine it holds for, e.g. `vllm 0.32.0`; empty where it holds for all.
        accepted: Whether a baseline file accepts it; it then counts for nothing.
    """

    code: str
    name: str
    severity: Severity
    message: str
    location: Location = Location()
    hint: str = ""
    engine: str = ""
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """A rule that could not run: skipped is not passed.

    Attributes:
        code: Of the rule.
        name: Of the rule.
        reason: Why, and what would make it run.
    """

    code: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class EngineVerdict:
    """What one engine at one version does with the checkpoint.

    Attributes:
        engine: Name, e.g. `vllm`.
        version: The version asked for.
        runner: Model runner where they differ (`V1`, `V2`), else empty.
        verdict: `open` where the files allow readings that the engine would run differently.
        reasons: One sentence each, with its source; empty where it runs as trained.
    """

    engine: str
    version: str
    runner: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Validated:
    """The result for one checkpoint.

    Attributes:
        source: As the user named it.
        revision: Commit sha of a Hub source, else empty.
        layouts: Every layout the files can be; empty where they could not be read.
        producers: Every trainer that can have written them.
        variant: The variant in words, as far as it could be read.
        findings: Worst first.
        checks_run: Codes of the rules that ran.
        skipped: Rules that could not run.
        engines: One verdict for each engine (and runner) asked for.
        unreadable: Why nothing could be checked (one sentence); empty where it could. Exit code 3.
        hint: What to do about that.
    """

    source: str
    revision: str = ""
    layouts: tuple[str, ...] = ()
    producers: tuple[str, ...] = ()
    variant: str = ""
    findings: tuple[Finding, ...] = ()
    checks_run: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    engines: tuple[EngineVerdict, ...] = field(default_factory=tuple)
    unreadable: str = ""
    hint: str = ""

    def count(self, severity: Severity) -> int:
        """Count the findings of one severity that no baseline accepts."""
        return sum(1 for f in self.findings if f.severity == severity and not f.accepted)
