"""What a rule is: a code, a name, a severity and a page. All data."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from eagleconv.rules.finding import Severity


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        code: `EC` and a letter for its topic (F files, C config, T tensors, V vocabulary map,
            R positions and rope, W attention window, Q precision and quantisation, E engine,
            P pairing with a target), and three digits. Never reused.
        name: Kebab-case; works wherever the code works.
        severity: Default severity.
        what: What it checks, in one or two sentences.
        why: Why it matters, with the public report (a link) where there is one.
        example: A small piece of config or tensor listing that triggers it.
        fix: How to fix it.
        flag: Flag or mode of `eagleconv upgrade` that fixes it; empty where none does.
        engine_severity: Engine name -> severity where the engine was asked for.
        needs: What it cannot run without: `target`, `engine`, `weights` (--deep).
    """

    code: str
    name: str
    severity: Severity
    what: str
    why: str
    example: str
    fix: str
    flag: str = ""
    engine_severity: Mapping[str, Severity] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
