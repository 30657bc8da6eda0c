"""What `validate --engine vllm==0.32` predicts is what real vLLM does with the same directory.

Every mutation is loaded by vLLM as in production (config code, drafter classes, loader, a
generation), and what its drafter computed is held against the reference step of the drafter as it
was trained: the good one's where the change is a defect, the file's own where it states another
drafter.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from . import drafter_logits, target
from .mutations import MUTATIONS, Mutation

FIXTURES = target.ROOT / "fixtures"
ENGINE = "vllm==0.32"
#: Base -> fixture, and whether it is upgraded first (with its target, so that ids are written).
BASES = {
    "flat31": ("torchspec-31", True),
    "plain": ("specforge", False),
    "speculators": ("speculators", False),
    "speculators31": ("speculators-31", False),
    "qwen3": ("flat-qwen3", False),
    "mla": ("torchspec-vllm-kimi", True),
    "full": ("borrowed-head", False),
    "peagle": ("speculators-peagle", False),
    "two": ("speculators-layers", False),
    "window": ("speculators-window", False),
    "own-width": ("own-width", False),
}
FINE, REFUSED, OTHER, OPEN = "runs as trained", "refused", "computes something else", "open"


@dataclasses.dataclass(frozen=True)
class Result:
    """One mutation: what was predicted, and what happened.

    Attributes:
        predicted: For the V1 runner, which is the one that runs on CPU.
        happened: With the V1 runner.
        why: What vLLM said, or how far its numbers were off.
        predicted_v2: For the V2 runner.
        taps_v2: Whether the V2 runner's own function gives the trained taps; None where vLLM
            refused before.
        codes: Rules that found something.
        reasons: Of the V1 verdict.
    """

    predicted: str
    happened: str
    why: str
    predicted_v2: str
    taps_v2: bool | None
    codes: tuple[str, ...]
    reasons: tuple[str, ...]


def make_base(name: str, scratch: Path) -> tuple[Path, dict[str, int]]:
    """Write a good drafter and return it with the sizes of its target."""
    import eagleconv

    fixture, upgraded = BASES[name]
    source = FIXTURES / "valid" / fixture
    expect = json.loads((source / "expect.json").read_text())
    sizes = expect["target"]
    output = scratch / "bases" / f"{name}-eagle3"
    output.parent.mkdir(exist_ok=True)
    if upgraded:
        eagleconv.upgrade(str(source), str(output), target=str(make_target(sizes, scratch)))
        (output / "eagleconv.json").unlink()
    else:
        shutil.copytree(source, output)
        (output / "expect.json").unlink()
    return output, sizes


def make_target(sizes: dict[str, int], scratch: Path) -> Path:
    """Write a random target of given sizes, once; `padded_to` adds rows no token has."""
    directory = scratch / ("target-" + "-".join(str(v) for _, v in sorted(sizes.items())))
    if not directory.exists():
        plain = {key: value for key, value in sizes.items() if key != "padded_to"}
        drafter_logits.make_target(directory, **plain)
        if "padded_to" in sizes:
            pad(directory, sizes["padded_to"])
    return directory


def pad(directory: Path, rows: int) -> None:
    """Add zero rows to a target's embedding and head, as tensor-parallel trainers do."""
    import torch
    from safetensors.torch import load_file, save_file

    path = directory / "model.safetensors"
    tensors = load_file(path)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        missing = rows - tensors[name].shape[0]
        tensors[name] = torch.nn.functional.pad(tensors[name], (0, 0, 0, missing))
    save_file(tensors, path, metadata={"format": "pt"})
    config = directory / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"vocab_size": rows}))


def predict(directory: Path, target_directory: Path) -> Any:
    """Run `validate` as a user would, with every tensor read."""
    import eagleconv
    from eagleconv.drafter.declared import Declared

    return eagleconv.validate(
        str(directory),
        target=str(target_directory),
        engines=[ENGINE],
        deep=True,
        declared=Declared(norm_output_meaning="feedback"),
    )


