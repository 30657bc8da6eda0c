"""The same weights, however they are stored; other weights, however little they differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagleconv.checkpoint.source import open_source
from eagleconv.target.compare_weights import RowAnswer, compare_recorded, compare_with_target
from eagleconv.target.names import place_of
from eagleconv.target.rows import Weights, columns, read_weights, span, weights_from_json
from tests.target import made

VOCAB = made.SIZES["vocab"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    return weights(made.write(tmp_path_factory.mktemp("target") / "base", made.arrays()))


def weights(directory: Path, quick: bool = False) -> Weights:
    checkpoint = open_source(str(directory), weights=False)
    try:
        return read_weights(checkpoint, VOCAB, quick)
    finally:
        checkpoint.close()


def answers(recorded: Weights, directory: Path) -> tuple[RowAnswer, ...]:
    checkpoint = open_source(str(directory), weights=False)
    try:
        return compare_with_target(recorded, checkpoint)
    finally:
        checkpoint.close()


def kinds(found: tuple[RowAnswer, ...]) -> set[str]:
    return {a.answer for a in found}


def test_every_matrix_of_every_layer_is_looked_at(recorded: Weights) -> None:
    names = {row.name for row in recorded.rows}
    expected = {n.removeprefix("model.") for n in made.arrays()}
    assert names == expected
    assert sum(row.name == "embed_tokens.weight" for row in recorded.rows) == 64
    assert sum(row.name == "lm_head.weight" for row in recorded.rows) == 64
    assert sum(row.name == "layers.1.mlp.up_proj.weight" for row in recorded.rows) == 1


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_shards_and_order_change_nothing(recorded: Weights, shards: int, tmp_path: Path) -> None:
    turned = dict(reversed(made.arrays().items()))
    directory = made.write(tmp_path / "again", turned, shards=shards)
    assert weights(directory) == recorded
    assert kinds(answers(recorded, directory)) == {"identical"}


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model.", ""])
def test_a_wrapper_changes_nothing(recorded: Weights, prefix: str, tmp_path: Path) -> None:
    wrapped = {
        (prefix + n.removeprefix("model.") if n.startswith("model.") else n): v
        for n, v in made.arrays().items()
    }
    wrapped["model.visual.blocks.0.attn.qkv.weight"] = np.ones((8, 8), np.float32)
    assert weights(made.write(tmp_path / "wrapped", wrapped)) == recorded


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F64"])
def test_another_dtype_is_rounding(recorded: Weights, dtype: str, tmp_path: Path) -> None:
    found = answers(recorded, made.write(tmp_path / dtype, made.arrays(), dtype))
    assert kinds(found) == {"rounded"}


def test_two_roundings_in_turn(tmp_path: Path) -> None:
    """Recorded in bfloat16, served in float16."""
    recorded = weights(made.write(tmp_path / "a", made.arrays(), "BF16"))
    found = answers(recorded, made.write(tmp_path / "b", made.arrays(), "F16"))
    assert kinds(found) == {"rounded"}


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
@pytest.mark.parametrize("scheme", [made.int8, made.int4, made.fp8])
def test_a_quantised_build_is_told_from_other_weights(
    recorded: Weights, scheme: Callable[[Any], Any], dtype: str, tmp_path: Path
) -> None:
    found = answers(
        recorded, made.write(tmp_path / "q", made.matrices(made.arrays(), scheme), dtype)
    )
    assert "different" not in kinds(found), [a for a in found if a.answer == "different"]
    assert sum(a.answer == "quantised" for a in found) == 7 * made.SIZES["layers"]


@pytest.mark.parametrize("scheme", [made.int8, made.int4, made.fp8])
def test_other_weights_quantised_are_other_weights(
    recorded: Weights, scheme: Callable[[Any], Any], tmp_path: Path
) -> None:
    """A fine-tune keeps no secret by being quantised: it is off by more than rounding."""
    rng = np.random.default_rng(5)

    def tuned(w: Any) -> Any:
        return scheme(w + rng.normal(0, 0.6 * w.std(), w.shape).astype(np.float32))

    found = answers(recorded, made.write(tmp_path / "q", made.matrices(made.arrays(), tuned)))
    assert sum(a.answer == "different" for a in found) == 7 * made.SIZES["layers"]


@pytest.mark.parametrize("size", [1e-1, 1e-2, 1e-3, 1e-4])
def test_a_rank_4_change_of_one_projection(recorded: Weights, size: float, tmp_path: Path) -> None:
    changed = made.arrays()
    rng = np.random.default_rng(7)
    name = "model.layers.2.mlp.down_proj.weight"
    w = changed[name]
    update = rng.normal(size=(w.shape[0], 4)) @ rng.normal(size=(4, w.shape[1]))
    changed[name] = (w + size * w.std() * update).astype(np.float32)
    found = answers(recorded, made.write(tmp_path / "merged", changed))
    assert [a.name for a in found if a.answer == "different"] == ["layers.2.mlp.down_proj.weight"]


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_a_fine_tune(recorded: Weights, dtype: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(9)

    def tuned(w: Any) -> Any:
        return w + rng.normal(0, 1e-2 * w.std(), w.shape).astype(np.float32)

    tree = made.write(tmp_path / "tuned", made.matrices(made.arrays(), tuned), dtype)
    found = answers(recorded, tree)
    assert sum(a.answer == "different" for a in found) == 7 * made.SIZES["layers"]


def test_padding_moves_no_row(recorded: Weights, tmp_path: Path) -> None:
    padded = made.arrays()
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        padded[name] = np.pad(padded[name], ((0, 128), (0, 0)))
    found = answers(recorded, made.write(tmp_path / "padded", padded, vocab_size=VOCAB + 128))
    assert kinds(found) == {"identical"}


def test_another_width_is_another_target(recorded: Weights, tmp_path: Path) -> None:
    cut = {n: v[..., :64] for n, v in made.arrays().items()}
    assert kinds(answers(recorded, made.write(tmp_path / "cut", cut))) == {"different"}


@pytest.mark.parametrize("block", [0, 64])
@pytest.mark.parametrize("name", ["weight_scale", "weight_scale_inv"])
def test_stored_fp8_is_dequantised(
    recorded: Weights, name: str, block: int, tmp_path: Path
) -> None:
    """fp8 weights with a scale a row, or one for each block of 64 x 64."""
    plain: made.Arrays = {}
    extra: dict[str, Any] = {}
    for key, w in made.arrays().items():
        if "_proj" not in key:
            plain[key] = w
            continue
        if block:
            high, wide = w.shape[0] // block, w.shape[1] // block
            parts = w.reshape(high, block, wide, block)
            scale = np.abs(parts).max(axis=(1, 3)) / 448
            whole = np.repeat(np.repeat(scale, block, 0), block, 1)
        else:
            scale = np.abs(w).max(axis=1, keepdims=True) / 448
            whole = scale
        extra[key] = made.stored(made.fp8_bits(w / whole), "F8_E4M3")
        extra[key.replace("weight", name)] = made.scales(scale)
    found = answers(recorded, made.write(tmp_path / "fp8", plain, extra=extra))
    assert sum(a.answer == "quantised" for a in found) == 7 * made.SIZES["layers"]
    assert "different" not in kinds(found)


def test_other_scales_are_other_weights(tmp_path: Path) -> None:
    """The same fp8 bytes, one scale changed."""
    plain = {k: v for k, v in made.arrays().items() if "layers.1.mlp.up" not in k}
    name, w = (
        "model.layers.1.mlp.up_proj.weight",
        made.arrays()["model.layers.1.mlp.up_proj.weight"],
    )
    trees = []
    for factor in (1.0, 1.25):
        scale = np.abs(w).max(axis=1, keepdims=True) / 448
        extra = {
            name: made.stored(made.fp8_bits(w / scale), "F8_E4M3"),
            name + "_scale": made.scales(scale * factor),
        }
        trees.append(made.write(tmp_path / str(factor), plain, extra=extra))
    before = weights(trees[0])
    assert kinds(answers(before, trees[0])) == {"identical"}
    found = answers(before, trees[1])
    assert [a.name for a in found if a.answer != "identical"] == ["layers.1.mlp.up_proj.weight"]
    assert "different" in kinds(found)


def test_wide_rows_are_read_in_part(tmp_path: Path) -> None:
    """A part of 4096 values, whose largest need not be the row's, still shows an int8 grid."""
    rng = np.random.default_rng(3)
    wide = rng.normal(0, 0.05, (8, 20000)).astype(np.float32)
    wide[:, ::7] *= 4
    name = "model.layers.0.mlp.down_proj.weight"
    base = made.write(tmp_path / "base", {name: wide})
    before = weights(base)
    (row,) = before.rows
    assert kinds(answers(before, made.write(tmp_path / "8", {name: made.int8(wide)}))) == {
        "quantised"
    }
    start, count = span(row.name, 20000)
    assert (count, start % 256) == (4096, 0)
    outside, inside = wide.copy(), wide.copy()
    outside[row.index, (start + count) % 20000] += 1.0
    inside[row.index, start + columns(row.name, count)[5]] += 1.0
    assert kinds(answers(before, made.write(tmp_path / "o", {name: outside}))) == {"identical"}
    assert kinds(answers(before, made.write(tmp_path / "i", {name: inside}))) == {"different"}


