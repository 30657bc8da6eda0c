"""What a hostile reader tried: nothing is taken as fine without having looked."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import eagleconv
from eagleconv.drafter.declared import Declared
from eagleconv.drafter.facts import AuxLayers, Rope
from eagleconv.errors import ConversionError, SourceError, UsageError
from tests.drafters import make_spec, make_tensors, write_drafter, write_safetensors
from tests.test_traps import BY_NAME, asked, made, read
from tests.test_upgrade_cli import REAL, ROOT, copy_of, run

TAPS = AuxLayers(3, (2, 4, 5), "explicit")


def flat(tmp_path: Path, config: dict[str, Any], **facts: Any) -> Path:
    """Write a flat engine-style drafter without any rope or window key but those given."""
    none = {
        k: None
        for k in ("rope_theta", "rope_parameters", "rope_scaling", "partial_rotary_factor")
        if k not in config
    }
    return made(
        tmp_path, "eagle-3.1", {**none, **config}, **{"aux": TAPS, "residual": "normed", **facts}
    )


def stored(directory: Path, **changes: Any) -> None:
    """Change stored tensors of a drafter made with the normed flat facts; None removes one."""
    spec = make_spec(aux=TAPS, residual="normed")
    tensors = {n.replace("layers.0.", "midlayer."): t for n, t in make_tensors(spec).items()}
    for name, tensor in changes.items():
        name = name.replace("__", ".")
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    write_safetensors(directory / "model.safetensors", tensors)


def test_a_report_never_replaces_a_file(tmp_path: Path) -> None:
    source = copy_of(REAL, tmp_path / "src")
    before = (source / "config.json").read_bytes()
    result = run("inspect", str(source), "-o", str(source / "config.json"))
    assert result.returncode == 4
    assert (source / "config.json").read_bytes() == before


def test_diff_never_calls_an_open_fact_equal(tmp_path: Path) -> None:
    a = copy_of(REAL, tmp_path / "a", norm_output=True)
    b = copy_of(REAL, tmp_path / "b", norm_output=False)
    found = eagleconv.diff(str(a), str(b))
    assert found.facts["feedback"] == ("open", "open")
    assert eagleconv.diff(str(a), str(a)).same


def test_weights_under_a_manifest_are_hashed_before_it_is_believed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    eagleconv.upgrade(str(REAL), str(out))
    with open(out / "model.safetensors", "r+b") as file:
        file.seek(os.path.getsize(file.name) // 2)
        file.write(b"\x07\x07\x07")
    for declared in (None, Declared(rope_theta=5.0)):
        with pytest.raises(ConversionError, match=r"other bytes|not what its eagleconv"):
            eagleconv.upgrade(str(out), str(tmp_path / "again"), declared=declared)
    assert not (tmp_path / "again").exists()


QUANT = {"quantization_config": {"quant_method": "fp8"}}
SCALE = ("F32", (1,), b"\x00\x00\x80\x3f")


@pytest.mark.parametrize(
    ("config", "changes", "said"),
    [
        (QUANT, {}, "no tensor has a scale"),
        (
            QUANT,
            {"midlayer__self_attn__o_proj__weight": None, "fc__weight_scale": SCALE},
            "o_proj.weight is missing",
        ),
        (
            {"quantization_config": {}},
            {"midlayer__self_attn__o_proj__weight": ("F32", (7, 9), bytes(252))},
            "expected",
        ),
        ({}, {"norm__weight": ("BOOL", (64,), bytes(64))}, "floating dtype"),
        ({}, {"midlayer__mlp__gate_proj__bias": ("F32", (64,), bytes(256))}, "is missing"),
        ({}, {"norm__bias": ("F32", (64,), bytes(256))}, "no place"),
        ({}, {"t2d": ("I16", (160,), bytes(320))}, "expected bool"),
        ({}, {"norm__weight": ("F32", (), bytes(4))}, "expected 1 size"),
        ({}, {"fc__weight": ("F32", (0,), b"")}, "expected 2 sizes"),
    ],
)
def test_every_tensor_is_accounted_for_whatever_the_config_says(
    config: dict[str, Any], changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    source = flat(tmp_path, {"rope_theta": 10000.0, **config})
    stored(source, **changes)
    with pytest.raises(SourceError, match=said):
        read(source)


def test_what_model_type_implies_is_written_out(tmp_path: Path) -> None:
    source = flat(tmp_path, {"model_type": "gpt_oss"})
    rope = read(source).spec().rope
    assert (rope.theta, rope.scaling and rope.scaling["factor"]) == (150000.0, 32.0)
    source = flat(tmp_path / "glm", {"model_type": "glm4"})
    assert read(source).spec().rope.partial_rotary_factor == 0.5


@pytest.mark.parametrize(
    ("config", "question"),
    [
        ({"model_type": "gemma3_text"}, "rope theta"),
        ({"model_type": "never-heard-of"}, "rope theta"),
        ({"model_type": "gpt_oss", "rope_theta": 150000.0}, "rope scaling"),
        (
            {
                "rope_scaling": {"rope_type": "default"},
                "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0},
            },
            "rope scaling",
        ),
        (
            {
                "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
                "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6},
            },
            "rope theta",
        ),
        (
            {"partial_rotary_factor": 1.0, "rope_parameters": {"partial_rotary_factor": 0.5}},
            "partial rotary factor",
        ),
    ],
)
def test_a_rope_that_readers_resolve_differently_is_asked_about(
    config: dict[str, Any], question: str, tmp_path: Path
) -> None:
    defaults = {"max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "hidden_act": "silu"}
    assert question in asked(read(flat(tmp_path, {**defaults, **config})))


def test_a_partial_factor_inside_rope_scaling_is_read(tmp_path: Path) -> None:
    inside = {"rope_type": "yarn", "factor": 4.0, "partial_rotary_factor": 0.5, "rope_theta": 1e4}
    rope = read(flat(tmp_path, {"rope_scaling": inside})).spec().rope
    assert rope.partial_rotary_factor == 0.5


def test_what_transformers_fills_in_is_no_difference(tmp_path: Path) -> None:
    short = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0}
    full = {**short, "original_max_position_embeddings": 2048, "attention_factor": None}
    drafter = read(flat(tmp_path, {"rope_scaling": short, "rope_parameters": full}))
    assert asked(drafter) == set()


SLIDING = {"layer_types": ["sliding_attention"], "sliding_window": 128}


@pytest.mark.parametrize(
    ("block", "config"),
    [
        ("qwen3", SLIDING),
        ("qwen3", {**SLIDING, "use_sliding_window": False}),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 128}),
        ("llama", {"layer_types": ["sliding_attention"]}),
        ("llama", {**SLIDING, "layer_types": ["sliding_attention"] * 2}),
        ("llama", {**SLIDING, "layer_types": ["chunked_attention"]}),
        ("llama", {**SLIDING, "layer_types": [5]}),
    ],
)
def test_a_window_that_is_not_certain_is_asked_about(
    block: str, config: dict[str, Any], tmp_path: Path
) -> None:
    config = {"rope_theta": 10000.0, **config}
    assert "attention window" in asked(read(flat(tmp_path, config, block=block)))


def test_a_window_any_possible_trainer_had_not_is_asked_about(tmp_path: Path) -> None:
    source = made(tmp_path, "torchspec", {**SLIDING, "norm_before_residual": False})
    assert "attention window" in asked(read(source))


def test_automodel_rotates_whole_heads(tmp_path: Path) -> None:
    rope = Rope(10000.0, {"rope_type": "yarn", "factor": 4.0}, 0.25)
    drafter = read(made(tmp_path, "automodel", rope=rope), aux_layers="default")
    assert asked(drafter) == {"rope scaling", "partial rotary factor"}


def test_a_declaration_counts_on_our_own_output_too(tmp_path: Path) -> None:
    source, out = made(tmp_path, "torchspec", feedback="post_norm"), tmp_path / "out"
    eagleconv.upgrade(str(source), str(out))
    head = Declared(norm_output_meaning="head")
    again = eagleconv.upgrade(str(out), str(tmp_path / "again"), declared=head)
    assert again.plan.spec.feedback == "pre_norm"


def test_a_tied_head_is_not_the_targets(tmp_path: Path) -> None:
    source = flat(
        tmp_path,
        {"rope_theta": 10000.0, "tie_word_embeddings": True},
        vocabulary="full",
        own_head=False,
    )
    with pytest.raises(SourceError, match="the head is that embedding"):
        read(source)


def test_a_mask_token_outside_the_vocabulary_and_two_that_differ(tmp_path: Path) -> None:
    facts = {"drafting": "parallel", "num_layers": 2, "mask_token_id": 7}
    source = made(tmp_path, "specforge-peagle", {"mask_token_id": 3000}, **facts)
    with pytest.raises(SourceError, match="outside the target's 160 ids"):
        read(source)
    other = made(tmp_path / "b", "specforge-peagle", {"pard_token": 5}, **facts)
    assert "mask token" in asked(read(other))


def test_speculators_without_an_inner_model_type_has_no_defaults(tmp_path: Path) -> None:
    source = made(tmp_path, "speculators-eagle3", aux=TAPS)
    config = json.loads((source / "config.json").read_text())
    for key in ("model_type", "max_position_embeddings"):
        del config["transformer_layer_config"][key]
    (source / "config.json").write_text(json.dumps(config))
    with pytest.raises(SourceError, match="has no max_position_embeddings"):
        read(source)


def test_a_one_state_head_with_fc_is_a_contradiction(tmp_path: Path) -> None:
    source = flat(tmp_path, {"rope_theta": 1e4, "eagle_config": {"use_aux_hidden_state": False}})
    with pytest.raises(SourceError, match="use_aux_hidden_state is false"):
        read(source)


@pytest.mark.parametrize(
    "flags",
    [
        ("--partial-rotary-factor", "0"),
        ("--rope-theta", "nan"),
        ("--rope-theta", "-1"),
        ("--rope-scaling", '{"rope_type": "yarn", "rope_theta": 5}'),
        ("--rope-scaling", '{"a": 1, "a": 2}'),
        ("--rope-scaling", '{"full": {"rope_type": "yarn"}}'),
        ("--rope-scaling", '{"factor": NaN}'),
        ("--mask-token-id", "3"),
        ("--aux-layers", "two"),
    ],
)
def test_flags_that_make_no_sense_are_usage_errors(flags: tuple[str, str], tmp_path: Path) -> None:
    result = run("upgrade", str(REAL), "-o", str(tmp_path / "out"), *flags)
    assert result.returncode == 2, result.stderr
    assert list(tmp_path.iterdir()) == []


def test_modelopt_wrote_ids_from_a_set(tmp_path: Path) -> None:
    nested = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [8, 1, 5]}}
    source = made(tmp_path, "modelopt-hf", nested, own_embedding=False)
    assert read(source).spec().aux.boundaries == (2, 6, 9)


def test_packed_weights_are_carried(tmp_path: Path) -> None:
    source = flat(tmp_path, {"rope_theta": 10000.0, "quantization_config": {"quant_method": "x"}})
    spec = make_spec(aux=TAPS, residual="normed")
    tensors = {n.replace("layers.0.", "midlayer."): t for n, t in make_tensors(spec).items()}
    for name in [n for n in tensors if "_proj.weight" in n]:
        shape = tensors.pop(name)[1]
        packed = (shape[0], shape[1] // 8)
        module = name.removesuffix("weight")
        tensors[module + "weight_packed"] = ("I32", packed, bytes(4 * packed[0] * packed[1]))
        tensors[module + "weight_scale"] = ("F32", (shape[0], 1), bytes(4 * shape[0]))
    write_safetensors(source / "model.safetensors", tensors)
    done = eagleconv.upgrade(str(source), str(tmp_path / "out"))
    assert "midlayer.mlp.up_proj.weight_packed" in done.plan.tensors


def test_an_account_that_cannot_be_printed_does_not_undo_an_output(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "eagleconv", "upgrade", str(REAL), "-o", str(out)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
    assert result.returncode == 0, result.stderr
    assert "is written; its account is not" in result.stderr
    assert eagleconv.verify(str(out)).problems == ()


def test_names_outside_ascii_are_printed_somehow(tmp_path: Path) -> None:
    source = copy_of(REAL, tmp_path / "brouillon-é")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii:strict"}
    result = subprocess.run(
        [sys.executable, "-m", "eagleconv", "inspect", str(source)],
        capture_output=True,
        env=environment,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_side_file_ids_must_be_those_of_d2t(tmp_path: Path) -> None:
    import torch

    source = tmp_path / "drafter"
    write_drafter(source, make_spec(), BY_NAME["automodel"])
    torch.save({"selected_token_ids": torch.arange(48) + 3}, source / "eagle_meta.pt")
    with pytest.raises(SourceError, match="selected_token_ids of the side file"):
        read(source)


def test_declared_is_checked_where_it_is_made() -> None:
    with pytest.raises(UsageError, match="--rope-theta"):
        Declared(rope_theta=float("nan"))
    assert replace(Declared(), rope_theta=5.0).rope_theta == 5.0
