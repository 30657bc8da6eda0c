"""Depth 7: eagleconv's loop and real vLLM count the same, for both kinds of feedback."""

from __future__ import annotations

from typing import Any

import pytest

import eagleconv

from . import acceptance, smoked, target
from .test_vllm_equal import REAL, with_flipped_norm_output

DEPTH, TOKENS = 7, 32


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, smoked.Run, dict[str, Any]]]:
    """Ours and vLLM's, on prompts without near ties."""
    scratch = tmp_path_factory.mktemp("deep")
    smollm2 = target.smollm2()
    good = scratch / "good-eagle3"
    eagleconv.upgrade(str(REAL), str(good), target=str(smollm2))
    (good / "eagleconv.json").unlink()
    flipped = with_flipped_norm_output(good, scratch / "flipped-eagle3")
    prompts = acceptance.question_ids(smollm2, acceptance.QUESTIONS[:6])
    first = smoked.measure(smollm2, good, DEPTH, prompts, TOKENS)
    clear = [p for p, gap in zip(prompts, first.gaps, strict=True) if gap > smoked.GAP]
    assert len(clear) >= 4, first.gaps
    ours = [
        smoked.measure(smollm2, drafter, DEPTH, clear, TOKENS, meaning)
        for drafter, meaning in ((good, None), (flipped, "feedback"))
    ]
    theirs = acceptance.measure(smollm2, [good, flipped], DEPTH, clear, TOKENS)
    return list(zip(("sound", "norm_output flipped"), ours, theirs, strict=True))


def test_the_counters_are_equal(
    runs: list[tuple[str, smoked.Run, dict[str, Any]]], table: list[tuple[str, ...]]
) -> None:
    for name, ours, theirs in runs:
        counted = f"{ours.counters['num_drafts']} {ours.counters['accepted_per_pos']}"
        table.append(
            (f"{REAL.name}, depth {DEPTH}, {name}", f"gap {ours.smallest_gap:.1g}", counted)
        )
        assert ours.outputs == theirs["outputs"]
        for key, value in ours.counters.items():
            assert value == theirs[key], (name, key)
    sound, flipped = (ours.counters["accepted_per_pos"] for _, ours, _ in runs)
    assert sound[2] > 0
    assert sound != flipped
