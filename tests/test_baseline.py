"""A baseline accepts what is known, nothing else, and says what is gone."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from eagleconv.checkpoint.schema import load
from eagleconv.report.formats import FORMATS
from eagleconv.rules.finding import EngineVerdict, Finding, Validated
from tests.validations import IDS, OPEN, TENSOR, run, standing_here, unreadable, validated

__all__ = ["standing_here"]
pytestmark = pytest.mark.usefixtures("here")

VLLM = (EngineVerdict("vllm", "0.32.0", "V1", "refused", ("why",)),)
FULL = validated("ckpt", IDS, OPEN, TENSOR, engines=VLLM)


def written(path: str = "accepted.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(path).read_text())
    return found


def check(monkeypatch: pytest.MonkeyPatch, *results: Validated, path: str = "accepted.json") -> Any:
    """Run against the baseline; return the result and the summary."""
    sources = [r.source for r in results]
    args = (*sources, "--baseline", path, "--format", "json", "--fail-on", "info")
    result, _ = run(monkeypatch, results, *args)
    report = json.loads(result.stdout)
    return result, report["summary"], report["findings"]


@pytest.fixture
def baseline(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a baseline of all findings."""
    result, _ = run(monkeypatch, [FULL], "ckpt", "--write-baseline", "accepted.json")
    assert result.exit_code == 0
    assert result.stderr == "written: accepted.json, 3 findings\n"
    assert "3 accepted" in result.stdout.splitlines()[-1]
    return here / "accepted.json"


@pytest.mark.usefixtures("baseline")
def test_what_is_written_fits_its_schema_and_is_sorted() -> None:
    data = written()
    validator = jsonschema.Draft202012Validator(load("baseline"))
    assert [e.message for e in validator.iter_errors(data)] == []
    assert [(e["source"], e["code"]) for e in data["findings"]] == [
        ("ckpt", "ECC003"),
        ("ckpt", "ECC018"),
        ("ckpt", "ECT001"),
    ]
    assert data["findings"][2]["location"]["tensor"] == "fc_norm.3.weight"
    data["findings"][0]["digest"] = "no"
    assert len(list(validator.iter_errors(data))) == 1


