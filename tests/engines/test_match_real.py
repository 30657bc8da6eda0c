"""The real drafter and its real target, and targets that look like it (issue: match)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eagleconv
from eagleconv.target.match import Matched
from tests.engines import real_targets
from tests.engines.target import smollm2
from tests.target import made

ROOT = Path(__file__).resolve().parents[2]
DRAFTER = ROOT / "fixtures" / "smollm2-135m-eagle3"
LAST = "model.layers.29.mlp.down_proj.weight"


@pytest.fixture(scope="module")
def target() -> Path:
    return smollm2()


@pytest.fixture(scope="module")
def weights(target: Path) -> real_targets.Arrays:
    return real_targets.load(target)


@pytest.fixture(scope="module")
def upgraded(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("real") / "upgraded"
    eagleconv.upgrade(str(DRAFTER), str(out), target=str(target))
    return out


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Half a gigabyte for each target, gone after its test."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def level(found: Matched, name: str) -> tuple[str, str]:
    one = next(level for level in found.levels if level.name == name)
    return one.verdict, "; ".join(one.sentences)


def test_as_published_it_is_compatible(target: Path) -> None:
    found = eagleconv.match(str(DRAFTER), str(target))
    assert found.verdict == "compatible"
    assert level(found, "weights")[0] == "unknown"
    assert any("weights" in sentence for sentence in found.open)


def test_after_the_upgrade_it_matches(target: Path, upgraded: Path) -> None:
    assert eagleconv.match(str(upgraded), str(target)).verdict == "match"


def resaved(source: Path, out: Path) -> None:
    """Save it by transformers: other shards, tokenizer and config through their classes."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    model.save_pretrained(out, max_shard_size="100MB")
    AutoTokenizer.from_pretrained(source).save_pretrained(out)
    text = json.loads((out / "config.json").read_text())
    text["torch_dtype"] = text.pop("dtype")
    (out / "config.json").write_text(json.dumps(dict(reversed(text.items()))))


def test_saved_again_it_matches(target: Path, upgraded: Path, folder: Path) -> None:
    resaved(target, folder / "again")
    found = eagleconv.match(str(upgraded), str(folder / "again"))
    assert found.verdict == "match", [level for level in found.levels if level.verdict != "equal"]
    taken = [eagleconv.fingerprint(str(path)).digest for path in (target, folder / "again")]
    assert taken[0] == taken[1]


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_in_another_dtype_it_matches(
    target: Path, weights: real_targets.Arrays, upgraded: Path, dtype: str, folder: Path
) -> None:
    other = real_targets.save(target, folder / dtype, weights, dtype)
    found = eagleconv.match(str(upgraded), str(other))
    assert (found.verdict, level(found, "weights")[0]) == ("match", "equal")


@pytest.mark.parametrize(
    "name", [LAST, "model.layers.0.self_attn.q_proj.weight", "model.layers.15.mlp.up_proj.weight"]
)
@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_a_merged_adapter_is_a_mismatch(
    target: Path,
    weights: real_targets.Arrays,
    upgraded: Path,
    name: str,
    dtype: str,
    folder: Path,
) -> None:
    """In bfloat16 an update must be larger than the rounding to be an update at all."""
    changed = real_targets.merged(weights, name)
    other = real_targets.save(target, folder / "merged", changed, dtype)
    found = eagleconv.match(str(upgraded), str(other))
    assert found.verdict == "mismatch"
    verdict, sentence = level(found, "weights")
    assert verdict == "different"
    assert sentence.startswith("1 of ")
    assert name.removeprefix("model.") in sentence


@pytest.mark.parametrize("scheme", [made.int8, made.fp8])
def test_a_rounded_build_is_compatible(
    target: Path,
    weights: real_targets.Arrays,
    upgraded: Path,
    scheme: Callable[[Any], Any],
    folder: Path,
) -> None:
    changed = real_targets.rounded(weights, scheme)
    found = eagleconv.match(
        str(upgraded), str(real_targets.save(target, folder / "q", changed, "BF16"))
    )
    assert (found.verdict, level(found, "weights")[0]) == ("compatible", "harmless")
    assert scheme.__name__ in level(found, "weights")[1]


def test_another_template_is_compatible(target: Path, upgraded: Path, folder: Path) -> None:
    other = folder / "template"
    other.mkdir()
    for path in target.iterdir():
        (other / path.name).symlink_to(path)
    (other / "chat_template.jinja").unlink()
    text = (target / "chat_template.jinja").read_text()
    (other / "chat_template.jinja").write_text(text.replace("<|im_start|>", "<|start|>"))
    found = eagleconv.match(str(upgraded), str(other))
    assert found.verdict == "compatible"
    assert level(found, "chat template")[0] == "harmless"
    assert "<|start|>" in level(found, "chat template")[1]


def test_a_rotated_residual_stream_is_a_mismatch(
    target: Path, weights: real_targets.Arrays, upgraded: Path, folder: Path
) -> None:
    """Its logits are the target's; what a drafter taps is not."""
    import torch
    from transformers import AutoModelForCausalLM

    other = real_targets.save(
        target, folder / "rotated", real_targets.rotated(weights), tie_word_embeddings=False
    )
    ids = torch.tensor([[1, 4093, 198, 1780, 314, 260, 4219, 282, 4649, 47]])
    logits, states = [], []
    for path in (target, other):
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        with torch.no_grad():
            out = model(ids, output_hidden_states=True)
        logits.append(out.logits.numpy())
        states.append(out.hidden_states[15].numpy())
        del model
    print(f"\nlogits differ by {np.abs(logits[0] - logits[1]).max():.2g}")
    assert np.abs(logits[0] - logits[1]).max() < 2e-2
    assert (logits[0].argmax(-1) == logits[1].argmax(-1)).all()
    assert np.abs(states[0] - states[1]).max() > 1
    found = eagleconv.match(str(upgraded), str(other))
    assert (found.verdict, level(found, "weights")[0]) == ("mismatch", "different")
