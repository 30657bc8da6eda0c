"""The command line: parse, call, render, exit. Commands are imported when they are called."""

import os
import signal
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any, NoReturn

import click

from eagleconv import __version__
from eagleconv.errors import ConversionError, EagleconvError, OpenQuestions

#: Command -> its one-line help; the module of the same name holds `command`.
COMMANDS = {
    "inspect": "What is this checkpoint, really?",
    "upgrade": "Write it in the EAGLE 3.1 layout, computing what it computed.",
    "validate": "Will an engine run it as it was trained?",
    "rules": "What does validate check, and why?",
    "engines": "What does each engine run as it was trained, and since when?",
    "match": "Is this the drafter of this target?",
    "fingerprint": "Write down what identifies a target.",
    "smoke": "Does it draft well? Run drafter and target, and count.",
    "doctor": "Why is acceptance low: which reading do the weights want?",
    "diff": "What differs between two checkpoints, by meaning?",
    "verify": "Hold an output of eagleconv against its eagleconv.json.",
}


class Lazy(click.Group):
    """A group whose commands are imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import one command."""
        if name not in COMMANDS:
            return None
        found: click.Command = import_module(f"eagleconv.cli.{name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="eagleconv")
@click.option("--debug", is_flag=True, help="Show a traceback where something fails.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Read, check and upgrade EAGLE drafters, without changing what they compute.

    SOURCE is a local directory, org/name, or hf://org/name@revision; an existing path wins.

    \b
    Exit codes: 0 fine, 1 findings or a mismatch, 2 usage, 3 input cannot be read or is no
    drafter, 4 conversion or verification failed (no output is left), 5 something optional
    is missing, 130 interrupted.
    """
    ctx.obj = debug


def _terminated(number: int, frame: Any) -> NoReturn:
    raise SystemExit(128 + number)


def main() -> NoReturn:
    """Run a command and exit with the code of the contract."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _terminated)
    debug = "--debug" in sys.argv[1:] or bool(os.environ.get("EAGLECONV_DEBUG"))
    try:
        code = cli.main(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted; nothing is left behind", err=True)
        code = 130
    except EagleconvError as error:
        if debug:
            raise
        click.echo(f"error: {error.message}", err=True)
        for line in error.questions if isinstance(error, OpenQuestions) else ():
            click.echo(f"  ? {line}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        code = error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except Exception as error:
        # A defect of this tool; the writer has removed its work on the way here.
        if debug:
            raise
        click.echo(f"error: unexpected {type(error).__name__}: {error}", err=True)
        click.echo("hint: run again with --debug and report this", err=True)
        code = ConversionError.exit_code
    raise SystemExit(code if isinstance(code, int) else 0)
