"""README and CONTRIBUTING say what is so: commands, flags, keys, exit codes, files, make targets."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from typing import Any

import click
import pytest

import eagleconv
from eagleconv import errors
from eagleconv.cli.main import COMMANDS, cli
from eagleconv.drafter.declared import Declared
from eagleconv.drafter.layouts import CANONICAL
from tests.test_upgrade_cli import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PAGES = {"README.md": README, "CONTRIBUTING.md": CONTRIBUTING}
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
assert spec is not None
assert spec.loader is not None
docs: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(docs)


def section(title: str) -> str:
    """Return the text of a section of the README."""
    found = re.search(
        rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL
    )
    assert found is not None, title
    return found[1]


def code(text: str, *languages: str) -> list[str]:
    """Return the fenced blocks of these languages."""
    return [
        body
        for language, body in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        if language in languages
    ]


def test_help_texts_are_current() -> None:
    assert docs.build(README) == README, "run `python docs/build.py`"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    assert f"[`{name}`](#{name})" in README
    assert f"\n### {name}\n" in README
    assert f"<!-- help: {name} -->" in README


def test_a_command_without_a_block_is_named() -> None:
    with pytest.raises(SystemExit, match="add <!-- help: verify -->"):
        docs.build(README.replace("<!-- help: verify -->", ""))
    with pytest.raises(SystemExit, match="'polish', which is no command"):
        docs.build(README + "<!-- help: polish -->\n<!-- /help -->\n")


def test_the_help_shown_is_what_a_terminal_of_80_columns_shows() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "eagleconv", "upgrade", "--help"],
        env={**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.replace("python -m eagleconv", "eagleconv").rstrip() == docs.help_text(
        "upgrade"
    )


def test_every_exit_code_of_the_contract_is_in_the_readme() -> None:
    said = {int(n) for n in re.findall(r"^\| (\d+) \|", section("Exit codes"), re.MULTILINE)}
    raised = {
        kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.EagleconvError)
    }
    assert said == {0, 1, 2, 3, 4, 5, 130}
    assert raised <= said
    assert cli.help is not None
    assert {int(n) for n in re.findall(r"(\d+) [a-z]", cli.help.split("codes:")[1])} == said


def test_every_key_the_upgrade_writes_is_in_the_table() -> None:
    table = section("What an upgrade writes")
    keys = {path for path, _ in CANONICAL.keys} | {"architectures", "model_type"}
    assert [key for key in sorted(keys) if f"`{key}`" not in table] == []


def test_every_declaration_has_a_flag_in_the_table() -> None:
    asked = section("What is asked")
    flags = ["--" + f.name.replace("_", "-") for f in fields(Declared)]
    assert [flag for flag in flags if f"`{flag} " not in asked] == []
    upgrade = cli.get_command(click.Context(cli), "upgrade")
    assert upgrade is not None
    assert {*flags} <= {option for p in upgrade.params for option in p.opts}


def test_every_schema_is_linked() -> None:
    for path in (ROOT / "schemas").glob("*.json"):
        assert f"](schemas/{path.name})" in README


def test_the_first_screen_says_how_to_try_it() -> None:
    first = "\n".join(README.splitlines()[:24])
    assert "make demo" in first
    assert "make test" in first


@pytest.mark.parametrize("page", PAGES)
def test_links_and_files_exist(page: str) -> None:
    text = PAGES[page]
    linked = [t for t in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in t]
    named = re.findall(r"`((?:\w[\w.-]*/)+(?:[\w.-]+\.\w+)?)`", text)
    assert [t for t in (*linked, *named) if not (ROOT / t).exists()] == []
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}
    assert {*re.findall(r"\]\(#([^)]+)\)", text)} <= anchors


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_exist(page: str) -> None:
    asked = re.findall(r"(?:`|^)make ([a-z-]+)", PAGES[page], re.MULTILINE)
    assert {*asked} <= {*TARGETS}


@pytest.mark.parametrize("page", PAGES)
def test_command_lines_parse(page: str) -> None:
    lines = [x for body in code(PAGES[page], "sh") for x in body.splitlines()]
    lines += re.findall(r"^ +(eagleconv .+)$", PAGES[page], re.MULTILINE)
    for line in lines:
        words = shlex.split(line, comments=True)
        if words[:1] != ["eagleconv"]:
            continue
        command = cli.get_command(click.Context(cli), words[1])
        assert command is not None, line
        command.make_context(words[1], words[2:])


def test_the_python_example_uses_what_there_is() -> None:
    (body,) = code(README, "python")
    compile(body, "README.md", "exec")
    used = {*re.findall(r"\beagleconv\.(\w+)\(", body)}
    assert used <= {*eagleconv.__all__}
    assert used


def test_contributing_names_things_that_exist() -> None:
    """A name like `Layout.rope` or `traits()` in backticks is in the package or the tests."""
    source = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("eagleconv", "tests", "fixtures")
        for path in sorted((ROOT / folder).rglob("*.py"))
    )
    names = re.findall(r"`([A-Za-z_]+)(?:\(\))?`", CONTRIBUTING)
    dotted = re.findall(r"`[A-Za-z_]+\.([a-z_]+)`", CONTRIBUTING)
    missing = [n for n in (*names, *dotted) if not re.search(rf"\b{n}\b", source)]
    assert missing == []
