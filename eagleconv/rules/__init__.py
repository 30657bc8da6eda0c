"""All rules, in the order in which they are shown."""

from eagleconv.rules import (
    config,
    engine,
    files,
    layer_ids,
    pairing,
    positions,
    precision,
    tensors,
    vocabulary,
)
from eagleconv.rules.rule import Rule

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            *files.RULES,
            *config.RULES,
            *layer_ids.RULES,
            *tensors.RULES,
            *vocabulary.RULES,
            *positions.RULES,
            *precision.RULES,
            *engine.RULES,
            *pairing.RULES,
        ),
        key=lambda rule: ("FCTVRWQEP".index(rule.code[2]), rule.code),
    )
)
BY_CODE = {rule.code: rule for rule in RULES}

__all__ = ["BY_CODE", "RULES", "Rule"]