def test_the_same_findings_are_the_same_bytes(
    baseline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = baseline.read_bytes()
    again = replace(FULL, findings=(TENSOR, OPEN, IDS, OPEN))
    result, _ = run(monkeypatch, [again], "ckpt", "--write-baseline", "accepted.json")
    assert result.exit_code == 0
    assert baseline.read_bytes() == before
    assert [*baseline.parent.glob("*eagleconv-*")] == []


@pytest.mark.usefixtures("baseline")
def test_what_is_known_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    result, summary, findings = check(monkeypatch, FULL)
    assert result.exit_code == 0
    assert (summary["errors"], summary["warnings"], summary["accepted"]) == (0, 0, 3)
    assert all(f["accepted"] for f in findings)
    assert result.stderr == ""


NEW: dict[str, Finding] = {
    "another rule": replace(TENSOR, code="ECV002", name="map-out-of-range"),
    "another message": replace(TENSOR, message=TENSOR.message + "!"),
    "another tensor": replace(TENSOR, location=replace(TENSOR.location, tensor="fc.bias")),
    "another key": replace(OPEN, location=replace(OPEN.location, key="fc_norm")),
    "another file": replace(TENSOR, location=replace(TENSOR.location, file="b.safetensors")),
    "another engine": replace(IDS, engine="vllm 0.33.0"),
}


@pytest.mark.usefixtures("baseline")
@pytest.mark.parametrize("what", NEW)
def test_what_is_new_counts(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new = NEW[what]
    result, summary, findings = check(monkeypatch, replace(FULL, findings=(*FULL.findings, new)))
    assert result.exit_code == 1
    assert summary["accepted"] == 3
    assert [f["accepted"] for f in findings] == [True, True, True, False]


@pytest.mark.usefixtures("baseline")
def test_another_checkpoint_has_its_own_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    result, summary, _ = check(monkeypatch, replace(FULL, source="other"))
    assert (result.exit_code, summary["accepted"]) == (1, 0)


@pytest.mark.usefixtures("baseline")
@pytest.mark.parametrize("source", ["ckpt/", "./ckpt", "link", "{absolute}"])
def test_a_checkpoint_is_the_same_however_it_is_named(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to("ckpt")
    named = source.format(absolute=tmp_path / "ckpt")
    assert check(monkeypatch, replace(FULL, source=named))[0].exit_code == 0
    # And wherever one stands.
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    result, *_ = check(monkeypatch, replace(FULL, source="../ckpt"), path="../accepted.json")
    assert result.exit_code == 0


def test_a_repository_is_the_same_at_every_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = replace(FULL, source="hf://org/name@v1", revision="1" * 40)
    run(monkeypatch, [hub], hub.source, "--write-baseline", "accepted.json")
    assert {e["source"] for e in written()["findings"]} == {"hf://org/name"}
    moved = replace(hub, source="org/name", revision="2" * 40)
    assert check(monkeypatch, moved)[0].exit_code == 0


@pytest.mark.usefixtures("baseline")
def test_what_no_longer_occurs_is_said_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    result, *_ = check(monkeypatch, replace(FULL, findings=(OPEN,)))
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        f"info: accepted.json: {f.code} of ckpt no longer occurs: {f.message}"
        for f in (IDS, TENSOR)
    ]


@pytest.mark.usefixtures("baseline")
@pytest.mark.parametrize(
    ("result", "gone"),
    [
        (replace(FULL, findings=(), checks_run=("ECC018",)), ["ECC018"]),  # --select
        (replace(FULL, findings=(), engines=()), ["ECC018", "ECT001"]),  # no --engine
        (validated("other"), []),  # another checkpoint
        (replace(FULL, findings=(), checks_run=()), []),  # nothing was checked
    ],
)
def test_what_was_not_looked_at_is_not_gone(
    result: Validated, gone: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = check(monkeypatch, result)[0].stderr
    assert [line.split()[2] for line in said.splitlines() if line.startswith("info:")] == gone


@pytest.mark.usefixtures("baseline")
@pytest.mark.parametrize("form", FORMATS)
def test_every_format_shows_what_is_accepted(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ("ckpt", "--baseline", "accepted.json", "--format", form)
    result, _ = run(monkeypatch, [FULL], *args)
    assert result.exit_code == 0
    assert "accepted" in result.stdout
    assert TENSOR.message in result.stdout.replace("\\_", "_")


def test_nothing_is_written_where_something_was_not_checked(
    baseline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = baseline.read_bytes()
    results = (unreadable(), replace(FULL, findings=()))
    result, _ = run(
        monkeypatch,
        results,
        "gone",
        "ckpt",
        "--write-baseline",
        "accepted.json",
        "--fail-on",
        "info",
    )
    assert result.exit_code == 3
    assert "accepted.json is not written: gone was not checked" in result.stderr
    assert baseline.read_bytes() == before


def test_no_other_file_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (tmp_path / "ckpt" / "config.json").read_bytes()
    result, _ = run(monkeypatch, [FULL], "ckpt", "--write-baseline", "ckpt/config.json")
    assert getattr(result.exception, "exit_code", None) == 4
    assert "exists and is no baseline" in str(result.exception)
    assert (tmp_path / "ckpt" / "config.json").read_bytes() == before


def test_a_link_to_a_baseline_stays_a_link(
    baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link.json").symlink_to("accepted.json")
    run(monkeypatch, [replace(FULL, findings=(OPEN,))], "ckpt", "--write-baseline", "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert len(written(str(baseline))["findings"]) == 1


def test_a_failed_write_leaves_the_old_baseline(
    baseline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(28, "No space left on device")

    before = baseline.read_bytes()
    monkeypatch.setattr(os, "fsync", fail)
    result, _ = run(monkeypatch, [validated("ckpt")], "ckpt", "--write-baseline", "accepted.json")
    assert getattr(result.exception, "exit_code", None) == 4
    assert "No space left" in str(result.exception)
    assert baseline.read_bytes() == before
    assert [*baseline.parent.glob("*eagleconv-*")] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "the baseline b.json cannot be read: No such file or directory"),
        ("[]", "b.json holds a list at the top level where an object {...} is expected"),
        ("{", "b.json is not valid JSON"),
        ('{"schema_version": 2, "findings": []}', "schema_version does not fit const"),
        ('{"schema_version": 1}', "the file does not fit required"),
    ],
)
def test_a_baseline_that_is_none_is_exit_3(
    text: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        Path("b.json").write_text(text)
    result, _ = run(monkeypatch, [FULL], "ckpt", "--baseline", "b.json")
    assert getattr(result.exception, "exit_code", None) == 3
    assert said in str(result.exception)
