"""All that a run of `validate` has to say, before it is in any format."""

from dataclasses import dataclass

from eagleconv.rules.outcome import Checked
from eagleconv.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class Validation:
    """A run of `validate`.

    Attributes:
        checked: One for each checkpoint, in the order they were named.
        rules: All rules, whether they ran or not.
        baseline: The file that accepts findings, or empty.
        color: Whether text may be coloured.
    """

    checked: tuple[Checked, ...]
    rules: tuple[Rule, ...]
    baseline: str = ""
    color: bool = False

    def name(self, code: str) -> str:
        """Return the name of the rule with a code."""
        return next((rule.name for rule in self.rules if rule.code == code), "")
