"""`eagleconv upgrade` does not change what real vLLM computes with a drafter.

The oracle is vLLM itself: its config resolution, its drafter classes, its loader, its counters.
Run with the interpreter of .venv-engines (see install.sh).
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import acceptance, drafter_logits, smoked, target

FIXTURES = target.ROOT / "fixtures"
REAL = FIXTURES / "smollm2-135m-eagle3"
TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class Case:
    """A small drafter of fixtures/valid that vLLM supports."""

    directory: Path
    flags: tuple[str, ...]
    target: dict[str, int]
    loads_before: bool

    @property
    def name(self) -> str:
        """Name of the fixture."""
        return self.directory.name


def cases() -> list[Case]:
    """Every fixture whose expect.json calls vLLM supported."""
    found = []
    for file in sorted(FIXTURES.glob("valid/*/expect.json")):
        expect = json.loads(file.read_text())
        engines = expect.get("engines", {})
        if engines.get("vllm") == "supported":
            found.append(
                Case(
                    file.parent,
                    tuple(expect.get("upgrade", {}).get("flags", ())),
                    expect["target"],
                    engines.get("vllm_before", True),
                )
            )
    return found


CASES = cases()


def upgrade(source: Path, output: Path, *flags: str) -> Path:
    """Run the command line as a user would."""
    command = [Path(sys.executable).with_name("eagleconv"), "upgrade", source, "-o", output, *flags]
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stdout}"
    return output


def with_config(source: Path, output: Path, **changes: Any) -> Path:
    """A copy of a drafter with other top-level config values."""
    shutil.copytree(source, output)
    file = output / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return output


def with_flipped_norm_output(source: Path, output: Path) -> Path:
    """A copy that feeds back the other of the two hidden states."""
    config = json.loads((source / "config.json").read_text())
    return with_config(source, output, norm_output=not config.get("norm_output", False))


def with_rolled_d2t(source: Path, output: Path) -> Path:
    """A copy whose draft ids stand for their neighbours' target ids."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, output)
    for file in output.glob("*.safetensors"):
        tensors = load_file(file)
        if "d2t" in tensors:
            tensors["d2t"] = tensors["d2t"].roll(1)
            save_file(tensors, file, metadata={"format": "pt"})
            return output
    raise AssertionError(f"no d2t in {source}")


def tensor_names(drafter: Path) -> set[str]:
    """Names of all tensors of a safetensors checkpoint."""
    from safetensors import safe_open

    names: set[str] = set()
    for path in drafter.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            names |= set(file.keys())
    return names


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What vLLM recorded from a drafter, from its upgrade, and from a broken copy of that."""

    before: drafter_logits.Recording | None
    after: drafter_logits.Recording
    broken: drafter_logits.Recording | None = None


# Ways to break an upgraded drafter; each is applied to the first fixture that it fits.
BREAKS: dict[str, Callable[[Path, Path], Path]] = {
    "norm_output flipped": with_flipped_norm_output,
    "d2t rolled": with_rolled_d2t,
}


def breaks_for(names: set[str], taken: set[str]) -> str | None:
    """The first break not yet taken that would show in a drafter with these tensors."""
    shows = {"norm_output flipped": "mask_hidden" not in names, "d2t rolled": "d2t" in names}
    return next((key for key in BREAKS if shows[key] and key not in taken), None)


@pytest.fixture(scope="session")
def comparisons(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Comparison | AssertionError]:
    """Upgrade all fixtures, then let one vLLM process run everything there is to compare."""
    scratch = tmp_path_factory.mktemp("vllm")
    jobs: dict[tuple[str, str], drafter_logits.Job] = {}
    refused: dict[str, AssertionError] = {}
    broken: dict[str, str] = {}
    for case in CASES:
        place = scratch / case.name
        sizes = "-".join(str(value) for _, value in sorted(case.target.items()))
        target_directory = scratch / f"target-{sizes}"
        if not target_directory.exists():
            drafter_logits.make_target(target_directory, **case.target)
        place.mkdir()
        try:
            after = upgrade(case.directory, place / "after", *case.flags)
        except AssertionError as error:
            refused[case.name] = error
            continue
        runs = {"after": after} | ({"before": case.directory} if case.loads_before else {})
        names = tensor_names(after)
        if (kind := breaks_for(names, set(broken.values()))) is not None:
            runs["broken"] = BREAKS[kind](after, place / "broken")
            broken[case.name] = kind
        for role, drafter in runs.items():
            jobs[case.name, role] = drafter_logits.Job(
                str(target_directory),
                str(drafter),
                str(place / f"{role}.safetensors"),
                parallel="mask_hidden" in names,
            )
    recordings = dict(zip(jobs, drafter_logits.record_all(list(jobs.values())), strict=True))
    return refused | {
        case.name: Comparison(
            recordings.get((case.name, "before")),
            recordings[case.name, "after"],
            recordings.get((case.name, "broken")),
        )
        for case in CASES
        if case.name not in refused
    }


def row(name: str, difference: str, counters: dict[str, Any]) -> tuple[str, str, str]:
    """A line of the summary table."""
    accepted = " ".join(str(count) for count in counters["accepted_per_pos"])
    return name, difference, f"{counters['num_drafts']}: {accepted}"


def test_there_are_cases() -> None:
    """An empty directory must not pass for a success."""
    assert CASES, f"no fixture under {FIXTURES / 'valid'} is supported by vLLM"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_logits(
    case: Case,
    comparisons: dict[str, Comparison | AssertionError],
    table: list[tuple[str, ...]],
) -> None:
    """The upgrade loads in vLLM, and every tensor computed is the one computed before."""
    comparison = comparisons[case.name]
    if isinstance(comparison, AssertionError):
        raise comparison
    after, before = comparison.after, comparison.before
    assert after.error is None
    assert drafter_logits.is_finite(after), "vLLM left a parameter uninitialised"
    assert after.boundaries["v1"] == after.boundaries["v2"], "the two model runners disagree"
    if before is None:
        table.append(row(case.name, "(after only)", after.counters))
        return
    assert before.error is None
    difference = drafter_logits.difference(before, after)
    table.append(row(case.name, f"{difference:.1e}", after.counters))
    assert difference <= TOLERANCE
    assert before.outputs == after.outputs
    assert before.counters == after.counters


@pytest.mark.parametrize("kind", BREAKS)
def test_broken_drafter_is_noticed(
    kind: str, comparisons: dict[str, Comparison | AssertionError], table: list[tuple[str, ...]]
) -> None:
    """Negative control: the comparison above fails for a drafter that vLLM reads differently."""
    done = [
        (name, comparison)
        for name, comparison in comparisons.items()
        if isinstance(comparison, Comparison) and comparison.broken is not None
    ]
    order = list(BREAKS).index(kind)  # breaks were handed out in this order
    assert len(done) > order, f"no fixture could show: {kind}"
    name, comparison = done[order]
    assert comparison.broken is not None
    assert comparison.broken.error is None
    difference = drafter_logits.difference(comparison.after, comparison.broken)
    table.append(row(f"{name}, {kind}", f"{difference:.1e}", comparison.broken.counters))
    assert difference > 1000 * TOLERANCE


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Counters and text of the trained drafter in every form, and of its target alone."""
    scratch = tmp_path_factory.mktemp("real")
    smollm2 = target.smollm2()
    after = upgrade(REAL, scratch / "after")
    forms = {
        "alone": None,
        "before": REAL,
        "after": after,
        "after, --target": upgrade(REAL, scratch / "after-target", "--target", str(smollm2)),
        "norm_output flipped": with_flipped_norm_output(after, scratch / "broken"),
    }
    reports = acceptance.measure(smollm2, list(forms.values()))
    return dict(zip(forms, reports, strict=True))


