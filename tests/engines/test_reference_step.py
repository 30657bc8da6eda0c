"""One step of the reference drafter is what real vLLM's drafter classes compute.

Every fixture that vLLM supports, upgraded, and made drafters for what no fixture has. vLLM loads
them as in production and drafts three tokens for two prompts; the reference is given the aux
states and token ids that vLLM was given, and from then on feeds itself.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from eagleconv.checkpoint.local import open_local
from eagleconv.drafter.facts import AuxLayers, DrafterSpec, Rope
from eagleconv.drafter.layouts import CANONICAL
from eagleconv.drafter.read import read_drafter
from eagleconv.runtime.reference import ReferenceDrafter
from eagleconv.runtime.weights import load_weights
from tests.drafters import make_spec, write_drafter

from . import drafter_logits
from .test_vllm_equal import CASES, upgrade

DEPTH = 3
# Ten times what was measured (float32): logits up to 6 differ by 2e-6, states up to 33 by 1.4e-5.
TOLERANCES = {"fused": 1e-4, "feedback": 1e-4, "logits": 2e-5}

TARGET = {"hidden_size": 64, "num_hidden_layers": 8, "vocab_size": 192}
MADE = {"vocab_size": 192, "aux": AuxLayers(3, (2, 4, 5), "explicit")}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LONG = {
    "rope_type": "longrope",
    "factor": 4.0,
    "short_factor": [1.0 + 0.1 * i for i in range(16)],
    "long_factor": [2.0 + 0.5 * i for i in range(16)],
    "original_max_position_embeddings": 512,
}
# What no fixture has, or has in a size that three steps after eleven tokens do not show.
VARIANTS: dict[str, dict[str, Any]] = {
    "groups": {"num_attention_heads": 4, "num_key_value_heads": 2},
    "window 4": {"window": (4,)},
    "window 4 in two layers": {"num_layers": 2, "window": (4, 4)},
    "both input norms": {"input_norm": "both"},
    "per_aux, raw, pre_norm": {"input_norm": "per_aux"},
    "concat, normed, post_norm": {
        "input_norm": "concat",
        "residual": "normed",
        "feedback": "post_norm",
    },
    "three layers": {"num_layers": 3, "residual": "normed"},
    "theta": {"rope": Rope(500.0, None)},
    "partial": {"rope": Rope(500.0, None, 0.5)},
    "linear": {"rope": Rope(1e4, {"rope_type": "linear", "factor": 4.0})},
    "dynamic": {"rope": Rope(1e4, {"rope_type": "dynamic", "factor": 4.0})},
    "yarn": {"rope": Rope(1e4, YARN)},
    "llama3": {"rope": Rope(500.0, LLAMA3)},
    "longrope": {"rope": Rope(1e4, LONG)},
    "mrope": {"rope": Rope(500.0, {"rope_type": "default", "mrope_section": [4, 6, 6]})},
    "qwen3": {"block": "qwen3", "num_layers": 2, "window": (4, 4), "attention_bias": True},
    "mla": {"block": "mla", "input_norm": "per_aux", "feedback": "post_norm"},
    "mla, normed layers": {"block": "mla", "num_layers": 2, "residual": "normed"},
    "mla, yarn": {
        "block": "mla",
        "rope": Rope(1e4, YARN | {"mscale": 0.7, "mscale_all_dim": 1.0}),
    },
}

# Facts read wrongly: a drafter from above, and what the reference believes of it.
CONTROLS: dict[str, tuple[str, dict[str, Any]]] = {
    "raw residual for normed": ("concat, normed, post_norm", {"residual": "raw"}),
    "normed residual for raw": ("per_aux, raw, pre_norm", {"residual": "normed"}),
    "pre-norm feedback for post-norm": ("concat, normed, post_norm", {"feedback": "pre_norm"}),
    "post-norm feedback for pre-norm": ("per_aux, raw, pre_norm", {"feedback": "post_norm"}),
    "no fc_norm": ("per_aux, raw, pre_norm", {"input_norm": "none"}),
    "no input_norm": ("concat, normed, post_norm", {"input_norm": "none"}),
    "one input norm of two": ("both input norms", {"input_norm": "per_aux"}),
    "no window": ("window 4", {"window": (None,)}),
    "window 5 for 4": ("window 4", {"window": (5,)}),
    "no q and k norms": ("qwen3", {"block": "llama"}),
    "eps": ("theta", {"rms_norm_eps": 1e-2}),
    "theta": ("theta", {"rope": Rope(1e4, None)}),
    "whole head for half": ("partial", {"rope": Rope(500.0, None)}),
    "no linear scaling": ("linear", {"rope": Rope(1e4, None)}),
    "no yarn": ("yarn", {"rope": Rope(1e4, None)}),
    "no llama3": ("llama3", {"rope": Rope(500.0, None)}),
    "no longrope": ("longrope", {"rope": Rope(1e4, None)}),
    "no mscale_all_dim": ("mla, yarn", {"rope": Rope(1e4, YARN)}),
    "half of the rope in latent attention": ("mla", {"rope": Rope(1e4, None, 0.5)}),
}


@dataclasses.dataclass(frozen=True)
class Pair:
    """A drafter as the reference has it, and what vLLM recorded from it."""

    spec: DrafterSpec
    weights: dict[str, torch.Tensor]
    recording: drafter_logits.Recording


def read(drafter: Path, target: Path) -> tuple[DrafterSpec, dict[str, torch.Tensor]]:
    """Facts and weights of an upgraded drafter, the target's matrices where it has none."""
    opened = read_drafter(open_local(str(drafter)))
    lent = load_file(target / "model.safetensors")
    matrices = lent["model.embed_tokens.weight"], lent["lm_head.weight"]
    return opened.spec(), load_weights(opened, torch.float32, *matrices)


