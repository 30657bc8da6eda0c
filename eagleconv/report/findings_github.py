"""Findings as workflow commands, which GitHub shows beside the lines they are about."""

from eagleconv.report.place import place_of
from eagleconv.report.validation import Validation
from eagleconv.report.words import last_line, skips, title, visible
from eagleconv.rules.finding import SEVERITIES, Finding, Severity, Validated

_COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice"}


def data(text: str) -> str:
    """Return text that the runner reads as the message of a command."""
    return visible(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def property_value(text: str) -> str:
    """Return text that the runner reads as a property of a command."""
    return data(text).replace(":", "%3A").replace(",", "%2C")


def render(run: Validation) -> str:
    """Return one command for each finding, worst first: GitHub shows ten of each kind only."""
    lines = []
    for c in run.checked:
        if c.unchecked:
            said = f"{c.result.source} was not checked: {c.unchecked}"
            lines.append(f"::error title=eagleconv::{data(said)}")
    found = [(c.result, finding) for c in run.checked for finding in c.result.findings]
    found.sort(key=lambda pair: (pair[1].accepted, -SEVERITIES.index(pair[1].severity)))
    lines += [_command(result, finding) for result, finding in found]
    # Plain lines of the log: an annotation for every skipped check would hide the findings.
    for c in run.checked:
        lines += [f"{title(c.result)}: skipped {line}" for line in skips(c.result)]
    lines.append(last_line([c.result for c in run.checked]))
    return "\n".join(lines) + "\n"


def _command(result: Validated, finding: Finding) -> str:
    place = place_of(result, finding)
    command = "notice" if finding.accepted else _COMMANDS[finding.severity]
    heading = f"{finding.code} {finding.name}" + (" (accepted)" if finding.accepted else "")
    properties = [f"file={property_value(place.path)}"]
    if place.line:
        properties.append(f"line={place.line}")
    properties.append(f"title={property_value(heading)}")
    message = finding.message
    if finding.engine:
        message += f" (for {finding.engine})"
    if finding.hint:
        message += f"\n{finding.hint}"
    return f"::{command} {','.join(properties)}::{data(message)}"
