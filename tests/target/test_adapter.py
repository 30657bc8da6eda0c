"""Adapters beside a target: what is said of them, and what it means for a match."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eagleconv
from eagleconv.errors import SourceError
from eagleconv.target.adapter import find_adapters, read_adapter
from tests.drafters import write_safetensors
from tests.target import made, made_pair


def adapter(
    directory: Path,
    modules: tuple[str, ...] = ("self_attn.q_proj", "mlp.down_proj"),
    layers: range = range(8),
    zero: bool = False,
    **config: Any,
) -> Path:
    """Write one as peft does."""
    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    whole = {
        "peft_type": "LORA",
        "r": 4,
        "lora_alpha": 8,
        "base_model_name_or_path": "org/base",
        "target_modules": sorted({m.split(".")[-1] for m in modules}),
    } | config
    (directory / "adapter_config.json").write_text(json.dumps(whole))
    entries = {}
    for i in layers:
        for m in modules:
            at = f"base_model.model.model.layers.{i}.{m}.lora_"
            a = rng.normal(size=(4, 128)).astype(np.float32)
            b = (
                np.zeros((128, 4), np.float32)
                if zero
                else rng.normal(size=(128, 4)).astype(np.float32)
            )
            entries[f"{at}A.weight"] = made.stored(a, "F32")
            entries[f"{at}B.weight"] = made.stored(b, "F32")
    write_safetensors(directory / "adapter_model.safetensors", entries)
    return directory


def test_what_it_changes_is_said(tmp_path: Path) -> None:
    found = read_adapter(str(adapter(tmp_path / "a")))
    assert (found.kind, found.rank, found.base) == ("LoRA", 4, "org/base")
    assert (found.modules, found.layers) == (("q_proj", "down_proj"), tuple(range(8)))
    assert found.sentence() == (
        f"adapter {tmp_path / 'a'} (LoRA, rank 4) changes q_proj, down_proj of 8 layers, 0 to 7, "
        "made for org/base"
    )
    assert not found.changes_nothing


def test_one_that_was_never_trained_changes_nothing(tmp_path: Path) -> None:
    found = read_adapter(str(adapter(tmp_path / "a", zero=True)))
    assert found.changes_nothing
    assert found.sentence().endswith("all its matrices B are zero")


def test_a_whole_module_is_a_change(tmp_path: Path) -> None:
    directory = adapter(tmp_path / "a", layers=range(0))
    name = "base_model.model.lm_head.weight"
    write_safetensors(
        directory / "adapter_model.safetensors",
        {name: made.stored(np.zeros((4, 4), np.float32), "F32")},
    )
    found = read_adapter(str(directory))
    assert found.modules == ("lm_head",)
    assert not found.changes_nothing


def test_a_pickled_one_is_named_by_its_config(tmp_path: Path) -> None:
    directory = adapter(tmp_path / "a")
    (directory / "adapter_model.safetensors").rename(directory / "adapter_model.bin")
    found = read_adapter(str(directory))
    assert (found.modules, found.layers) == (("down_proj", "q_proj"), ())


def test_broken_ones(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="holds no adapter_config"):
        find_adapters((str(tmp_path),), "")
    directory = adapter(tmp_path / "a")
    (directory / "adapter_model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(SourceError):
        read_adapter(str(directory))
    (directory / "adapter_model.safetensors").unlink()
    with pytest.raises(SourceError, match="no adapter_model"):
        read_adapter(str(directory))
    (directory / "adapter_config.json").write_text("{")
    with pytest.raises(SourceError, match="not valid JSON"):
        read_adapter(str(directory))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pair")
    made_pair.target(root / "target")
    made_pair.drafter(root / "drafter")
    eagleconv.upgrade(str(root / "drafter"), str(root / "upgraded"), target=str(root / "target"))
    return root


@pytest.mark.parametrize(
    ("drafter", "zero", "verdict"),
    [
        ("upgraded", False, "mismatch"),
        ("upgraded", True, "match"),
        ("drafter", False, "compatible"),
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_a_match_names_it(
    pair: Path, drafter: str, zero: bool, verdict: str, inside: bool, tmp_path: Path
) -> None:
    target = Path(shutil.copytree(pair / "target", tmp_path / "target"))
    at = adapter(target if inside else tmp_path / "adapter", zero=zero)
    given = () if inside else (str(at),)
    found = eagleconv.match(str(pair / drafter), str(target), adapters=given)
    assert found.verdict == verdict
    level = next(level for level in found.levels if level.name == "adapter")
    assert "changes q_proj, down_proj of 8 layers" in level.sentences[0]
