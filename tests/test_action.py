"""The GitHub Action: its scripts are run as the runner runs them, on a scratch repository."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_upgrade_cli import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]
FAILING, PASSING = ("fixtures/invalid/both-norms", "fixtures/valid/specforge-norm-output")


@dataclass
class Step:
    """What a step left behind."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str


def evaluated(text: str, context: dict[str, str]) -> str:
    """Put values in place of expressions, all of which are plain names here."""

    def value(match: re.Match[str]) -> str:
        return context.get(match[1].strip(), "")

    return re.sub(r"\$\{\{(.*?)\}\}", value, text)


def run_step(step: dict[str, Any], context: dict[str, str], temp: Path, repository: Path) -> Step:
    """Run a `run:` step with bash, as the runner does."""
    files = {name: temp / f"{step['id']}-{name}" for name in ("OUTPUT", "STEP_SUMMARY")}
    for path in files.values():
        path.write_text("")
    kept = ("PATH", "HOME", "LANG", "TMPDIR")
    environment = {k: v for k, v in os.environ.items() if k in kept or k.startswith("PIP_")}
    environment |= {f"GITHUB_{name}": str(path) for name, path in files.items()}
    environment |= {"RUNNER_TEMP": str(temp), "GITHUB_WORKSPACE": str(repository)}
    environment |= {k: evaluated(v, context) for k, v in step["env"].items()}
    script = temp / f"{step['id']}.sh"
    script.write_text(evaluated(step["run"], context))
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
        cwd=repository,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    outputs = dict(line.split("=", 1) for line in files["OUTPUT"].read_text().splitlines())
    return Step(done.returncode, done.stdout, outputs, files["STEP_SUMMARY"].read_text())


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run the step that installs the action's own checkout; return what it says of it."""
    temp = tmp_path_factory.mktemp("runner temp")
    context = {"steps.python.outputs.python-path": sys.executable, "github.action_path": str(ROOT)}
    step = run_step(STEPS[1], context, temp, temp)
    assert step.code == 0, step.log
    return {f"steps.install.outputs.{k}": v for k, v in step.outputs.items()}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Make a repository with two drafters, one of which fails."""
    root = tmp_path / "a repository"
    for source, name in ((FAILING, "failing"), (PASSING, "passing")):
        shutil.copytree(ROOT / source, root / "drafters" / name)
    return root


def validate(repository: Path, installed: dict[str, str], **inputs: str) -> Step:
    """Run the step that validates, with these inputs and the defaults of the others."""
    home = repository.parent / "home"
    home.mkdir(exist_ok=True)
    context = {f"inputs.{k}": v.get("default", "") for k, v in ACTION["inputs"].items()}
    context |= {f"inputs.{k.replace('_', '-')}": v for k, v in inputs.items()}
    context |= installed | {"steps.install.outputs.home": str(home)}
    return run_step(STEPS[2], context, repository.parent, repository)


def test_it_annotates_summarises_and_fails(repository: Path, installed: dict[str, str]) -> None:
    step = validate(repository, installed, path="drafters/failing\ndrafters/passing\n")
    assert step.code == 1, step.log
    # Annotations.
    (error,) = re.findall(r"^::error (.*?)::", step.log, re.MULTILINE)
    line = (ROOT / FAILING / "config.json").read_text().splitlines().index('  "fc_norm": true,') + 1
    assert f"file=drafters/failing/config.json,line={line},title=ECC002 both-input-norms" == error
    # The summary of the job.
    assert step.summary.startswith("## eagleconv validate: 1 error, ")
    assert "| `drafters/passing` |" in step.summary
    # Outputs.
    assert step.outputs["exit-code"] == "1"
    assert step.outputs["errors"] == "1"
    assert int(step.outputs["warnings"]) > 0
    log = json.loads(Path(step.outputs["sarif-file"]).read_text())
    (result,) = (r for r in log["runs"][0]["results"] if r["level"] == "error")
    assert result["ruleId"] == "ECC002"
    (location,) = result["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "drafters/failing/config.json"


def test_it_passes_where_nothing_fails(repository: Path, installed: dict[str, str]) -> None:
    step = validate(repository, installed, path="drafters/passing")
    assert step.code == 0, step.log
    assert (step.outputs["exit-code"], step.outputs["errors"]) == ("0", "0")
    assert "::warning file=drafters/passing/config.json" in step.log


def test_every_input_arrives(repository: Path, installed: dict[str, str]) -> None:
    """What each input changes is seen from outside."""

    def code(**inputs: str) -> int:
        return validate(repository, installed, **{"path": "drafters/passing", **inputs}).code

    shutil.rmtree(repository.parent / "home", ignore_errors=True)
    runs = {
        "fail-on": (dict(fail_on="warning"), 1),
        "select": (dict(select="ECT\nECV", fail_on="warning"), 0),
        "ignore": (dict(ignore="ECC\n\nECR,ECF\n", fail_on="warning"), 0),
        "engine": (dict(engine="vllm==0.32.0\nno-such-engine"), 2),
        "target": (dict(target="no/such/target"), 3),
        "context-length": (dict(context_length="many"), 2),
        "baseline": (dict(baseline="none.json"), 3),
        "path": (dict(path="drafters/none"), 3),
    }
    for name, (inputs, expected) in runs.items():
        assert code(**inputs) == expected, name
        shutil.rmtree(repository.parent / "home")
    deep = validate(repository, installed, path="drafters/passing", deep="true")
    assert "give --deep" not in deep.summary
    assert {*runs, "deep", "version", "sarif", "category"} == {*ACTION["inputs"]}


def test_a_wrong_call_has_no_report(repository: Path, installed: dict[str, str]) -> None:
    step = validate(repository, installed, path="drafters/passing", select="no-such-rule")
    assert step.code == 2
    assert step.outputs == {"exit-code": "2"}
    assert step.summary == ""
    assert "did you mean" in step.log or "lists them all" in step.log


def test_the_settings_of_the_repository_hold(repository: Path, installed: dict[str, str]) -> None:
    (repository / ".eagleconv.toml").write_text('fail-on = "never"\n')
    assert validate(repository, installed, path="drafters/failing").code == 0


@pytest.mark.parametrize("name", sorted(ACTION["inputs"].keys() - {"version", "sarif", "category"}))
def test_no_input_is_run(name: str, repository: Path, installed: dict[str, str]) -> None:
    evil = "$(touch pwned) `touch pwned` \"; touch pwned; ' --format=json && touch pwned #"
    inputs = {"path": "drafters/passing", name.replace("-", "_"): evil}
    step = validate(repository, installed, **inputs)
    assert step.outputs["exit-code"] in ("0", "2", "3")
    assert not [*repository.rglob("pwned")]


def test_no_script_has_an_expression() -> None:
    for step in STEPS:
        assert "${{" not in step.get("run", "")


FAKE_PYTHON = """#!/usr/bin/env bash
if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit; fi
printf '%s\\n' "$@" > "$RUNNER_TEMP/arguments"
"""


@pytest.mark.parametrize(
    ("version", "installs"),
    [("0.1.0", "eagleconv==0.1.0"), ("", "/the/action"), ("$(x)", "eagleconv==$(x)")],
)
def test_a_version_or_the_action_itself_is_installed(
    version: str, installs: str, tmp_path: Path
) -> None:
    fake = tmp_path / "python"
    fake.write_text(FAKE_PYTHON)
    fake.chmod(0o755)
    context = {
        "steps.python.outputs.python-path": str(fake),
        "github.action_path": "/the/action",
        "inputs.version": version,
    }
    step = run_step(STEPS[1], context, tmp_path, tmp_path)
    assert step.code == 0, step.log
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[:3] == ["-m", "pip", "install"]
    assert arguments[-1] == installs


def test_the_upload_gets_the_file_and_other_actions_are_pinned() -> None:
    upload = STEPS[3]
    assert upload["uses"].startswith("github/codeql-action/upload-sarif@")
    assert upload["with"]["sarif_file"] == "${{ steps.validate.outputs.sarif-file }}"
    for part in ("always()", "inputs.sarif == 'true'", "steps.validate.outputs.sarif-file != ''"):
        assert part in upload["if"]
    for step in STEPS:
        assert "uses" not in step or re.search(r"@v\d+$", step["uses"])


def test_it_fits_the_schema_of_actions() -> None:
    call = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions"]
    done = subprocess.run(
        [*call, str(ROOT / "action.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_guide_names_every_input_and_output() -> None:
    guide = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    part = guide.split("## GitHub Action")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", part, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}
    assert named == {*ACTION["inputs"], *ACTION["outputs"]}
    for output in ACTION["outputs"].values():
        assert re.fullmatch(r"\$\{\{ steps\.validate\.outputs\.[a-z-]+ \}\}", output["value"])
