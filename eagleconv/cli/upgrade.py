"""`eagleconv upgrade`."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from eagleconv.checkpoint.uninterrupted import STOPS
from eagleconv.cli.declared import declarations, declared
from eagleconv.errors import UsageError


@contextmanager
def progress() -> Iterator[Callable[[int], None] | None]:
    """Count bytes on stderr, on a terminal only."""
    stream = sys.stderr
    if not stream.isatty():
        yield None
        return
    done = shown = 0

    def tick(count: int) -> None:
        nonlocal done, shown
        done += count
        if done - shown >= 1 << 28:
            shown = done
            stream.write(f"\r{done / 1e9:.1f} GB written")
            stream.flush()

    yield tick
    if shown:
        stream.write("\r\033[K")


def too_late() -> None:
    """Stop listening to Ctrl-C: the output is whole, and the exit code must say so."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)


@click.command()
@click.argument("source")
@click.option("-o", "--output", metavar="OUT", help="Default: SOURCE-3.1-layout, beside it.")
@click.option("--mode", type=click.Choice(["layout"]), default="layout", show_default=True)
@click.option("--target", metavar="T", help="Target: a directory, config.json or Hub id.")
@click.option("--dry-run", is_flag=True, help="Show the edits and write nothing.")
@declarations
def command(
    source: str,
    output: str | None,
    mode: str,
    target: str | None,
    dry_run: bool,
    **facts: Any,
) -> None:
    """Write SOURCE in the EAGLE 3.1 layout; every tensor keeps every bit.

    The options below --dry-run declare what the weights were trained with, where the files leave
    it open.

    \b
    Examples:
      eagleconv upgrade ./eagle3-ckpt
      eagleconv upgrade ./eagle3-ckpt --target ./target -o ./eagle3.1
    """
    import eagleconv
    from eagleconv.report.upgraded import as_lines

    if output == "":
        raise UsageError("-o is empty", "give the directory to write")
    with progress() as tick:
        done = eagleconv.upgrade(
            source,
            output,
            target=target,
            declared=declared(**facts),
            dry_run=dry_run,
            progress=tick,
            on_written=too_late,
        )
    try:
        click.echo(as_lines(done), nl=False)
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError) as error:
        # The output is whole; that its account could not be printed does not undo it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        click.echo(f"{done.destination} is written; its account is not: {error}", err=True)
