"""A target's config, the same for every spelling of the same thing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eagleconv.target.view import TargetView, open_target, quantization_of
from tests.target import made

BASE = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 100}


def view(folder: Path, **config: Any) -> TargetView:
    path = folder / "config.json"
    path.write_text(json.dumps(BASE | config))
    return open_target(str(path))


YARN = {"factor": 4.0, "original_max_position_embeddings": 4096}


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_theta": 10000, "rope_scaling": YARN | {"type": "yarn"}},
        {"rope_theta": 10000.0, "rope_scaling": YARN | {"rope_type": "yarn", "type": "yarn"}},
        {"rope_parameters": YARN | {"rope_type": "yarn", "rope_theta": 10000.0}},
        {"text_config": BASE | {"rope_parameters": YARN | {"type": "yarn", "rope_theta": 10000}}},
    ],
)
def test_rope_is_the_same_in_every_spelling(spelling: dict[str, Any], tmp_path: Path) -> None:
    nested = "text_config" in spelling
    (tmp_path / "config.json").write_text(json.dumps(spelling if nested else BASE | spelling))
    found = open_target(str(tmp_path / "config.json")).positions()
    assert found["rope"] == {
        "factor": 4.0,
        "original_max_position_embeddings": 4096.0,
        "rope_theta": 10000.0,
        "rope_type": "yarn",
    }


def test_plain_rope_and_none(tmp_path: Path) -> None:
    plain = view(tmp_path, rope_theta=5e5, rope_scaling=None).positions()["rope"]
    assert plain == {"rope_theta": 5e5, "rope_type": "default"}
    by_kind = {k: {"rope_theta": 1e4, "rope_type": "default"} for k in ("sliding", "full")}
    assert view(tmp_path, rope_parameters=by_kind).positions()["rope"] == by_kind


@pytest.mark.parametrize("key", ["max_position_embeddings", "n_positions", "max_sequence_length"])
def test_the_longest_context(key: str, tmp_path: Path) -> None:
    assert view(tmp_path, **{key: 4096}).positions()["max_position_embeddings"] == 4096


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ""),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "awq (4 bits)"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq (4 bits)"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        (
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}},
            "modelopt (nvfp4)",
        ),
        (
            {"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized"}},
            "compressed-tensors (pack-quantized)",
        ),
    ],
)  # fmt: skip
def test_the_scheme_is_named(config: dict[str, Any], expected: str, tmp_path: Path) -> None:
    assert quantization_of(view(tmp_path, **config)) == expected


def test_a_scheme_beside_the_config(tmp_path: Path) -> None:
    made.write(tmp_path / "t", made.arrays())
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}
    (tmp_path / "t/hf_quant_config.json").write_text(json.dumps(beside))
    assert quantization_of(open_target(str(tmp_path / "t"))) == "fp8"


@pytest.mark.parametrize("name", ["text_config", "llm_config", "language_config"])
def test_wrappers(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "vl", "torch_dtype": "bfloat16", name: BASE}))
    found = open_target(str(path))
    assert (found.facts.num_layers, found.facts.model_type) == (4, "llama")
    assert found.dtype == "bfloat16"


def test_tied_by_config_or_by_evidence(tmp_path: Path) -> None:
    weights = made.arrays()
    assert open_target(str(made.write(tmp_path / "a", weights))).tied is False
    del weights["lm_head.weight"]
    assert open_target(str(made.write(tmp_path / "b", weights, tie_word_embeddings=None))).tied
    assert view(tmp_path).tied is None
    assert view(tmp_path, tie_word_embeddings=True).tied is True
