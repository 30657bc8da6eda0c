"""What SOURCE may be, and the Hub in all its moods.

HF_ENDPOINT and HF_HOME are read when huggingface_hub is imported, so each case has a process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import checkpoint, index, model
from fake_hub import Hub
from test_local import described

from eagleconv.checkpoint.source import HubId, open_source, parse_hub_id
from eagleconv.errors import SourceError

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import json, sys
from eagleconv.checkpoint.source import open_source
from eagleconv.errors import EagleconvError
try:
    c = open_source(sys.argv[1], weights=sys.argv[2] == "True")
    found = {k: getattr(c, k) for k in ("source", "root", "revision", "config", "form", "notes")}
    found["weight_files"] = c.weight_files
    found["other_files"] = dict(c.other_files)
    found["metadata"] = dict(c.metadata)
    found["manifest"] = c.manifest is not None
    found["tensors"] = {
        n: [t.dtype, t.shape, t.file, c.read(n).hex()] for n, t in c.tensors.items()
    }
    print(json.dumps(found))
except EagleconvError as error:
    print(json.dumps({"error": error.message, "hint": error.hint, "exit": error.exit_code}))
"""
TENSORS = {"fc.weight": ("BF16", [4, 8]), "d2t": ("I64", [8]), "norm.weight": ("F32", [3])}
BIG = {"big.weight": ("U8", [3 << 20]), "d2t": ("I64", [8])}
VECTORS = {f"norm.{i}": ("F32", [64]) for i in range(20)}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A Hub with one repository of every kind."""
    root = tmp_path / "repos"
    plain = checkpoint(root / "plain", {"model.safetensors": model(TENSORS, {"format": "pt"})})
    for name in ("README.md", ".gitattributes", "sub/x", "sub/deep/y"):
        (plain / name).parent.mkdir(parents=True, exist_ok=True)
        (plain / name).write_text("text")
    a, b = model({"a": ("F32", [1])}), model({"b": ("F32", [2])})
    shards = {"model-00001-of-00002.safetensors": a, "model-00002-of-00002.safetensors": b}
    weight_map = dict(zip("ab", shards, strict=True))
    sharded = {"model.safetensors.index.json": index(weight_map), **shards}
    lost = {"model.safetensors.index.json": index({**weight_map, "c": "gone.safetensors"})}
    described(checkpoint(root / "described"))
    repos = {
        "org/plain": plain,
        "org/described": root / "described",
        "org/big": checkpoint(root / "big", {"model.safetensors": model(BIG)}),
        "org/vectors": checkpoint(root / "vectors", {"model.safetensors": model(BIG | VECTORS)}),
        "org/sharded": checkpoint(root / "sharded", sharded),
        "org/lost": checkpoint(root / "lost", {**lost, **shards}),
        "org/empty": checkpoint(root / "empty", {}),
        "org/cut": checkpoint(root / "cut", {"model.safetensors": model(TENSORS)[:-1]}),
        "org/zero": checkpoint(root / "zero", {"model.safetensors": b""}),
        "org/pickle": checkpoint(root / "pickle", {"pytorch_model.bin": b"PK\x03\x04"}),
    }
    served = Hub(repos)
    yield served
    served.shutdown()
    served.server_close()


def ask(url: str, home: Path, text: str, weights: bool = False, **variables: str) -> dict[str, Any]:
    """Open a source in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    environment |= {"HF_ENDPOINT": url, "HF_HOME": str(home), "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", CODE, text, str(weights)],
        capture_output=True,
        text=True,
        cwd=home.parent,
        env={**environment, **variables},
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr
    result: dict[str, Any] = json.loads(run.stdout)
    return result


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("text", ["org/plain", "hf://org/plain", "hf://org/plain@main"])
def test_opened(text: str, weights: bool, hub: Hub, tmp_path: Path) -> None:
    found = ask(hub.url, tmp_path / "home", text, weights)
    assert found["source"] == text
    assert found["revision"] == hub.sha("org/plain")
    assert (found["root"] != "") == weights
    assert found["config"] == {"model_type": "llama"}
    assert found["form"] == "safetensors"
    assert found["metadata"] == {"format": "pt"}
    assert found["weight_files"] == ["model.safetensors"]
    assert found["other_files"] == {"README.md": 4, "sub/x": 4}
    data = model(TENSORS, {"format": "pt"})[-(64 + 64 + 12) :]
    assert found["tensors"] == {
        "fc.weight": ["BF16", [4, 8], "model.safetensors", data[:64].hex()],
        "d2t": ["I64", [8], "model.safetensors", data[64:128].hex()],
        "norm.weight": ["F32", [3], "model.safetensors", data[128:].hex()],
    }