def test_real_drafter_accepts_the_same(
    real: dict[str, dict[str, Any]], table: list[tuple[str, ...]]
) -> None:
    """Same counters per position and same text, with and without --target."""
    for form in ("before", "after", "after, --target", "norm_output flipped"):
        table.append(row(f"{REAL.name}, {form}", "", real[form]))
    assert real["after"] == real["before"]
    assert real["after, --target"] == real["before"]
    assert real["before"]["accepted_per_pos"][-1] > 0, "the deepest position was never tested"


def test_real_drafter_is_lossless(real: dict[str, dict[str, Any]]) -> None:
    """Speculation gives the target's own greedy text, token for token."""
    assert real["before"]["outputs"] == real["alone"]["outputs"]


def test_real_counters_notice_a_broken_drafter(real: dict[str, dict[str, Any]]) -> None:
    """Negative control: a lost or invented norm_output shows in the counters, never in the text."""
    broken, sound = real["norm_output flipped"], real["after"]
    assert broken["accepted_per_pos"] != sound["accepted_per_pos"]
    assert broken["outputs"] == sound["outputs"]


def test_smoke_counts_what_vllm_counts(
    real: dict[str, dict[str, Any]], table: list[tuple[str, ...]]
) -> None:
    """Our own draft and verify loop at depth 3: the same counters, the same text."""
    ours = smoked.measure(target.smollm2(), REAL, 3, acceptance.question_ids(target.smollm2()), 48)
    table.append(
        row(f"{REAL.name}, eagleconv smoke", f"gap {ours.smallest_gap:.1g}", ours.counters)
    )
    assert ours.smallest_gap > smoked.GAP
    for key, value in ours.counters.items():
        assert value == real["before"][key], key
    assert ours.outputs == real["before"]["outputs"]


def test_plain_attention_agrees_with_the_kernel(tmp_path: Path) -> None:
    """The stand-in for missing CPU kernels computes what the kernel does, window included."""
    smollm2 = target.smollm2()
    windowed = with_config(
        REAL, tmp_path / "windowed", layer_types=["sliding_attention"], sliding_window=4
    )
    jobs = [
        drafter_logits.Job(
            str(smollm2),
            str(drafter),
            str(tmp_path / f"{drafter.name}-{plain}.safetensors"),
            plain_attention=plain,
        )
        for drafter in (REAL, windowed)
        for plain in (False, True)
    ]
    recordings = drafter_logits.record_all(jobs)
    assert [recording.error for recording in recordings] == [None] * len(jobs)
    full, full_plain, window, window_plain = recordings
    effect = drafter_logits.first_step_difference(full, window)
    assert effect > 0.1, "the window changed nothing"
    assert drafter_logits.first_step_difference(full, full_plain) < 1e-3 * effect
    assert drafter_logits.first_step_difference(window, window_plain) < 1e-3 * effect
