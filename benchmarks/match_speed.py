"""Seconds, requests and bytes of `fingerprint` and `match`, local and from a repository, in one run.

    python -m benchmarks.match_speed [--folder DIR]

The target is a made one of 141 GB (the shape of Llama-3.1-70B, sparse files), the Hub a server on the
loopback interface that counts; each command is a new process with an empty cache. Round trips cost
nothing there: over a network, add one for every eight requests, which is how many are under way at
a time. Exits with 1 where a limit is exceeded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.checkpoint.fake_hub import Hub
from tests.target import made_70b
from tests.test_upgrade_cli import ROOT

#: Limits: MB, requests, requests with --quick.
MB, REQUESTS, QUICK = 20.0, 1000, 150


def run(hub: Hub, folder: Path, *args: str) -> tuple[float, str]:
    """Return the seconds of a command with an empty cache, and what it printed.

    Raises:
        SystemExit: It fails.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    cache = tempfile.mkdtemp(dir=folder)
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": cache, "PYTHONPATH": str(ROOT)}
    hub.requests.clear()
    hub.served.clear()
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "eagleconv", *args],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    seconds = time.perf_counter() - begin
    if done.returncode not in (0, 1):
        print(done.stderr, file=sys.stderr)
        raise SystemExit(2)
    return seconds, done.stdout


def drafter(folder: Path, fingerprint: str) -> Path:
    """Write a drafter of that target's shape, whose eagleconv.json records the fingerprint."""
    import eagleconv
    from eagleconv.drafter.layouts import LAYOUTS
    from tests.drafters import make_spec, write_drafter

    spec = make_spec(
        hidden_size=256,
        target_hidden_size=made_70b.HIDDEN,
        vocab_size=made_70b.VOCAB,
        draft_vocab_size=512,
        feedback="pre_norm",
    )
    write_drafter(folder / "plain", spec, LAYOUTS[0])
    eagleconv.upgrade(str(folder / "plain"), str(folder / "drafter"))
    path = folder / "drafter/eagleconv.json"
    record = json.loads(fingerprint)
    # As a drafter of another commit: the files' sha256 settle nothing, the rows are read.
    record["files"] = {}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"target": record}))
    return folder / "drafter"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--folder", type=Path)
    with tempfile.TemporaryDirectory(dir=parser.parse_args().folder) as scratch:
        folder = Path(scratch)
        local = made_70b.write(folder / "target")
        hub = Hub({"org/target": local})
        _, fingerprint = run(hub, folder, "fingerprint", str(local))
        small = str(drafter(folder, fingerprint))
        rows = (
            ("fingerprint, local", ("fingerprint", str(local)), REQUESTS),
            ("fingerprint, Hub", ("fingerprint", "org/target"), REQUESTS),
            ("fingerprint --quick, Hub", ("fingerprint", "org/target", "--quick"), QUICK),
            ("match, local", ("match", small, str(local)), REQUESTS),
            ("match, Hub", ("match", small, "org/target"), REQUESTS),
        )
        wrong = False
        print(f"fingerprint: {len(fingerprint) / 1000:.0f} kB")
        for name, command, limit in rows:
            seconds, text = run(hub, folder, *command)
            served, requests = sum(hub.served.values()) / 1e6, len(hub.requests)
            verdict = text.splitlines()[-1].split(":")[0] if command[0] == "match" else ""
            print(f"{name:26} {seconds:6.1f} s {requests:5} requests {served:6.1f} MB  {verdict}")
            wrong |= served > MB or requests >= limit
        hub.shutdown()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
