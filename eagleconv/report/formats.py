"""The formats of a validation, by name."""

from collections.abc import Callable, Mapping

from eagleconv.report import (
    findings_github,
    findings_json,
    findings_junit,
    findings_markdown,
    findings_sarif,
    findings_text,
)
from eagleconv.report.validation import Validation

FORMATS: Mapping[str, Callable[[Validation], str]] = {
    "text": findings_text.render,
    "json": findings_json.render,
    "sarif": findings_sarif.render,
    "junit": findings_junit.render,
    "github": findings_github.render,
    "markdown": findings_markdown.render,
}
