"""Findings in markdown, for the summary of a job or a comment on a pull request."""

import re

from eagleconv.report.rule_page import page_url
from eagleconv.report.validation import Validation
from eagleconv.report.words import (
    count,
    counted,
    engine_name,
    last_line,
    skips,
    table,
    title,
    visible,
    where,
)
from eagleconv.rules.finding import Finding, Severity, Validated
from eagleconv.rules.outcome import Checked

_SIGNS: dict[Severity, str] = {"error": "❌", "warning": "⚠️", "info": "ℹ️"}  # noqa: RUF001
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")


def escaped(text: str) -> str:
    """Return text that markdown shows as it is, in a table too."""
    return _SPECIAL.sub(r"\\\1", visible(text).replace("&", "&amp;"))


def code(text: str) -> str:
    """Return text as code, in a table too."""
    shown = visible(text).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    pad = " " if "`" in shown else ""
    return f"{fence}{pad}{shown}{pad}{fence}" if shown else ""


def render(run: Validation) -> str:
    """Return the report as markdown."""
    results = [c.result for c in run.checked]
    blocks = [f"## eagleconv validate: {last_line(results)}"]
    if len(results) > 1:
        blocks.append(_overview(run.checked))
    for checked in run.checked:
        blocks += _checkpoint(checked, run)
    return "\n\n".join(blocks) + "\n"


def _overview(checked: tuple[Checked, ...]) -> str:
    (first, *rows) = table(checked)
    lines = [_row(first), "|---|" + "--:|" * (len(first) - 2) + "---|"]
    lines += [_row((code(row[0]), *row[1:])) for row in rows]
    return "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _checkpoint(checked: Checked, run: Validation) -> list[str]:
    result = checked.result
    said = "not checked" if checked.unchecked else counted(result)
    blocks = [f"### {code(title(result))}: {said}"]
    about = [result.variant, " or ".join(result.layouts), " or ".join(result.producers)]
    if any(about):
        blocks.append("; ".join(escaped(text) for text in about if text))
    if checked.unchecked:
        hint = f" {escaped(result.hint)}" if result.hint else ""
        blocks.append(f"❌ {escaped(checked.unchecked)}.{hint}")
    if result.engines:
        blocks.append(_engines(result))
    if result.findings:
        lines = ["| | rule | finding | where |", "|---|---|---|---|"]
        lines += [_finding(result, finding, run) for finding in result.findings]
        blocks.append("\n".join(lines))
    if result.skipped:
        # A blank line after the summary, or GitHub does not read the list as markdown.
        skipped = [f"- {escaped(line)}" for line in skips(result)]
        number = count(len(result.skipped), "check")
        summary = f"<details><summary>{number} skipped</summary>"
        blocks.append("\n".join((summary, "", *skipped, "", "</details>")))
    return blocks


def _engines(result: Validated) -> str:
    lines = ["| engine | verdict | why |", "|---|---|---|"]
    for verdict in result.engines:
        why = "<br>".join(escaped(reason) for reason in verdict.reasons)
        lines.append(_row((escaped(engine_name(verdict)), verdict.verdict, why)))
    return "\n".join(lines)


def _finding(result: Validated, finding: Finding, run: Validation) -> str:
    url = next((page_url(rule) for rule in run.rules if rule.code == finding.code), "")
    name = f"{finding.code} {finding.name}"
    sign = "accepted" if finding.accepted else f"{_SIGNS[finding.severity]} {finding.severity}"
    message = escaped(finding.message)
    if finding.hint:
        message += f"<br>{escaped(finding.hint)}"
    rule = f"[{name}]({url})" if url else name
    return _row((sign, rule, message, code(where(result, finding))))
