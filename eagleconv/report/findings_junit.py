"""Findings as JUnit XML: a suite for each checkpoint, a case for each rule."""

from xml.etree import ElementTree

from eagleconv.report.validation import Validation
from eagleconv.report.words import engine_name, title, visible, where
from eagleconv.rules.finding import Finding, Validated
from eagleconv.rules.outcome import Checked


def render(run: Validation) -> str:
    """Return the report as XML; a skipped rule is skipped, never passed."""
    suites = [_suite(c, run) for c in run.checked]
    root = ElementTree.Element("testsuites", name="eagleconv validate")
    for key in ("tests", "failures", "errors"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in suites)))
    root.extend(suites)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _suite(checked: Checked, run: Validation) -> ElementTree.Element:
    result = checked.result
    name = title(result)
    cases: dict[str, ElementTree.Element] = {}
    for code in sorted({*result.checks_run, *(finding.code for finding in result.findings)}):
        found = tuple(finding for finding in result.findings if finding.code == code)
        known = run.name(code) or (found[0].name if found else "")
        cases[code] = _case(checked, f"{code} {known}", found)
    for skipped in result.skipped:
        case = ElementTree.Element(
            "testcase", classname=name, name=f"{skipped.code} {skipped.name}"
        )
        ElementTree.SubElement(case, "skipped", message=visible(skipped.reason))
        cases.setdefault(skipped.code, case)
    listed = [cases[code] for code in sorted(cases)]
    if checked.unchecked:
        case = ElementTree.Element("testcase", classname=name, name="can be checked")
        said = visible(checked.unchecked)
        ElementTree.SubElement(case, "error", message=said, type="unchecked").text = visible(
            result.hint
        )
        listed.insert(0, case)
    suite = ElementTree.Element("testsuite", name=name, tests=str(len(listed)))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(sum(1 for case in listed if case.find(tag) is not None)))
    suite.append(_properties(result))
    suite.extend(listed)
    return suite


def _properties(result: Validated) -> ElementTree.Element:
    """What was checked, and each engine's verdict."""
    found = [
        ("variant", result.variant),
        ("layout", " or ".join(result.layouts)),
        ("producer", " or ".join(result.producers)),
    ]
    for verdict in result.engines:
        found.append((engine_name(verdict), ": ".join((verdict.verdict, *verdict.reasons))))
    element = ElementTree.Element("properties")
    for key, value in found:
        if value:
            ElementTree.SubElement(element, "property", name=key, value=visible(value))
    return element


def _case(checked: Checked, name: str, found: tuple[Finding, ...]) -> ElementTree.Element:
    """Return the case of a rule that ran.

    A finding that fails the run fails the case; one below --fail-on, or accepted, is its output.
    GitLab shows the first failure of a case only: all are in one.
    """
    case = ElementTree.Element("testcase", classname=title(checked.result), name=name)
    failing = [finding for finding in found if checked.fails(finding)]
    passing = [finding for finding in found if not checked.fails(finding)]
    if failing:
        more = f" (and {len(failing) - 1} more)" if len(failing) > 1 else ""
        failure = ElementTree.SubElement(
            case,
            "failure",
            type=failing[0].severity,
            message=visible(failing[0].message) + more,
        )
        failure.text = "\n".join(_lines(checked.result, finding) for finding in failing)
    if passing:
        output = ElementTree.SubElement(case, "system-out")
        output.text = "\n".join(_lines(checked.result, finding) for finding in passing)
    return case


def _lines(result: Validated, finding: Finding) -> str:
    known = "accepted " if finding.accepted else ""
    lines = [f"{known}{finding.severity}: {visible(finding.message)}"]
    at = where(result, finding)
    if at:
        lines.append(f"  at {at}")
    if finding.hint:
        lines.append(f"  hint: {visible(finding.hint)}")
    return "\n".join(lines)