def ranges_read(hub: Hub, home: Path, repo: str, wanted: str) -> list[int]:
    """Read one kind of tensors, and return how long the ranges were that this took."""
    code = CODE.replace("c.read(n).hex()", f"c.read(n).hex() if n.startswith({wanted!r}) else ''")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", code, repo, "False"],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    data = {n: t[3] for n, t in json.loads(run.stdout)["tensors"].items() if t[3]}
    whole = (hub.repos[repo] / "model.safetensors").read_bytes()
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])
    start = 8 + int.from_bytes(whole[:8], "little")
    for name, text in data.items():
        first, last = header[name]["data_offsets"]
        assert bytes.fromhex(text) == whole[start + first : start + last]
    gets = [r for r in hub.requests if r[0] == "GET" and r[1].endswith("model.safetensors")]
    ends = [tuple(map(int, r[2].removeprefix("bytes=").split("-"))) for r in gets]
    return [last - first + 1 for first, last in ends]


def test_only_the_header_crosses_the_wire(hub: Hub, tmp_path: Path) -> None:
    assert ranges_read(hub, tmp_path, "org/big", "d2t") == [1 << 16, 64]


def test_neighbouring_vectors_are_one_range(hub: Hub, tmp_path: Path) -> None:
    assert ranges_read(hub, tmp_path, "org/vectors", "norm.") == [1 << 16, 64 + 20 * 256]


def test_shards(hub: Hub, tmp_path: Path) -> None:
    found = ask(hub.url, tmp_path / "home", "org/sharded")
    assert list(found["tensors"]) == ["a", "b"]
    assert found["weight_files"][-1] == "model.safetensors.index.json"


@pytest.mark.parametrize("weights", [False, True])
def test_manifest(weights: bool, hub: Hub, tmp_path: Path) -> None:
    assert ask(hub.url, tmp_path / "home", "org/described", weights)["manifest"] is True
    (hub.repos["org/described"] / "config.json").write_text('{"a": 2}')
    changed = ask(hub.url, tmp_path / "home", "org/described", weights)
    assert changed["manifest"] is False
    assert "config.json changed" in changed["notes"][0]


def test_a_new_commit_is_seen(hub: Hub, tmp_path: Path) -> None:
    old = hub.sha("org/plain")
    ask(hub.url, tmp_path / "home", "org/plain", True)
    (hub.repos["org/plain"] / "config.json").write_text('{"a": 2}')
    found = ask(hub.url, tmp_path / "home", "org/plain", True)
    assert found["config"] == {"a": 2}
    assert found["revision"] != old


TROUBLE: dict[str, tuple[str, tuple[int, str] | None, str]] = {
    "not found": ("org/nothing", None, "the Hub has no repository org/nothing that we may read"),
    "private": ("org/plain", (401, "RepoNotFound"), "no repository org/plain that we may read"),
    "gated": ("org/plain", (403, "GatedRepo"), "access to org/plain is gated"),
    "revision": ("org/plain@v9", None, "org/plain has no revision v9"),
    "rate": ("org/plain", (429, ""), "limits the rate of requests (429)"),
    "server": ("org/plain", (500, ""), "a problem of its own (500)"),
    "gateway": ("org/plain", (503, ""), "a problem of its own (503)"),
    "denied": ("org/plain", (403, ""), "denies access (403)"),
    "token": ("org/plain", (401, "Invalid credentials in Authorization header"), "token (401)"),
    "no weights": ("org/empty", None, "holds no weights"),
    "shard missing": ("org/lost", None, "names gone.safetensors, which is not there"),
    "cut off": ("org/cut", None, "cut off"),
    "zero bytes": ("org/zero", None, "model.safetensors holds 0 bytes"),
}


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("case", TROUBLE)
def test_trouble_is_one_sentence(case: str, weights: bool, hub: Hub, tmp_path: Path) -> None:
    text, trouble, expected = TROUBLE[case]
    if trouble:
        hub.trouble[text] = trouble
    found = ask(hub.url, tmp_path / "home", text, weights)
    assert expected in found["error"]
    assert "\n" not in found["error"]
    assert str(tmp_path) not in found["error"]
    assert found["exit"] == 3
    assert found["hint"]


