"""Which rules a user means: codes, beginnings of codes, and names."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from eagleconv.errors import UsageError
from eagleconv.rules.rule import Rule


def split(values: Iterable[str]) -> tuple[str, ...]:
    """Return the selectors in values that may each hold several, separated by commas."""
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def resolve(selectors: Sequence[str], rules: Sequence[Rule]) -> tuple[str, ...]:
    """Return the codes that selectors stand for, in the order of the rules.

    Args:
        selectors: Codes (`ECC003`), beginnings of codes (`ECV`), or names, in any case.
        rules: All rules.

    Raises:
        UsageError: A selector stands for no rule; the hint is the closest one that does.
    """
    chosen: set[str] = set()
    for selector in selectors:
        code, name = selector.upper(), selector.lower()
        # One letter, or the two that all codes share, would select by accident.
        found = {r.code for r in rules if r.name == name or (len(code) > 2 and _begins(r, code))}
        if not found:
            raise UsageError(f"{selector!r} is no rule", _closest(selector, rules))
        chosen |= found
    return tuple(r.code for r in rules if r.code in chosen)


def one(selector: str, rules: Sequence[Rule]) -> Rule:
    """Return the rule with a code or a name.

    Raises:
        UsageError: There is none; the hint is the closest one.
    """
    for rule in rules:
        if selector.lower() in (rule.code.lower(), rule.name):
            return rule
    raise UsageError(f"{selector!r} is no rule", _closest(selector, rules))


def _begins(rule: Rule, code: str) -> bool:
    return rule.code.startswith(code)


def _closest(selector: str, rules: Sequence[Rule]) -> str:
    words = [word for r in rules for word in (r.code, r.name, r.code[:3])]
    known = {word.lower(): word for word in words}
    near = get_close_matches(selector.lower(), known, n=1, cutoff=0.5)
    listed = "`eagleconv rules` lists them all"
    return f"did you mean {known[near[0]]}? {listed}" if near else listed
