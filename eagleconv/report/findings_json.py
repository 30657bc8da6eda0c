"""Findings for programs (schemas/report.schema.json)."""

import json
from dataclasses import asdict
from typing import Any

from eagleconv import __version__
from eagleconv.report.validation import Validation
from eagleconv.report.words import accepted
from eagleconv.rules.outcome import Checked


def head() -> dict[str, Any]:
    """Return what every JSON report begins with."""
    return {"schema_version": 1, "tool": {"name": "eagleconv", "version": __version__}}


def as_text(value: Any) -> str:
    """Return JSON that any file can hold: half a surrogate pair (of a file name) stays an escape."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n"


def render(run: Validation) -> str:
    """Return the report of one checkpoint, or a list of reports."""
    reports = [_report(checked) for checked in run.checked]
    return as_text(head() | (reports[0] if len(reports) == 1 else {"reports": reports}))


def _report(checked: Checked) -> dict[str, Any]:
    result = checked.result
    reason = checked.unchecked
    return {
        "subject": {
            "source": result.source,
            "revision": result.revision,
            "layout": list(result.layouts),
            "producers": list(result.producers),
            "variant": result.variant,
        },
        "unchecked": {"reason": reason, "hint": result.hint} if reason else None,
        "engines": [asdict(v) | {"reasons": list(v.reasons)} for v in result.engines],
        "findings": [asdict(finding) for finding in result.findings],
        "summary": {
            "errors": result.count("error"),
            "warnings": result.count("warning"),
            "infos": result.count("info"),
            "accepted": accepted(result),
            "checks_run": len(result.checks_run),
            "checks_skipped": [asdict(skipped) for skipped in result.skipped],
        },
    }
