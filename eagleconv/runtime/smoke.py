"""Run drafter and target together on prompts, and count."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from eagleconv import __version__
from eagleconv.checkpoint.source import open_source
from eagleconv.drafter.declared import Declared
from eagleconv.drafter.read import read_drafter
from eagleconv.errors import MissingExtraError, UsageError
from eagleconv.runtime.acceptance import Counts, count, total
from eagleconv.runtime.generation import Generated, Sampler, generate
from eagleconv.runtime.measured import Measured, Smoked, failures
from eagleconv.runtime.prompts import load_prompts, token_ids
from eagleconv.runtime.reference import ReferenceDrafter
from eagleconv.runtime.target_model import TargetModel, load_target
from eagleconv.runtime.weights import load_weights
from eagleconv.target.config import read_target

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


def find_device(text: str) -> str:
    """Return the device for `auto`, `cpu`, `cuda` or `cuda:1`.

    Raises:
        MissingExtraError: There is none of that kind.
        UsageError: It is none of these.
    """
    if text == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind = text.split(":")[0]
    if kind not in ("cpu", "cuda"):
        raise UsageError(f"--device {text} is not auto, cpu, cuda or cuda:N")
    if kind == "cuda" and not torch.cuda.is_available():
        raise MissingExtraError(
            f"--device {text}: torch finds no CUDA device", "give --device cpu, or none"
        )
    return text


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
    from transformers import AutoTokenizer

    where = find_device(device)
    # Half precision on a CPU is slow, and no target of that size is asked for there.
    name = ("float32" if where == "cpu" else "bfloat16") if dtype == "auto" else dtype
    if name not in DTYPES:
        raise UsageError(f"--dtype {dtype} is not auto, {', '.join(DTYPES)}")
    chosen = load_prompts(prompts, limit)
    checkpoint = open_source(drafter, weights=True)
    try:
        read = read_drafter(checkpoint, declared, read_target(target))
        read.spec()  # open questions come before minutes of work
        model = load_target(target, DTYPES[name], where)
        weights = {
            key: tensor.to(model.device)
            for key, tensor in load_weights(
                read, DTYPES[name], model.embedding, model.lm_head
            ).items()
        }
        tokenizer = AutoTokenizer.from_pretrained(target)
        ids = token_ids(tokenizer, chosen.prompts, plain)
        ends = _ends(model, tokenizer)
        pair = ReferenceDrafter(read.spec(), weights)
        measured = []
        for number, (prompt, tokens) in enumerate(zip(chosen.prompts, ids, strict=True)):
            if progress is not None:
                progress(number, len(ids))
            sampler = Sampler(temperature, seed + number, sample_drafts=False)
            out = generate(
                model,
                pair,
                tokens,
                max_new_tokens=max_new_tokens,
                depth=depth,
                ends=ends,
                sampler=sampler,
            )
            alone = None
            if compare:
                alone = generate(
                    model,
                    None,
                    tokens,
                    max_new_tokens=max_new_tokens,
                    ends=ends,
                    sampler=Sampler(temperature, seed + number),
                )
            measured.append(_measured(prompt.id, prompt.category, depth, out, alone, temperature))
        control = None
        if negative_control:
            wrong = ReferenceDrafter(read.spec(), shuffled_head(weights))
            control = _control(model, wrong, ids, depth, max_new_tokens, ends)
        result = Smoked(
            drafter,
            checkpoint.revision,
            read.layout_names,
            read.variant,
            target,
            depth,
            temperature,
            chosen.name,
            chosen.digest,
            _device_name(where),
            name,
            _versions(),
            tuple(measured),
            control,
            (),
        )
        return replace(result, failures=failures(result))
    finally:
        checkpoint.close()


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


def _ends(model: TargetModel, tokenizer: Any) -> set[int]:
    """Return the tokens that end a text, as the target's generation config has them."""
    given = getattr(model.model, "generation_config", None)
    ends = getattr(given, "eos_token_id", None)
    found = set(ends if isinstance(ends, list) else [] if ends is None else [ends])
    return found | ({tokenizer.eos_token_id} - {None})


def _device_name(device: str) -> str:
    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    return f"CPU ({platform.machine()}, {torch.get_num_threads()} threads)"


def _versions() -> dict[str, str]:
    import transformers

    return {
        "eagleconv": __version__,
        "torch": str(torch.__version__),
        "transformers": str(transformers.__version__),
        "python": platform.python_version(),
    }
