"""Options by which a user says what the weights were trained with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eagleconv.errors import SourceError, UsageError

if TYPE_CHECKING:
    from eagleconv.drafter.declared import Declared

_OPTIONS = (
    click.option("--aux-layers", metavar="IDS|default", help="Boundaries, as 2,16,29."),
    click.option("--norm-output-meaning", type=click.Choice(["feedback", "head"])),
    click.option("--norm-before-residual", type=click.BOOL, metavar="BOOL"),
    click.option("--rope-theta", type=float, metavar="BASE"),
    click.option("--rope-scaling", metavar="JSON", help="'{}' for none."),
    click.option("--partial-rotary-factor", type=float, metavar="F"),
    click.option("--mask-token-id", type=int, metavar="ID"),
    click.option("--attention-window", type=int, metavar="N", help="0 for full attention."),
    click.option("--d2t-meaning", type=click.Choice(["offset", "absolute"])),
)
_Command = TypeVar("_Command", bound=Callable[..., Any])


def declarations(command: _Command) -> _Command:
    """Add the options to a command; it gets them as keyword arguments for `declared`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def declared(rope_scaling: str | None = None, **facts: Any) -> Declared:
    """Return what was declared.

    Raises:
        UsageError: No drafter can have been trained so.
    """
    from eagleconv.checkpoint.json_file import load_object
    from eagleconv.drafter.declared import Declared

    scaling = None
    if rope_scaling is not None:
        try:
            scaling = load_object(rope_scaling.encode(), "--rope-scaling")
        except SourceError as error:
            raise UsageError(error.message, "for instance '{}' for none") from None
    return Declared(rope_scaling=scaling, **facts)
