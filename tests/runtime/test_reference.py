"""The reference drafter against transformers' modules, in float64: another's attention and rope."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers_oracle import Oracle, random_inputs, random_weights  # noqa: E402

from eagleconv.drafter.facts import AuxLayers, Mla, Rope  # noqa: E402
from eagleconv.errors import ConversionError, UsageError  # noqa: E402
from eagleconv.runtime.reference import ReferenceDrafter, attend  # noqa: E402
from tests.drafters import make_spec  # noqa: E402

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {
    "rope_type": "longrope",
    "factor": 4.0,
    "short_factor": [1.0 + 0.1 * i for i in range(16)],
    "long_factor": [2.0 + 0.5 * i for i in range(16)],
}
DEEPSEEK_YARN = YARN | {"mscale": 0.707, "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "groups": {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16},
    "post_norm": {"feedback": "post_norm"},
    "normed": {"residual": "normed"},
    "concat": {"input_norm": "concat"},
    "per_aux": {"input_norm": "per_aux", "feedback": "post_norm"},
    "both": {"input_norm": "both"},
    "five states": {"aux": AuxLayers(5, (1, 2, 3, 4, 5), "explicit"), "input_norm": "per_aux"},
    "last": {"aux": AuxLayers(0, None, "last")},
    "own width": {"target_hidden_size": 48, "input_norm": "per_aux"},
    "layers": {"num_layers": 3, "residual": "normed", "feedback": "post_norm"},
    "biases": dict.fromkeys(("attention_bias", "output_bias", "mlp_bias", "fc_bias"), True),
    "gelu": {"hidden_act": "gelu_pytorch_tanh"},
    "relu": {"hidden_act": "relu"},
    "eps": {"rms_norm_eps": 0.5},
    "full vocabulary": {"vocabulary": "full"},
    "window": {"window": (4,)},
    "a window in one layer": {"num_layers": 2, "window": (None, 3)},
    "window of one": {"window": (1,)},
    "theta": {"rope": Rope(500.0, None)},
    "linear": {"rope": Rope(1e4, {"rope_type": "linear", "factor": 4.0})},
    "dynamic": {
        "rope": Rope(1e4, {"rope_type": "dynamic", "factor": 4.0}),
        "max_position_embeddings": 8,
    },
    "llama3": {"rope": Rope(5e5, LLAMA3), "max_position_embeddings": 256},
    "yarn": {"rope": Rope(1e4, YARN), "max_position_embeddings": 64},
    "longrope, long": {
        "rope": Rope(1e4, LONG | {"original_max_position_embeddings": 8}),
        "max_position_embeddings": 32,
    },
    "longrope, short": {
        "rope": Rope(1e4, LONG | {"original_max_position_embeddings": 64}),
        "max_position_embeddings": 256,
    },
    "mrope": {"rope": Rope(1e6, {"rope_type": "mrope", "mrope_section": [4, 6, 6]})},
    "partial": {"rope": Rope(1e4, None, 0.25)},
    "partial, linear": {"rope": Rope(1e4, {"rope_type": "linear", "factor": 2.0}, 0.5)},
    "qwen3": {"block": "qwen3"},
    "qwen3, everything": {
        "block": "qwen3",
        "num_layers": 2,
        "window": (3, None),
        "attention_bias": True,
        "rope": Rope(1e6, YARN),
        "residual": "normed",
        "input_norm": "concat",
        "feedback": "post_norm",
        "head_dim": 16,
    },
    "mla": {"block": "mla"},
    "mla without a query latent": {"block": "mla", "mla": Mla(None, 32, 16, 8, 24)},
    "mla, yarn": {"block": "mla", "rope": Rope(1e4, DEEPSEEK_YARN), "max_position_embeddings": 64},
    "mla, layers": {"block": "mla", "num_layers": 2, "input_norm": "per_aux", "residual": "normed"},
    "parallel": {"drafting": "parallel", "mask_token_id": 7, "input_norm": "per_aux"},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_a_step_is_what_transformers_computes(changes: dict[str, Any]) -> None:
    spec = make_spec(**changes)
    weights = random_weights(spec)
    aux, ids, positions = random_inputs(spec)
    reference, oracle = ReferenceDrafter(spec, weights), Oracle(spec, weights)

    hidden = reference.fuse(aux)
    assert (hidden - oracle.fuse(aux)).abs().max() < 1e-12
    for _ in range(2):  # the second step takes the feedback of the first
        found = reference.step(ids, hidden, positions)
        logits, feedback = oracle.step(ids, hidden, positions)
        assert found.logits.shape == (len(ids), spec.draft_vocab_size)
        assert (found.logits - logits).abs().max() < 1e-10
        assert (found.feedback - feedback).abs().max() < 1e-10
        hidden = found.feedback
    assert logits.std() > 0.1


def rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


@pytest.mark.parametrize("kind", ["none", "concat", "per_aux", "both"])
def test_fuse_by_hand(kind: str) -> None:
    spec = make_spec(input_norm=kind, fc_bias=True, target_hidden_size=48)
    weights = random_weights(spec)
    w = {name: value.numpy() for name, value in weights.items()}
    aux, _, _ = random_inputs(spec)
    x, eps = aux.numpy(), spec.rms_norm_eps
    if kind in ("concat", "both"):
        x = rms(x, w["input_norm.weight"], eps)
    if kind in ("per_aux", "both"):
        low, mid, high = x[:, :48], x[:, 48:96], x[:, 96:]
        low = rms(low, w["fc_norm.0.weight"], eps)
        mid = rms(mid, w["fc_norm.1.weight"], eps)
        high = rms(high, w["fc_norm.2.weight"], eps)
        x = np.concatenate([low, mid, high], axis=1)
    expected = x @ w["fc.weight"].T + w["fc.bias"]
    assert np.abs(ReferenceDrafter(spec, weights).fuse(aux).numpy() - expected).max() < 1e-12


def test_a_head_fed_by_one_state_takes_it_as_it_is() -> None:
    spec = make_spec(aux=AuxLayers(0, None, "last"))
    aux, _, _ = random_inputs(spec)
    assert ReferenceDrafter(spec, random_weights(spec)).fuse(aux).equal(aux)


@pytest.mark.parametrize("changes", [{}, {"window": (4,)}, {"block": "mla"}], ids=str)
def test_the_past_does_not_change_when_rows_are_added(changes: dict[str, Any]) -> None:
    spec = make_spec(**changes)
    reference = ReferenceDrafter(spec, random_weights(spec))
    aux, ids, positions = random_inputs(spec)
    hidden = reference.fuse(aux)
    whole = reference.step(ids, hidden, positions).logits
    part = reference.step(ids[:5], hidden[:5], positions[:5]).logits
    assert (whole[:5] - part).abs().max() < 1e-12


def test_queries_are_the_last_rows_of_the_keys() -> None:
    """What a cache will need: the last rows alone see all rows before them."""
    draw = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(7, n, 8, generator=draw, dtype=torch.float64) for n in (4, 2, 2)
    )
    for window in (None, 1, 3):
        whole = attend(query, key, value, 0.3, window)
        assert (attend(query[-2:], key, value, 0.3, window) - whole[-2:]).abs().max() < 1e-12


def test_float32_is_float64_rounded() -> None:
    spec = make_spec(num_layers=2)
    weights = random_weights(spec)
    aux, ids, positions = random_inputs(spec)
    wide = ReferenceDrafter(spec, weights)
    narrow = ReferenceDrafter(
        spec, {k: v.float() if v.is_floating_point() else v for k, v in weights.items()}
    )
    exact = wide.step(ids, wide.fuse(aux), positions)
    rounded = narrow.step(ids, narrow.fuse(aux), positions)
    assert rounded.logits.dtype == rounded.feedback.dtype == torch.float32
    assert 0 < (rounded.logits - exact.logits).abs().max() < 1e-4


def test_masked_rows_of_a_parallel_drafter() -> None:
    spec = make_spec(drafting="parallel", mask_token_id=7, input_norm="per_aux")
    weights = random_weights(spec)
    reference = ReferenceDrafter(spec, weights)
    ids, states = reference.mask_inputs(3)
    assert ids.tolist() == [7, 7, 7]
    expected = reference.fuse(weights["mask_hidden"].reshape(1, -1))
    assert states.shape == (3, spec.hidden_size)
    assert all(row.equal(expected[0]) for row in states)
    chain = make_spec()
    with pytest.raises(UsageError, match="no masked rows"):
        ReferenceDrafter(chain, random_weights(chain)).mask_inputs(1)


def test_target_ids() -> None:
    reduced, full = make_spec(), make_spec(vocabulary="full")
    weights = random_weights(reduced)
    reference = ReferenceDrafter(reduced, weights)
    ids = torch.tensor([[0, 5], [47, 5]])
    expected = [[i + int(weights["d2t"][i]) for i in row] for row in ids.tolist()]
    assert reference.target_ids(ids).tolist() == expected
    assert ReferenceDrafter(full, random_weights(full)).target_ids(ids).equal(ids)


def test_an_unknown_activation_is_refused() -> None:
    spec = make_spec(hidden_act="xielu")
    with pytest.raises(ConversionError, match="'xielu' is not supported by the reference"):
        ReferenceDrafter(spec, random_weights(spec))
