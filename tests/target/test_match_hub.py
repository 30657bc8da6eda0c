"""Fingerprints and matches of repositories: what crosses the wire, and that it changes nothing.

Through the real huggingface_hub against a local server that counts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import eagleconv
from tests.checkpoint.fake_hub import Hub
from tests.target import made_70b, made_pair
from tests.test_upgrade_cli import ROOT

RUN = "import sys, time; time.sleep = lambda s: None; from eagleconv.cli.main import main; main()"
#: What the issue allows: bytes, and requests of a full and of a quick fingerprint.
BYTES, REQUESTS, QUICK = 20_000_000, 1000, 150


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    made_70b.write(root / "large")
    made_pair.target(root / "target", shards=3)
    made_pair.drafter(root / "drafter")
    return root


@pytest.fixture
def hub(home: Path) -> Iterator[Hub]:
    names = ("large", "target", "drafter")
    server = Hub({f"org/{name}": home / name for name in names})
    yield server
    server.shutdown()
    server.server_close()


def run(hub: Hub, folder: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    environment |= {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(folder / "cache"),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, *args],
        capture_output=True,
        text=True,
        env={**environment, **variables},
        cwd=folder,
        timeout=300,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize("quick", [False, True])
def test_a_target_of_140_gb(hub: Hub, home: Path, quick: bool, tmp_path: Path) -> None:
    option = ["--quick"] if quick else []
    done = run(hub, tmp_path, "fingerprint", "org/large", *option)
    assert done.returncode == 0, done.stderr
    served, requests = sum(hub.served.values()), len(hub.requests)
    print(f"\n140 GB{', quick' if quick else ''}: {served / 1e6:.1f} MB in {requests} requests")
    assert served < BYTES
    assert requests < (QUICK if quick else REQUESTS)
    remote = json.loads(done.stdout)
    local = eagleconv.fingerprint(str(home / "large"), quick=quick).as_json()
    assert remote["revision"] == hub.sha("org/large")
    assert len(remote["files"]) == made_70b.SHARDS
    for name in ("source", "revision", "files"):
        local.pop(name)
        remote.pop(name)
    assert remote == local


def test_a_match_from_the_hub(hub: Hub, home: Path, tmp_path: Path) -> None:
    done = run(hub, tmp_path, "upgrade", "org/drafter", "--target", "org/target")
    assert done.returncode == 0, done.stderr
    out = str(tmp_path / "drafter-3.1-layout")
    # The same commit: all files have the recorded sha256, and no row need be read.
    hub.requests.clear()
    done = run(hub, tmp_path, "match", out, "org/target", "--format", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["target"]["verdict"]) == (0, "match")
    weights = next(level for level in report["target"]["levels"] if level["name"] == "weights")
    assert "sha256" in weights["sentences"][0]
    assert report["target"]["revision"] == hub.sha("org/target")
    # A directory with the same weights.
    done = run(hub, tmp_path, "match", out, str(home / "target"))
    assert (done.returncode, done.stdout.splitlines()[-1][:5]) == (0, "match")


def test_another_commit_with_other_weights(hub: Hub, home: Path, tmp_path: Path) -> None:
    done = run(hub, tmp_path, "upgrade", "org/drafter", "--target", "org/target")
    assert done.returncode == 0, done.stderr
    made_pair.target(tmp_path / "tuned", made_pair.arrays(seed=2), shards=3)
    hub.repos["org/target"] = tmp_path / "tuned"
    out = str(tmp_path / "drafter-3.1-layout")
    done = run(hub, tmp_path, "match", out, "org/target")
    assert done.returncode == 1
    assert "mismatch" in done.stdout


def test_a_drafter_from_the_hub(hub: Hub, home: Path, tmp_path: Path) -> None:
    """Its eagleconv.json is believed where the Hub's sha256 of its weights is the recorded one."""
    done = run(hub, tmp_path, "upgrade", str(home / "drafter"), "--target", str(home / "target"),
               "-o", str(tmp_path / "out"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    for number, other in enumerate((False, True)):
        copy = Path(shutil.copytree(tmp_path / "out", tmp_path / f"copy-{number}"))
        if other:
            with open(copy / "model.safetensors", "r+b") as file:
                file.seek(-64, os.SEEK_END)
                file.write(bytes(64))
        hub.repos["org/upgraded"] = copy
        done = run(hub, tmp_path, "match", "org/upgraded", str(home / "target"))
        verdict = done.stdout.splitlines()[-2 if other else -1].split(":")[0]
        assert verdict == ("compatible" if other else "match"), done.stdout


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        ((401, "GatedRepo"), "gated"),
        ((429, ""), "rate of requests"),
        ((404, "RepoNotFound"), "no repository"),
    ],
)
def test_trouble_has_a_sentence(
    hub: Hub, home: Path, trouble: tuple[int, str], sentence: str, tmp_path: Path
) -> None:
    hub.trouble["org/target"] = trouble
    for args in (["fingerprint", "org/target"], ["match", str(home / "drafter"), "org/target"]):
        done = run(hub, tmp_path, *args)
        assert done.returncode == 3, done.stderr
        assert sentence in done.stderr
        assert done.stdout == ""
