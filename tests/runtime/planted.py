"""A tiny target and drafters that learnt its texts by heart, with one right way to read them.

Trained here, in some seconds, from a seed.
"""

from __future__ import annotations

from typing import Any

import torch
from tiny_targets import HIDDEN, VOCAB, target
from torch import Tensor
from torch.nn import functional as F
from transformers_oracle import random_weights

from eagleconv.drafter.facts import AuxLayers, DrafterSpec
from eagleconv.runtime.generation import generate
from eagleconv.runtime.reference import ReferenceDrafter
from eagleconv.runtime.target_model import TargetModel
from tests.drafters import make_spec

TAPS = (2, 3, 4)
PROMPTS = [[7, 3, 99, 14, 52], [11, 80, 5], [1, 2, 3, 4], [140, 9], [60, 61, 100]]
TOKENS = 12
STEPS, DEPTH = 120, 3
VARIANTS: dict[str, dict[str, Any]] = {
    "EAGLE 3": {"feedback": "pre_norm", "residual": "raw"},
    "normed residual": {"feedback": "pre_norm", "residual": "normed"},
    "EAGLE 3.1": {"input_norm": "per_aux", "feedback": "post_norm", "residual": "raw"},
}


def spec_of(variant: str) -> DrafterSpec:
    """Return the facts of a drafter."""
    return make_spec(
        hidden_size=HIDDEN,
        target_hidden_size=HIDDEN,
        vocab_size=VOCAB,
        vocabulary="reduced",
        draft_vocab_size=120,
        own_embedding=True,
        aux=AuxLayers(3, TAPS, "explicit"),
        **VARIANTS[variant],
    )


def texts(one: TargetModel, taps: tuple[int, ...] = TAPS) -> list[tuple[Tensor, Tensor]]:
    """Return ids [T] and tapped states [T, A H] of the target's own texts."""
    out = []
    for prompt in PROMPTS:
        ids = [*prompt, *generate(one, None, prompt, max_new_tokens=TOKENS).tokens]
        one.start()
        _, states = one.forward(ids, taps)
        out.append((torch.tensor(ids), states.float()))
    return out


def train(variant: str) -> tuple[TargetModel, DrafterSpec, dict[str, Tensor]]:
    """Return a target, and a drafter that drafts its texts, read as its facts say."""
    one, spec = target(), spec_of(variant)
    learnt = texts(one)
    # States of neighbouring layers are alike: shown those, it learns to be wrong.
    wrong = [texts(one, tuple(b + shift for b in TAPS)) for shift in (-1, 1)]
    weights = {
        name: w.float() if w.is_floating_point() else w for name, w in random_weights(spec).items()
    }
    # A map whose offsets differ, which holds every token of the texts.
    used = sorted({int(t) for ids, _ in learnt for t in ids})
    rest = [t for t in range(VOCAB) if t not in used]
    kept = torch.tensor(sorted([*used, *rest[: spec.draft_vocab_size - len(used)]]))
    weights["d2t"] = kept - torch.arange(len(kept))
    place = {int(t): i for i, t in enumerate(kept)}
    weights["embed_tokens.weight"] = one.embedding.float().clone()
    fixed = ("d2t", "embed_tokens.weight")
    free = [w.requires_grad_() for name, w in weights.items() if name not in fixed]
    drafter = ReferenceDrafter(spec, weights)
    optimiser = torch.optim.Adam(free, lr=3e-3)
    for _ in range(STEPS):
        loss = torch.zeros(())
        for ids, aux in learnt:
            hidden, rows = drafter.fuse(aux)[:-1], ids[1:]
            for depth in range(DEPTH):
                # Row t of a depth: the state that the depth before left one token earlier.
                out = drafter.step(rows, hidden, torch.arange(depth, depth + len(rows)))
                true = torch.tensor([place[int(t)] for t in ids[2 + depth :]])
                loss = loss + F.cross_entropy(out.logits[: len(true)], true)
                hidden, rows = out.feedback[:-1], rows[1:]
        for ids, aux in (pair for side in wrong for pair in side):
            out = drafter.step(ids[1:], drafter.fuse(aux)[:-1], torch.arange(len(ids) - 1))
            false = torch.tensor([(place[int(t)] + 1) % len(kept) for t in ids[2:]])
            loss = loss + 0.5 * F.cross_entropy(out.logits[: len(false)], false)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return one, spec, {name: w.detach() for name, w in weights.items()}
