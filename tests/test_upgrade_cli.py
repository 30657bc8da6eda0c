"""The main job, as a user calls it, on the real trained drafter of the fixtures."""

import filecmp
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).parent.parent
REAL = ROOT / "fixtures" / "smollm2-135m-eagle3"


def run(*args: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "eagleconv", *args],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def copy_of(source: Path, to: Path, **changes: object) -> Path:
    to.mkdir()
    config = json.loads((source / "config.json").read_text()) | changes
    (to / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v != "-"}))
    (to / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes())
    return to


def test_every_tensor_keeps_every_bit(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run("upgrade", str(REAL), "-o", str(out))
    assert result.returncode == 0, result.stderr
    before, after = (load_file(p / "model.safetensors") for p in (REAL, out))
    assert before.keys() == after.keys()
    for name in before:
        assert before[name].dtype == after[name].dtype
        assert before[name].tobytes() == after[name].tobytes()
    assert run("verify", str(out)).returncode == 0


def test_the_config_says_every_fact(tmp_path: Path) -> None:
    out = tmp_path / "out"
    target = tmp_path / "target.json"
    target.write_text(
        json.dumps({"num_hidden_layers": 30, "hidden_size": 576, "vocab_size": 49152})
    )
    assert run("upgrade", str(REAL), "-o", str(out), "--target", str(target)).returncode == 0
    config = json.loads((out / "config.json").read_text())
    assert config["fc_norm"] is False
    assert config["norm_output"] is False
    assert config["norm_before_residual"] is False
    assert config["num_aux_hidden_states"] == 3
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 15, 27]
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 14, 26]
    assert config["dtype"] == config["torch_dtype"] == "float16"
    assert config["rope_parameters"] == {"rope_theta": 100000.0, "rope_type": "default"}
    assert config["bos_token_id"] == 1


def test_without_a_target_no_ids_are_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("upgrade", str(REAL), "-o", str(out)).returncode == 0
    config = json.loads((out / "config.json").read_text())
    assert "eagle_aux_hidden_state_layer_ids" not in config
    assert "eagle_aux_hidden_state_layer_ids" not in config["eagle_config"]
    manifest = json.loads((out / "eagleconv.json").read_text())
    assert manifest["aux_layers"]["text"] == "default rule (2, n//2, n-3)"


def test_a_second_upgrade_changes_nothing(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert run("upgrade", str(REAL), "-o", str(one)).returncode == 0
    second = run("upgrade", str(one), "-o", str(two))
    assert second.returncode == 0
    assert "already" in second.stdout
    comparison = filecmp.dircmp(one, two)
    assert not comparison.left_only
    assert not comparison.right_only
    assert filecmp.cmpfiles(one, two, comparison.common_files, shallow=False)[1:] == ([], [])


def test_a_changed_bit_does_not_verify(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("upgrade", str(REAL), "-o", str(out))
    with open(out / "model.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    result = run("verify", str(out))
    assert result.returncode == 4
    assert "sha256 differs" in result.stderr


QUESTIONS = {
    "norm_output true": ({"norm_output": True}, "--norm-output-meaning"),
    "norm_output false": ({"norm_output": False}, "--norm-output-meaning"),
    "rope twice": ({"rope_parameters": {"rope_theta": 5e5}}, "--rope-theta"),
    "custom ids": (
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 9, 20]}},
        "--aux-layers 3,9,20 (boundaries) or --aux-layers 4,10,21 (outputs)",
    ),
}


@pytest.mark.parametrize("case", QUESTIONS)
def test_what_is_open_is_asked(case: str, tmp_path: Path) -> None:
    changes, flag = QUESTIONS[case]
    source = copy_of(REAL, tmp_path / "src", **changes)
    result = run("upgrade", str(source), "-o", str(tmp_path / "out"))
    assert result.returncode == 4
    assert flag in result.stderr
    assert not (tmp_path / "out").exists()


