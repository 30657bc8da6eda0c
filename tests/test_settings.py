"""The configuration file: found, read strictly, and always second to the command line."""

import json
from pathlib import Path

import jsonschema
import pytest

from eagleconv.checkpoint.schema import load
from eagleconv.drafter.declared import Declared
from eagleconv.rules.settings import Settings, find_configuration
from tests.validations import OPEN, run, standing_here, validated

__all__ = ["standing_here"]
pytestmark = pytest.mark.usefixtures("here")

EVERYTHING = """
target = "target"
engine = ["vllm==0.32.0", "sglang"]
context-length = 4096
deep = true
select = ["ECV", "unknown-tensor"]
ignore = ["ECC003"]
fail-on = "warning"
format = "json"

[[checkpoint]]
path = "ckpt"
target = "org/target"
fail-on = "never"

[[checkpoint]]
path = "*pt"
context-length = 8192
"""


def write(text: str, path: str = ".eagleconv.toml") -> None:
    Path(path).write_text(text)


def test_every_setting_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(EVERYTHING)
    (tmp_path / "target").mkdir()
    result, fake = run(monkeypatch, [validated("ckpt", OPEN)], "ckpt", "other", "org/other")
    assert fake.calls["other"] == {
        "target": "target",
        "engines": ("vllm==0.32.0", "sglang"),
        "context_length": 4096,
        "deep": True,
        "select": ("ECT001", "ECV002"),
        "ignore": ("ECC003",),
        "declared": Declared(),
    }
    assert fake.calls["org/other"] == fake.calls["other"]
    assert fake.calls["ckpt"] == fake.calls["other"] | {
        "target": "org/target",
        "context_length": 8192,
    }
    # A warning fails everywhere but there.
    assert len(json.loads(result.stdout)["reports"]) == 3
    assert result.exit_code == 0
    assert run(monkeypatch, [validated("other", OPEN)], "other")[0].exit_code == 1


def test_the_command_line_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    write(EVERYTHING)
    args = ["--target", "t", "--engine", "vllm", "--context-length", "1", "--no-deep"]
    args += ["--select", "ECT001", "--ignore", "ECV", "--fail-on", "warning", "--format", "text"]
    result, fake = run(monkeypatch, [validated("ckpt", OPEN)], "ckpt", *args)
    assert fake.calls["ckpt"] == {
        "target": "t",
        "engines": ("vllm",),
        "context_length": 1,
        "deep": False,
        "select": ("ECT001",),
        "ignore": ("ECV002",),
        "declared": Declared(),
    }
    assert result.exit_code == 1
    assert result.stdout.startswith("ckpt\n")


def test_without_a_file_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    result, fake = run(monkeypatch, [], "ckpt", "-v")
    assert result.stderr == "configuration: none\n"
    options = fake.calls["ckpt"]
    assert options == {
        "target": None,
        "engines": (),
        "context_length": None,
        "deep": False,
        "select": (),
        "ignore": (),
        "declared": Declared(),
    }


def test_the_nearest_table_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write('[tool.eagleconv]\ntarget = "far"\n', "pyproject.toml")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    # A project without the table is none of ours, and the search goes on.
    write("[tool.ruff]\n", str(tmp_path / "a" / "pyproject.toml"))
    monkeypatch.chdir(inner)
    assert find_configuration().settings.target == "far"
    write('[tool.eagleconv]\ntarget = "near"\n', str(inner / "pyproject.toml"))
    assert find_configuration().settings.target == "near"
    # An empty table counts: it switches the outer one off.
    write("[tool.eagleconv]\n", str(inner / "pyproject.toml"))
    assert find_configuration().settings == Settings()


def test_our_own_file_wins_and_verbose_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("deep = true\n")
    write("[tool.eagleconv]\ndeep = false\n", "pyproject.toml")
    result, fake = run(monkeypatch, [], "ckpt", "-v")
    assert fake.calls["ckpt"]["deep"] is True
    assert result.stderr.splitlines() == [
        f"configuration: {tmp_path / '.eagleconv.toml'}",
        "passed over: pyproject.toml",
    ]
    assert run(monkeypatch, [], "ckpt")[0].stderr == ""
    write("[tool.ruff]\n", "pyproject.toml")
    assert "passed over" not in run(monkeypatch, [], "ckpt", "-v")[0].stderr


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write('target = "t"\nbaseline = "b.json"\n[[checkpoint]]\npath = "ckpt"\ndeep = true\n')
    run(monkeypatch, [validated("ckpt", OPEN)], "ckpt", "--write-baseline", "b.json")
    (tmp_path / "t").mkdir()
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    (tmp_path / "deeper" / "t").mkdir()  # not this one
    moved = validated("../ckpt", OPEN)
    result, fake = run(monkeypatch, [moved], "../ckpt", "--fail-on", "info")
    assert result.exit_code == 0
    assert fake.calls["../ckpt"]["target"] == "../t"
    assert fake.calls["../ckpt"]["deep"] is True


