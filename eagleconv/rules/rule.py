"""What a rule is: a code, a name, a severity and a page. All data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eagleconv.rules.finding import Severity

if TYPE_CHECKING:
    from eagleconv.rules.subject import Subject


@dataclass(frozen=True, slots=True)
class Hit:
    """What a check saw, before it becomes a finding.

    Attributes:
        message: One sentence: what, where, what was expected.
        hint: What to do.
        file: Relative to the checkpoint; config.json where a key is given.
        tensor: Stored name of a tensor, or empty.
        key: Dotted config key, or empty.
        engine: The engine it holds for, or empty.
        severity: Where it is not the rule's own.
    """

    message: str
    hint: str = ""
    file: str = ""
    tensor: str = ""
    key: str = ""
    engine: str = ""
    severity: Severity | None = None


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
        needs: What it cannot run without: `target`, `target weights`, `engine`, `deep`,
            `context length`.
        check: Looks at a subject; None where the reader of checkpoints (`drafter/`) finds it.
        unread: Sections of the reader (`drafter/config_facts.py`) without which it has not looked.
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
    check: Callable[[Subject], Iterable[Hit]] | None = None
    unread: tuple[str, ...] = ()
