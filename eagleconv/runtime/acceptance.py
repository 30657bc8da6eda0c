"""What was accepted: counts first, and what follows from them, as vLLM defines it.

vLLM 0.32 `v1/spec_decode/metrics.py`, `SpecDecodingLogging.log`: the acceptance rate is accepted /
drafted tokens, the mean acceptance length 1 + accepted / drafts (the bonus token included), and a
position's rate the share of all drafts that were accepted up to it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: Resamples of an interval, and what lies inside of it.
RESAMPLES, LEVEL = 2000, 0.95


@dataclass(frozen=True, slots=True)
class Counts:
    """Drafts of one depth.

    Attributes:
        depth: Tokens of each draft.
        drafts: How many were verified.
        accepted_per_position: How many drafts were accepted up to position 1, 2, ...
    """

    depth: int
    drafts: int
    accepted_per_position: tuple[int, ...]

    @property
    def drafted(self) -> int:
        """Tokens that were drafted."""
        return self.drafts * self.depth

    @property
    def accepted(self) -> int:
        """Drafted tokens that were accepted."""
        return sum(self.accepted_per_position)

    @property
    def acceptance_rate(self) -> float:
        """Accepted per drafted token; NaN without drafts."""
        return self.accepted / self.drafted if self.drafted else math.nan

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens that a draft and its verification bring, the bonus token included."""
        return 1 + self.accepted / self.drafts if self.drafts else math.nan

    @property
    def per_position(self) -> tuple[float, ...]:
        """Share of drafts that were accepted up to each position."""
        return tuple(
            n / self.drafts if self.drafts else math.nan for n in self.accepted_per_position
        )

    @property
    def conditional(self) -> tuple[float, ...]:
        """Share of each position among the drafts that were accepted up to the one before."""
        before = (self.drafts, *self.accepted_per_position)
        pairs = zip(self.accepted_per_position, before, strict=False)
        return tuple(n / all_ if all_ else math.nan for n, all_ in pairs)


def count(depth: int, accepted: Sequence[int]) -> Counts:
    """Count drafts.

    Args:
        depth: Tokens of each draft.
        accepted: Of each draft, how many tokens were accepted.
    """
    positions = tuple(sum(n > at for n in accepted) for at in range(depth))
    return Counts(depth, len(accepted), positions)


def total(counts: Sequence[Counts]) -> Counts:
    """Add counts of one depth."""
    depth = counts[0].depth if counts else 0
    positions = tuple(sum(c.accepted_per_position[i] for c in counts) for i in range(depth))
    return Counts(depth, sum(c.drafts for c in counts), positions)


def interval(
    counts: Sequence[Counts], value: Callable[[Counts], float], seed: int = 0
) -> tuple[float, float]:
    """Return a bootstrap interval over prompts (percentiles; Efron and Tibshirani 1993, chapter 13).

    Args:
        counts: One for each prompt.
        value: What is computed from their sum.
        seed: Of the resampling.
    """
    rng = random.Random(seed)
    draws = RESAMPLES if counts else 0
    return bounds([value(total(rng.choices(counts, k=len(counts)))) for _ in range(draws)])


def bounds(resampled: Sequence[float]) -> tuple[float, float]:
    """Return what `LEVEL` of the resampled values lie between; NaN where there is none."""
    found = sorted(v for v in resampled if not math.isnan(v))
    if not found:
        return math.nan, math.nan
    tail = (1 - LEVEL) / 2
    last = len(found) - 1
    return found[round(tail * last)], found[round((1 - tail) * last)]


def paired_interval(
    one: Sequence[Counts],
    other: Sequence[Counts],
    value: Callable[[Counts], float],
    seed: int = 0,
) -> tuple[float, float]:
    """Return a bootstrap interval of value(one) - value(other) over the prompts both ran."""
    rng = random.Random(seed)
    indices = range(len(one))
    found = []
    for _ in range(RESAMPLES if one else 0):
        chosen = rng.choices(indices, k=len(one))
        a, b = (value(total([side[i] for i in chosen])) for side in (one, other))
        found.append(a - b)
    return bounds(found)


def as_json(counts: Counts) -> dict[str, Any]:
    """Return counts and derived values; None where nothing follows from them."""

    def number(x: float) -> float | None:
        return None if math.isnan(x) else x

    return {
        "depth": counts.depth,
        "drafts": counts.drafts,
        "drafted": counts.drafted,
        "accepted": counts.accepted,
        "accepted_per_position": list(counts.accepted_per_position),
        "includes_bonus": True,
        "acceptance_rate": number(counts.acceptance_rate),
        "mean_acceptance_length": number(counts.mean_acceptance_length),
        "per_position": [number(x) for x in counts.per_position],
        "conditional": [number(x) for x in counts.conditional],
    }
