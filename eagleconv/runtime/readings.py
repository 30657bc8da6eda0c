"""Other readings of a drafter: what leaves no trace in its tensors, read in another way.

Each is a fact of `domain` that engines and trainers disagree about, as data: a name, what would have
to change, and how the drafter is computed then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from eagleconv.drafter.aux_layers import default_boundaries
from eagleconv.drafter.facts import AuxLayers, DrafterSpec, Rope
from eagleconv.runtime.generation import taps_of

#: Rope bases that trainers fall back to, or targets have (Llama 2, 3, Qwen 2 and 3).
BASES = (10000.0, 100000.0, 500000.0, 1000000.0)


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a drafter.

    Attributes:
        name: Of the cause: `feedback`, `residual`, `layer ids`, ...
        text: What is read, in a few words.
        change: What to change in the files, if the weights want this.
        spec: The facts.
        weights: Canonical name -> tensor.
        taps: Boundaries of the target that it is fed, in the order of fc's columns.
        paired: Tokens that row t holds, counted from the token of its state: 1 as trained.
    """

    name: str
    text: str
    change: str
    spec: DrafterSpec
    weights: Mapping[str, Tensor]
    taps: tuple[int, ...]
    paired: int = 1


def configured(spec: DrafterSpec, weights: Mapping[str, Tensor], layers: int) -> Reading:
    """Return the reading that the files, and what was declared, give."""
    taps = taps_of(spec.aux, layers)
    return Reading("configured", "as configured", "", spec, weights, taps)


def others(
    base: Reading,
    layers: int,
    embedding: Tensor | None,
    lm_head: Tensor | None,
    theta: float | None,
) -> Iterator[Reading]:
    """Yield every other reading of the same tensors.

    Args:
        base: As configured.
        layers: Decoder layers of the target.
        embedding: The target's embedding [V, H]; None leaves that reading out.
        lm_head: The target's head [V, H]; None leaves that reading out.
        theta: The target's rope base, where it is known.
    """
    spec = base.spec
    other: Literal["pre_norm", "post_norm"] = (
        "post_norm" if spec.feedback == "pre_norm" else "pre_norm"
    )
    flag = str(other == "post_norm").lower()
    yield replace(
        base,
        name="feedback",
        text=f"{other.replace('_', '-')} state fed back",
        change=f"norm_output: {flag} (upgrade --norm-output-meaning feedback or head)",
        spec=replace(spec, feedback=other),
    )
    flipped: Literal["raw", "normed"] = "normed" if spec.residual == "raw" else "raw"
    flag = str(flipped == "normed").lower()
    yield replace(
        base,
        name="residual",
        text=f"{flipped} residual",
        change=f"norm_before_residual: {flag} (upgrade --norm-before-residual {flag})",
        spec=replace(spec, residual=flipped),
    )
    yield from _taps(base, layers)
    yield from _maps(base)
    yield from _bases(base, theta)
    yield replace(
        base,
        name="tokens",
        text="each state beside its own token, not the next one",
        change="none: no engine pairs them so; train it again",
        paired=0,
    )
    yield from _borrowed(base, embedding, lm_head)


def _taps(base: Reading, layers: int) -> Iterator[Reading]:
    if base.spec.aux.rule == "last":
        return
    sets = {
        "one layer later": tuple(b + 1 for b in base.taps),
        "one layer earlier": tuple(b - 1 for b in base.taps),
    }
    default = default_boundaries(layers)
    if len(base.taps) == len(default):
        sets["the default set"] = default
    for text, taps in sets.items():
        possible = list(taps) == sorted(set(taps)) and 0 <= taps[0] <= taps[-1] <= layers
        if taps != base.taps and possible:
            ids = ",".join(map(str, taps))
            yield replace(
                base,
                name="layer ids",
                text=f"taps {text}: {ids}",
                change=f"eagle_aux_hidden_state_layer_ids: [{ids}] (upgrade --aux-layers {ids})",
                spec=replace(base.spec, aux=AuxLayers(len(taps), taps, "explicit")),
                taps=taps,
            )
    if len(base.taps) > 1:
        yield replace(
            base,
            name="order of taps",
            text="taps from the highest to the lowest",
            change="none: no engine feeds them so; turn the columns of fc, or train it again",
            taps=base.taps[::-1],
        )


def _maps(base: Reading) -> Iterator[Reading]:
    d2t = base.weights.get("d2t")
    if d2t is None:
        return
    each = torch.arange(len(d2t), device=d2t.device)
    zero = {**base.weights, "d2t": torch.zeros_like(d2t)}
    if d2t.any():
        yield replace(
            base,
            name="d2t",
            text="no map: draft id i is token i",
            change="remove d2t and t2d, or get the map it was trained with",
            weights=zero,
        )
        if int(d2t.min()) >= 0 and int(d2t.max()) < base.spec.vocab_size:
            yield replace(
                base,
                name="d2t",
                text="d2t holds ids, not offsets",
                change="upgrade --d2t-meaning absolute",
                weights={**base.weights, "d2t": d2t - each},
            )
    # Read as absolute ids, the map was turned into offsets already: the way back.
    offsets = d2t + each
    if int((each + offsets).max()) < base.spec.vocab_size:
        yield replace(
            base,
            name="d2t",
            text="d2t holds offsets, not ids",
            change="upgrade --d2t-meaning offset",
            weights={**base.weights, "d2t": offsets},
        )


def _bases(base: Reading, theta: float | None) -> Iterator[Reading]:
    rope = base.spec.rope
    for value in sorted({*BASES, *([theta] if theta else [])} - {rope.theta}):
        yield replace(
            base,
            name="rope base",
            text=f"rope base {value:g}",
            change=f"rope_theta: {value:g} (upgrade --rope-theta {value:g})",
            spec=replace(base.spec, rope=Rope(value, rope.scaling, rope.partial_rotary_factor)),
        )


def _borrowed(base: Reading, embedding: Tensor | None, lm_head: Tensor | None) -> Iterator[Reading]:
    spec, weights = base.spec, base.weights
    own = weights["embed_tokens.weight"]
    if spec.own_embedding and embedding is not None and embedding.shape[1] == own.shape[1]:
        theirs = embedding.to(own.device, own.dtype)
        if not torch.equal(theirs[: len(own)], own[: len(theirs)]):
            yield replace(
                base,
                name="embedding",
                text="the target's embedding",
                change="leave embed_tokens.weight out",
                weights={**weights, "embed_tokens.weight": theirs},
            )
    head = weights["lm_head.weight"]
    if spec.own_head and lm_head is not None and lm_head.shape[1] == head.shape[1]:
        ids = torch.arange(spec.draft_vocab_size, device=head.device)
        if "d2t" in weights:
            ids = ids + weights["d2t"]
        if int(ids.max()) < len(lm_head):
            yield replace(
                base,
                name="head",
                text="the target's head",
                change="leave lm_head.weight out, where the vocabulary is full",
                weights={
                    **weights,
                    "lm_head.weight": lm_head[ids.to(lm_head.device)].to(head.device, head.dtype),
                },
            )
