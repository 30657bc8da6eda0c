"""Drafting with a cache computes what the reference computes without one."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers_oracle import random_weights  # noqa: E402

from eagleconv.errors import ConversionError  # noqa: E402
from eagleconv.runtime.drafting import Drafting, greedy  # noqa: E402
from eagleconv.runtime.reference import DraftCache, ReferenceDrafter  # noqa: E402
from tests.drafters import make_spec  # noqa: E402
from tests.runtime.test_reference import VARIANTS  # noqa: E402


def drafter(variant: dict[str, Any]) -> ReferenceDrafter:
    spec = make_spec(**variant)
    return ReferenceDrafter(spec, random_weights(spec))


def inputs(one: ReferenceDrafter, rows: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(3)
    spec = one.spec
    width = (
        spec.hidden_size if spec.aux.rule == "last" else spec.aux.count * spec.target_hidden_size
    )
    ids = torch.randint(0, spec.vocab_size, (rows,), generator=generator)
    return ids, torch.randn(rows, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_cache_changes_nothing(name: str) -> None:
    """Rows that are forgotten and run again, too; past the length at which longrope changes."""
    one = drafter(VARIANTS[name])
    ids, aux = inputs(one, 12)
    hidden, positions = one.fuse(aux), torch.arange(12)
    cache = DraftCache()
    for a, b in ((0, 5), (5, 6), (6, 9), (6, 7), (7, 12)):
        cache.crop(a)
        part = one.step(ids[a:b], hidden[a:b], positions[a:b], cache, last=1)
        # Up to here only: some scalings turn by the length of the sequence.
        whole = one.step(ids[:b], hidden[:b], positions[:b])
        assert len(cache) == b
        assert part.logits.shape[0] == 1
        assert (part.logits - whole.logits[-1:]).abs().max() < 1e-10
        assert (part.feedback - whole.feedback[a:b]).abs().max() < 1e-10


def chain(one: ReferenceDrafter, ids: Any, aux: Any, depth: int) -> list[int]:
    """Draft without a cache: every step over all rows."""
    hidden, out = one.fuse(aux), []
    for _ in range(depth):
        step = one.step(ids, hidden, torch.arange(len(ids)))
        token = one.target_ids(step.logits[-1].argmax()[None])
        out.append(int(token))
        ids, hidden = torch.cat([ids, token]), torch.cat([hidden, step.feedback[-1:]])
    return out


CHAINED = {n: v for n, v in VARIANTS.items() if v.get("drafting") != "parallel"}


@pytest.mark.parametrize("name", CHAINED)
def test_a_draft_is_the_chain_of_steps(name: str) -> None:
    """Twice: rows made while drafting must be forgotten before the next draft."""
    one = drafter(VARIANTS[name])
    ids, aux = inputs(one, 8)
    drafting = Drafting(one)
    for start, end in ((0, 5), (5, 8)):
        found = drafting.draft(ids[start:end], aux[start:end], 4, greedy)
        assert list(found.ids) == chain(one, ids[:end], aux[:end], 4)
        assert found.shares == (None,) * 4


def test_a_parallel_draft_is_one_step() -> None:
    spec = make_spec(drafting="parallel", mask_token_id=3, num_layers=2)
    one = ReferenceDrafter(spec, random_weights(spec))
    ids, aux = inputs(one, 8)
    drafting = Drafting(one)
    for start, end in ((0, 5), (5, 8)):
        found = drafting.draft(ids[start:end], aux[start:end], 3, greedy)
        mask_ids, mask_hidden = one.mask_inputs(2)
        rows = torch.cat([ids[:end], mask_ids])
        states = torch.cat([one.fuse(aux[:end]), mask_hidden])
        logits = one.step(rows, states, torch.arange(end + 2)).logits[-3:]
        assert list(found.ids) == one.target_ids(logits.argmax(-1)).tolist()


def test_a_token_beyond_the_embedding_is_one_sentence() -> None:
    one = drafter({})
    _, aux = inputs(one, 2)
    with pytest.raises(ConversionError, match="token 160 is beyond the drafter's embedding of 160"):
        Drafting(one).draft(torch.tensor([3, 160]), aux, 3, greedy)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near(dtype: Any) -> None:
    one = drafter({})
    weights = {n: w.to(dtype) if w.is_floating_point() else w for n, w in one.weights.items()}
    half = ReferenceDrafter(one.spec, weights)
    ids, aux = inputs(one, 8)
    positions = torch.arange(8)
    a = one.step(ids, one.fuse(aux), positions).logits
    b = half.step(ids, half.fuse(aux), positions).logits
    assert b.dtype == dtype
    assert (a - b).abs().max() / a.abs().max() < 0.03
