"""`validate` of a repository: what crosses the wire, and what is said when it cannot.

Through the real huggingface_hub against a local server that counts. Waits between retries are left
out, and nothing may be left in the working directory.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.fake_hub import Hub
from tests.made_repositories import large_drafter, large_target, with_target
from tests.test_upgrade_cli import REAL, ROOT

RUN = "import sys, time; time.sleep = lambda s: None; from eagleconv.cli.main import main; main()"
WIRE_DRAFTER, WIRE_TARGET = 2_000_000, 4_000_000


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A Hub with small repositories."""
    server = Hub(
        {
            "org/drafter": REAL,
            "org/target": ROOT / "fixtures/targets/smollm2-135m-instruct",
            "org/sharded": ROOT / "fixtures/valid/sharded",
            "org/sharded-no-index": ROOT / "fixtures/valid/sharded-no-index",
            "org/pickle": ROOT / "fixtures/valid/safeailab-bin",
            "org/side-files": ROOT / "fixtures/valid/automodel-side-files",
        }
    )
    yield server
    server.shutdown()
    server.server_close()


def validate(
    hub: Hub, folder: Path, *args: str, expect: int | None = None, **variables: str
) -> dict[str, Any]:
    """Validate in a new process with an empty working directory; return the report."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    environment |= {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(folder / "cache"),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
    }
    (folder / "cwd").mkdir(exist_ok=True)
    run = subprocess.run(
        [sys.executable, "-c", RUN, "validate", *args, "--format", "json"],
        capture_output=True,
        text=True,
        env={**environment, **variables},
        cwd=folder / "cwd",
        timeout=120,
    )
    assert "Traceback" not in run.stderr
    assert expect is None or run.returncode == expect, run.stderr
    assert os.listdir(folder / "cwd") == []
    report: dict[str, Any] = json.loads(run.stdout) if run.stdout else {"error": run.stderr}
    report["stderr"] = run.stderr
    return report


def skipped(report: dict[str, Any]) -> set[str]:
    """Return the codes of rules that did not run."""
    return {entry["code"] for entry in report["summary"]["checks_skipped"]}


def found(report: dict[str, Any]) -> set[str]:
    """Return the codes of the findings."""
    return {entry["code"] for entry in report["findings"]}


# --- what crosses the wire ---


def wire(hub: Hub, repo: str) -> tuple[int, int]:
    """Return the bytes served for a repository and the number of requests."""
    about = (f"/{repo}/", f"/api/models/{repo}")
    size = sum(n for path, n in hub.served.items() if path.startswith(about))
    return size, sum(1 for _, path, _ in hub.requests if path.startswith(about))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A Hub with a large drafter, and targets in one file, in a few and in many."""
    root = tmp_path_factory.mktemp("large")
    repos = {"org/drafter": large_drafter(root / "drafter")}
    repos |= {f"org/target-{n}": large_target(root / f"target-{n}", n) for n in (1, 4, 40)}
    server = Hub(repos)
    yield server
    server.shutdown()
    server.server_close()
    shutil.rmtree(root)


@pytest.fixture
def counting(large: Hub) -> Hub:
    """The large Hub, its counts at zero."""
    large.requests.clear()
    large.served.clear()
    return large


def test_a_drafter_of_2_gb_is_read_in_less_than_2_mb(counting: Hub, tmp_path: Path) -> None:
    report = validate(counting, tmp_path, "org/drafter", "--engine", "vllm==0.32.0")
    assert report["subject"]["revision"] == counting.sha("org/drafter")
    assert report["summary"]["checks_run"] > 50
    assert report["stderr"] == ""
    size, requests = wire(counting, "org/drafter")
    print(f"2 GB drafter: {size} bytes in {requests} requests")
    assert 300_000 < size < WIRE_DRAFTER  # its map is 384 000 bytes
    assert requests <= 12
    whole = [r for r in counting.requests if r[0] == "GET" and "safetensors" in r[1] and not r[2]]
    assert whole == []
    cached = [p for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.stat().st_size > 9999]
    assert cached == []


@pytest.mark.parametrize("shards", [1, 4, 40])
def test_a_target_is_read_in_rows(shards: int, counting: Hub, tmp_path: Path) -> None:
    target = f"org/target-{shards}"
    report = validate(counting, tmp_path, "org/drafter", "--target", target)
    assert not {"ECP001", "ECP005", "ECP006"} & skipped(report)
    # All rows are zeros here: the embeddings agree, and the head is compared both ways.
    assert not {"ECP005", "ECP006"} & found(report)
    (drafter, its), (model, theirs) = wire(counting, "org/drafter"), wire(counting, target)
    print(
        f"with a target in {shards} files: {drafter} + {model} bytes in {its} + {theirs} requests"
    )
    assert drafter + model < WIRE_TARGET
    assert model > 500_000
    assert its + theirs <= 80
    # Of many files, only those of embedding and head are opened.
    opened = {path for _, path, part in counting.requests if part and f"/{target}/" in path}
    assert len(opened) == min(shards, 2 if shards > 8 else 4)


