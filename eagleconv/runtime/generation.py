"""Draft and verify: greedy, or lossless sampling at a temperature.

The loop of vLLM 0.32's V1 engine for one request: the first token after the prompt comes from the
target alone; each later step verifies `depth` drafts and one more token. A step with drafts counts as
one draft, whatever of it lies beyond the end (`v1/core/sched/scheduler.py`, `update_from_output`:
accepted tokens are counted before a stop is looked for; `v1/spec_decode/metrics.py`,
`SpecDecodingStats.observe_draft`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from eagleconv.drafter.aux_layers import default_boundaries
from eagleconv.drafter.facts import AuxLayers
from eagleconv.errors import ConversionError
from eagleconv.runtime.drafting import Choose, Drafting, greedy
from eagleconv.runtime.reference import ReferenceDrafter
from eagleconv.runtime.target_model import AFTER_NORM, TargetModel


@dataclass(slots=True)
class Generated:
    """What came of one prompt.

    Attributes:
        tokens: New tokens, the end token included.
        drafts: Drafts of `depth` tokens that were verified.
        accepted: For each of them, how many tokens were accepted.
        smallest_gap: Smallest difference of the two largest logits wherever a token was chosen.
        finite: Whether every logit, the drafter's too, was a number.
        seconds: Of the whole after the prompt was read and the first token chosen.
        draft_seconds: Spent drafting.
        verify_seconds: Spent verifying.
    """

    tokens: list[int] = field(default_factory=list)
    drafts: int = 0
    accepted: list[int] = field(default_factory=list)
    smallest_gap: float = float("inf")
    finite: bool = True
    seconds: float = 0.0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0


def taps_of(aux: AuxLayers, layers: int) -> tuple[int, ...]:
    """Return the boundaries to tap of a target of so many layers.

    A head that is fed by one state gets the one after the final norm: so ModelOpt trains it
    (`plugins/hf_eagle.py`, `_prepare_eagle_inputs`), and so vLLM 0.32 hands it over
    (`v1/worker/gpu_model_runner.py`: what the model's forward returns; `models/llama.py:452`).

    Raises:
        ConversionError: They are outside of it.
    """
    if aux.rule == "last":
        return (AFTER_NORM,)
    boundaries = aux.boundaries or default_boundaries(layers)
    if not 0 <= min(boundaries) <= max(boundaries) <= layers:
        raise ConversionError(
            f"boundaries {', '.join(map(str, boundaries))} are outside a target of {layers} layers",
            "check the layer ids, or give the target it was trained for",
        )
    return tuple(boundaries)


class Sampler:
    """Chooses tokens, and accepts or replaces drafted ones, without changing the distribution.

    Rejection sampling (Leviathan et al., arXiv:2211.17192, algorithm 1): a draft x drawn from q is
    accepted with probability min(1, p(x) / q(x)); else a token is drawn from max(p - q, 0).
    """

    def __init__(self, temperature: float, seed: int, sample_drafts: bool = True) -> None:
        """Prepare.

        Args:
            temperature: 0 for greedy.
            seed: Of all draws.
            sample_drafts: Draw drafts from the drafter's distribution; else the likeliest one is
                taken, and q is certain of it.
        """
        self.temperature, self.sample_drafts = temperature, sample_drafts
        self._generator = torch.Generator().manual_seed(seed)

    @property
    def choose(self) -> Choose:
        """How a drafter chooses."""
        return self._draw if self.temperature and self.sample_drafts else greedy

    def pick(self, logits: Tensor) -> int:
        """Return a token of the target, from logits [V]."""
        if not self.temperature:
            return int(logits.argmax())
        return self._one(self._shares(logits))

    def verify(
        self,
        logits: Tensor,
        drafts: Sequence[int],
        shares: Sequence[Tensor | None],
        vocabulary: Tensor | None,
    ) -> list[int]:
        """Return the tokens that follow: accepted drafts, then one of the target.

        Args:
            logits: [depth + 1, V], of the target.
            drafts: Target ids.
            shares: Distributions the drafts were drawn from, over the draft vocabulary.
            vocabulary: Target id of each draft id [D]; None where they are the same.
        """
        out: list[int] = []
        for at, token in enumerate(drafts):
            if not self.temperature:
                best = int(logits[at].argmax())
                out.append(best)
                if best != token:
                    return out
                continue
            p = self._shares(logits[at])
            q = self._spread(shares[at], token, len(p), vocabulary)
            if self._uniform() * float(q[token]) < float(p[token]):
                out.append(token)
                continue
            out.append(self._one(self.residual(p, q)))
            return out
        out.append(self.pick(logits[len(drafts)]))
        return out

    @staticmethod
    def residual(p: Tensor, q: Tensor) -> Tensor:
        """Return what a rejected draft is replaced from, not normalised: max(p - q, 0), [V]."""
        return (p - q).clamp(min=0.0)

    def _shares(self, logits: Tensor) -> Tensor:
        # What is no number is noted elsewhere, and must not stop the run here.
        wide = logits.double().cpu().nan_to_num(nan=0.0, posinf=0.0, neginf=float("-inf"))
        return (wide / self.temperature).softmax(dim=-1)

    def _draw(self, logits: Tensor) -> tuple[int, Tensor | None]:
        shares = self._shares(logits)
        return self._one(shares), shares

    def _one(self, shares: Tensor) -> int:
        return int(torch.multinomial(shares, 1, generator=self._generator))

    def _uniform(self) -> float:
        return float(torch.rand((), dtype=torch.float64, generator=self._generator))

    @staticmethod
    def _spread(share: Tensor | None, token: int, size: int, vocabulary: Tensor | None) -> Tensor:
        """Return q over the target's vocabulary."""
        q = torch.zeros(size, dtype=torch.float64)
        if share is None:
            q[token] = 1.0
        elif vocabulary is None:
            q[: len(share)] = share
        else:
            q[vocabulary] = share
        return q


def generate(
    target: TargetModel,
    drafter: ReferenceDrafter | None,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    depth: int = 0,
    ends: Collection[int] = (),
    sampler: Sampler | None = None,
) -> Generated:
    """Continue a prompt.

    Args:
        target: The target; its cache is begun anew.
        drafter: The drafter, or None for the target alone.
        prompt: Token ids.
        max_new_tokens: Where to stop at the latest.
        depth: Tokens per draft.
        ends: Tokens that end a text.
        sampler: Greedy where None.

    Raises:
        ConversionError: Taps or vocabulary of the drafter are not those of the target.
    """
    sampler = sampler or Sampler(0.0, 0)
    out = Generated()
    taps: tuple[int, ...] = ()
    drafting = None
    vocabulary = None
    if drafter is not None:
        taps = taps_of(drafter.spec.aux, target.num_layers)
        drafting = Drafting(drafter)
        if drafter.spec.vocabulary == "reduced":
            size = drafter.spec.draft_vocab_size
            every = torch.arange(size, device=drafting.device)
            vocabulary = drafter.target_ids(every).cpu()
            wrong = [int(t) for t in (vocabulary.min(), vocabulary.max())]
            width = target.lm_head.shape[0]
            if wrong[0] < 0 or wrong[1] >= width:
                raise ConversionError(
                    f"the draft vocabulary names token {wrong[0] if wrong[0] < 0 else wrong[1]}, "
                    f"the target has {width}",
                    "give the target it was trained for, or declare --d2t-meaning",
                )

    def choose(logits: Tensor) -> tuple[int, Tensor | None]:
        out.finite = out.finite and bool(logits.isfinite().all())
        return sampler.choose(logits)

    target.start()
    logits, aux = target.forward(prompt, taps, last=True)
    newest = [_pick(out, sampler, logits[-1])]
    ids = [*prompt[1:], *newest]
    begin = time.perf_counter()
    while not _stops(out, newest, max_new_tokens, ends):
        if drafting is None:
            logits, _ = target.forward(newest)
            newest = [_pick(out, sampler, logits[-1])]
            continue
        started = time.perf_counter()
        draft = drafting.draft(torch.tensor(ids), aux, depth, choose)
        drafted = time.perf_counter()
        before = len(target)
        logits, aux = target.forward([newest[-1], *draft.ids], taps)
        newest = sampler.verify(logits, draft.ids, draft.shares, vocabulary)
        _watch(out, logits[: len(newest)])
        target.crop(before + len(newest))
        aux, ids = aux[: len(newest)], newest
        out.drafts += 1
        out.accepted.append(len(newest) - 1)
        out.draft_seconds += drafted - started
        out.verify_seconds += time.perf_counter() - drafted
    out.seconds = time.perf_counter() - begin
    return out


def _pick(out: Generated, sampler: Sampler, logits: Tensor) -> int:
    _watch(out, logits[None])
    return sampler.pick(logits)


def _watch(out: Generated, logits: Tensor) -> None:
    """Note gaps and what is no number, of logits [T, V]."""
    best = logits.float().topk(2, dim=-1).values
    gap = float((best[:, 0] - best[:, 1]).min())
    if gap != gap:
        out.finite = False
    out.smallest_gap = min(out.smallest_gap, gap)


def _stops(
    out: Generated, newest: Sequence[int], max_new_tokens: int, ends: Collection[int]
) -> bool:
    """Take in the newest tokens and say whether the text ends with them."""
    for token in newest:
        out.tokens.append(token)
        if token in ends or len(out.tokens) >= max_new_tokens:
            return True
    return False
