"""One sequence being drafted for: the reference drafter with its cache, as engines run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from eagleconv.errors import ConversionError
from eagleconv.runtime.reference import DraftCache, ReferenceDrafter

#: From logits [D] over the draft vocabulary, choose a draft id; the distribution it was drawn from
#: [D], or None where the choice was certain.
Choose = Callable[[Tensor], tuple[int, Tensor | None]]


@dataclass(frozen=True, slots=True)
class Draft:
    """Drafted tokens.

    Attributes:
        ids: Target ids, depth of them.
        shares: For each, the distribution over the draft vocabulary [D] that it was drawn from, or
            None where it was the certain one.
    """

    ids: tuple[int, ...]
    shares: tuple[Tensor | None, ...]


class Drafting:
    """Drafts for one sequence, depth tokens at a time.

    Rows of the cache whose states came from the target stay; rows made while drafting are
    forgotten, as engines overwrite their slots (vLLM 0.32 `v1/spec_decode/eagle.py`, `propose`).
    """

    def __init__(self, drafter: ReferenceDrafter) -> None:
        """Begin a sequence."""
        self.drafter = drafter
        self.device = drafter.weights["norm.weight"].device
        self._cache = DraftCache()

    def draft(self, ids: Tensor, aux: Tensor, depth: int, choose: Choose) -> Draft:
        """Take in what the target verified and draft what follows.

        Args:
            ids: [T], the tokens after those whose states are given; the last one is the newest.
            aux: [T, A H], the target's states at the taps, lowest layer first.
            depth: How many tokens to draft.
            choose: Chooses a draft id.

        Raises:
            ConversionError: A token is beyond the drafter's embedding.
        """
        drafter, cache = self.drafter, self._cache
        hidden = drafter.fuse(aux.to(self.device))
        rows = drafter.weights["embed_tokens.weight"].shape[0]
        if int(ids.max()) >= rows:
            raise ConversionError(
                f"token {int(ids.max())} is beyond the drafter's embedding of {rows} rows",
                "give the target the drafter was trained for",
            )
        ids = ids.to(self.device)
        if drafter.spec.drafting == "parallel":
            return self._parallel(ids, hidden, depth, choose)
        start = len(cache)
        positions = torch.arange(start, start + len(ids), device=self.device)
        out = drafter.step(ids, hidden, positions, cache, last=1)
        verified = len(cache)
        logits, state = out.logits[-1], out.feedback[-1:]
        drafted: list[int] = []
        shares: list[Tensor | None] = []
        for position in range(verified, verified + depth):
            chosen, share = choose(logits)
            token = drafter.target_ids(torch.tensor([chosen], device=self.device))
            drafted.append(int(token))
            shares.append(share)
            if len(drafted) < depth:
                at = torch.tensor([position], device=self.device)
                out = drafter.step(token, state, at, cache)
                logits, state = out.logits[-1], out.feedback
        cache.crop(verified)
        return Draft(tuple(drafted), tuple(shares))

    def _parallel(self, ids: Tensor, hidden: Tensor, depth: int, choose: Choose) -> Draft:
        """Draft all tokens in one step: depth - 1 masked rows follow (P-EAGLE)."""
        drafter, cache = self.drafter, self._cache
        start = len(cache)
        verified = start + len(ids)
        mask_ids, mask_hidden = drafter.mask_inputs(depth - 1)
        rows = torch.cat([ids, mask_ids.to(self.device)])
        states = torch.cat([hidden, mask_hidden])
        positions = torch.arange(start, start + len(rows), device=self.device)
        logits = drafter.step(rows, states, positions, cache, last=depth).logits
        cache.crop(verified)
        chosen = [choose(row) for row in logits]
        ids_ = drafter.target_ids(torch.tensor([c for c, _ in chosen], device=self.device))
        return Draft(tuple(ids_.tolist()), tuple(share for _, share in chosen))


def greedy(logits: Tensor) -> tuple[int, Tensor | None]:
    """Choose the likeliest token."""
    return int(logits.argmax()), None
