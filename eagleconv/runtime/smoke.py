"""Run drafter and target together on prompts, and count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from eagleconv.drafter.declared import Declared
from eagleconv.runtime.acceptance import Counts, count, total
from eagleconv.runtime.generation import Generated, Sampler, generate
from eagleconv.runtime.measured import Measured, Smoked, failures
from eagleconv.runtime.pair import load_pair, versions
from eagleconv.runtime.prompts import load_prompts, token_ids
from eagleconv.runtime.reference import ReferenceDrafter
from eagleconv.runtime.target_model import TargetModel


def shuffled_head(weights: dict[str, torch.Tensor], seed: int = 0) -> dict[str, torch.Tensor]:
    """Return weights whose head scores other tokens than it was trained for: rows in random order."""
    head = weights["lm_head.weight"]
    order = torch.randperm(len(head), generator=torch.Generator().manual_seed(seed))
    return {**weights, "lm_head.weight": head[order.to(head.device)]}


def smoke(
    drafter: str,
    target: str,
    *,
    prompts: str | None = None,
    limit: int | None = 12,
    depth: int = 3,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    plain: bool = False,
    compare: bool = True,
    negative_control: bool = False,
    declared: Declared | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Smoked:
    """Measure acceptance; see `eagleconv.smoke`."""
    chosen = load_prompts(prompts, limit)
    pair = load_pair(drafter, target, device, dtype, declared)
    model = pair.target
    ids = token_ids(pair.tokenizer, chosen.prompts, plain)
    reference = ReferenceDrafter(pair.read.spec(), pair.weights)
    measured = []
    for number, (prompt, tokens) in enumerate(zip(chosen.prompts, ids, strict=True)):
        if progress is not None:
            progress(number, len(ids))
        sampler = Sampler(temperature, seed + number, sample_drafts=False)
        out = generate(
            model,
            reference,
            tokens,
            max_new_tokens=max_new_tokens,
            depth=depth,
            ends=pair.ends,
            sampler=sampler,
        )
        alone = None
        if compare:
            alone = generate(
                model,
                None,
                tokens,
                max_new_tokens=max_new_tokens,
                ends=pair.ends,
                sampler=Sampler(temperature, seed + number),
            )
        measured.append(_measured(prompt.id, prompt.category, depth, out, alone, temperature))
    control = None
    if negative_control:
        wrong = ReferenceDrafter(pair.read.spec(), shuffled_head(pair.weights))
        control = _control(model, wrong, ids, depth, max_new_tokens, pair.ends)
    result = Smoked(
        drafter,
        pair.read.checkpoint.revision,
        pair.read.layout_names,
        pair.read.variant,
        target,
        depth,
        temperature,
        chosen.name,
        chosen.digest,
        pair.device,
        pair.dtype,
        versions(),
        tuple(measured),
        control,
        (),
    )
    return replace(result, failures=failures(result))


def _measured(
    id_: str,
    category: str,
    depth: int,
    out: Generated,
    alone: Generated | None,
    temperature: float,
) -> Measured:
    same = None if alone is None or temperature else alone.tokens == out.tokens
    return Measured(
        id_,
        category,
        count(depth, out.accepted),
        len(out.tokens),
        same,
        len(set(out.tokens)) / len(out.tokens),
        out.smallest_gap if alone is None else min(out.smallest_gap, alone.smallest_gap),
        out.finite,
        out.seconds,
        None if alone is None else alone.seconds,
        out.draft_seconds,
        out.verify_seconds,
    )


def _control(
    model: TargetModel,
    wrong: ReferenceDrafter,
    ids: Sequence[Sequence[int]],
    depth: int,
    max_new_tokens: int,
    ends: set[int],
) -> Counts:
    counts = []
    for tokens in ids[:4]:
        out = generate(model, wrong, tokens, max_new_tokens=max_new_tokens, depth=depth, ends=ends)
        counts.append(count(depth, out.accepted))
    return total(counts)