@pytest.mark.parametrize("change", ["", "embedding", "head"])
def test_rows_that_differ_are_found_from_afar(change: str, hub: Hub, tmp_path: Path) -> None:
    drafter, target = with_target(tmp_path / "made", change)
    hub.repos |= {"org/made": drafter, "org/made-target": target}
    expected = {"": set(), "embedding": {"ECP005"}, "head": {"ECP006"}}[change]
    far = validate(hub, tmp_path, "org/made", "--target", "org/made-target")
    near = validate(hub, tmp_path, str(drafter), "--target", str(target))
    for report in (far, near):
        assert {"ECP005", "ECP006"} & found(report) == expected
    messages = [[f["message"] for f in r["findings"] if f["code"] in expected] for r in (far, near)]
    assert messages[0] == messages[1]


@pytest.mark.parametrize("name", ["sharded", "sharded-no-index"])
def test_shards_say_what_the_directory_says(name: str, hub: Hub, tmp_path: Path) -> None:
    far = validate(hub, tmp_path, f"org/{name}")
    near = validate(hub, tmp_path, str(hub.repos[f"org/{name}"]))
    assert far["subject"]["revision"] == hub.sha(f"org/{name}")
    assert near["subject"]["revision"] == ""
    assert far["findings"] == near["findings"]
    assert skipped(far) == skipped(near)


@pytest.mark.parametrize("revision", ["", "main", "v1", "branch/of-mine", "sha"])
def test_the_report_names_the_commit(revision: str, hub: Hub, tmp_path: Path) -> None:
    hub.refs["org/drafter"] = {"v1", "branch/of-mine"}
    sha = hub.sha("org/drafter")
    revision = sha if revision == "sha" else revision
    source = f"hf://org/drafter@{revision}" if revision else "org/drafter"
    report = validate(hub, tmp_path, source)
    assert report["subject"]["source"] == source
    assert report["subject"]["revision"] == sha


# --- --deep, and weights that cannot be read in part ---


def test_deep_downloads_and_says_how_much(hub: Hub, tmp_path: Path) -> None:
    root = tmp_path / "made"
    shutil.copytree(REAL, root)
    (root / "notes.txt").write_bytes(bytes(70 << 20))
    hub.repos["org/drafter"] = root
    first = validate(hub, tmp_path, "org/drafter", "--deep")
    assert "org/drafter: downloading 0.1 GB into the cache of huggingface_hub" in first["stderr"]
    assert "ECT013" not in skipped(first)
    assert first["subject"]["revision"] == hub.sha("org/drafter")
    hub.served.clear()
    second = validate(hub, tmp_path, "org/drafter", "--deep")
    assert second["stderr"] == ""
    assert wire(hub, "org/drafter")[0] < 100_000
    offline = validate(hub, tmp_path, "org/drafter", HF_HUB_OFFLINE="1")
    assert offline["subject"]["revision"] == hub.sha("org/drafter")


@pytest.mark.parametrize("name", ["pickle", "side-files"])
def test_a_pickle_is_not_downloaded_unasked(name: str, hub: Hub, tmp_path: Path) -> None:
    report = validate(hub, tmp_path, f"org/{name}", expect=3)
    assert "which can only be read whole; nothing was downloaded" in report["unchecked"]["reason"]
    assert "hf download" in report["unchecked"]["hint"]
    assert not any("/resolve/" in path for _, path, _ in hub.requests)


def test_a_pickled_target_is_not_downloaded(hub: Hub, tmp_path: Path) -> None:
    hub.repos["org/pickled"] = ROOT / "fixtures/targets/pickle"
    report = validate(hub, tmp_path, "org/sharded", "--target", "org/pickled")
    reasons = [s["reason"] for s in report["summary"]["checks_skipped"] if s["code"] == "ECP005"]
    assert "can only be read whole; nothing was downloaded" in reasons[0]
    assert not any(path.endswith(".bin") for _, path, _ in hub.requests)


# --- when it cannot ---

#: Case -> source, what the Hub does, words of the sentence.
TROUBLE: dict[str, tuple[str, dict[str, Any], str]] = {
    "private": (
        "org/drafter",
        {"trouble": {"org/drafter": (401, "RepoNotFound")}},
        "the Hub has no repository org/drafter that we may read",
    ),
    "missing": ("org/nothing", {}, "the Hub has no repository org/nothing that we may read"),
    "revision": ("org/drafter@v9", {}, "org/drafter has no revision v9"),
    "gated": (
        "org/drafter",
        {"trouble": {"org/drafter": (403, "GatedRepo")}},
        "access to org/drafter is gated",
    ),
    # The Hub shows what a gated repository holds, and gives none of it.
    "gated files": (
        "org/drafter",
        {"file_trouble": {"org/drafter": (403, "GatedRepo")}},
        "access to org/drafter is gated",
    ),
    "gated files, no token": (
        "org/drafter",
        {"file_trouble": {"org/drafter": (401, "GatedRepo")}},
        "access to org/drafter is gated",
    ),
    "rate": ("org/drafter", {"trouble": {"org/drafter": (429, "")}}, "the rate of requests (429)"),
    "rate of files": (
        "org/drafter",
        {"file_trouble": {"org/drafter": (429, "")}},
        "the rate of requests (429)",
    ),
    "server": ("org/drafter", {"trouble": {"org/drafter": (500, "")}}, "problem of its own (500)"),
    "server of files": (
        "org/drafter",
        {"file_trouble": {"org/drafter": (503, "")}},
        "problem of its own (503)",
    ),
    "no ranges": ("org/drafter", {"ranges": "ignored"}, "does not give parts of model.safetensors"),
    "other range": ("org/drafter", {"ranges": "shifted"}, "the server gave 1-65536"),
    "short": ("org/drafter", {"ranges": "short"}, "65535 bytes of model.safetensors where 65536"),
    "long": ("org/drafter", {"ranges": "long"}, "gave more of model.safetensors than the 65536"),
    "other size": ("org/drafter", {"ranges": "resized"}, "bytes by the list of files"),
    "broken": ("org/drafter", {"ranges": "broken"}, "broke the connection"),
    "silent": ("org/drafter", {"ranges": "silent"}, "did not answer in time"),
}