def verdict(found: Any, runner: str) -> str:
    """The prediction for one runner: `refused` for what cannot be read at all."""
    if found.unreadable:
        return REFUSED
    (one,) = [v for v in found.engines if v.runner == runner]
    # The made pairs are random: that their embeddings have nothing in common is no surprise.
    errors = [f for f in found.findings if f.severity == "error" and f.code != "ECP005"]
    if one.verdict == FINE and errors:
        return OTHER
    return str(one.verdict)


def trained_reference(directory: Path, target_directory: Path) -> tuple[Any, Any]:
    """The reference drafter of a directory, with the target's weights where it borrows them."""
    import torch
    from safetensors.torch import load_file

    from eagleconv.checkpoint.source import open_source
    from eagleconv.drafter.declared import Declared
    from eagleconv.drafter.read import read_drafter
    from eagleconv.runtime.reference import ReferenceDrafter
    from eagleconv.runtime.weights import load_weights
    from eagleconv.target.config import read_target

    theirs = load_file(target_directory / "model.safetensors")
    checkpoint = open_source(str(directory), weights=True)
    declared = Declared(norm_output_meaning="feedback")
    drafter = read_drafter(checkpoint, declared, read_target(str(target_directory)))
    spec = drafter.spec()
    weights = load_weights(
        drafter,
        torch.float32,
        embedding=theirs["model.embed_tokens.weight"],
        lm_head=theirs["lm_head.weight"],
    )
    return ReferenceDrafter(spec, weights), spec


def distance(recording: drafter_logits.Recording, reference: Any, spec: Any) -> float:
    """Largest |vLLM - reference| of the first call: fused state, both outputs, logits.

    The first call is the prefill of both prompts, so that no cache is involved.
    """
    import torch

    t = recording.tensors
    aux, ids = t["combine.000.aux"], t["step.000.ids"]
    positions, fed = t["step.000.positions"], t["step.000.fed"]
    worst = 0.0

    def compare(ours: Any, theirs: Any) -> None:
        nonlocal worst
        if ours.shape != theirs.shape:
            worst = float("inf")
            return
        same = ours == theirs  # equal infinities
        delta = (ours.double() - theirs.double()).abs().masked_fill(same, 0.0)
        worst = max(worst, delta.nan_to_num(nan=float("inf")).max().item())

    if spec.aux.rule != "last":
        if aux.shape[-1] != spec.aux.count * spec.target_hidden_size:
            return float("inf")
        compare(reference.fuse(aux.float()), t["combine.000.fused"].float())
    count = min(len(ids), len(positions), len(fed))
    starts = [i for i in range(count) if i == 0 or positions[i] != positions[i - 1] + 1]
    outputs, last_rows = [], []
    for start, end in zip(starts, [*starts[1:], count], strict=True):
        step = reference.step(ids[start:end], fed[start:end].float(), positions[start:end])
        compare(step.feedback, t["step.000.fed_back"][start:end].float())
        outputs.append(step.logits)
        last_rows.append(step.logits[-1])
    logits = t["logits.000.values"].float()
    if logits.shape[0] == len(last_rows):
        wanted = torch.stack(last_rows)
        if spec.vocabulary == "reduced":
            whole = torch.full((len(last_rows), logits.shape[1]), float("-inf"))
            columns = reference.target_ids(torch.arange(spec.draft_vocab_size))
            whole[:, columns] = wanted.float()
            wanted = whole
        compare(wanted.float(), logits)
    return worst


