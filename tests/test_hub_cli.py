"""SOURCE as a repository of the Hub, through the real huggingface_hub and a small local server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkpoint.fake_hub import Hub
from tests.test_upgrade_cli import REAL, ROOT


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub(
        {"org/drafter": REAL, "org/target": ROOT / "fixtures/targets/smollm2-135m-instruct"}
    )
    yield server
    server.shutdown()
    server.server_close()


def run(hub: Hub, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    environment |= {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(folder / "cache"),
        "PYTHONPATH": str(ROOT),
        "HF_HUB_DISABLE_XET": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "eagleconv", *args],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        check=False,
    )


def test_inspect_reads_headers_and_the_map_only(hub: Hub, tmp_path: Path) -> None:
    result = run(hub, tmp_path, "inspect", "hf://org/drafter", "--format", "json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["subject"]["revision"] == hub.sha("org/drafter")
    whole = [path for _, path, part in hub.requests if "model.safetensors" in path and not part]
    assert all(
        method == "HEAD" for method, path, part in hub.requests if path in whole and not part
    )


def test_upgrade_of_a_repository_with_a_target_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    result = run(hub, tmp_path, "upgrade", "org/drafter", "--target", "org/target")
    assert result.returncode == 0, result.stderr
    out = tmp_path / "drafter-3.1-layout"
    manifest = json.loads((out / "eagleconv.json").read_text())
    assert manifest["source"] == {"name": "org/drafter", "revision": hub.sha("org/drafter")}
    assert manifest["aux_layers"]["boundaries"] == [2, 15, 27]
    assert run(hub, tmp_path, "verify", str(out)).returncode == 0


def test_a_repository_that_is_not_there(hub: Hub, tmp_path: Path) -> None:
    result = run(hub, tmp_path, "inspect", "org/nothing")
    assert result.returncode == 3
    assert "org/nothing" in result.stderr
    assert "Traceback" not in result.stderr
