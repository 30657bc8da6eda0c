"""A process that dies at any moment leaves nothing, or the whole result.

EAGLECONV_KILLS sets how many processes are killed per test (20 by default).
"""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eagleconv.checkpoint.manifest import verify_files
from eagleconv.checkpoint.writer import OutputDirectory, can_be_unnamed

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("EAGLECONV_KILLS", "20"))
SIZE = 24


def command(destination: Path, mode: str) -> list[str]:
    """Return the command line of the writer."""
    script = Path(__file__).with_name("write_forever.py")
    return [sys.executable, str(script), str(destination), str(SIZE), mode]


def start(destination: Path, mode: str) -> "subprocess.Popen[str]":
    """Start the writer and wait until it is about to write."""
    process = subprocess.Popen(
        command(destination, mode),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def duration(folder: Path, mode: str) -> float:
    """Return the seconds one undisturbed run takes."""
    process = start(folder / "warm", mode)
    begin = time.perf_counter()
    assert process.communicate()[0] == "done\n"
    return time.perf_counter() - begin


def is_whole(out: Path) -> bool:
    """Say whether the result is there; fail if it is there in part."""
    if not out.exists():
        return False
    manifest = json.loads((out / "eagleconv.json").read_bytes())
    assert verify_files(str(out), manifest) == []
    assert {path.name for path in out.iterdir()} == {*manifest["files"], "eagleconv.json"}
    return True


@pytest.mark.parametrize("mode", ["unnamed", "named", "direct"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_killed_at_random_moments(number: signal.Signals, mode: str, tmp_path: Path) -> None:
    if mode != "named" and not can_be_unnamed(str(tmp_path)):
        pytest.skip("this file system has no O_TMPFILE")
    whole = 0
    seconds = duration(tmp_path, mode)
    seed = random.Random(f"{number}{mode}")
    for _ in range(KILLS):
        out = tmp_path / "killed" / "out"
        out.parent.mkdir()
        process = start(out, mode)
        time.sleep(seed.uniform(0, seconds * 1.1))
        process.send_signal(number)
        output, _ = process.communicate()
        result = is_whole(out)
        whole += result
        assert result or "done" not in output
        left = {path.name for path in out.parent.iterdir()} - {"out"}
        if number == signal.SIGINT:
            assert left == set()
        if not result:
            # What SIGKILL leaves under a hidden name, the next run removes.
            with OutputDirectory(str(out)) as again:
                again.add_bytes("a", b"")
            assert list(out.parent.iterdir()) == []
        subprocess.run(["rm", "-rf", str(out.parent)], check=True)
    assert whole < KILLS, "no process was killed before it was done: SIZE is too small"


def test_a_killed_process_leaves_no_gigabytes(tmp_path: Path) -> None:
    """Without names, files vanish with their process; only a kill within the commit leaves any."""
    if not can_be_unnamed(str(tmp_path)):
        pytest.skip("this file system has no O_TMPFILE")
    process = start(tmp_path / "out", "unnamed")
    time.sleep(0.02)
    process.kill()
    process.communicate()
    held = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert held == 0 or is_whole(tmp_path / "out")


@pytest.mark.parametrize("mode", ["unnamed", "named", "direct"])
def test_file_size_limit_is_one_sentence(mode: str, tmp_path: Path) -> None:
    """The system's own limit stands in for a full disk: a real error from a real write."""
    limit = (SIZE - 5) << 20
    process = subprocess.run(
        command(tmp_path / "out", mode),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    last = process.stderr.strip().splitlines()[-1]
    assert "ConversionError: model.safetensors is larger than the file system" in last
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["unnamed", "named", "direct"])
def test_full_disk_is_one_sentence(mode: str, tmp_path: Path) -> None:
    """A real full file system, where this machine lets us mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE - 5}m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        process = subprocess.run(
            command(disk / "out", mode),
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        last = process.stderr.strip().splitlines()[-1]
        assert "ConversionError: disk full while writing model.safetensors" in last
        assert list(disk.iterdir()) == []
        assert subprocess.check_output(["df", "--output=used", str(disk)]).split()[1] == b"0"
    finally:
        subprocess.run(["umount", str(disk)], check=True)
