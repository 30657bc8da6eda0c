"""Every directory of fixtures/valid and fixtures/invalid is a test; its expect.json is the answer."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from safetensors import safe_open

from eagleconv.checkpoint.local import open_local
from eagleconv.cli.main import cli
from eagleconv.drafter.read import read_drafter
from eagleconv.errors import EagleconvError
from tests.test_upgrade_cli import ROOT

FIXTURES = ROOT / "fixtures"
VALID = sorted(p.parent for p in FIXTURES.glob("valid/*/expect.json"))
INVALID = sorted(p.parent for p in FIXTURES.glob("invalid/*/expect.json"))


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


def call(*args: str) -> tuple[int, str]:
    """Run a command in this process; return its exit code and message."""
    try:
        result = CliRunner().invoke(cli, list(args), standalone_mode=False)
        if isinstance(result.exception, EagleconvError):
            raise result.exception
        assert result.exception is None, result.exception
        return result.exit_code, result.output
    except EagleconvError as error:
        return error.exit_code, error.message


def stored_tensors(directory: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Read every tensor with the libraries alone: safetensors, or torch for pickles."""
    import torch

    found: dict[str, tuple[str, list[int], bytes]] = {}
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 (not a dict)
                tensor = file.get_tensor(name)
                raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                found[name] = (str(tensor.dtype), list(tensor.shape), raw)
    for path in [*directory.glob("*.bin"), *directory.glob("draft_model.pt")]:
        for name, tensor in torch.load(path, weights_only=True).items():
            raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            found[name] = (str(tensor.dtype), list(tensor.shape), raw)
    return found


@pytest.mark.parametrize("fixture", VALID, ids=lambda p: p.name)
def test_valid(fixture: Path, tmp_path: Path) -> None:
    source, expect = source_of(fixture, tmp_path)
    before = digest(source)
    out, flags = tmp_path / "out", expect["upgrade"]["flags"]
    if flags:
        code, message = call("upgrade", str(source), "-o", str(out))
        assert (code, expect["message"] in message) == (expect["exit"], True), message
        assert not out.exists()
    code, message = call("upgrade", str(source), "-o", str(out), *flags)
    assert code == 0, message
    assert digest(source) == before
    drafter = read_drafter(open_local(str(source)))
    assert expect["layout"] in drafter.layout_names

    manifest = json.loads((out / "eagleconv.json").read_text())
    theirs, ours = stored_tensors(source), stored_tensors(out)
    assert ours.keys() == manifest["tensors"].keys()
    for name, origin in manifest["tensors"].items():
        if origin is not None:
            assert ours[name] == theirs[origin], name
    dropped = {e["name"] for e in manifest["edits"] if e["kind"] == "drop"}
    replaced = {e["before"] for e in manifest["edits"] if e["kind"] == "derive"} - {None}
    assert {*manifest["tensors"].values()} - {None} | dropped | replaced == theirs.keys()

    assert call("verify", str(out))[0] == 0
    code, message = call("upgrade", str(out), "-o", str(tmp_path / "again"))
    assert code == 0, message
    assert "already" in message
    assert digest(tmp_path / "again") == digest(out)


@pytest.mark.parametrize("fixture", VALID, ids=lambda p: p.name)
def test_files_beside_are_carried(fixture: Path, tmp_path: Path) -> None:
    source, expect = source_of(fixture, tmp_path)
    out = tmp_path / "out"
    assert call("upgrade", str(source), "-o", str(out), *expect["upgrade"]["flags"])[0] == 0
    for name in ("README.md", "LICENSE", "generation_config.json", "tokenizer.json"):
        if (source / name).exists():
            assert (out / name).read_bytes() == (source / name).read_bytes()


@pytest.mark.parametrize("fixture", INVALID, ids=lambda p: p.name)
def test_invalid(fixture: Path, tmp_path: Path) -> None:
    source, expect = source_of(fixture, tmp_path)
    before = digest(source)
    code, message = call("upgrade", str(source), "-o", str(tmp_path / "out"))
    assert (code, expect["message"] in message) == (expect["exit"], True), message
    assert "\n" not in message
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