def test_nobody_listens(tmp_path: Path) -> None:
    found = ask("http://127.0.0.1:9", tmp_path / "home", "org/plain")
    assert found["error"] == "org/plain: http://127.0.0.1:9 was not reached"


def test_server_without_ranges(hub: Hub, tmp_path: Path) -> None:
    hub.ranges = "ignored"
    found = ask(hub.url, tmp_path / "home", "org/plain")
    assert "does not give parts of model.safetensors" in found["error"]


def test_offline(hub: Hub, tmp_path: Path) -> None:
    home = tmp_path / "home"
    nothing = ask(hub.url, home, "org/plain", HF_HUB_OFFLINE="1")
    assert "is not complete in the cache" in nothing["error"]
    part = ask(hub.url, home, "org/plain")
    assert "error" not in part
    nothing = ask(hub.url, home, "org/plain", HF_HUB_OFFLINE="1")
    assert "offline" in nothing["error"] or "cache" in nothing["error"]
    whole = ask(hub.url, home, "org/plain", True)
    hub.requests.clear()
    for weights in (False, True):
        cached = ask(hub.url, home, "org/plain", weights, HF_HUB_OFFLINE="1")
        assert cached["tensors"] == whole["tensors"]
        assert cached["revision"] == hub.sha("org/plain")
    assert hub.requests == []


def test_a_pickle_is_downloaded_only_for_its_weights(hub: Hub, tmp_path: Path) -> None:
    found = ask(hub.url, tmp_path / "home", "hf://org/pickle@main")
    assert "in pytorch_model.bin, which can only be read whole; nothing" in found["error"]
    assert "hf download org/pickle --revision main" in found["hint"]
    assert not any("pytorch_model.bin" in path for _, path, _ in hub.requests)
    found = ask(hub.url, tmp_path / "home", "org/pickle", True)
    assert "pytorch_model.bin" in found["error"]
    assert "downloaded" not in found["error"]
    assert found["exit"] in (3, 5)


def test_weights_that_nothing_reads_are_not_downloaded(hub: Hub, tmp_path: Path) -> None:
    plain = hub.repos["org/plain"]
    for name in ("model.gguf", "optimizer.pt", "checkpoint-5/model.safetensors", "sub/deep/y"):
        (plain / name).parent.mkdir(exist_ok=True)
        (plain / name).write_bytes(b"much")
    for offline in ("0", "1"):
        found = ask(hub.url, tmp_path / "home", "org/plain", True, HF_HUB_OFFLINE=offline)
        assert found["other_files"] == {"README.md": 4, "sub/x": 4}
    asked = {path.rsplit("/resolve/", 1)[-1].split("/", 1)[-1] for _, path, _ in hub.requests}
    assert {"README.md", "sub/x", "model.safetensors"} <= asked
    assert not asked & {"model.gguf", "optimizer.pt", "checkpoint-5/model.safetensors"}


def test_an_existing_path_wins(hub: Hub, tmp_path: Path) -> None:
    checkpoint(tmp_path / "org" / "plain", None, {"local": True})
    assert ask(hub.url, tmp_path / "home", "org/plain")["config"] == {"local": True}
    assert hub.requests == []
    found = ask(hub.url, tmp_path / "home", "hf://org/plain")
    assert found["config"] == {"model_type": "llama"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/name", HubId("org/name", "")),
        ("hf://org/name", HubId("org/name", "")),
        ("org/na.me-1_x@refs/pr/1", HubId("org/na.me-1_x", "refs/pr/1")),
        ("hf://org/name@v1", HubId("org/name", "v1")),
        ("name", None),
        ("./org/name", None),
        ("../name", None),
        ("/org/name", None),
        ("org/name/sub", None),
        ("hf://name", None),
        ("org/..", None),
        ("org/na--me", None),
        ("org/name@", None),
        ("https://host/org/name", None),
    ],
)
def test_hub_ids(text: str, expected: HubId | None) -> None:
    assert parse_hub_id(text) == expected


@pytest.mark.parametrize("text", ["gone", "./gone/x", "/gone/x/y", "a/b/c", ""])
def test_neither(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match="no such directory, and not a Hub id") as caught:
        open_source(text, weights=False)
    assert caught.value.hint


def test_a_path_needs_no_hub(tmp_path: Path) -> None:
    checkpoint(tmp_path / "src")
    code = (
        "import sys\n"
        "from eagleconv.checkpoint.source import open_source\n"
        "open_source(sys.argv[1], weights=False)\n"
        "print(*sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "src")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert {"huggingface_hub", "numpy", "torch"} & set(run.stdout.split()) == set()