@pytest.mark.parametrize("case", TROUBLE)
def test_trouble_is_one_sentence(case: str, hub: Hub, tmp_path: Path) -> None:
    source, trouble, words = TROUBLE[case]
    for name, value in trouble.items():
        setattr(hub, name, value)
    report = validate(hub, tmp_path, source, expect=3, HF_HUB_DOWNLOAD_TIMEOUT="1")
    reason = report["unchecked"]["reason"]
    assert words in reason
    assert reason.startswith(f"{source}: ")
    assert "\n" not in reason
    assert report["unchecked"]["hint"]
    assert report["findings"] == []
    assert wire(hub, "org/drafter")[0] < 20_000_000
    assert not any(path.is_file() and path.stat().st_size > 9999 for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("trouble", ["gated", "broken", "nothing"])
def test_trouble_with_the_target(trouble: str, hub: Hub, tmp_path: Path) -> None:
    hub.repos["org/target"] = with_target(tmp_path / "made", "")[1]
    hub.repos["org/made"] = tmp_path / "made/drafter"
    target = "org/nothing" if trouble == "nothing" else "org/target"
    if trouble == "gated":
        hub.trouble["org/target"] = (403, "GatedRepo")
    args = ["--target", target]
    if trouble == "broken":
        hub.ranges = "broken"
        report = validate(hub, tmp_path, str(tmp_path / "made/drafter"), *args)
        reason = {s["code"]: s["reason"] for s in report["summary"]["checks_skipped"]}["ECP005"]
        assert "org/target" in reason
        assert "broke the connection" in reason
        return
    report = validate(hub, tmp_path, "org/made", *args, expect=3)
    assert target in str(report)
    assert {"gated": "is gated", "nothing": "no repository"}[trouble] in str(report)


def test_a_server_that_gives_the_whole_file_is_hung_up_on(counting: Hub, tmp_path: Path) -> None:
    counting.ranges = "ignored"
    try:
        report = validate(counting, tmp_path, "org/drafter", expect=3)
    finally:
        counting.ranges = "given"
    assert "does not give parts of model.safetensors" in report["unchecked"]["reason"]
    # What was on its way when the headers were read, and not 2 GB.
    assert wire(counting, "org/drafter")[0] < 20_000_000


@pytest.mark.parametrize("case", ["503 twice", "429 once", "breaks once"])
def test_what_passes_is_tried_again(case: str, hub: Hub, tmp_path: Path) -> None:
    shown = validate(hub, tmp_path, "org/drafter")  # config.json is in the cache from now on
    if case == "breaks once":
        hub.break_once = True
    else:
        hub.passing["org/drafter"] = (503, "", 2) if case == "503 twice" else (429, "", 1)
    report = validate(hub, tmp_path, "org/drafter")
    assert report["findings"] == shown["findings"]
    assert hub.passing.get("org/drafter", (0, "", 0))[2] == 0
    assert not hub.break_once


def test_offline_with_nothing_and_with_a_config(hub: Hub, tmp_path: Path) -> None:
    for number in range(2):
        report = validate(hub, tmp_path, "org/drafter", expect=3, HF_HUB_OFFLINE="1")
        reason = report["unchecked"]["reason"]
        assert "is not complete in the cache" in reason or "(offline: only what is in" in reason
        assert "run once without HF_HUB_OFFLINE" in report["unchecked"]["hint"]
        if number == 0:
            assert hub.requests == []
            # Headers are not kept, config.json is.
            assert validate(hub, tmp_path, "org/drafter")["unchecked"] is None
            assert list((tmp_path / "cache").rglob("config.json"))


def test_offline_with_the_targets_config(hub: Hub, tmp_path: Path) -> None:
    args = (str(REAL), "--target", "org/target")
    nothing = validate(hub, tmp_path, *args, expect=3, HF_HUB_OFFLINE="1")
    assert "org/target is not complete in the cache" in str(nothing)
    validate(hub, tmp_path, *args)
    cached = validate(hub, tmp_path, *args, HF_HUB_OFFLINE="1")
    assert "ECP001" not in skipped(cached)
