"""The page of a rule, and the index of all: docs/rules/, `eagleconv rules`, and SARIF's help."""

import re
from collections.abc import Sequence
from typing import Any

from eagleconv import __version__
from eagleconv.rules.rule import Rule

REPOSITORY = "https://github.com/eagleconv/eagleconv"
_TOPICS = {
    "ECF": "Files",
    "ECC": "Config",
    "ECT": "Tensors",
    "ECV": "Vocabulary map",
    "ECR": "Positions and rope",
    "ECW": "Attention window",
    "ECQ": "Precision and quantisation",
    "ECE": "Engines",
    "ECP": "Pairing with a target",
}
_NEEDS = {
    "target": "`--target`",
    "target weights": "`--target` with its weights",
    "engine": "`--engine`",
    "deep": "`--deep`",
    "context length": "`--context-length`",
}

_CALL = re.compile(r"(upgrade(?: --[a-z-]+)*)(.*)")


def page_url(rule: Rule) -> str:
    """Return where the page of a rule is published."""
    return f"{REPOSITORY}/blob/main/docs/rules/{rule.code}.md"


def needs_words(rule: Rule) -> str:
    """Return the options without which a rule is skipped; empty where it always runs."""
    return " and ".join(_NEEDS.get(need, f"`{need}`") for need in rule.needs)


def page(rule: Rule) -> str:
    """Return the page of a rule."""
    lines = [f"# {rule.name} ({rule.code})", ""]
    severity = f"Severity: **{rule.severity}**"
    if rule.engine_severity:
        others = [f"{s} for {engine}" for engine, s in sorted(rule.engine_severity.items())]
        severity += f" ({', '.join(others)})"
    lines.append(f"{severity}.")
    if rule.needs:
        lines.append(f"Runs with {needs_words(rule)}; it is skipped, and says so, without.")
    for heading, text in (
        ("What it checks", rule.what),
        ("Why it matters", rule.why),
        ("Example", rule.example),
        ("How to fix it", rule.fix),
    ):
        lines += ["", f"## {heading}", "", text]
    if rule.flag:
        lines += ["", _upgrade(rule.flag)]
    lines += [
        "",
        "## How to accept it",
        "",
        f"`--ignore {rule.code}`, or a baseline: `--write-baseline FILE`, then `--baseline FILE`.",
    ]
    return "\n".join(lines) + "\n"


def _upgrade(flag: str) -> str:
    """Say which call of `upgrade` fixes it."""
    call = _CALL.match(flag)
    if call is None:
        return f"`eagleconv upgrade` takes {', '.join(f'`{part}`' for part in flag.split(', '))}."
    return f"`eagleconv {call[1]}` does it{call[2]}."


def index(rules: Sequence[Rule], folder: str = "") -> str:
    """Return the table of all rules, by topic.

    Args:
        rules: All rules.
        folder: Prefix of the links to their pages.
    """
    lines = [
        "# Rules",
        "",
        "What `eagleconv validate` checks. Each rule has a code and a name; both are stable, and both work in",
        "`--select` and `--ignore`, as does the beginning of a code (`ECV`).",
    ]
    for letter in dict.fromkeys(rule.code[:3] for rule in rules):
        lines += ["", f"## {_TOPICS.get(letter, letter)} ({letter})", ""]
        lines += ["| code | name | severity | what it checks | needs |", "|---|---|---|---|---|"]
        for rule in rules:
            if rule.code.startswith(letter):
                what = rule.what.replace("|", "\\|")
                link = f"[{rule.code}]({folder}{rule.code}.md)"
                cells = (link, rule.name, rule.severity, what, needs_words(rule))
                lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def as_rows(rules: Sequence[Rule]) -> str:
    """Return the table of all rules as text."""
    width = max(len(rule.name) for rule in rules)
    lines = [
        f"{rule.code}  {rule.name:{width}}  {rule.severity:7}  {needs_words(rule).replace('`', '')}"
        for rule in rules
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def as_json(rules: Sequence[Rule]) -> dict[str, Any]:
    """Return rules for programs (schemas/rules.schema.json)."""
    return {
        "schema_version": 1,
        "tool": {"name": "eagleconv", "version": __version__},
        "rules": [
            {
                "code": rule.code,
                "name": rule.name,
                "severity": rule.severity,
                "engine_severity": dict(rule.engine_severity),
                "needs": list(rule.needs),
                "what": rule.what,
                "why": rule.why,
                "example": rule.example,
                "fix": rule.fix,
                "flag": rule.flag,
                "url": page_url(rule),
            }
            for rule in rules
        ],
    }
