"""Every directory of fixtures/valid and fixtures/invalid is a test; its expect.json is the answer.

The fixtures are written without the package, and what it makes of them is read back with the
safetensors library and torch alone.
"""

import hashlib
import io
import json
import re
import shutil
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from safetensors import safe_open

from eagleconv.checkpoint.local import open_local
from eagleconv.cli.main import main
from eagleconv.drafter.read import read_drafter
from tests.test_upgrade_cli import ROOT

FIXTURES = ROOT / "fixtures"
VALID = sorted(p.parent for p in FIXTURES.glob("valid/*/expect.json"))
INVALID = sorted(p.parent for p in FIXTURES.glob("invalid/*/expect.json"))
WEIGHTS = (".safetensors", ".bin", ".pt", ".index.json")


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags of fixtures name targets from there."""
    monkeypatch.chdir(ROOT)


def source_of(fixture: Path, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """Copy a fixture without its expect.json."""
    expect = json.loads((fixture / "expect.json").read_text())
    source = tmp_path / "source"
    shutil.copytree(fixture, source, ignore=shutil.ignore_patterns("expect.json"))
    return source, expect


def digest(directory: Path) -> dict[str, str]:
    return {
        str(p.relative_to(directory)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in directory.rglob("*")
        if p.is_file()
    }


def call(*args: object) -> tuple[int, str, str]:
    """Run the command line in this process; return exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    # It takes signals over for the rest of its process.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with (
            mock.patch.object(sys, "argv", ["eagleconv", *map(str, args)]),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as exit_,
        ):
            main()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    code = exit_.value.code
    assert isinstance(code, int)
    assert "Traceback" not in err.getvalue()
    return code, out.getvalue(), err.getvalue()


def succeeds(*args: object) -> str:
    code, out, err = call(*args)
    assert code == 0, err
    return out


def fails(expect: dict[str, Any], *args: object) -> None:
    """Hold a failure against the contract: its code, one sentence, questions with their flags."""
    code, out, err = call(*args)
    assert (code, out) == (expect["exit"], ""), err
    error, *rest = err.splitlines()
    assert error.startswith("error: ")
    assert expect["message"] in error
    assert not re.search(r"[.!?] [A-Z]", error), "more than one sentence"
    questions = [line for line in rest if line.startswith("  ? ")]
    assert all(line.count("--") for line in questions)
    assert all(line.startswith("hint: ") for line in rest if line not in questions)
    assert bool(questions) == ("leave open" in error)


def raw(tensor: Any) -> tuple[str, list[int], bytes]:
    import torch

    body = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return str(tensor.dtype), list(tensor.shape), body


