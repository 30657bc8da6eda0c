"""Counts, what follows from them, and prompts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from eagleconv.errors import SourceError
from eagleconv.runtime.acceptance import (
    Counts,
    as_json,
    count,
    interval,
    paired_interval,
    total,
)
from eagleconv.runtime.prompts import load_prompts, token_ids


def test_what_follows_from_counts() -> None:
    """Five drafts of three tokens: 3, 0, 1, 2 and 1 accepted."""
    found = count(3, [3, 0, 1, 2, 1])
    assert found == Counts(3, 5, (4, 2, 1))
    assert (found.drafted, found.accepted) == (15, 7)
    assert found.acceptance_rate == pytest.approx(7 / 15)
    assert found.mean_acceptance_length == pytest.approx(1 + 7 / 5)
    assert found.per_position == pytest.approx((0.8, 0.4, 0.2))
    assert found.conditional == pytest.approx((0.8, 0.5, 0.5))
    assert total([found, count(3, [3])]) == Counts(3, 6, (5, 3, 2))


def test_the_counters_of_a_real_run() -> None:
    """vLLM 0.32 printed these for the real drafter: 294 drafts, 102 36 12."""
    found = Counts(3, 294, (102, 36, 12))
    assert found.mean_acceptance_length == pytest.approx(1.5102, abs=1e-4)
    assert found.acceptance_rate == pytest.approx(0.1701, abs=1e-4)


def test_nothing_follows_from_nothing() -> None:
    found = count(2, [])
    assert math.isnan(found.mean_acceptance_length)
    assert math.isnan(found.acceptance_rate)
    text = as_json(found)
    assert text["mean_acceptance_length"] is None
    assert text["per_position"] == [None, None]
    assert all(map(math.isnan, interval([], lambda c: c.acceptance_rate)))


def test_intervals_hold_the_value_and_shrink_with_prompts() -> None:
    def length(c: Counts) -> float:
        return c.mean_acceptance_length

    few = [count(3, [i % 4, 1]) for i in range(8)]
    many = few * 16
    low, high = interval(few, length)
    narrow, wide = interval(many, length)
    assert low < length(total(few)) < high
    assert wide - narrow < (high - low) / 2
    assert interval(few, length) == (low, high)


def test_a_paired_interval_sees_what_two_hide() -> None:
    """Prompts differ far more than the drafters: only pairs show the small, steady loss."""

    def length(c: Counts) -> float:
        return c.mean_acceptance_length

    one = [count(4, [i % 5] * 20) for i in range(20)]
    other = [count(4, [i % 5] * 19 + [max(0, i % 5 - 1)]) for i in range(20)]
    assert interval(one, length)[0] < interval(other, length)[1]
    low, high = paired_interval(one, other, length)
    assert 0 < low < high < 0.1


# Prompts.


def test_the_built_in_set() -> None:
    found = load_prompts()
    assert found.name == "built-in"
    assert len(found.prompts) >= 80
    assert len({p.id for p in found.prompts}) == len(found.prompts)
    assert len({p.messages[0]["content"] for p in found.prompts}) == len(found.prompts)
    categories = {p.category for p in found.prompts}
    assert {
        "writing",
        "coding",
        "translation",
        "summarization",
        "qa",
        "rag",
        "multilingual",
    } <= categories
    first = load_prompts(limit=len(categories))
    assert {p.category for p in first.prompts} == categories
    assert first.digest != found.digest
    assert load_prompts().digest == found.digest


FORMS = {
    "turns": '{"question_id": 7, "category": "a", "turns": ["hi", "more"]}\n{"turns": ["ho"]}\n',
    "messages": '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}]}\n'
    '{"messages": [{"role": "user", "content": "ho"}]}',
    "list": '[{"prompt": "hi"}, "ho"]',
    "turns of messages": '[{"turns": [{"role": "user", "content": "hi"}]}, {"prompt": "ho"}]',
    "plain": "hi\n\nho\n",
    "a mark of the byte order": "\ufeffhi\r\nho",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form: str, tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text(FORMS[form], encoding="utf-8")
    found = load_prompts(str(path)).prompts
    assert [p.messages for p in found] == [
        ({"role": "user", "content": "hi"},),
        ({"role": "user", "content": "ho"},),
    ]


def test_system_prompts_and_earlier_turns_stay(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "the reference answer"},
    ]
    (tmp_path / "p").write_text(json.dumps({"id": "x", "messages": messages}))
    (found,) = load_prompts(str(tmp_path / "p")).prompts
    assert found.messages == tuple(messages[:4])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "there is none in it"),
        ("[]", "there is none in it"),
        ('{"turns": ["a"]}\n{"x": 1}', "line 2: neither"),
        ('{"turns": ["a"]}\n{', "line 2: not valid JSON"),
        ("[1]", "entry 1: neither"),
        ("[", "not valid JSON"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', "neither"),
        ('{"turns": [1]}', "neither"),
    ],
)
def test_what_is_no_prompt(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "p").write_text(text)
    with pytest.raises(SourceError, match=sentence):
        load_prompts(str(tmp_path / "p"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        load_prompts(str(tmp_path / "none"))
    (tmp_path / "p").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(SourceError, match="no UTF-8"):
        load_prompts(str(tmp_path / "p"))


def test_a_template_is_wanted() -> None:
    class Bare:
        chat_template = None

        def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
            return {"input_ids": [len(text)]}

    prompts = load_prompts(limit=2).prompts
    with pytest.raises(SourceError, match="no chat template"):
        token_ids(Bare(), prompts, plain=False)
    assert token_ids(Bare(), prompts, plain=True) == [
        [len(p.messages[0]["content"])] for p in prompts
    ]
