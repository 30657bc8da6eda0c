"""Speed of `validate`, and what it fetches of a repository, in one run.

    python -m benchmarks.validate_speed [--gib 4] [--runs 5] [--folder DIR] [--only start|deep|hub]

Start: `eagleconv validate` of a large checkpoint against `python -c pass`, new processes with a warm
page cache, with bytecode of every module as an installation has it. Deep: `eagleconv validate --deep`
against `hashlib.sha256` over the same file, whole processes, alternating, both reading 1 MiB at a
time from the page cache; the ratio is that of the medians. Hub: bytes and requests that a local
server counts while a drafter of 2 GB is validated, alone and with a target of 16 GB.
Exits with 1 where a limit is exceeded, with 2 where eagleconv fails.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.upgrade_speed import heavy_imports, make
from tests.checkpoint.fake_hub import Hub
from tests.made_repositories import large_drafter, large_target

#: Limits: ratios of times, and MB.
START, DEEP, WIRE, WIRE_TARGET = 25.0, 1 / 0.7, 2.0, 4.0
HASH = """
import hashlib, sys
digest, buffer = hashlib.sha256(), bytearray(1 << 20)
with open(sys.argv[1], "rb", buffering=0) as file:
    while count := file.readinto(buffer):
        digest.update(memoryview(buffer)[:count])
print(digest.hexdigest())
"""
VALIDATE = [sys.executable, "-m", "eagleconv", "validate"]
Row = tuple[str, float, float]


def timed(command: list[str], environment: dict[str, str] | None = None) -> float:
    """Return the seconds of a command in a new process.

    Raises:
        SystemExit: It fails.
    """
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, env=environment)
    seconds = time.perf_counter() - begin
    if done.returncode not in (0, 1):
        print(f"{' '.join(command)}: {done.stderr.decode()}", file=sys.stderr)
        raise SystemExit(2)
    return seconds


def alternating(commands: dict[str, list[str]], folder: Path, runs: int) -> dict[str, float]:
    """Return the median seconds of commands that run turn and turn about, once before that."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in commands.items():
            seconds = timed(command, environment)
            if number:  # the first run compiles, and fills the page cache
                times[name].append(seconds)
    for name, values in times.items():
        shown = ", ".join(f"{v:.3f}" for v in (min(values), statistics.median(values), max(values)))
        print(f"{name}: least, median, most of {runs}: {shown} s", flush=True)
    return {name: statistics.median(values) for name, values in times.items()}


def start_speed(source: Path, folder: Path, runs: int) -> list[Row]:
    """Measure `validate` against an empty Python."""
    validate = [*VALIDATE, str(source)]
    medians = alternating(
        {"python -c pass": [sys.executable, "-c", "pass"], "validate": validate}, folder, runs
    )
    loaded = heavy_imports(validate)
    return [
        ("validate / python -c pass", medians["validate"] / medians["python -c pass"], START),
        (f"validate, heavy imports {' '.join(loaded)}".strip(), float(len(loaded)), 0.0),
    ]


def deep_speed(source: Path, folder: Path, runs: int) -> list[Row]:
    """Measure `validate --deep` against a hash of the weights."""
    weights = str(source / "model.safetensors")
    commands = {
        "hashlib.sha256": [sys.executable, "-c", HASH, weights],
        "validate --deep": [*VALIDATE, str(source), "--deep"],
    }
    medians = alternating(commands, folder, runs)
    ratio = medians["validate --deep"] / medians["hashlib.sha256"]
    return [("validate --deep / hashlib.sha256", ratio, DEEP)]


def wire(folder: Path) -> list[Row]:
    """Count what crosses the wire for a repository, and for one with a target."""
    hub = Hub(
        {
            "org/drafter": large_drafter(folder / "drafter"),
            "org/target": large_target(folder / "target", 4),
        }
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.url, "PYTHONPATH": os.getcwd()}
    rows: list[Row] = []
    for name, limit, more in (
        ("2 GB drafter of the Hub, MB", WIRE, []),
        ("with a 16 GB target, MB", WIRE_TARGET, ["--target", "org/target"]),
    ):
        hub.served.clear()
        hub.requests.clear()
        # A cache of its own each time: nothing is there yet.
        timed([*VALIDATE, "org/drafter", *more], {**environment, "HF_HOME": str(folder / name)})
        print(f"{name}: {hub.served.total()} bytes in {len(hub.requests)} requests", flush=True)
        rows.append((name, hub.served.total() / 1e6, limit))
    hub.shutdown()
    hub.server_close()
    return rows


def main() -> int:
    """Measure, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=4.0, help="size of the local checkpoint")
    parser.add_argument("--runs", type=int, default=5, help="runs of --deep")
    parser.add_argument("--start-runs", type=int, default=20, help="runs of validate without it")
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder by default")
    parser.add_argument("--only", choices=("start", "deep", "hub"))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="eagleconv-speed-", dir=options.folder))
    rows: list[Row] = []
    try:
        if options.only in (None, "hub"):
            rows += wire(folder)
        if options.only != "hub":
            source = make(folder / "source", options.gib)
            if options.only != "deep":
                rows += start_speed(source, folder, options.start_runs)
            if options.only != "start":
                rows += deep_speed(source, folder, options.runs)
    finally:
        shutil.rmtree(folder)
    print(f"\n{'measured':<44}{'value':>10}{'limit':>10}")
    for name, value, limit in rows:
        verdict = "" if value <= limit else "  exceeded"
        print(f"{name:<44}{value:>10.2f}{limit:>10.2f}{verdict}")
    return int(any(value > limit for _, value, limit in rows))


if __name__ == "__main__":
    raise SystemExit(main())
