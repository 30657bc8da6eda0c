"""A match in text, markdown and JSON."""

from typing import Any

from eagleconv import __version__
from eagleconv.target.match import Matched
from eagleconv.target.verdict import LEVELS, Level

_SEVERITY = {"different": "error", "harmless": "warning"}
_MARKS = {"equal": "✓", "harmless": "~", "different": "✗", "unknown": "?"}
_MEANING = {
    "match": "this is the target the drafter was made for",
    "compatible": "all that could be checked fits",
    "mismatch": "this is not the target the drafter was made for",
    "unknown": "nothing could be checked",
}


def as_lines(found: Matched) -> str:
    """Return a line for each sentence, and the verdict with what would settle it."""
    width = max(len(level.name) for level in found.levels)
    lines = [f"{found.drafter} with {_named(found)}"]
    for level in found.levels:
        for number, sentence in enumerate(level.sentences):
            head = f"{level.name:{width}}  {level.verdict:9}" if number == 0 else " " * (width + 11)
            lines.append(f"  {head}  {sentence}")
    lines.append(f"{found.verdict}: {_MEANING[found.verdict]}")
    lines += [f"  but {sentence}" for sentence in found.open]
    return "\n".join(lines) + "\n"


def as_markdown(found: Matched) -> str:
    """Return a table, for the summary of a job."""
    lines = [
        f"## eagleconv match: {found.verdict}",
        "",
        f"`{found.drafter}` with `{_named(found)}`: {_MEANING[found.verdict]}.",
        "",
        "| level | | what was found |",
        "|---|---|---|",
    ]
    for level in found.levels:
        text = "<br>".join(s.replace("|", "\\|") for s in level.sentences)
        lines.append(f"| {level.name} | {_MARKS[level.verdict]} {level.verdict} | {text} |")
    if found.open:
        lines += ["", *(f"- {sentence}" for sentence in found.open)]
    return "\n".join(lines) + "\n"


def as_json(found: Matched) -> dict[str, Any]:
    """Return the report of `match` (schemas/report.schema.json)."""
    findings = [_finding(level) for level in found.levels if level.verdict in _SEVERITY]
    return {
        "schema_version": 1,
        "tool": {"name": "eagleconv", "version": __version__},
        "subject": {
            "source": found.drafter,
            "revision": found.drafter_revision,
            "layout": list(found.layouts),
            "variant": found.variant,
        },
        "target": {
            "source": found.target,
            "revision": found.target_revision,
            "verdict": found.verdict,
            "open": list(found.open),
            "levels": [
                {
                    "code": LEVELS[level.name][0],
                    "name": level.name,
                    "verdict": level.verdict,
                    "sentences": list(level.sentences),
                    "evidence": level.evidence,
                }
                for level in found.levels
            ],
        },
        "findings": findings,
        "summary": {
            "errors": sum(f["severity"] == "error" for f in findings),
            "warnings": sum(f["severity"] == "warning" for f in findings),
            "infos": 0,
            "checks_run": sum(level.verdict != "unknown" for level in found.levels),
            "checks_skipped": [
                {
                    "code": LEVELS[level.name][0],
                    "name": _slug(level),
                    "reason": "; ".join(level.sentences),
                }
                for level in found.levels
                if level.verdict == "unknown"
            ],
        },
    }


def _finding(level: Level) -> dict[str, Any]:
    return {
        "code": LEVELS[level.name][0],
        "name": _slug(level),
        "severity": _SEVERITY[level.verdict],
        "message": f"{level.name}: {'; '.join(level.sentences)}",
        "location": {},
        "hint": "",
    }


def _slug(level: Level) -> str:
    return f"target-{level.name.replace(' ', '-')}"


def _named(found: Matched) -> str:
    at = found.target_revision[:12]
    return f"{found.target} at {at}" if at else found.target
