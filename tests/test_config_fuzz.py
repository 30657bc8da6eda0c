"""Whatever stands in config.json: an answer, a question, or one sentence. Never a traceback."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from eagleconv.checkpoint.local import open_local
from eagleconv.conversion.apply import check_reread
from eagleconv.conversion.plan import plan_layout
from eagleconv.drafter.declared import Declared
from eagleconv.drafter.layouts import LAYOUTS
from eagleconv.drafter.read import read_drafter
from eagleconv.errors import EagleconvError
from tests.test_upgrade_cli import ROOT

VALUES: list[Any] = [None, True, False, 0, -1, 1, 7, 10**30, 1.5, "x", "", "32", [], [1], ["a"]]
VALUES += [{}, {"a": 1}, [None], [[1]], {"rope_type": 5}, {"rope_type": "yarn", "factor": "x"}]
KEYS = sorted({path for x in LAYOUTS for path, _ in (*x.keys, *x.read_also)})
KEYS += ["architectures", "model_type", "transformer_layer_config", "auto_map", "use_moe"]
FIXTURES = ["specforge", "speculators-31", "torchspec-mla", "modelopt-fp8", "automodel"]


@pytest.mark.parametrize("name", FIXTURES)
def test_any_value_under_any_key(name: str, tmp_path: Path) -> None:
    source = ROOT / "fixtures/valid" / name
    shutil.copy(source / "model.safetensors", tmp_path)
    config = json.loads((source / "config.json").read_text())
    cases = [(key, value) for key in KEYS for value in VALUES]
    answered = 0
    told: list[tuple[str, Any, str, str]] = []
    declared = Declared(aux_layers="default" if name == "automodel" else None)
    for key, value in random.Random(name).sample(cases, 400):
        changed = json.loads(json.dumps(config))
        *parents, last = key.split(".")
        place = changed
        for parent in parents:
            if not isinstance(place.get(parent), dict):
                place[parent] = {}
            place = place[parent]
        place[last] = value
        (tmp_path / "config.json").write_text(json.dumps(changed))
        checkpoint = open_local(str(tmp_path))
        try:
            drafter = read_drafter(checkpoint, declared)
            check_reread(drafter, plan_layout(drafter))
            answered += 1
        except EagleconvError as error:
            told.append((key, value, error.message, error.hint))
        finally:
            checkpoint.close()
    assert answered
    assert told
    assert not [t for t in told if "\n" in t[2] or "please report" in t[3]]
