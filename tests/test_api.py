"""Every command is a function."""

import sys
from pathlib import Path

import pytest

import eagleconv
from eagleconv.drafter.declared import Declared
from eagleconv.errors import OpenQuestions
from tests.test_upgrade_cli import REAL, ROOT


def test_the_whole_job_in_python(tmp_path: Path) -> None:
    assert eagleconv.inspect(str(REAL)).producers == ("SpecForge",)
    dry = eagleconv.upgrade(str(REAL), str(tmp_path / "out"), dry_run=True)
    assert dry.plan.edits
    assert not (tmp_path / "out").exists()
    done = eagleconv.upgrade(str(REAL), str(tmp_path / "out"))
    assert done.plan.edits == dry.plan.edits
    assert eagleconv.verify(done.destination).problems == ()
    assert eagleconv.diff(str(REAL), done.destination).same
    # Importing the rooms must not hide the functions.
    assert callable(eagleconv.upgrade)
    assert "eagleconv.conversion.apply" in sys.modules


def test_questions_are_data_and_declarations_answer_them(tmp_path: Path) -> None:
    source = str(ROOT / "fixtures/valid/specforge-norm-output")
    with pytest.raises(OpenQuestions) as caught:
        eagleconv.upgrade(source, str(tmp_path / "out"))
    assert "--norm-output-meaning" in caught.value.questions[0]
    declared = Declared(norm_output_meaning="feedback")
    done = eagleconv.upgrade(source, str(tmp_path / "out"), declared=declared)
    assert done.plan.spec.feedback == "post_norm"
    assert done.plan.spec.origins["feedback"].origin == "user"


def test_the_default_output_is_beside_the_source(tmp_path: Path) -> None:
    source = tmp_path / "ckpt"
    source.mkdir()
    for name in ("config.json", "model.safetensors"):
        (source / name).write_bytes((REAL / name).read_bytes())
    done = eagleconv.upgrade(f"{source}/")
    assert done.destination == f"{source}-3.1-layout"