def stored_tensors(directory: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Read every tensor with the libraries alone: safetensors, or torch for pickles."""
    import torch

    found: dict[str, tuple[str, list[int], bytes]] = {}
    for path in sorted(directory.rglob("*.safetensors")):
        with safe_open(path, "pt") as file:
            names = file.keys()
            assert not found.keys() & set(names)
            found |= {name: raw(file.get_tensor(name)) for name in names}
    for pattern in ("pytorch_model.bin", "draft_model.pt", "training_state.pt"):
        for path in directory.glob(pattern):
            state = torch.load(path, weights_only=True)
            state = state.get("draft_state_dict", state)
            found |= {name: raw(tensor) for name, tensor in state.items()}
    return found


@pytest.mark.parametrize("fixture", VALID, ids=lambda p: p.name)
def test_valid(fixture: Path, tmp_path: Path) -> None:
    source, expect = source_of(fixture, tmp_path)
    before = digest(source)
    out, flags = tmp_path / "out", expect["upgrade"]["flags"]
    if flags:
        fails(expect, "upgrade", source, "-o", out)
        fails(expect, "upgrade", source, "--dry-run")
    else:
        assert expect["exit"] == 0
    succeeds("upgrade", source, "--dry-run", *flags)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]
    succeeds("upgrade", source, "-o", out, *flags)
    assert digest(source) == before

    manifest = json.loads((out / "eagleconv.json").read_text())
    assert manifest["before"]["layout"] == " / ".join(expect["layouts"])
    assert manifest["after"]["variant"] == expect["variant"]
    config = json.loads((out / "config.json").read_text())
    assert {key: config.get(key) for key in expect["config"]} == expect["config"]
    theirs, ours = stored_tensors(source), stored_tensors(out)
    assert ours.keys() == manifest["tensors"].keys()
    for name, origin in manifest["tensors"].items():
        if origin is not None:
            assert ours[name] == theirs[origin], name
    dropped = {e["name"] for e in manifest["edits"] if e["kind"] == "drop"}
    replaced = {e["before"] for e in manifest["edits"] if e["kind"] == "derive"} - {None}
    carried = {*manifest["tensors"].values()} - {None}
    assert carried | dropped | replaced == theirs.keys()
    assert not carried & (dropped | replaced)

    succeeds("verify", out)
    assert "already" in succeeds("upgrade", out, "-o", tmp_path / "again")
    assert digest(tmp_path / "again") == digest(out)


@pytest.mark.parametrize("fixture", VALID, ids=lambda p: p.name)
def test_only_vocabulary_maps_are_ever_made_or_left_out(fixture: Path, tmp_path: Path) -> None:
    source, expect = source_of(fixture, tmp_path)
    out = tmp_path / "out"
    succeeds("upgrade", source, "-o", out, *expect["upgrade"]["flags"])
    manifest = json.loads((out / "eagleconv.json").read_text())
    assert {n for n, origin in manifest["tensors"].items() if origin is None} <= {"d2t", "t2d"}
    dropped = {e["name"] for e in manifest["edits"] if e["kind"] == "drop"}
    assert {n for n in dropped if not n.startswith("target_model.")} <= {"d2t", "t2d"}


@pytest.mark.parametrize("fixture", VALID, ids=lambda p: p.name)
def test_files_beside_are_carried(fixture: Path, tmp_path: Path) -> None:
    source, expect = source_of(fixture, tmp_path)
    out = tmp_path / "out"
    succeeds("upgrade", source, "-o", out, *expect["upgrade"]["flags"])
    # A training run keeps its checkpoint in model/; what is beside that folder is the run's.
    place = source / "model" if (source / "model").exists() else source
    beside = {n: d for n, d in digest(place).items() if not n.endswith(WEIGHTS)}
    del beside["config.json"]
    made = {"config.json", "eagleconv.json", "model.safetensors"}
    assert {n: d for n, d in digest(out).items() if n not in made} == beside


@pytest.mark.parametrize("fixture", VALID, ids=lambda p: p.name)
def test_the_layouts_are_known_without_any_flag(fixture: Path, tmp_path: Path) -> None:
    source, expect = source_of(fixture, tmp_path)
    checkpoint = open_local(str(source))
    try:
        drafter = read_drafter(checkpoint)
        assert sorted(drafter.layout_names) == sorted(expect["layouts"])
        assert bool(drafter.questions) == bool(expect["upgrade"]["flags"])
    finally:
        checkpoint.close()


@pytest.mark.parametrize("fixture", INVALID, ids=lambda p: p.name)
def test_invalid(fixture: Path, tmp_path: Path) -> None:
    source, expect = source_of(fixture, tmp_path)
    before, flags = digest(source), expect["upgrade"]["flags"]
    fails(expect, "upgrade", source, "-o", tmp_path / "out", *flags)
    fails(expect, "upgrade", source, "--dry-run", *flags)
    assert digest(source) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]


def test_the_script_makes_these_very_fixtures() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "fixtures.build", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_fixtures_stay_small() -> None:
    sizes = [sum(p.stat().st_size for p in d.rglob("*")) for d in (*VALID, *INVALID)]
    assert max(sizes) < 300_000
    assert sum(sizes) < 9_000_000


def test_a_head_fed_the_last_state_may_list_no_layers(tmp_path: Path) -> None:
    """Model-Optimizer's default is an empty list (torch/speculative/eagle/default_config.py)."""
    source, expect = source_of(FIXTURES / "valid" / "modelopt-one-state", tmp_path)
    path = source / "config.json"
    config = json.loads(path.read_text())
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = []
    path.write_text(json.dumps(config))
    succeeds("upgrade", source, "-o", tmp_path / "out")
    upgraded = json.loads((tmp_path / "out" / "config.json").read_text())
    assert {key: upgraded.get(key) for key in expect["config"]} == expect["config"]
    assert upgraded["eagle_config"]["use_aux_hidden_state"] is False


def test_a_null_that_engines_refuse_is_not_carried(tmp_path: Path) -> None:
    """transformers 5.16 and later refuse null for a number; Model-Optimizer writes such nulls."""
    source, _ = source_of(FIXTURES / "valid" / "modelopt", tmp_path)
    path = source / "config.json"
    config = json.loads(path.read_text()) | {"initializer_range": None, "eos_token_id": None}
    path.write_text(json.dumps(config))
    succeeds("upgrade", source, "-o", tmp_path / "out")
    upgraded = json.loads((tmp_path / "out" / "config.json").read_text())
    assert "initializer_range" not in upgraded
    assert upgraded["eos_token_id"] is None
