"""Every file against its record."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import checkpoint, model

from eagleconv.checkpoint.manifest import (
    FileRecord,
    hash_file,
    read_records,
    verify_files,
    write_records,
)
from eagleconv.errors import SourceError


@pytest.fixture
def described(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    root = checkpoint(
        tmp_path / "out", {"model.safetensors": model({"t": ("U8", [5 << 20])}), "sub/a": b"a"}
    )
    files = ("config.json", "model.safetensors", "sub/a")
    return root, {"files": write_records({n: hash_file(str(root / n), n) for n in files})}


def test_hash_in_pieces_with_progress(tmp_path: Path) -> None:
    data = bytes(range(251)) * 40_000
    (tmp_path / "f").write_bytes(data)
    seen: list[int] = []
    record = hash_file(str(tmp_path / "f"), "f", seen.append)
    assert record == FileRecord(hashlib.sha256(data).hexdigest(), len(data))
    assert sum(seen) == len(data)
    assert len(seen) == 3
    (tmp_path / "empty").write_bytes(b"")
    assert hash_file(str(tmp_path / "empty"), "e") == FileRecord(hashlib.sha256().hexdigest(), 0)


def test_records_round_trip(described: tuple[Path, dict[str, Any]]) -> None:
    manifest = described[1]
    assert write_records(read_records(manifest)) == manifest["files"]
    assert list(manifest["files"]) == sorted(manifest["files"])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit": (lambda r: flip(r / "model.safetensors"), "model.safetensors has other bytes"),
    "a bit below": (lambda r: flip(r / "sub" / "a"), "sub/a has other bytes"),
    "missing": (lambda r: (r / "config.json").unlink(), "config.json is missing"),
    "longer": (lambda r: (r / "sub" / "a").write_bytes(b"ab"), "sub/a is 2 bytes, recorded are 1"),
    "weights beside": (
        lambda r: (r / "model-00001-of-00002.safetensors").write_bytes(b""),
        "model-00001-of-00002.safetensors is not recorded",
    ),
    "pickle beside": (lambda r: (r / "pytorch_model.bin").write_bytes(b""), "pytorch_model.bin"),
    "index beside": (lambda r: (r / "model.safetensors.index.json").write_bytes(b""), "index.json"),
    "a directory": (lambda r: ((r / "sub/a").unlink(), (r / "sub/a").mkdir()), "sub/a"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_one_problem(change: str, described: tuple[Path, dict[str, Any]]) -> None:
    root, manifest = described
    assert verify_files(str(root), manifest) == []
    (root / "README.md").write_text("notes are welcome")
    assert verify_files(str(root), manifest) == []
    CHANGES[change][0](root)
    problems = verify_files(str(root), manifest)
    assert len(problems) == 1
    assert CHANGES[change][1] in problems[0]


@pytest.mark.parametrize(
    "files",
    [
        None,
        {},
        [],
        {"a": None},
        {"a": {"sha256": "0" * 63, "size": 1}},
        {"a": {"sha256": "0" * 64, "size": -1}},
        {"a": {"sha256": "0" * 64, "size": True}},
        {"/a": {"sha256": "0" * 64, "size": 1}},
        {"../a": {"sha256": "0" * 64, "size": 1}},
    ],
)
def test_manifest_of_another_form(files: object, tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        read_records({"files": files})
    problems = verify_files(str(tmp_path), {"files": files})
    assert len(problems) == 1
    assert problems[0].startswith("eagleconv.json cannot be used: ")