#: float32 against float32, through up to two layers of width 64; measured maxima are printed.
TOLERANCE = 1e-3


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """Predict every mutation, then let one vLLM process run them all."""
    scratch = tmp_path_factory.mktemp("agreement")
    bases = {name: make_base(name, scratch) for name in BASES}
    jobs: list[drafter_logits.Job] = []
    places: list[tuple[Mutation, Path, Path, Any]] = []
    for number, mutation in enumerate(MUTATIONS):
        base, sizes = bases[mutation.base]
        target_directory = make_target(sizes | mutation.target, scratch)
        directory = scratch / f"{number:03d}-eagle3"
        shutil.copytree(base, directory)
        mutation.change(directory)
        places.append((mutation, directory, target_directory, predict(directory, target_directory)))
        jobs.append(
            drafter_logits.Job(
                str(target_directory),
                str(directory),
                str(scratch / f"{number:03d}.safetensors"),
                parallel=mutation.base == "peagle",
                prompt_ids=sizes["vocab_size"],
            )
        )
    out = {}
    for (mutation, directory, target_directory, found), recording in zip(
        places, drafter_logits.record_all(jobs), strict=True
    ):
        right = directory if mutation.trained == "file" else bases[mutation.base][0]
        happened, why, taps = what_happened(recording, right, target_directory)
        reasons = next((v.reasons for v in found.engines if v.runner == "V1"), (found.unreadable,))
        out[mutation.name] = Result(
            verdict(found, "V1"),
            happened,
            why,
            verdict(found, "V2"),
            taps,
            tuple(dict.fromkeys(f.code for f in found.findings if f.severity == "error")),
            reasons,
        )
    return out


def what_happened(
    recording: drafter_logits.Recording, trained: Path, target_directory: Path
) -> tuple[str, str, bool | None]:
    """Say what vLLM did, with how far its numbers are from the reference step's."""
    if recording.error is not None:
        return REFUSED, recording.error.splitlines()[0][:110], None
    reference, spec = trained_reference(trained, target_directory)
    taps_v2 = None
    if spec.aux.rule != "last":
        wanted = list(spec.aux.boundaries)
        taps_v2 = recording.boundaries["v2"] == wanted
        if recording.boundaries["v1"] != wanted:
            return OTHER, f"taps {recording.boundaries['v1']}, trained {wanted}", taps_v2
    off = distance(recording, reference, spec)
    if not off <= TOLERANCE:
        return OTHER, f"{off:.2g} from the reference step", taps_v2
    return FINE, f"{off:.1e} from the reference step", taps_v2


def test_confusion_matrix(results: dict[str, Result], capsys: pytest.CaptureFixture[str]) -> None:
    """Print predicted against happened; nothing called fine is refused or computed otherwise."""
    matrix = collections.Counter((r.predicted, r.happened) for r in results.values())
    with capsys.disabled():
        print(f"\n{len(results)} directories in vLLM 0.32 (V1 runner, CPU, float32)")
        columns = (FINE, OTHER, REFUSED)
        print(f"{'predicted':>26} | " + " | ".join(f"{c:>23}" for c in columns))
        for predicted in (FINE, OTHER, REFUSED, OPEN):
            cells = " | ".join(f"{matrix[predicted, c]:>23}" for c in columns)
            print(f"{predicted:>26} | {cells}")
        for name, r in results.items():
            if r.predicted != r.happened:
                print(f"  {name}: predicted {r.predicted}, {r.happened} ({r.why}) {r.codes}")
    assert len(results) >= 60
    wrong = {n: r for n, r in results.items() if r.predicted == FINE != r.happened}
    assert not wrong, f"called fine: {wrong}"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name.replace(" ", "-"))
def test_prediction(mutation: Mutation, results: dict[str, Result]) -> None:
    """The prediction is what happened; `open` only where the files leave a question open."""
    r = results[mutation.name]
    if r.predicted == OPEN:
        assert mutation.name in OPEN_ONES, r
        return
    assert r.predicted == r.happened, r


#: Where files alone cannot tell, and validate says so.
OPEN_ONES: tuple[str, ...] = (
    "speculators: norm_before_residual gone",  # vLLM reads true, the converter meant false
    "no ids at all",  # a flat file of no certain trainer
    "ids of the other numbering",
    "both homes in one numbering",
    "ids out of order",  # sorted by vLLM; which order fc was trained with, no file says
    "no t2d",  # of no certain trainer then, and without ids
    "base written twice",
    "quantization_config of the target",  # no tensor shows it
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name.replace(" ", "-"))
def test_v2_runner_taps(mutation: Mutation, results: dict[str, Result]) -> None:
    """Where the V2 runner's own function gives other taps than trained, V2 is not called fine."""
    r = results[mutation.name]
    if r.taps_v2 is False:
        assert r.predicted_v2 != FINE, r
