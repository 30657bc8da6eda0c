"""Which files of a directory are read, and what is said of the others."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoint_files import SMALL, checkpoint, index, model

from eagleconv.checkpoint.local import open_local
from eagleconv.errors import SourceError

A = model({"a": ("F32", [1])})
B = model({"b": ("F32", [2])})
SHARDS = {"model-00001-of-00002.safetensors": A, "model-00002-of-00002.safetensors": B}
MAP = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
INDEX = "model.safetensors.index.json"

#: files of the directory (None: only config.json) -> sentence.
REFUSED: dict[str, tuple[dict[str, bytes], str]] = {
    "nothing": ({}, "holds no weights"),
    "only an adapter": ({"adapter_model.safetensors": A}, "found adapter_model.safetensors"),
    "only mistral's form": ({"consolidated.safetensors": A}, "found consolidated.safetensors"),
    "several": ({"x.safetensors": A, "y.safetensors": B}, "x.safetensors, y.safetensors"),
    "shard missing": (
        {"model-00001-of-00003.safetensors": A, "model-00003-of-00003.safetensors": B},
        "model-00002-of-00003.safetensors is missing",
    ),
    "last shard missing": (
        {"model-00001-of-00002.safetensors": A},
        "model-00002-of-00002.safetensors is missing",
    ),
    "shard zero": ({**SHARDS, "model-00000-of-00002.safetensors": A}, "is no shard of 2"),
    "two sets": ({**SHARDS, "model-00001-of-00001.safetensors": A}, "several sets"),
    "tensor in two shards": (
        {"model-1-of-2.safetensors": A, "model-2-of-2.safetensors": A},
        "'a' is both in model-1-of-2.safetensors and in model-2-of-2.safetensors",
    ),
    "tensor in two shards of an index": (
        {INDEX: index({**MAP, "c": "c.safetensors"}), **SHARDS, "c.safetensors": A},
        "'a' is both in",
    ),
    "index without map": ({INDEX: b"{}", **SHARDS}, "no weight_map"),
    "index with empty map": ({INDEX: index({}), **SHARDS}, "no weight_map"),
    "index of a number": ({INDEX: b'{"weight_map": {"a": 1}}', **SHARDS}, "not a name"),
    "index is no json": ({INDEX: b"{", **SHARDS}, "not valid JSON"),
    "index up": ({INDEX: index({"a": "../m.safetensors"})}, "not inside the checkpoint"),
    "index absolute": ({INDEX: index({"a": "/etc/passwd"})}, "not inside the checkpoint"),
    "index drive": ({INDEX: index({"a": "c:\\m"})}, "not inside the checkpoint"),
    "index up inside": ({INDEX: index({"a": "x/../../m"})}, "not inside the checkpoint"),
    "index names a file that is absent": (
        {INDEX: index({**MAP, "c": "c.safetensors"}), **SHARDS},
        "c.safetensors, which",
    ),
    "index names a tensor that is absent": (
        {INDEX: index({**MAP, "c": MAP["b"]}), **SHARDS},
        "'c', which model-00002-of-00002.safetensors does not hold",
    ),
    "index does not name a tensor": (
        {INDEX: index(MAP), **SHARDS, MAP["b"]: model({"b": ("F32", [2]), "c": ("U8", [1])})},
        "does not know tensor 'c'",
    ),
    "index names another file": (
        {INDEX: index({"a": MAP["b"], "b": MAP["a"]}), **SHARDS},
        "says tensor 'a' is in model-00002-of-00002.safetensors",
    ),
    "broken weights": ({"model.safetensors": A[:-1]}, "cut off"),
    "no tensors": ({"model.safetensors": b"\x02" + bytes(7) + b"{}"}, "holds no tensors"),
    "config is a list": ({"model.safetensors": A, "config.json": b"[]"}, "a list"),
    "config without keys": ({"model.safetensors": A, "config.json": b"{}"}, "no keys"),
    "config broken": ({"model.safetensors": A, "config.json": b'{"a":1,"a":2}'}, "twice"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_sentence(case: str, tmp_path: Path) -> None:
    files, expected = REFUSED[case]
    checkpoint(tmp_path / "src", files)
    with pytest.raises(SourceError) as caught:
        open_local(str(tmp_path / "src"))
    assert expected in caught.value.message
    assert "\n" not in caught.value.message


CHOSEN: dict[str, tuple[dict[str, bytes], tuple[str, ...], str]] = {
    "single": ({"model.safetensors": A}, ("model.safetensors",), ""),
    "index": ({INDEX: index(MAP), **SHARDS}, (*SHARDS, INDEX), ""),
    "index in a folder": (
        {INDEX: index({"a": "w/x.safetensors"}), "w/x.safetensors": A},
        ("w/x.safetensors", INDEX),
        "",
    ),
    "shards": (SHARDS, tuple(SHARDS), "is missing: the 2 shards"),
    "another name": ({"draft.safetensors": A}, ("draft.safetensors",), "do not find"),
    "another name beside an adapter": (
        {"draft.safetensors": A, "adapter_model.safetensors": B, "consolidated.safetensors": B},
        ("draft.safetensors",),
        "do not find",
    ),
    "stale shards": ({"model.safetensors": A, **SHARDS}, ("model.safetensors",), "not read: model"),
    "stale single file": (
        {INDEX: index(MAP), **SHARDS, "model.safetensors": A},
        (*SHARDS, INDEX),
        "model.safetensors was not read",
    ),
    "pickle beside": (
        {"model.safetensors": A, "pytorch_model.bin": b"x"},
        ("model.safetensors",),
        "pytorch_model.bin not read",
    ),
}


@pytest.mark.parametrize("case", CHOSEN)
def test_choice(case: str, tmp_path: Path) -> None:
    files, chosen, note = CHOSEN[case]
    checkpoint(tmp_path, files)
    opened = open_local(str(tmp_path))
    assert opened.weight_files == chosen
    assert opened.form == "safetensors"
    if note:
        assert any(note in text for text in opened.notes), opened.notes
    else:
        assert opened.notes == ()
    left = {name for name in files if name not in chosen}
    assert set(opened.other_files) == left
    opened.close()


def test_what_is_opened(tmp_path: Path) -> None:
    checkpoint(tmp_path, {"model.safetensors": model(SMALL, {"format": "pt"})}, {"é": 1, "b": 2})
    for name in ("README.md", ".hidden", ".git/x", "sub/t.json", "sub/.h", "sub/deep/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    os.symlink(tmp_path / "README.md", tmp_path / "LINK.md")
    os.symlink(tmp_path / "gone", tmp_path / "gone.md")
    opened = open_local(str(tmp_path))
    assert opened.source == str(tmp_path)
    assert opened.root == str(tmp_path)
    assert opened.config == {"é": 1, "b": 2}
    assert opened.metadata == {"format": "pt"}
    assert opened.other_files == {"LINK.md": 5, "README.md": 5, "sub/t.json": 5}
    assert list(opened.tensors) == list(SMALL)
    assert opened.manifest is None
    assert opened.side_data == {}
    data = model(SMALL)[-(12 + 16) :]
    assert opened.read("a.weight") == data[:12]
    assert opened.read("b.weight") == data[12:]
    pieces = [bytes(view) for view in opened.reader.chunks(opened.tensors["b.weight"], 7)]
    assert pieces == [data[12:19], data[19:26], data[26:28]]
    with pytest.raises(ValueError, match="outside"):
        opened.reader.read_into(opened.tensors["a.weight"], 10, memoryview(bytearray(3)))
    opened.close()


def test_hub_cache_links_are_followed(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshots" / "sha"
    checkpoint(snapshot, {})
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "1").write_bytes(A)
    os.symlink("../../blobs/1", snapshot / "model.safetensors")
    assert list(open_local(str(snapshot)).tensors) == ["a"]
    (tmp_path / "blobs" / "1").unlink()
    with pytest.raises(SourceError, match=r"model\.safetensors is a link to a file that is not"):
        open_local(str(snapshot))


def test_training_output_is_followed_into_model(tmp_path: Path) -> None:
    checkpoint(tmp_path / "model")
    (tmp_path / "config.yaml").write_text("")
    opened = open_local(str(tmp_path))
    assert opened.source == str(tmp_path)
    assert opened.root == str(tmp_path / "model")
    assert "its model/ was read" in opened.notes[0]


def test_paths_that_are_no_directory(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file or directory"):
        open_local(str(tmp_path / "gone"))
    (tmp_path / "model.safetensors").write_bytes(A)
    with pytest.raises(SourceError, match="is a file, not a directory"):
        open_local(str(tmp_path / "model.safetensors"))
    with pytest.raises(SourceError, match=r"but no config\.json"):
        open_local(str(tmp_path))


def test_config_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    with open(tmp_path / "config.json", "wb") as file:
        file.truncate(5 << 30)
    with pytest.raises(SourceError, match="more than such a file ever holds"):
        open_local(str(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
@pytest.mark.parametrize("locked", ["src", "src/config.json", "src/model.safetensors", "src/sub"])
def test_permission_denied(locked: str, tmp_path: Path) -> None:
    checkpoint(tmp_path / "src", {"model.safetensors": A, "sub/x": b""})
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        os.chmod(folder, 0o755)
    os.chmod(tmp_path / locked, 0)
    code = (
        "import os, sys\n"
        "from eagleconv.checkpoint.local import open_local\n"
        "import eagleconv.checkpoint.manifest\n"
        "from eagleconv.errors import SourceError\n"
        "os.setgid(65534), os.setuid(65534)\n"
        "try: open_local(sys.argv[1])\n"
        "except SourceError as error: print(error.message)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "src")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "permission denied" in run.stdout, run


def described(root: Path) -> dict[str, object]:
    files = {}
    for path in root.iterdir():
        data = path.read_bytes()
        files[path.name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    manifest = {"schema_version": 1, "files": files}
    (root / "eagleconv.json").write_text(json.dumps(manifest))
    return manifest


def test_manifest_of_these_files(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    manifest = described(tmp_path)
    opened = open_local(str(tmp_path))
    assert opened.manifest == manifest
    assert opened.notes == ()
    assert opened.other_files == {}


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("config.json", b'{"model_type": "qwenn"}', "config.json changed since it was written"),
        ("config.json", b'{"model_type": "x"}', "config.json changed since it was written"),
        ("model.safetensors", A, "model.safetensors changed since it was written"),
        (
            "model.safetensors.index.json",
            index({n: "model.safetensors" for n in SMALL}),
            "does not list model.safetensors.index.json",
        ),
        ("eagleconv.json", b"{}", "lists no files"),
        ("eagleconv.json", b"{", "not valid JSON"),
        ("eagleconv.json", b'{"files": {"config.json": 1}}', "not a sha256"),
        (
            "eagleconv.json",
            b'{"files": {"../x": {"sha256": "%b", "size": 1}}}' % (b"0" * 64),
            "inside",
        ),
    ],
)
def test_manifest_of_other_files(name: str, data: bytes, reason: str, tmp_path: Path) -> None:
    checkpoint(tmp_path)
    described(tmp_path)
    (tmp_path / name).write_bytes(data)
    opened = open_local(str(tmp_path))
    assert opened.manifest is None
    assert len(opened.notes) == 1
    assert opened.notes[0].startswith("eagleconv.json does not describe these files (")
    assert reason in opened.notes[0]


def test_opening_imports_nothing_heavy(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    code = (
        "import sys\n"
        "from eagleconv.checkpoint.local import open_local\n"
        "open_local(sys.argv[1])\n"
        "print(*sys.modules)"
    )
    run = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            f"import sys; sys.path.insert(0, {os.getcwd()!r})\n{code}",
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(run.stdout.split())
    heavy = {"torch", "numpy", "huggingface_hub", "jsonschema", "tempfile", "shutil", "hashlib"}
    assert loaded & (heavy | {"concurrent.futures", "pathlib"}) == set()
