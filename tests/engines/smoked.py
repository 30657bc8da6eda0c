"""What eagleconv's own draft and verify loop counts, in the form of `acceptance.run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Prompts on which two tokens are nearer than this can go either way: kernels round differently.
GAP = 1e-3


@dataclass(frozen=True)
class Run:
    """What was counted.

    Attributes:
        counters: As vLLM names them.
        outputs: New tokens of each prompt.
        smallest_gap: Smallest difference of the two largest target logits over all prompts.
        gaps: The same for each prompt.
    """

    counters: dict[str, Any]
    outputs: list[list[int]]
    smallest_gap: float
    gaps: list[float]


def measure(
    target: Path,
    drafter: Path,
    depth: int,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    norm_output_meaning: Any = None,
) -> Run:
    """Generate greedily in float32."""
    import torch

    from eagleconv.checkpoint.source import open_source
    from eagleconv.drafter.declared import Declared
    from eagleconv.drafter.read import read_drafter
    from eagleconv.runtime.acceptance import count
    from eagleconv.runtime.generation import generate
    from eagleconv.runtime.reference import ReferenceDrafter
    from eagleconv.runtime.target_model import load_target
    from eagleconv.runtime.weights import load_weights
    from eagleconv.target.config import read_target

    model = load_target(str(target), torch.float32, "cpu")
    checkpoint = open_source(str(drafter), weights=True)
    try:
        declared = Declared(norm_output_meaning=norm_output_meaning)
        read = read_drafter(checkpoint, declared, read_target(str(target)))
        weights = load_weights(read, torch.float32, model.embedding, model.lm_head)
        pair = ReferenceDrafter(read.spec(), weights)
    finally:
        checkpoint.close()
    ends = {int(model.model.generation_config.eos_token_id)}
    runs = [
        generate(model, pair, list(p), max_new_tokens=max_tokens, depth=depth, ends=ends)
        for p in prompts
    ]
    counts = count(depth, [n for run in runs for n in run.accepted])
    return Run(
        {
            "num_drafts": counts.drafts,
            "num_draft_tokens": counts.drafted,
            "num_accepted_tokens": counts.accepted,
            "accepted_per_pos": list(counts.accepted_per_position),
        },
        [run.tokens for run in runs],
        min(run.smallest_gap for run in runs),
        [run.smallest_gap for run in runs],
    )
