"""Rotary positions: angles as transformers computes them, and the two ways to turn a head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eagleconv.drafter.facts import Rope
from eagleconv.errors import ConversionError, MissingExtraError

#: Cosines and sines, [T, r / 2] each.
Angles = tuple[Tensor, Tensor]

#: Scalings whose frequencies depend on how long the sequence is (transformers 5.24,
#: `modeling_rope_utils.py`, `dynamic_rope_update`).
_BY_LENGTH = ("dynamic", "longrope")

# Three position axes of a vision model; all three are equal for text, which leaves plain rope.
_AXES = ("mrope_section", "mrope_interleaved")


class Rotary:
    """Cosines and sines of a drafter's positions."""

    def __init__(self, rope: Rope, width: int, max_positions: int) -> None:
        """Prepare the frequencies.

        Args:
            rope: Base, scaling and share of the head that rotates.
            width: Size of a head, or of the part of a latent head that rotates.
            max_positions: `max_position_embeddings`, which some scalings are relative to.

        Raises:
            ConversionError: transformers does not know the scaling, or misses one of its values.
            MissingExtraError: A scaling needs transformers, which is not installed.
        """
        self.rope, self.width, self.max_positions = rope, width, max_positions
        scaling = {k: v for k, v in (rope.scaling or {}).items() if k not in _AXES}
        self.kind = str(scaling.get("rope_type", "default"))
        if self.kind == "mrope":
            self.kind = "default"
        self._scaled = None if self.kind == "default" else self._find_scaling(scaling)

    @property
    def fixed(self) -> bool:
        """Whether the angle of a position is the same however long the sequence grows."""
        return self.kind not in _BY_LENGTH

    def table(self, positions: Tensor) -> Angles:
        """Return cosines and sines, both [T, r / 2] in float32, of positions [T].

        Always float32: trainers and engines compute angles so whatever the weights' dtype, and at
        long contexts the rounding of an angle is part of what a drafter was trained with.
        """
        if self._scaled is None:
            rotated = int(self.width * self.rope.partial_rotary_factor)
            even = torch.arange(0, rotated, 2, dtype=torch.float32)
            frequencies, factor = 1.0 / self.rope.theta ** (even / rotated), 1.0
        else:
            # dynamic and longrope look at the length of the sequence
            length = int(positions.max()) + 1 if positions.numel() else 0
            frequencies, factor = self._scaled(length)
        angles = positions.float()[:, None] * frequencies.to(positions.device)  # [T, r / 2]
        return angles.cos() * factor, angles.sin() * factor

    def _find_scaling(self, scaling: dict[str, Any]) -> Any:
        """Return length -> (frequencies [r / 2], factor on cosine and sine) from transformers."""
        try:
            from transformers import LlamaConfig
            from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"rope scaling {self.kind} needs transformers", "pip install 'eagleconv[run]'"
            ) from error
        if self.kind not in ROPE_INIT_FUNCTIONS:
            raise ConversionError(
                f"rope scaling {self.kind!r} is not supported by the reference",
                f"it knows {', '.join(sorted(ROPE_INIT_FUNCTIONS))}",
            )
        parameters = {
            **scaling,
            "rope_theta": self.rope.theta,
            "partial_rotary_factor": self.rope.partial_rotary_factor,
        }
        compute = ROPE_INIT_FUNCTIONS[self.kind]
        try:
            # One head as wide as ours is all that the frequencies look at.
            config = LlamaConfig(
                hidden_size=self.width,
                num_attention_heads=1,
                num_key_value_heads=1,
                head_dim=self.width,
                max_position_embeddings=self.max_positions,
                rope_parameters=parameters,
            )
            compute(config, torch.device("cpu"), seq_len=1)
        except (KeyError, TypeError) as error:
            raise ConversionError(
                f"rope scaling {dict(scaling)} cannot be computed: {error}",
                "declare the scaling the weights were trained with by --rope-scaling",
            ) from error
        return lambda length: compute(config, torch.device("cpu"), seq_len=length)


def turn_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate heads [T, n, d] where dimension i turns with i + r / 2, as Llama does.

    Dimensions from r on stay as they are. `cos` and `sin` are [T, r / 2].
    """
    half = cos.shape[-1]
    cos, sin = cos.to(x.dtype)[:, None], sin.to(x.dtype)[:, None]  # [T, 1, r / 2]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1)


def turn_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate heads [T, n, d] where dimension 2i turns with 2i + 1, as DeepSeek does.

    Dimensions from r on stay as they are. `cos` and `sin` are [T, r / 2].
    """
    end = 2 * cos.shape[-1]
    cos, sin = cos.to(x.dtype)[:, None], sin.to(x.dtype)[:, None]  # [T, 1, r / 2]
    a, b, rest = x[..., 0:end:2], x[..., 1:end:2], x[..., end:]
    turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
    return torch.cat([turned, rest], dim=-1)