def make(drafter: Path, spec: DrafterSpec) -> dict[str, torch.Tensor]:
    """Write a drafter for vLLM and return its weights."""
    write_drafter(drafter, spec, CANONICAL)
    stored = load_file(drafter / "model.safetensors")
    return {
        name.replace("midlayer.", "layers.0."): value.long() if name == "d2t" else value.float()
        for name, value in stored.items()
        if name != "t2d"
    }


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair | AssertionError]:
    """Every drafter through one vLLM process."""
    scratch = tmp_path_factory.mktemp("reference")
    jobs: dict[str, drafter_logits.Job] = {}
    ready: dict[str, tuple[DrafterSpec, dict[str, torch.Tensor]]] = {}
    refused: dict[str, AssertionError] = {}

    def target_of(sizes: dict[str, int]) -> Path:
        target = scratch / "target-{}-{}-{}".format(*(v for _, v in sorted(sizes.items())))
        if not target.exists():
            drafter_logits.make_target(target, **sizes)
        return target

    def job(target: Path, drafter: Path, parallel: bool = False) -> drafter_logits.Job:
        output = scratch / f"{len(jobs)}.safetensors"
        return drafter_logits.Job(str(target), str(drafter), str(output), DEPTH, parallel)

    for case in CASES:
        target = target_of(case.target)
        try:
            after = upgrade(case.directory, scratch / case.name, *case.flags)
        except AssertionError as error:
            refused[case.name] = error
            continue
        ready[case.name] = spec, _ = read(after, target)
        jobs[case.name] = job(target, after, spec.drafting == "parallel")
    for name, changes in VARIANTS.items():
        spec = make_spec(**MADE | changes)
        ready[name] = spec, make(scratch / "made" / name, spec)
        jobs[name] = job(target_of(TARGET), scratch / "made" / name)
    recordings = drafter_logits.record_all(list(jobs.values()))
    return refused | {
        name: Pair(*ready[name], recording)
        for name, recording in zip(jobs, recordings, strict=True)
    }


