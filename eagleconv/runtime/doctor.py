"""Which reading of this checkpoint do its weights want?

The target continues prompts by itself; the drafter, read in every way, is shown each prefix of the
continuations and drafts along the true tokens. Until a drafted token is wrong, those are the tokens
it drafted itself, so the number of right ones is what greedy verification would accept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from eagleconv.drafter.declared import Declared
from eagleconv.errors import ConversionError
from eagleconv.runtime.acceptance import RESAMPLES, bounds
from eagleconv.runtime.generation import generate
from eagleconv.runtime.pair import load_pair
from eagleconv.runtime.prompts import load_prompts, token_ids
from eagleconv.runtime.readings import Reading, configured, others
from eagleconv.runtime.reference import DraftCache, ReferenceDrafter
from eagleconv.runtime.target_model import TargetModel

#: Tokens that the draft vocabulary does not hold count as this unlikely, whatever the map.
_OUTSIDE = -14.0


@dataclass(frozen=True, slots=True)
class Scored:
    """A reading, measured.

    Attributes:
        name, text, change: As of the `Reading`.
        likelihood: Mean log-likelihood (nats) of the true token over all depths.
        accepted: Mean number of accepted tokens of a draft.
        per_depth: Share of true tokens that were the likeliest, by depth, on true prefixes.
        gain: Of the likelihood over the configured reading, with its interval over prompts.
        gain_low: Lower end of the interval.
        gain_high: Upper end of the interval.
        tied: Whether it cannot be told from the best reading.
    """

    name: str
    text: str
    change: str
    likelihood: float
    accepted: float
    per_depth: tuple[float, ...]
    gain: float
    gain_low: float
    gain_high: float
    tied: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the weights want.

    Attributes:
        drafter: Its source, and `revision` its commit, if any.
        layouts: Every layout the files can be.
        variant: The drafter's variant in words, as configured.
        target: Its source.
        prompts: How many were continued.
        positions: Prefixes that were looked at.
        depth: Tokens drafted at each.
        readings: The configured one first, then the others, best first.
    """

    drafter: str
    revision: str
    layouts: tuple[str, ...]
    variant: str
    target: str
    prompts: int
    positions: int
    depth: int
    readings: tuple[Scored, ...]

    @property
    def wanted(self) -> Scored | None:
        """Return the reading that is better beyond its interval; None: as configured."""
        best = self.readings[1] if len(self.readings) > 1 else None
        return best if best is not None and best.gain_low > 0 else None


@dataclass(frozen=True, slots=True)
class _Text:
    """A prompt with the target's continuation, and its states at some boundaries."""

    ids: Tensor
    start: int
    states: dict[int, Tensor]


def diagnose(
    base: Reading,
    readings: Sequence[Reading],
    target: TargetModel,
    prompts: Sequence[Sequence[int]],
    *,
    tokens: int,
    depth: int,
    ends: set[int],
    progress: Callable[[int, int], None] | None = None,
) -> tuple[tuple[Scored, ...], int]:
    """Measure readings.

    Args:
        base: As configured.
        readings: The others.
        target: The target.
        prompts: Token ids of each prompt.
        tokens: To continue each prompt by, at most.
        depth: Tokens to draft at each prefix.
        ends: Tokens that end a text.
        progress: Called with the number of the reading and of all readings.

    Returns:
        The configured reading and the others, best first; the number of prefixes.

    Raises:
        ConversionError: No continuation is long enough.
    """
    every = (base, *readings)
    boundaries = sorted({b for reading in every for b in reading.taps})
    texts = [
        text
        for prompt in prompts
        if (text := _continued(target, prompt, boundaries, tokens, ends, depth)) is not None
    ]
    if not texts:
        raise ConversionError(
            f"no text of the target is longer than {depth} tokens", "give other prompts"
        )
    results = []
    for number, reading in enumerate(every):
        if progress is not None:
            progress(number, len(every))
        drafter = ReferenceDrafter(reading.spec, reading.weights)
        results.append([_measure(drafter, reading, text, depth) for text in texts])
    own = [r.likelihood for r in results[0]]
    scored = []
    for reading, found in zip(every, results, strict=True):
        theirs = [r.likelihood for r in found]
        low, high = _paired(theirs, own)
        rows = sum(r.rows for r in found)
        per_depth = tuple(sum(r.right[d] for r in found) / rows for d in range(depth))
        scored.append(
            Scored(
                reading.name,
                reading.text,
                reading.change,
                sum(theirs) / len(theirs),
                sum(r.accepted for r in found) / rows,
                per_depth,
                sum(theirs) / len(theirs) - sum(own) / len(own),
                low,
                high,
            )
        )
    positions = sum(r.rows for r in results[0])
    order = sorted(range(1, len(scored)), key=lambda i: -scored[i].likelihood)
    best = max(range(len(scored)), key=lambda i: scored[i].likelihood)
    tied = []
    for i in (0, *order):
        low, _ = _paired([r.likelihood for r in results[best]], [r.likelihood for r in results[i]])
        tied.append(replace(scored[i], tied=i != best and low <= 0))
    return tuple(tied), positions


