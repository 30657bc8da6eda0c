"""Write the generated parts of README.md: the help text of every command.

    python docs/build.py            # write them
    python docs/build.py --check    # say whether they are current; exit 1 where they are not

A block stands between `<!-- help: NAME -->` and `<!-- /help -->`, and is what a terminal of 80 columns
shows, whatever the terminal is.
"""

import argparse
import re
import sys
from pathlib import Path

import click

from eagleconv.cli.main import COMMANDS, cli

#: click leaves the last two of 80 columns empty.
WIDTH = 78
README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"(<!-- help: (\w+) -->\n).*?(<!-- /help -->)", re.DOTALL)


def help_text(name: str) -> str:
    """Return what `eagleconv NAME --help` prints on 80 columns."""
    group = click.Context(cli, info_name="eagleconv", terminal_width=WIDTH, **cli.context_settings)
    command = cli.get_command(group, name)
    if command is None:
        raise SystemExit(f"README.md has a help block for {name!r}, which is no command")
    return command.get_help(click.Context(command, info_name=name, parent=group))


def build(text: str) -> str:
    """Return the text of the README with every help block made anew.

    Raises:
        SystemExit: A command has no block, or a block has no command.
    """
    missing = COMMANDS.keys() - {match[2] for match in BLOCK.finditer(text)}
    if missing:
        wanted = ", ".join(f"<!-- help: {name} -->" for name in sorted(missing))
        raise SystemExit(f"README.md lacks a block for every command: add {wanted}")

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}```text\n{help_text(match[2]).rstrip()}\n```\n{match[3]}"

    return BLOCK.sub(block, text)


def main() -> None:
    """Write README.md, or compare."""
    parser = argparse.ArgumentParser(description="Write the generated parts of README.md.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    before = README.read_text(encoding="utf-8")
    after = build(before)
    if after == before:
        return
    if check:
        sys.exit("README.md is not current: run `python docs/build.py`")
    README.write_text(after, encoding="utf-8")
    print("README.md is written anew")


if __name__ == "__main__":
    main()
