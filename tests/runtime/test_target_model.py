"""Taps of a target against transformers' own hidden states, and a cache that can be cropped."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny_targets import LAYERS, VOCAB, model, target  # noqa: E402

from eagleconv.errors import ConversionError  # noqa: E402
from eagleconv.runtime.target_model import AFTER_NORM, TargetModel  # noqa: E402

IDS = [5, 9, 2, 77, 31, 64, 100, 3, 12, 90]


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "llava"])
def test_every_boundary_is_the_state_before_that_layer(family: str) -> None:
    plain = model(family)
    kept = {}
    one = TargetModel(plain)
    # The last entry of hidden_states is after the final norm; before it, only a hook sees it.
    one.layers[-1].register_forward_hook(
        lambda _, __, out: kept.update(last=out[0] if isinstance(out, tuple) else out)
    )
    with torch.no_grad():
        out = plain(torch.tensor([IDS]), output_hidden_states=True)
    expected = [*out.hidden_states[:LAYERS], kept["last"]]
    one.start()
    boundaries = tuple(range(LAYERS + 1))
    logits, states = one.forward(IDS, boundaries)
    assert (logits - out.logits[0]).abs().max() < 1e-10
    for boundary, state in zip(boundaries, states.chunk(len(boundaries), dim=-1), strict=True):
        assert (state - expected[boundary][0]).abs().max() < 1e-10, boundary
    assert (expected[LAYERS][0] - out.hidden_states[LAYERS][0]).abs().max() > 1e-3
    one.start()
    _, last = one.forward(IDS, (AFTER_NORM,))
    assert (last - out.hidden_states[LAYERS][0]).abs().max() < 1e-10


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "llava"])
def test_parts_and_crops_change_nothing(family: str) -> None:
    """Gemma's window is 4: rows outside of it must stay for a crop, and stay hidden."""
    one = target(family)
    one.start()
    whole, states = one.forward(IDS, (2, 5))
    one.start()
    one.forward(IDS[:6], (2, 5))
    one.forward([1, 1, 1])
    assert len(one) == 9
    one.crop(6)
    rest, tail = one.forward(IDS[6:], (2, 5))
    assert (rest - whole[6:]).abs().max() < 1e-10
    assert (tail - states[6:]).abs().max() < 1e-10
    one.start()
    last, _ = one.forward(IDS, last=True)
    assert last.shape == (1, VOCAB)
    assert (last[0] - whole[-1]).abs().max() < 1e-10


def test_states_come_in_the_order_that_was_asked_for() -> None:
    one = target()
    one.start()
    _, states = one.forward(IDS, (5, 2))
    one.start()
    _, turned = one.forward(IDS, (2, 5))
    half = states.shape[1] // 2
    assert torch.equal(states[:, :half], turned[:, half:])


def test_a_boundary_outside_is_one_sentence() -> None:
    one = target()
    one.start()
    with pytest.raises(ConversionError, match="boundary 7 is outside a target of 6 layers"):
        one.forward(IDS, (7,))


def test_a_target_that_cannot_forget_is_one_sentence() -> None:
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 4, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    linear = {f"linear_{n}": 8 for n in ("key_head_dim", "value_head_dim")}
    linear |= {f"linear_num_{n}_heads": 1 for n in ("key", "value")}
    config = Qwen3_5TextConfig(vocab_size=32, **sizes, **heads, **linear)
    with pytest.raises(ConversionError, match="linear_attention, whose state cannot give up"):
        TargetModel(Qwen3_5ForCausalLM(config))
