"""What a user may declare of a checkpoint, and tensors that follow from others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Declared:
    """What the user says the weights were trained with. None: not said.

    Attributes:
        norm_output_meaning: `feedback` (vLLM, SGLang, TorchSpec) or `head` (SpecForge <= 0.2.0).
        norm_before_residual: True for a normed residual.
        aux_layers: Boundaries separated by commas, or `default`.
        rope_theta: The base the trainer rotated with.
        rope_scaling: The scaling it used, a dict, or {} for none.
        partial_rotary_factor: Share of each head it rotated.
        mask_token_id: P-EAGLE's mask token.
        attention_window: 0 for full attention, else the window in tokens.
        d2t_meaning: `offset` or `absolute`.
    """

    norm_output_meaning: str | None = None
    norm_before_residual: bool | None = None
    aux_layers: str | None = None
    rope_theta: float | None = None
    rope_scaling: Mapping[str, Any] | None = None
    partial_rotary_factor: float | None = None
    mask_token_id: int | None = None
    attention_window: int | None = None
    d2t_meaning: str | None = None


@dataclass(frozen=True, slots=True)
class DerivedTensor:
    """A tensor that follows from another one."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes
    reason: str
