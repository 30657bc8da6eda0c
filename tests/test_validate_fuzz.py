"""Whatever stands in config.json, and whichever tensor is gone: findings. Never a traceback."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import eagleconv
from fixtures import changes
from tests.test_config_fuzz import FIXTURES, KEYS, VALUES
from tests.test_upgrade_cli import ROOT

ENGINES = ["vllm==0.32", "vllm==0.21", "sglang"]


def placed(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a config with one value at a dotted path."""
    changed: dict[str, Any] = json.loads(json.dumps(config))
    *parents, last = path.split(".")
    place = changed
    for parent in parents:
        if not isinstance(place.get(parent), dict):
            place[parent] = {}
        place = place[parent]
    place[last] = value
    return changed


@pytest.mark.parametrize("name", FIXTURES)
def test_any_value_under_any_key(name: str, tmp_path: Path) -> None:
    source = ROOT / "fixtures/valid" / name
    shutil.copy(source / "model.safetensors", tmp_path)
    config = json.loads((source / "config.json").read_text())
    cases = [(key, value) for key in KEYS for value in VALUES]
    found = 0
    for key, value in random.Random(name).sample(cases, 150):
        (tmp_path / "config.json").write_text(json.dumps(placed(config, key, value)))
        result = eagleconv.validate(str(tmp_path), engines=ENGINES)
        found += len(result.findings)
        assert result.unreadable or result.checks_run
        for text in (result.unreadable, *(f.message for f in result.findings)):
            assert "\n" not in text
            assert "{tensor}" not in text
    assert found


@pytest.mark.parametrize("name", ["specforge", "speculators-31", "flat-qwen3", "torchspec-mla"])
def test_every_single_tensor_gone(name: str, tmp_path: Path) -> None:
    """A missing tensor is never fine: an error, or refused by every engine."""
    source = ROOT / "fixtures/valid" / name
    for number, tensor in enumerate(changes.tensors_of(source / "model.safetensors")):
        directory = tmp_path / str(number)
        shutil.copytree(source, directory)
        changes.without(tensor)(directory)
        result = eagleconv.validate(str(directory), engines=["vllm"])
        verdicts = {v.verdict for v in result.engines}
        if tensor in ("t2d", "embed_tokens.weight"):
            assert not result.unreadable, (tensor, result.unreadable)
            continue  # no engine reads t2d, and an embedding may be shared
        assert result.unreadable or "runs as trained" not in verdicts, tensor
        assert result.unreadable or result.count("error"), tensor
