"""An `upgrade` that dies at any moment leaves nothing, or the whole result, and its source alone.

EAGLECONV_KILLS sets how many processes each test stops (20 by default).
"""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.upgrade_speed import make

ROOT = Path(__file__).parent.parent
KILLS = int(os.environ.get("EAGLECONV_KILLS", "20"))
GIB = 0.05

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="sees what a process has open in /proc"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("made") / "source", GIB)


def start(*args: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "eagleconv", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def succeeds(*args: object) -> None:
    process = start(*args)
    _, error = process.communicate()
    assert process.returncode == 0, error


def digests(directory: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in directory.iterdir()}


def until(process: "subprocess.Popen[str]", seen: Callable[[], bool]) -> None:
    """Wait until something is seen or the process ends."""
    while process.poll() is None and not seen():
        time.sleep(0.0005)


def reading(process: "subprocess.Popen[str]", source: Path) -> None:
    """Wait until a process has the weights open."""

    def seen() -> bool:
        try:
            files = [os.readlink(path) for path in Path(f"/proc/{process.pid}/fd").iterdir()]
        except OSError:
            return False
        return str(source / "model.safetensors") in files

    until(process, seen)


def durations(source: Path, out: Path) -> tuple[float, float]:
    """Return the seconds of an undisturbed run, and those of it after the weights are opened."""
    whole, after = [], []
    for _ in range(3):
        subprocess.run(["rm", "-rf", out], check=True)
        begin = time.perf_counter()
        process = start("upgrade", source, "-o", out)
        reading(process, source)
        opened = time.perf_counter()
        process.communicate()
        assert process.returncode == 0
        end = time.perf_counter()
        whole.append(end - begin)
        after.append(end - opened)
    return min(whole), min(after)


def test_sigkill(source: Path, tmp_path: Path) -> None:
    before = digests(source)
    whole_time, reading_time = durations(source, tmp_path / "undisturbed")
    expected = digests(tmp_path / "undisturbed")
    moments = random.Random(0)
    place = tmp_path / "place"
    place.mkdir()
    out = place / "out"
    unfinished = whole = leftovers = 0
    for number in range(KILLS):
        process = start("upgrade", source, "-o", out)
        # Anywhere; while it copies; and around the moments in which files get their names.
        if number % 3 == 0:
            time.sleep(moments.uniform(0, whole_time))
        elif number % 3 == 1:
            reading(process, source)
            time.sleep(moments.uniform(0, reading_time))
        else:
            reading(process, source)
            time.sleep(moments.uniform(0, 0.7) * reading_time)
            until(process, lambda: any(place.iterdir()))
            time.sleep(moments.uniform(0, 0.005))
        process.kill()
        process.communicate()
        unfinished += process.returncode == -signal.SIGKILL
        left = {path.name for path in place.iterdir()}
        assert all(name == "out" or name.startswith(".out.eagleconv-") for name in left)
        leftovers += bool(left - {"out"})
        if out.exists():
            whole += 1
            succeeds("verify", out)
            assert digests(out) == expected
            subprocess.run(["rm", "-rf", out], check=True)
        succeeds("upgrade", source, "-o", out)
        assert [path.name for path in place.iterdir()] == ["out"]
        assert digests(out) == expected
        subprocess.run(["rm", "-rf", out], check=True)
    assert digests(source) == before
    print(f"{KILLS} kills: {unfinished} unfinished, {whole} whole, {leftovers} with leftovers")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_asked_to_stop(number: signal.Signals, code: int, source: Path, tmp_path: Path) -> None:
    before = digests(source)
    _, reading_time = durations(source, tmp_path / "undisturbed")
    moments = random.Random(number)
    place = tmp_path / "place"
    place.mkdir()
    out = place / "out"
    stopped = 0
    for _ in range(KILLS):
        process = start("upgrade", source, "-o", out)
        reading(process, source)
        time.sleep(moments.uniform(0, reading_time))
        process.send_signal(number)
        _, error = process.communicate()
        if out.exists():  # too late: the result is whole, and nothing is beside it
            assert process.returncode == 0
            succeeds("verify", out)
            assert [path.name for path in place.iterdir()] == ["out"]
            subprocess.run(["rm", "-rf", out], check=True)
        else:
            stopped += 1
            # Where SIGINT comes within an exec(), as in the making of a dataclass, Python itself
            # ends by that signal whatever the exit code; a shell shows 130 for either.
            assert process.returncode in (code, -number)
            assert "Traceback" not in error
            assert list(place.iterdir()) == []
    assert digests(source) == before
    print(f"{KILLS} times {number.name}: {stopped} stopped, {KILLS - stopped} whole")