def largest(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest |difference|; infinite for a NaN."""
    assert one.shape == other.shape
    return (one - other).abs().nan_to_num(nan=float("inf")).max().item()


def difference(
    reference: ReferenceDrafter, recording: drafter_logits.Recording
) -> dict[str, float]:
    """Largest |difference| of the fused states, the logits and the fed-back states.

    The first draft of each prompt is replayed: its rows, then one row more for each drafted token
    (chain), or all of them in one step (parallel).
    """
    recorded = recording.tensors
    masks = DEPTH - 1 if reference.spec.drafting == "parallel" else 0
    out = {"fused": 0.0, "logits": 0.0, "feedback": 0.0}
    columns = reference.target_ids(torch.arange(reference.spec.draft_vocab_size))

    def see(key: str, ours: torch.Tensor, theirs: torch.Tensor) -> None:
        out[key] = max(out[key], largest(ours, theirs))

    states = recorded["combine.000.aux"].split(list(drafter_logits.PROMPT_LENGTHS))
    fused = recorded["combine.000.fused"].split(list(drafter_logits.PROMPT_LENGTHS))
    rows = [length + masks for length in drafter_logits.PROMPT_LENGTHS]
    for request, aux in enumerate(states):
        ids, positions, theirs = (
            recorded[f"step.000.{key}"].split(rows, dim=-1 if key == "positions" else 0)[request]
            for key in ("ids", "positions", "fed_back")
        )
        positions = positions if positions.ndim == 1 else positions[0]  # one of mrope's axes
        hidden = reference.fuse(aux)
        see("fused", hidden, fused[request])
        if masks:
            masked, mask_states = reference.mask_inputs(masks)
            assert ids[-masks:].tolist() == masked.tolist()
            hidden = torch.cat([hidden, mask_states])
        assert positions.tolist() == list(range(len(hidden)))
        found = reference.step(ids, hidden, positions)
        see("feedback", found.feedback, theirs)
        count = masks + 1
        theirs = recorded["logits.000.values"][request * count :][:count]
        see("logits", found.logits[-count:], theirs[:, columns])
        assert theirs.isfinite().sum() == count * len(columns)
        for depth in range(1, 1 if masks else DEPTH):
            ids = torch.cat([ids, recorded[f"step.{depth:03d}.ids"][request][None]])
            hidden = torch.cat([hidden, found.feedback[-1:]])
            found = reference.step(ids, hidden, torch.arange(len(ids)))
            see("feedback", found.feedback[-1], recorded[f"step.{depth:03d}.fed_back"][request])
            theirs = recorded[f"logits.{depth:03d}.values"][request]
            see("logits", found.logits[-1], theirs[columns])
    return out


@pytest.mark.parametrize("name", [*(case.name for case in CASES), *VARIANTS])
def test_vllm_computes_the_same_step(
    name: str, pairs: dict[str, Pair | AssertionError], table: list[tuple[str, ...]]
) -> None:
    pair = pairs[name]
    if isinstance(pair, AssertionError):
        raise pair
    assert pair.recording.error is None
    found = difference(ReferenceDrafter(pair.spec, pair.weights), pair.recording)
    table.append((f"{name}, reference step", f"{max(found.values()):.1e}", ""))
    assert all(found[key] < TOLERANCES[key] for key in TOLERANCES), found


@pytest.mark.parametrize("control", CONTROLS)
def test_a_fact_read_wrongly_shows(control: str, pairs: dict[str, Pair | AssertionError]) -> None:
    """Negative control: the comparison above has the power to see each fact."""
    name, wrong = CONTROLS[control]
    pair = pairs[name]
    assert isinstance(pair, Pair)
    assert {key: getattr(pair.spec, key) for key in wrong} != wrong
    reference = ReferenceDrafter(dataclasses.replace(pair.spec, **wrong), pair.weights)
    found = difference(reference, pair.recording)
    assert found["logits"] > 50 * TOLERANCES["logits"], found
