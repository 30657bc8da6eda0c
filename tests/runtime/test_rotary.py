"""Angles against transformers' rotary modules, and both ways to turn a head."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import LlamaConfig  # noqa: E402
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding  # noqa: E402
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLTextConfig  # noqa: E402
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding  # noqa: E402

from eagleconv.drafter.facts import Rope  # noqa: E402
from eagleconv.errors import ConversionError, MissingExtraError  # noqa: E402
from eagleconv.runtime.rotary import Rotary, turn_halves, turn_pairs  # noqa: E402

ORIGINAL = {"original_max_position_embeddings": 32}
SCALINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0} | ORIGINAL,
    "yarn, set by hand": {
        "factor": 4.0,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "attention_factor": 1.3,
        "truncate": False,
        **ORIGINAL,
    },
    "yarn, DeepSeek": {"factor": 40.0, "mscale": 0.7, "mscale_all_dim": 1.0} | ORIGINAL,
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | ORIGINAL,
    "longrope": {
        "factor": 4.0,
        "short_factor": [1.0 + 0.1 * i for i in range(16)],
        "long_factor": [2.0 + 0.5 * i for i in range(16)],
        **ORIGINAL,
    },
}


@pytest.mark.parametrize("length", [20, 128, 300])
@pytest.mark.parametrize("name", SCALINGS)
def test_angles_are_those_of_transformers(name: str, length: int) -> None:
    kind = name.partition(",")[0]
    scaling = {"rope_type": kind, **SCALINGS[name]}
    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=2,
        head_dim=32,
        max_position_embeddings=128,
        rope_parameters={"rope_theta": 1e5, **scaling},
    )
    positions = torch.arange(length)
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])
    found = Rotary(Rope(1e5, None if name == "default" else scaling), 32, 128).table(positions)
    assert [t.dtype for t in found] == [torch.float32] * 2
    assert found[0].equal(cos[0, :, :16])
    assert found[1].equal(sin[0, :, :16])


@pytest.mark.parametrize("name", ["default", "linear", "llama3"])
def test_a_share_of_the_head_has_the_angles_of_a_narrow_head(name: str) -> None:
    scaling = None if name == "default" else {"rope_type": name, **SCALINGS[name]}
    positions = torch.arange(50)
    part = Rotary(Rope(1e4, scaling, 0.25), 64, 128).table(positions)
    whole = Rotary(Rope(1e4, scaling), 16, 128).table(positions)
    assert part[0].equal(whole[0])
    assert part[1].equal(whole[1])


@pytest.mark.parametrize("kind", ["mrope", "default"])
def test_text_has_the_angles_of_plain_rope_under_mrope(kind: str) -> None:
    """Against Qwen2-VL's own rotary module, given the position of a text on all three axes."""
    axes = {"mrope_section": [4, 6, 6]}
    config = Qwen2VLTextConfig(
        hidden_size=64,
        num_attention_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, **axes},
    )
    positions = torch.arange(9)
    cos, sin = Qwen2VLRotaryEmbedding(config)(torch.zeros(1), positions[None, None])
    rope = Rope(1e4, {"rope_type": kind, "mrope_interleaved": False, **axes})
    found = Rotary(rope, 32, 128).table(positions)
    assert found[0].equal(cos[0, :, :16])
    assert found[1].equal(sin[0, :, :16])


@pytest.mark.parametrize("turn", [turn_halves, turn_pairs])
def test_turning_keeps_lengths_and_what_lies_beyond_the_share(turn: Any) -> None:
    x = torch.randn(6, 3, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cos, sin = Rotary(Rope(1e4, None, 0.5), 32, 128).table(torch.arange(6))
    turned = turn(x, cos, sin)
    assert turned[..., 16:].equal(x[..., 16:])
    assert turned[0].equal(x[0])  # position 0
    assert (turned.norm(dim=-1) - x.norm(dim=-1)).abs().max() < 1e-6
    assert (turned[1:, :, :16] - x[1:, :, :16]).abs().max() > 0.1


def test_the_two_ways_differ_by_an_order_of_dimensions() -> None:
    x = torch.randn(6, 3, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cos, sin = Rotary(Rope(1e4, None), 32, 128).table(torch.arange(6))
    order = torch.arange(32).view(16, 2).T.flatten()  # 0 2 4 ... 1 3 5 ...
    assert turn_halves(x[..., order], cos, sin).equal(turn_pairs(x, cos, sin)[..., order])


def test_an_unknown_scaling_is_refused() -> None:
    with pytest.raises(ConversionError, match="'ntk' is not supported by the reference"):
        Rotary(Rope(1e4, {"rope_type": "ntk", "factor": 2.0}), 32, 128)


def test_a_scaling_that_lacks_a_value_is_refused() -> None:
    with pytest.raises(ConversionError, match=r"cannot be computed.*factor"):
        Rotary(Rope(1e4, {"rope_type": "linear"}), 32, 128)


def test_a_scaling_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(MissingExtraError, match="rope scaling linear needs transformers"):
        Rotary(Rope(1e4, {"rope_type": "linear", "factor": 2.0}), 32, 128)
    Rotary(Rope(1e4, None), 32, 128).table(torch.arange(3))
