"""What a user may declare of a checkpoint, and tensors that follow from others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eagleconv.drafter.item_kinds import kind_problem
from eagleconv.errors import UsageError


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

    def __post_init__(self) -> None:
        """Refuse what no drafter can have been trained with.

        Raises:
            UsageError: Naming the flag.
        """
        flags = {
            "rope_theta": "rope_theta",
            "partial_rotary_factor": "partial_rotary_factor",
            "mask_token_id": "mask_token_id",
            "attention_window": "sliding_window",
        }
        for name, item in flags.items():
            value = getattr(self, name)
            problem = "" if value is None else kind_problem(item, value)
            if problem:
                raise UsageError(f"--{name.replace('_', '-')} {value}: {problem}")
        inside = self.rope_scaling or {}
        if {"rope_theta", "partial_rotary_factor"} & inside.keys() or any(
            isinstance(v, Mapping) for v in inside.values()
        ):
            raise UsageError(
                "--rope-scaling holds the scaling alone, one dict",
                "give the base by --rope-theta and the share by --partial-rotary-factor",
            )
        if inside and not isinstance(inside.get("rope_type", inside.get("type")), str):
            raise UsageError(
                "--rope-scaling has no rope_type", "for instance yarn, or '{}' for none"
            )


@dataclass(frozen=True, slots=True)
class DerivedTensor:
    """A tensor that follows from another one."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes
    reason: str
