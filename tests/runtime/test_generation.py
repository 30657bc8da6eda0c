"""Drafting changes no text and no distribution, and what is accepted is counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny_targets import VOCAB, drafter, target  # noqa: E402

from eagleconv.drafter.facts import AuxLayers  # noqa: E402
from eagleconv.errors import ConversionError  # noqa: E402
from eagleconv.runtime.acceptance import count  # noqa: E402
from eagleconv.runtime.generation import Generated, Sampler, generate, taps_of  # noqa: E402
from eagleconv.runtime.reference import ReferenceDrafter  # noqa: E402
from eagleconv.runtime.target_model import AFTER_NORM  # noqa: E402

PROMPT = [7, 3, 99, 14, 52]
FACTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "3.1": {"input_norm": "per_aux", "feedback": "post_norm"},
    "normed": {"residual": "normed"},
    "concat": {"input_norm": "concat"},
    "qwen3": {"block": "qwen3"},
    "mla": {"block": "mla"},
    "layers": {"num_layers": 2},
    "window": {"window": (3,)},
    "full": {"vocabulary": "full"},
    "own embedding": {"own_embedding": True},
    "one state": {"aux": AuxLayers(0, None, "last")},
    "embedding tapped": {"aux": AuxLayers(3, (0, 3, 6), "explicit")},
    "parallel": {"drafting": "parallel", "mask_token_id": 3},
}


@pytest.mark.parametrize("name", FACTS)
@pytest.mark.parametrize("depth", [1, 3])
def test_the_text_is_the_targets_own(name: str, depth: int) -> None:
    one = target()
    alone = generate(one, None, PROMPT, max_new_tokens=24)
    drafted = generate(one, drafter(one, **FACTS[name]), PROMPT, max_new_tokens=24, depth=depth)
    assert drafted.tokens == alone.tokens
    assert drafted.smallest_gap > 1e-6
    assert drafted.drafts >= 6
    assert len(drafted.accepted) == drafted.drafts


class Parrot(ReferenceDrafter):
    """Drafts what it is told, to test what is counted."""

    script: list[int]
    right: int

    def target_ids(self, draft_ids: Any) -> Any:
        """Return the next token of the script, or a wrong one after `right` of each draft."""
        self.calls = getattr(self, "calls", 0) + 1
        place = (self.calls - 1) % 3
        token = (
            self.script[self.at + place]
            if place < self.right
            else (self.script[self.at + place] + 1) % VOCAB
        )
        return torch.tensor([token])

    at = 0


def parrot(one: Any, text: list[int], right: int) -> Parrot:
    base = drafter(one, vocabulary="full")
    bird = Parrot(base.spec, base.weights)
    bird.script, bird.right = [*text, *range(8)], right
    return bird


@pytest.mark.parametrize("right", [0, 1, 2, 3])
def test_drafts_are_counted_as_vllm_counts_them(
    right: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first token comes without a draft; the last draft counts whole, beyond the end too."""
    one = target()
    text = generate(one, None, PROMPT, max_new_tokens=24).tokens
    bird = parrot(one, text, right)
    from eagleconv.runtime.drafting import Drafting

    original = Drafting.draft

    def draft(self: Any, ids: Any, aux: Any, depth: int, choose: Any) -> Any:
        # Tokens verified so far: all rows it was given, less those of the prompt.
        self.seen = getattr(self, "seen", 0) + len(ids)
        bird.at = self.seen - len(PROMPT) + 1
        return original(self, ids, aux, depth, choose)

    monkeypatch.setattr(Drafting, "draft", draft)
    out = generate(one, bird, PROMPT, max_new_tokens=20, depth=3)
    assert out.tokens == text[:20]
    # 19 tokens after the first one, right + 1 of them for each draft.
    assert out.drafts == -(-19 // (right + 1))
    assert out.accepted == [right] * out.drafts
    assert count(3, out.accepted).accepted_per_position == tuple(
        out.drafts if at < right else 0 for at in range(3)
    )


def test_it_stops_at_an_end_token() -> None:
    one = target()
    text = generate(one, None, PROMPT, max_new_tokens=24).tokens
    end = text[10]
    cut = text[: text.index(end) + 1]
    assert generate(one, None, PROMPT, max_new_tokens=24, ends={end}).tokens == cut
    assert (
        generate(
            one, drafter(one, vocabulary="full"), PROMPT, max_new_tokens=24, depth=3, ends={end}
        ).tokens
        == cut
    )


def test_nan_is_seen() -> None:
    one = target()
    weights = dict(drafter(one).weights)
    weights["norm.weight"] = weights["norm.weight"] * float("nan")
    out = generate(
        one, ReferenceDrafter(drafter(one).spec, weights), PROMPT, max_new_tokens=8, depth=2
    )
    assert not out.finite
    assert generate(one, drafter(one), PROMPT, max_new_tokens=8, depth=2).finite


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_nan_of_the_target_is_seen(temperature: float) -> None:
    one = target()
    one.layers[-1].mlp.down_proj.weight.data[0] = float("nan")
    out = generate(
        one, drafter(one), PROMPT, max_new_tokens=8, depth=2, sampler=Sampler(temperature, 0)
    )
    assert not out.finite


def test_a_vocabulary_of_another_target_is_one_sentence() -> None:
    one = target()
    weights = dict(drafter(one).weights)
    weights["d2t"] = weights["d2t"] + VOCAB
    other = ReferenceDrafter(drafter(one).spec, weights)
    with pytest.raises(ConversionError, match=r"names token \d+, the target has 160"):
        generate(one, other, PROMPT, max_new_tokens=8, depth=2)


def test_a_head_of_one_state_gets_the_normed_one() -> None:
    """As ModelOpt trains it (`hf_eagle.py`, `_prepare_eagle_inputs`) and vLLM hands it over."""
    assert taps_of(AuxLayers(0, None, "last"), 6) == (AFTER_NORM,)


DRAWS = 20_000


def chi_square(observed: Counter[Any], expected: dict[Any, float]) -> float:
    """Return a chi-square statistic as a standard normal (Wilson and Hilferty 1931)."""
    rare = sum(share for share in expected.values() if share * DRAWS < 10)
    common = {k: v for k, v in expected.items() if v * DRAWS >= 10}
    cells = [(observed[k], v * DRAWS) for k, v in common.items()]
    if rare * DRAWS >= 10:
        cells.append((DRAWS - sum(observed[k] for k in common), rare * DRAWS))
    statistic = sum((o - e) ** 2 / e for o, e in cells)
    free = len(cells) - 1
    third = 2 / (9 * free)
    return float(((statistic / free) ** (1 / 3) - (1 - third)) / np.sqrt(third))


def sampled(sampler: Sampler, sample_drafts: bool) -> float:
    """Draw two tokens by draft and verify, and compare them with the target's own distribution."""
    rng = np.random.default_rng(1)
    size, draft_size = 12, 8
    vocabulary = torch.tensor(sorted(rng.choice(size, draft_size, replace=False).tolist()))
    first = torch.tensor(rng.normal(0, 1.5, size))
    second = torch.tensor(rng.normal(0, 1.5, (size, size)))
    drafter_logits = torch.tensor(rng.normal(0, 1.5, draft_size))
    p1 = (first / sampler.temperature).softmax(-1)
    p2 = (second / sampler.temperature).softmax(-1)
    observed: Counter[tuple[int, int]] = Counter()
    for _ in range(DRAWS):
        chosen, share = sampler.choose(drafter_logits)
        token = int(vocabulary[chosen])
        logits = torch.stack([first, second[token]])
        out = sampler.verify(logits, [token], [share], vocabulary)
        if len(out) == 1:  # the next token comes from a step of its own
            out.append(sampler.pick(second[out[0]]))
        observed[out[0], out[1]] += 1
    expected = {(i, j): float(p1[i] * p2[i, j]) for i in range(size) for j in range(size)}
    return chi_square(observed, expected)


@pytest.mark.parametrize("sample_drafts", [False, True])
def test_sampling_is_lossless(sample_drafts: bool) -> None:
    assert abs(sampled(Sampler(0.8, 3, sample_drafts), sample_drafts)) < 3.5


@pytest.mark.parametrize("sample_drafts", [False, True])
def test_a_broken_residual_is_noticed(sample_drafts: bool) -> None:
    class Broken(Sampler):
        @staticmethod
        def residual(p: Any, q: Any) -> Any:
            return p

    assert sampled(Broken(0.8, 3, sample_drafts), sample_drafts) > 10


def test_sampling_of_a_model_is_repeatable() -> None:
    one = target()
    runs: list[Generated] = [
        generate(
            one,
            drafter(one, vocabulary="full"),
            PROMPT,
            max_new_tokens=16,
            depth=2,
            sampler=Sampler(1.0, seed),
        )
        for seed in (1, 1, 2)
    ]
    assert runs[0].tokens == runs[1].tokens
    assert runs[0].tokens != runs[2].tokens