REFUSED = {
    "missing norm tensors": ({"fc_norm": True}, 3, "fc_norm"),
    "wrong width": ({"hidden_size": 512}, 3, "hidden_size"),
    "wrong heads": ({"num_attention_heads": 8}, 3, "q_proj"),
    "wrong vocabulary": ({"vocab_size": 50000}, 3, "vocabulary sizes disagree"),
    "wrong draft vocabulary": ({"draft_vocab_size": 5000}, 3, "draft_vocab_size"),
    "no such class": ({"architectures": ["Qwen3ForCausalLM"]}, 3, "no known layout"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_contradictions_are_refused(case: str, tmp_path: Path) -> None:
    changes, code, words = REFUSED[case]
    source = copy_of(REAL, tmp_path / "src", **changes)
    result = run("upgrade", str(source), "-o", str(tmp_path / "out"))
    assert (result.returncode, words in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["src"]


def test_d2t_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    source = copy_of(REAL, tmp_path / "src")
    tensors = load_file(source / "model.safetensors")
    tensors["d2t"] = tensors["d2t"].copy()
    tensors["d2t"][-1] = 49152
    save_file(tensors, source / "model.safetensors")
    result = run("inspect", str(source))
    assert result.returncode == 3
    assert "outside the target's 49152 ids" in result.stderr


def test_absolute_ids_become_offsets_where_t2d_proves_it(tmp_path: Path) -> None:
    source, out = copy_of(REAL, tmp_path / "src"), tmp_path / "out"
    tensors = load_file(source / "model.safetensors")
    offsets = tensors["d2t"]
    tensors["d2t"] = offsets + np.arange(len(offsets))
    save_file(tensors, source / "model.safetensors")
    assert run("upgrade", str(source), "-o", str(out)).returncode == 0
    assert (load_file(out / "model.safetensors")["d2t"] == offsets).all()


def test_an_existing_output_is_never_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("mine")
    result = run("upgrade", str(REAL), "-o", str(out))
    assert result.returncode == 4
    assert [p.name for p in out.iterdir()] == ["mine"]


def test_a_target_is_no_drafter(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "num_hidden_layers": 1}')
    save_file(
        {"model.layers.0.input_layernorm.weight": np.ones(4, np.float32)},
        tmp_path / "model.safetensors",
    )
    result = run("inspect", str(tmp_path))
    assert result.returncode == 3
    assert "a target model, not a drafter" in result.stderr


def test_diff_finds_nothing_after_an_upgrade_and_one_changed_value(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("upgrade", str(REAL), "-o", str(out))
    same = run("diff", str(REAL), str(out))
    assert same.returncode == 0, same.stdout + same.stderr
    assert "15 tensors equal byte for byte, 0 differ, 0 facts differ" in same.stdout
    other = copy_of(REAL, tmp_path / "other", rms_norm_eps=1e-6)
    tensors = load_file(other / "model.safetensors")
    tensors["norm.weight"] = tensors["norm.weight"].copy()
    tensors["norm.weight"][3] += np.float16(0.5)
    save_file(tensors, other / "model.safetensors")
    differs = run("diff", str(REAL), str(other))
    assert differs.returncode == 1
    assert "rms_norm_eps: 1e-05 | 1e-06" in differs.stdout
    assert "norm.weight: values: F16, max |delta| 0.5" in differs.stdout


def test_engines_are_told_of_the_ids_that_were_written(tmp_path: Path) -> None:
    """mlx-vlm takes default taps from the drafter's layers: harmless once ids are in the file."""
    target = ROOT / "fixtures/targets/smollm2-135m-instruct"
    without = run("upgrade", str(REAL), "-o", str(tmp_path / "a")).stdout
    written = run("upgrade", str(REAL), "-o", str(tmp_path / "b"), "--target", str(target)).stdout
    assert re.search(r"mlx-vlm .* silently wrong", without)
    assert re.search(r"mlx-vlm .* supported", written)
