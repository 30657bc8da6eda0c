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

CACHED = {n: v for n, v in VARIANTS.items() if "dynamic" not in n and "longrope" not in n}


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


@pytest.mark.parametrize("name", CACHED)
def test_a_cache_changes_nothing(name: str) -> None:
    one = drafter(VARIANTS[name])
    ids, aux = inputs(one, 9)
    hidden, positions = one.fuse(aux), torch.arange(9)
    whole = one.step(ids, hidden, positions)
    cache = DraftCache()
    parts = [
        one.step(ids[a:b], hidden[a:b], positions[a:b], cache) for a, b in ((0, 5), (5, 6), (6, 9))
    ]
    assert len(cache) == 9
    for got, expected in (
        (torch.cat([p.logits for p in parts]), whole.logits),
        (torch.cat([p.feedback for p in parts]), whole.feedback),
    ):
        assert (got - expected).abs().max() < 1e-10


def chain(one: ReferenceDrafter, ids: Any, aux: Any, depth: int) -> list[int]:
    """Draft without a cache: every step over all rows."""
    hidden, out = one.fuse(aux), []
    for _ in range(depth):
        step = one.step(ids, hidden, torch.arange(len(ids)))
        token = one.target_ids(step.logits[-1].argmax()[None])
        out.append(int(token))
        ids, hidden = torch.cat([ids, token]), torch.cat([hidden, step.feedback[-1:]])
    return out


CHAINED = {n: v for n, v in CACHED.items() if v.get("drafting") != "parallel"}


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


def test_dynamic_rope_is_refused() -> None:
    with pytest.raises(ConversionError, match="cannot be drafted with a cache"):
        Drafting(drafter(VARIANTS["dynamic"]))


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
