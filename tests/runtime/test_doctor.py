"""The doctor on drafters whose right reading is known, each read wrongly in one way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import jsonschema  # noqa: E402
import planted  # noqa: E402

from eagleconv.checkpoint.schema import load  # noqa: E402
from eagleconv.drafter.facts import AuxLayers  # noqa: E402
from eagleconv.report.diagnosis import as_json, as_lines, as_markdown, conclusion  # noqa: E402
from eagleconv.runtime.doctor import Diagnosis, diagnose  # noqa: E402
from eagleconv.runtime.readings import configured, others  # noqa: E402

Trained = tuple[Any, Any, dict[str, Any]]


@pytest.fixture(scope="module", params=planted.VARIANTS)
def trained(request: pytest.FixtureRequest) -> Iterator[Trained]:
    """One thread: matrices are so small that a second one only waits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield planted.train(request.param)
    torch.set_num_threads(threads)


def diagnosis(one: Any, spec: Any, weights: dict[str, Any]) -> Diagnosis:
    base = configured(spec, weights, one.num_layers)
    readings = list(others(base, one.num_layers, one.embedding, one.lm_head, None))
    found, positions = diagnose(
        base, readings, one, planted.PROMPTS, tokens=planted.TOKENS, depth=3, ends=set()
    )
    return Diagnosis("d", "", ("l",), "v", "t", len(planted.PROMPTS), positions, 3, found)


def test_a_good_drafter_is_as_configured(trained: Trained) -> None:
    found = diagnosis(*trained)
    assert found.wanted is None, as_lines(found)
    assert found.readings[0].accepted > 2, "it never learnt the texts"
    assert conclusion(found)[0].startswith("as configured")


def flipped(spec: Any, name: str) -> Any:
    values = {"feedback": ("pre_norm", "post_norm"), "residual": ("raw", "normed")}[name]
    return replace(spec, **{name: values[1 - values.index(getattr(spec, name))]})


def turned(weights: dict[str, Any], sign: int) -> dict[str, Any]:
    """Return a map of offsets read as ids (-1), or of ids read as offsets (+1)."""
    d2t = weights["d2t"]
    return {**weights, "d2t": d2t + sign * torch.arange(len(d2t))}


def taps(spec: Any, *boundaries: int) -> Any:
    return replace(spec, aux=AuxLayers(3, boundaries, "explicit"))


#: What is read wrongly -> the cause that must be named, and the wrong reading.
BROKEN: dict[str, tuple[str, Any]] = {
    "feedback": ("feedback", lambda s, w: (flipped(s, "feedback"), w)),
    "residual": ("residual", lambda s, w: (flipped(s, "residual"), w)),
    "ids later": ("layer ids", lambda s, w: (taps(s, 3, 4, 5), w)),
    "ids earlier": ("layer ids", lambda s, w: (taps(s, 1, 2, 3), w)),
    "ids as offsets": ("d2t", lambda s, w: (s, turned(w, 1))),
    "offsets as ids": ("d2t", lambda s, w: (s, turned(w, -1))),
    "a random embedding": (
        "embedding",
        lambda s, w: (s, w | {"embed_tokens.weight": torch.randn(w["embed_tokens.weight"].shape)}),
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_the_cause_is_named_first(trained: Trained, broken: str) -> None:
    one, spec, weights = trained
    name, change = BROKEN[broken]
    found = diagnosis(one, *change(spec, weights))
    assert found.wanted is not None, as_lines(found)
    assert found.wanted.name == name, as_lines(found)
    assert found.wanted.accepted > found.readings[0].accepted


def test_every_kind_of_reading_is_tried(trained: Trained) -> None:
    one, spec, weights = trained
    other = weights | {"embed_tokens.weight": weights["embed_tokens.weight"] + 1}
    found = [r.name for r in others(configured(spec, other, 6), 6, one.embedding, one.lm_head, 7.0)]
    assert set(found) == {
        "feedback",
        "residual",
        "layer ids",
        "order of taps",
        "d2t",
        "rope base",
        "tokens",
        "embedding",
        "head",
    }
    assert found.count("rope base") == 4


def test_reports(trained: Trained) -> None:
    one, spec, weights = trained
    found = diagnosis(one, flipped(spec, "feedback"), weights)
    for text in (as_lines(found), as_markdown(found), str(as_json(found))):
        assert "feedback" in text
    report = as_json(found)
    jsonschema.Draft202012Validator(load("diagnosis")).validate(report)
    assert report["verdict"] == "feedback"
    assert conclusion(found)[1].startswith("change: norm_output: ")
