"""The pages of the rules are current, and `eagleconv rules` and docs/ci.md show what there is."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt

from eagleconv.checkpoint.schema import load
from eagleconv.cli.main import cli
from eagleconv.report.formats import FORMATS
from eagleconv.rules import RULES
from eagleconv.rules.selection import resolve
from tests.test_docs import docs
from tests.test_upgrade_cli import ROOT

GUIDE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


def test_the_pages_are_current() -> None:
    stale = [str(path.relative_to(ROOT)) for path in docs.differences()]
    assert stale == [], "run `python docs/build.py`"


def test_check_names_what_is_not_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = tmp_path / "rules"
    monkeypatch.setattr(docs, "PAGES", pages)
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text(docs.README.read_text())
    monkeypatch.setattr(docs, "README", readme)
    monkeypatch.setattr(sys, "argv", ["build.py"])
    docs.main()
    assert docs.differences() == {}
    (pages / "ECX999.md").write_text("a rule that is no more")
    monkeypatch.setattr(sys, "argv", ["build.py", "--check"])
    with pytest.raises(SystemExit, match=r"rules/ECX999.md is not current"):
        docs.main()
    (pages / "ECX999.md").unlink()
    (pages / "ECV001.md").write_text("old")
    with pytest.raises(SystemExit, match=r"rules/ECV001.md is not current"):
        docs.main()
    assert (pages / "ECV001.md").read_text() == "old"


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_a_page_says_everything_and_is_well_formed(rule: Any) -> None:
    text = (ROOT / "docs" / "rules" / f"{rule.code}.md").read_text(encoding="utf-8")
    for part in (rule.name, rule.severity, rule.what, rule.why, rule.example, rule.fix):
        assert part in text
    assert text.count("`") % 2 == 0
    html = MarkdownIt("commonmark").render(text)
    assert html.count("<h2>") == 5
    # A link that markdown does not take for one would be left in brackets.
    assert "](" not in html
    for command in re.findall(r"`eagleconv (upgrade[^`]*)`", text):
        options = {o for p in command_of("upgrade").params for o in p.opts}
        assert {w for w in command.split() if w.startswith("--")} <= options


def command_of(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def printed(*args: str) -> Any:
    return CliRunner().invoke(cli, ["rules", *args])


def test_rules_lists_them_all() -> None:
    lines = printed().stdout.splitlines()
    assert [line.split()[0] for line in lines] == [rule.code for rule in RULES]
    index = printed("--format", "markdown").stdout
    assert index == (ROOT / "docs" / "rules" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["ECV001", "ecv001", "map-missing"])
def test_rules_explains_one(name: str) -> None:
    page = (ROOT / "docs" / "rules" / "ECV001.md").read_text(encoding="utf-8")
    assert printed(name).stdout == page
    (only,) = json.loads(printed(name, "--format", "json").stdout)["rules"]
    assert only["code"] == "ECV001"


def test_rules_as_json_fit_their_schema() -> None:
    validator = jsonschema.Draft202012Validator(load("rules"))
    assert list(validator.iter_errors(json.loads(printed("--format", "json").stdout))) == []


def test_an_unknown_rule_is_usage() -> None:
    error = printed("map-mising").exception
    assert (error.exit_code, error.hint.split(";")[0].split("?")[0]) == (
        2,
        "did you mean map-missing",
    )


# The guide.


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def test_the_command_lines_of_the_guide_parse() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    lines += re.findall(r"- (eagleconv .+)", GUIDE)
    assert len(lines) >= 8
    for line in lines:
        words = shlex.split(line.split("&&")[0], comments=True)
        assert words[0] == "eagleconv"
        context = command_of(words[1]).make_context(words[1], words[2:])
        for report in context.params.get("report", ()):
            assert report.split("=")[0] in FORMATS


def test_every_format_is_in_the_guide() -> None:
    for form in FORMATS:
        assert re.search(rf"^\| `{form}` \| .+ \|$", GUIDE, re.MULTILINE), form


def test_the_settings_of_the_guide_are_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eagleconv.rules.settings import find_configuration

    (block,) = blocks("toml")
    (tmp_path / "pyproject.toml").write_text(block)
    monkeypatch.chdir(tmp_path)
    found = find_configuration()
    assert found.baseline == "eagleconv-baseline.json"
    assert len(found.checkpoints) == 1
    assert found.settings.ignore is not None
    assert resolve(found.settings.ignore, RULES)
    for key in load("settings")["properties"]["checkpoint"]["items"]["properties"]:
        assert f"`{key}`" in GUIDE or f"{key} = " in GUIDE


@pytest.mark.parametrize(
    ("at", "schema"),
    [(0, "vendor.github-workflows"), (1, "vendor.pre-commit-config"), (2, "vendor.gitlab-ci")],
)
def test_the_ci_files_of_the_guide_fit_their_schemas(at: int, schema: str, tmp_path: Path) -> None:
    path = tmp_path / "ci.yaml"
    path.write_text(blocks("yaml")[at])
    if schema == "vendor.pre-commit-config":
        call = [sys.executable, "-m", "pre_commit", "validate-config", str(path)]
    else:
        call = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_of_the_guide_exist() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", GUIDE):
        assert "://" in link or (ROOT / "docs" / link).exists(), link