def test_a_packed_scale_is_not_guessed(recorded: Weights, tmp_path: Path) -> None:
    """mxfp8 has scales of its own kind: such rows are unread, not different."""
    name = "model.layers.1.mlp.up_proj.weight"
    w = made.arrays()[name]
    plain = {k: v for k, v in made.arrays().items() if k != name}
    extra = {
        name: made.stored(made.fp8_bits(w * 100), "F8_E4M3"),
        name + "_scale": ("U8", (w.shape[0], w.shape[1] // 32), bytes(w.size // 32)),
    }
    found = answers(recorded, made.write(tmp_path / "mx", plain, extra=extra))
    assert [a.answer for a in found if a.answer != "identical"] == ["unreadable"]


def test_quick_reads_one_matrix_a_layer(tmp_path: Path) -> None:
    directory = made.write(tmp_path / "base", made.arrays())
    quick = weights(directory, quick=True)
    layers = [row for row in quick.rows if row.name.startswith("layers.1.")]
    assert sorted(len(row.shape) for row in layers) == [1, 2]
    assert kinds(answers(quick, directory)) == {"identical"}


def test_recorded_rows_of_two_targets(recorded: Weights, tmp_path: Path) -> None:
    assert kinds(compare_recorded(recorded, recorded)) == {"identical"}
    half = weights(made.write(tmp_path / "half", made.arrays(), "BF16"))
    assert kinds(compare_recorded(recorded, half)) == {"rounded"}
    other = weights(made.write(tmp_path / "other", made.arrays(seed=1)))
    assert kinds(compare_recorded(recorded, other)) == {"different"}


def test_json_and_back(recorded: Weights) -> None:
    assert weights_from_json(recorded.as_json()) == recorded


DATA = Path(__file__).parents[1] / "data" / "target_names"
FAMILIES: dict[str, dict[str, list[str]]] = {
    family: roles
    for path in DATA.glob("*.json")
    for family, roles in json.loads(path.read_text()).items()
}


@pytest.mark.parametrize("family", FAMILIES)
def test_names_of_every_family_of_transformers(family: str) -> None:
    """What the models themselves call their parts (data/make_target_names.py)."""
    roles = FAMILIES[family]
    found = {
        kind: [place.role if (place := place_of(n)) else None for n in names]
        for kind, names in roles.items()
    }
    assert set(found["embedding"]) == {"embedding"}
    assert set(found["head"]) <= {"head"}
    assert set(found["layer"]) == {"layer"}
    assert set(found["decoder"]) <= {"final_norm", None}
    assert "final_norm" in found["decoder"]
    assert set(found["other"]) <= {None}


def test_there_are_families() -> None:
    assert len(FAMILIES) >= 60
    assert any("visual" in n for roles in FAMILIES.values() for n in roles["other"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.layers.3.self_attn.q_proj.weight", "layers.3.self_attn.q_proj.weight"),
        ("model.language_model.layers.3.mlp.up_proj.weight", "layers.3.mlp.up_proj.weight"),
        ("transformer.h.3.attn.c_attn.weight", "layers.3.attn.c_attn.weight"),
        ("backbone.layers.3.mixer.in_proj.weight", "layers.3.mixer.in_proj.weight"),
        ("gpt_neox.layers.3.attention.dense.weight", "layers.3.attention.dense.weight"),
        ("model.embed_tokens.weight", "embed_tokens.weight"),
        ("transformer.wte.weight", "embed_tokens.weight"),
        ("backbone.embeddings.weight", "embed_tokens.weight"),
        ("gpt_neox.embed_in.weight", "embed_tokens.weight"),
        ("embed_out.weight", "lm_head.weight"),
        ("language_model.lm_head.weight", "lm_head.weight"),
        ("transformer.ln_f.weight", "norm.weight"),
        ("model.norm.weight", "norm.weight"),
        ("backbone.norm_f.weight", "norm.weight"),
        ("model.visual.blocks.3.attn.qkv.weight", None),
        ("vision_tower.encoder.layers.3.mlp.fc1.weight", None),
        ("multi_modal_projector.linear_1.weight", None),
        ("mtp.layers.0.mlp.up_proj.weight", None),
    ],
)
def test_names_of_families(name: str, expected: str | None) -> None:
    place = place_of(name)
    assert (place.name if place else None) == expected