def test_a_hub_target_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    write('target = "org/target"\n')
    _, fake = run(monkeypatch, [], "ckpt")
    assert fake.calls["ckpt"]["target"] == "org/target"


def test_the_configured_baseline_is_no_obstacle_to_writing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write('baseline = "b.json"\n')
    found = [validated("ckpt", OPEN)]
    assert getattr(run(monkeypatch, found, "ckpt")[0].exception, "exit_code", None) == 3
    assert run(monkeypatch, found, "ckpt", "--write-baseline", "b.json")[0].exit_code == 0
    result, _ = run(monkeypatch, found, "ckpt", "--fail-on", "warning")
    assert result.exit_code == 0
    assert "accepted: ECC018" in result.stdout


WRONG = [
    ('targets = "x"', "has no key 'targets'", "did you mean target?"),
    ("zzz = 1", "has no key 'zzz'", "there are target, engine, context-length"),
    ('engine = "vllm"', 'engine is "vllm", expected a list', ""),
    ("engine = [1]", "engine[0] is 1, expected a string", ""),
    ('deep = "yes"', 'deep is "yes", expected true or false', ""),
    ("context-length = 4096.5", "context-length is 4096.5, expected an integer", ""),
    ("context-length = true", "context-length is true, expected an integer", ""),
    ("context-length = 0", "context-length is 0, which is too small", ""),
    ('target = ""', 'target is "", which is too small', ""),
    ('fail-on = "fatal"', 'fail-on is "fatal", expected error or warning or info or never', ""),
    ('format = "html"', 'format is "html", expected text or json', ""),
    ("checkpoint = 1", "checkpoint is 1, expected a list", ""),
    ("[[checkpoint]]\ndeep = true", "checkpoint[0] has no path", "say which"),
    (
        '[[checkpoint]]\npath = "x"\nbaseline = "y"',
        "checkpoint[0] has no key 'baseline'",
        "there are path",
    ),
    ("deep = 2026-01-01", 'deep is "2026-01-01", expected true or false', ""),
]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("text", "said", "hint"), WRONG)
def test_what_is_wrong_is_one_sentence(
    text: str, said: str, hint: str, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ".eagleconv.toml: "
    if shared:
        text = "[tool.eagleconv]\n" + text.replace("[[checkpoint", "[[tool.eagleconv.checkpoint")
        where = "pyproject.toml: tool.eagleconv"
        said = said if said.startswith("has") else f".{said}"
        where += " " if said.startswith("has") else ""
    elif said.startswith("has"):
        where = ".eagleconv.toml "
    write(text, "pyproject.toml" if shared else ".eagleconv.toml")
    result, fake = run(monkeypatch, [], "ckpt")
    assert getattr(result.exception, "exit_code", None) == 2
    assert str(result.exception).startswith(where + said)
    assert str(getattr(result.exception, "hint", None)).startswith(hint)
    assert fake.calls == {}


@pytest.mark.parametrize("content", [b"deep = ", b"a = 1\na = 2", b"\xff"])
def test_a_file_that_is_no_toml_is_named(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyproject.toml", ".eagleconv.toml"):
        Path(name).write_bytes(content)
        result, _ = run(monkeypatch, [], "ckpt")
        assert getattr(result.exception, "exit_code", None) == 2
        assert str(result.exception).startswith(f"{name} is no TOML: ")
        Path(name).unlink()


def test_a_selector_of_the_file_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    write('[[checkpoint]]\npath = "ckpt"\nignore = ["unknown-tensr"]\n')
    result, fake = run(monkeypatch, [], "other", "ckpt")
    assert getattr(result.exception, "exit_code", None) == 2
    assert fake.calls == {}


def test_the_schema_knows_every_setting() -> None:
    schema = load("settings")
    jsonschema.Draft202012Validator.check_schema(schema)
    shared = {name.replace("_", "-") for name in Settings.__dataclass_fields__}
    assert {*schema["properties"]} == shared | {"baseline", "format", "checkpoint"}
    assert {*schema["properties"]["checkpoint"]["items"]["properties"]} == shared | {"path"}
