"""Findings for people at a terminal: plain, aligned, and the same without colour."""

import click

from eagleconv.report.validation import Validation
from eagleconv.report.words import engine_name, last_line, skips, table, title, visible, where
from eagleconv.rules.finding import Finding, Severity, Validated, Verdict
from eagleconv.rules.outcome import Checked

_COLORS: dict[Severity, str] = {"error": "red", "warning": "yellow", "info": "cyan"}
_VERDICT_COLORS: dict[Verdict, str] = {
    "runs as trained": "green",
    "computes something else": "red",
    "refused": "red",
    "open": "yellow",
    "unverified": "yellow",
}
#: Where the text of a finding begins: after `  warning  `.
_INDENT = " " * 11


def render(run: Validation) -> str:
    """Return the report as text."""
    blocks = [_checkpoint(c, run.color) for c in run.checked]
    if len(run.checked) > 1:
        rows = table(run.checked)
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        blocks.append([_row(row, widths) for row in rows])
    blocks[-1].append(last_line([c.result for c in run.checked]))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _row(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [row[0].ljust(widths[0])]
    cells += [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
    return "  ".join((*cells, row[-1])).rstrip()


def _checkpoint(checked: Checked, color: bool) -> list[str]:
    result = checked.result
    lines = [_paint(title(result), color, bold=True)]
    for name, values in (
        ("variant", (result.variant,)),
        ("layout", result.layouts),
        ("producer", result.producers),
    ):
        if any(values):
            lines.append(f"  {name:9}{visible(' or '.join(values))}")
    lines += _engines(result, color)
    for finding in result.findings:
        lines += _finding(result, finding, color)
    lines += [f"  skipped  {line}" for line in skips(result)]
    if checked.unchecked:
        said = _paint("error", color, fg="red")
        lines.append(f"  {said}    not checked: {visible(checked.unchecked)}")
        if result.hint:
            lines.append(f"{_INDENT}hint: {visible(result.hint)}")
    return lines


def _engines(result: Validated, color: bool) -> list[str]:
    names = [engine_name(v) for v in result.engines]
    width = max(map(len, names), default=0)
    lines = []
    for name, verdict in zip(names, result.engines, strict=True):
        said = _paint(verdict.verdict, color, fg=_VERDICT_COLORS[verdict.verdict])
        lines.append(f"  engine   {name:{width}}  {said}")
        lines += [f"{_INDENT}{'':{width}}  {visible(reason)}" for reason in verdict.reasons]
    return lines


def _finding(result: Validated, finding: Finding, color: bool) -> list[str]:
    said = _paint(finding.severity, color, fg=_COLORS[finding.severity])
    known = "accepted: " if finding.accepted else ""
    gap = " " * (9 - len(finding.severity))
    lines = [f"  {said}{gap}{known}{finding.code} {finding.name}: {visible(finding.message)}"]
    at = where(result, finding)
    if at:
        lines.append(f"{_INDENT}at {at}" if not at.startswith("for ") else f"{_INDENT}{at}")
    if finding.hint:
        lines.append(f"{_INDENT}hint: {visible(finding.hint)}")
    return lines


def _paint(text: str, color: bool, fg: str | None = None, bold: bool | None = None) -> str:
    return click.style(text, fg=fg, bold=bold) if color else text