@dataclass(frozen=True, slots=True)
class _Found:
    likelihood: float
    accepted: int
    right: tuple[int, ...]
    rows: int


def _continued(
    target: TargetModel,
    prompt: Sequence[int],
    boundaries: Sequence[int],
    tokens: int,
    ends: set[int],
    depth: int,
) -> _Text | None:
    new = generate(target, None, prompt, max_new_tokens=tokens, ends=ends).tokens
    if len(new) <= depth + 1:
        return None
    ids = [*prompt, *new]
    target.start()
    _, side_by_side = target.forward(ids, boundaries, last=True)
    states = side_by_side.chunk(len(boundaries), dim=-1)
    return _Text(
        torch.tensor(ids, device=target.device),
        len(prompt),
        dict(zip(boundaries, states, strict=True)),
    )


@torch.no_grad()
def _measure(drafter: ReferenceDrafter, reading: Reading, text: _Text, depth: int) -> _Found:
    """Draft along one text from each of its prefixes."""
    device = drafter.weights["norm.weight"].device
    aux = torch.cat([text.states[b] for b in reading.taps], dim=-1).to(device)
    hidden = drafter.fuse(aux)
    ids = text.ids.to(device)
    last = len(ids) - 1
    # Row t: the state of token t, beside the token after it.
    beside = ids[reading.paired : reading.paired + last]
    positions = torch.arange(len(ids) + depth, device=device)
    cache = DraftCache()
    lookup = _lookup(drafter)
    likelihood, accepted, rows = 0.0, 0, 0
    right = [0] * depth
    done = 0
    for row in range(text.start - 1, last - depth):
        out = drafter.step(
            beside[done : row + 1], hidden[done : row + 1], positions[done : row + 1], cache
        )
        done = row + 1
        logits, state = out.logits[-1], out.feedback[-1:]
        good = True
        for step in range(depth):
            true = int(ids[row + 2 + step])
            place = lookup.get(true)
            shares = logits.float().log_softmax(dim=-1)
            likelihood += max(float(shares[place]), _OUTSIDE) if place is not None else _OUTSIDE
            hit = place is not None and int(logits.argmax()) == place
            right[step] += hit
            good = good and hit
            accepted += good
            if step + 1 < depth:
                at = row + 1 + step
                token = ids[at + reading.paired : at + reading.paired + 1]
                out = drafter.step(token, state, positions[at : at + 1], cache)
                logits, state = out.logits[-1], out.feedback
        cache.crop(done)
        rows += 1
    return _Found(likelihood / (rows * depth), accepted, tuple(right), rows)


def _lookup(drafter: ReferenceDrafter) -> dict[int, int]:
    """Return token -> draft id; the first one where two have the same."""
    size = drafter.spec.draft_vocab_size
    device = drafter.weights["norm.weight"].device
    tokens = drafter.target_ids(torch.arange(size, device=device)).tolist()
    found: dict[int, int] = {}
    for draft_id, token in enumerate(tokens):
        found.setdefault(token, draft_id)
    return found


def _paired(one: Sequence[float], other: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return the interval of the mean difference over prompts."""
    rng = random.Random(seed)
    differences = [a - b for a, b in zip(one, other, strict=True)]
    count = len(differences)
    return bounds([sum(rng.choices(differences, k=count)) / count for _ in range(RESAMPLES)])


def doctor(
    drafter: str,
    target: str,
    *,
    prompts: str | None = None,
    limit: int | None = 12,
    depth: int = 4,
    max_new_tokens: int = 48,
    device: str = "auto",
    dtype: str = "auto",
    plain: bool = False,
    declared: Declared | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Diagnosis:
    """Find the reading that the weights want; see `eagleconv.doctor`."""
    chosen = load_prompts(prompts, limit)
    pair = load_pair(drafter, target, device, dtype, declared)
    spec = pair.read.spec()
    if spec.drafting == "parallel":
        raise ConversionError(
            "a parallel drafter (P-EAGLE) has no chain of drafts to look at",
            "measure it with `eagleconv smoke`",
        )
    layers = pair.target.num_layers
    base = configured(spec, pair.weights, layers)
    theta = getattr(pair.target.model.config.get_text_config(), "rope_parameters", None) or {}
    found, positions = diagnose(
        base,
        list(
            others(
                base,
                layers,
                pair.target.embedding,
                pair.target.lm_head,
                theta.get("rope_theta") if isinstance(theta, dict) else None,
            )
        ),
        pair.target,
        token_ids(pair.tokenizer, chosen.prompts, plain),
        tokens=max_new_tokens,
        depth=depth,
        ends=pair.ends,
        progress=progress,
    )
    return Diagnosis(
        drafter,
        pair.read.checkpoint.revision,
        pair.read.layout_names,
        pair.read.variant,
        target,
        len(chosen.prompts),
        positions,
        depth,
        found,
    )
