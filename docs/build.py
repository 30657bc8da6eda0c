"""Write the generated documentation: help texts in README.md, a page for every rule, engines.md.

    python docs/build.py            # write them
    python docs/build.py --check    # say whether they are current; exit 1 where they are not

A block stands between `<!-- help: NAME -->` and `<!-- /help -->`, and is what a terminal of 80 columns
shows, whatever the terminal is. `docs/rules/` holds nothing else than the pages and their index.
"""

import argparse
import re
import sys
from pathlib import Path

import click

from eagleconv.cli.main import COMMANDS, cli
from eagleconv.engines import ENGINES
from eagleconv.report.engines import matrix_markdown
from eagleconv.report.rule_page import index, page
from eagleconv.rules import RULES

#: click leaves the last two of 80 columns empty.
WIDTH = 78
ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = ROOT / "docs" / "rules"
ENGINE_PAGE = ROOT / "docs" / "engines.md"
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


def rule_pages() -> dict[str, str]:
    """Return the text of every file of docs/rules/, by name."""
    return {"README.md": index(RULES), **{f"{rule.code}.md": page(rule) for rule in RULES}}


def differences() -> dict[Path, str | None]:
    """Return every file that is not current, with the text it should have; None for none."""
    wanted: dict[Path, str | None] = {PAGES / name: text for name, text in rule_pages().items()}
    wanted[README] = build(README.read_text(encoding="utf-8"))
    wanted[ENGINE_PAGE] = matrix_markdown([(engine, engine.version) for engine in ENGINES])
    # A page of a rule that is no more would say that it is still checked.
    wanted |= {path: None for path in PAGES.glob("*") if path not in wanted}
    found = {path: path.read_text(encoding="utf-8") for path in wanted if path.exists()}
    return {path: text for path, text in wanted.items() if found.get(path) != text}


def main() -> None:
    """Write what is not current, or name it."""
    parser = argparse.ArgumentParser(description="Write the generated documentation.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    for path, text in differences().items():
        name = path.relative_to(ROOT)
        if check:
            sys.exit(f"{name} is not current: run `python docs/build.py`")
        if text is None:
            path.unlink()
            print(f"{name} is removed")
            continue
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"{name} is written anew")


if __name__ == "__main__":
    main()
