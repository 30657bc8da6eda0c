"""Words that every format of a validation shares, safe to print wherever they come from."""

from collections.abc import Sequence

from eagleconv.report.place import place_of
from eagleconv.rules.finding import SEVERITIES, EngineVerdict, Finding, Severity, Validated
from eagleconv.rules.outcome import Checked

_PLURALS: dict[Severity, str] = {"error": "errors", "warning": "warnings", "info": "infos"}


def visible(text: str) -> str:
    """Return one line in which nothing is hidden.

    Names of tensors and keys come from files of strangers: a newline in one could forge a line of
    a CI log, an escape sequence repaint a terminal, a control character break XML.
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )


def count(number: int, singular: str, plural: str = "") -> str:
    """Return `1 error`, `2 errors`."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def title(result: Validated) -> str:
    """Return what was checked, at which commit."""
    return visible(result.source + (f" at {result.revision}" if result.revision else ""))


def where(result: Validated, finding: Finding) -> str:
    """Return file and line, key or tensor, and engine of a finding."""
    at = finding.location
    parts = [place_of(result, finding).words] if at.file or at.key else []
    parts += [part for part in (at.key, at.tensor) if part]
    if finding.engine:
        parts.append(f"for {finding.engine}")
    return visible(" ".join(parts))


def engine_name(verdict: EngineVerdict) -> str:
    """Return engine, version and runner."""
    return visible(" ".join(filter(None, (verdict.engine, verdict.version, verdict.runner))))


def skips(result: Validated) -> list[str]:
    """Return a line for each reason, with the codes of the rules that were skipped for it."""
    codes: dict[str, list[str]] = {}
    for skipped in result.skipped:
        codes.setdefault(skipped.reason, []).append(skipped.code)
    return [f"{', '.join(found)}: {visible(reason)}" for reason, found in codes.items()]


def accepted(result: Validated) -> int:
    """Count the findings that a baseline accepts."""
    return sum(1 for finding in result.findings if finding.accepted)


def counted(result: Validated) -> str:
    """Return `2 errors, 1 warning`, worst first; `no findings` where there are none that count."""
    found = [(s, result.count(s)) for s in reversed(SEVERITIES)]
    said = [count(n, s, _PLURALS[s]) for s, n in found if n]
    if accepted(result):
        said.append(f"{accepted(result)} accepted")
    return ", ".join(said) or "no findings"


def last_line(results: Sequence[Validated]) -> str:
    """Return the sum of a run in one line."""
    found: list[str] = []
    for severity in reversed(SEVERITIES):
        number = sum(r.count(severity) for r in results)
        if number or severity != "info":
            found.append(count(number, severity, _PLURALS[severity]))
    known = sum(accepted(r) for r in results)
    if known:
        found.append(f"{known} accepted")
    run = sum(len(r.checks_run) for r in results)
    skipped = sum(len(r.skipped) for r in results)
    return f"{', '.join(found)}; {count(run, 'check')} run, {skipped} skipped"


def table(checked: Sequence[Checked]) -> list[tuple[str, ...]]:
    """Return one row for each checkpoint, under a row of titles."""
    rows: list[tuple[str, ...]] = [
        ("checkpoint", "errors", "warnings", "infos", "accepted", "run", "skipped", "")
    ]
    for c in checked:
        numbers = [c.result.count(s) for s in reversed(SEVERITIES)]
        numbers += [accepted(c.result), len(c.result.checks_run), len(c.result.skipped)]
        end = "not checked" if c.unchecked else "failed" if c.failed else "passed"
        rows.append((title(c.result), *map(str, numbers), end))
    return rows
