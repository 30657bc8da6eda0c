"""Findings as SARIF 2.1.0, for code scanning."""

import hashlib
from typing import Any
from urllib.parse import quote

from eagleconv import __version__
from eagleconv.report.findings_json import as_text
from eagleconv.report.place import Place, place_of
from eagleconv.report.rule_page import REPOSITORY, page, page_url
from eagleconv.report.validation import Validation
from eagleconv.report.words import title
from eagleconv.rules.finding import Finding, Severity, Validated
from eagleconv.rules.rule import Rule

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}


def render(run: Validation) -> str:
    """Return one SARIF run for all checkpoints."""
    index = {rule.code: i for i, rule in enumerate(run.rules)}
    unchecked = [c for c in run.checked if c.unchecked]
    notes = [_notification("error", f"{title(c.result)}: {c.unchecked}") for c in unchecked]
    for c in run.checked:
        for skipped in c.result.skipped:
            note = _notification(
                "note",
                f"{title(c.result)}: {skipped.code} {skipped.name} skipped: {skipped.reason}",
            )
            if skipped.code in index:
                note["associatedRule"] = {"id": skipped.code, "index": index[skipped.code]}
            notes.append(note)
    sarif_run = {
        "tool": {
            "driver": {
                "name": "eagleconv",
                "version": __version__,
                "semanticVersion": __version__,
                "informationUri": REPOSITORY,
                "rules": [_rule(rule) for rule in run.rules],
            }
        },
        "invocations": [
            {"executionSuccessful": not unchecked, "toolExecutionNotifications": notes}
        ],
        "results": [
            _result(c.result, finding, index, run.baseline)
            for c in run.checked
            for finding in c.result.findings
        ],
        "columnKind": "unicodeCodePoints",
        "properties": {"engines": _engines(run)},
    }
    return as_text({"$schema": _SCHEMA, "version": "2.1.0", "runs": [sarif_run]})


def _notification(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": {"text": text}}


def _engines(run: Validation) -> dict[str, Any]:
    """SARIF has no word for a verdict: they are in the property bag, by checkpoint."""
    return {
        c.result.source: [
            {
                "engine": v.engine,
                "version": v.version,
                "runner": v.runner,
                "verdict": v.verdict,
                "reasons": list(v.reasons),
            }
            for v in c.result.engines
        ]
        for c in run.checked
        if c.result.engines
    }


def _rule(rule: Rule) -> dict[str, Any]:
    text = page(rule)
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.what.split(". ")[0].rstrip(".") + "."},
        "fullDescription": {"text": f"{rule.what} {rule.why}"},
        "help": {"text": text, "markdown": text},
        "helpUri": page_url(rule),
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(
    result: Validated, finding: Finding, index: dict[str, int], baseline: str
) -> dict[str, Any]:
    place = place_of(result, finding)
    text = finding.message + (f" (for {finding.engine})" if finding.engine else "")
    identity = _identity(finding)
    found: dict[str, Any] = {
        "ruleId": finding.code,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{text}\n{finding.hint}".rstrip()},
        "locations": [_location(finding, place)],
        # GitHub reads the second name only. It would hash the line, and take two findings of one
        # rule that share a line, or have none, for the same.
        "partialFingerprints": {"eagleconv/v1": identity, "primaryLocationLineHash": identity},
        "properties": {"source": result.source, "engine": finding.engine},
    }
    if finding.code in index:
        found["ruleIndex"] = index[finding.code]
    if finding.accepted:
        why = f"accepted by {baseline}" if baseline else "accepted by a baseline"
        found["suppressions"] = [{"kind": "external", "status": "accepted", "justification": why}]
    return found


def _location(finding: Finding, place: Place) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(place.path)},
            # GitHub asks for a line in every result, DefectDojo fails without: 1 is the whole file.
            "region": {"startLine": place.line or 1},
        }
    }
    at = finding.location
    names = [(at.tensor, "tensor"), (at.key, "key")]
    logical = [{"fullyQualifiedName": name, "kind": kind} for name, kind in names if name]
    if logical:
        location["logicalLocations"] = logical
    return location


def _uri(path: str) -> str:
    quoted = quote(path.encode("utf-8", "surrogateescape"))
    return f"file://{quoted}" if path.startswith("/") else quoted


def _identity(finding: Finding) -> str:
    """Return what stays the same from run to run: the file is added by whoever compares."""
    at = finding.location
    parts = (finding.code, finding.engine, at.file, at.tensor, at.key, finding.message)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()
