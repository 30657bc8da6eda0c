"""A drafter's tensors as torch tensors, under their canonical names."""

from __future__ import annotations

import torch
from torch import Tensor

from eagleconv.drafter.read import Drafter
from eagleconv.errors import ConversionError, UsageError

#: What the reference computes in; norms and softmax in float32 at least.
DTYPES: tuple[torch.dtype, ...] = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
)

_FLOATS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
_INTEGERS = {
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
}


def load_weights(
    drafter: Drafter,
    dtype: torch.dtype = torch.float32,
    embedding: Tensor | None = None,
    lm_head: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return canonical name -> tensor: all that a step needs.

    Args:
        drafter: From `read_drafter`, with the weights at hand and no open question.
        dtype: What to compute in (`DTYPES`), whatever the stored dtype.
        embedding: The target's embedding [V, h], for a drafter that has none.
        lm_head: The target's head [V, h], for a drafter that has none.

    Raises:
        OpenQuestions: Some fact is open.
        ConversionError: It is quantised, or borrows a matrix that was not given or does not fit.
        UsageError: It shall be computed in another dtype.
    """
    if dtype not in DTYPES:
        raise UsageError(
            f"a drafter computes in {', '.join(str(d) for d in DTYPES)}, not in {dtype}"
        )
    spec, source = drafter.spec(), drafter.checkpoint.source
    if spec.quantization is not None:
        raise ConversionError(
            f"{source}: a quantised drafter is not supported by the reference",
            "run the drafter it was quantised from",
        )
    weights: dict[str, Tensor] = {}
    for name, stored in drafter.tensors.items():
        # t2d says nothing that d2t does not.
        if stored in drafter.dropped or name == "t2d":
            continue
        info = drafter.checkpoint.tensors[stored]
        data = bytearray(info.nbytes)
        drafter.checkpoint.reader.read_into(info, 0, memoryview(data))
        weights[name] = _tensor(f"{source}: {stored}", data, info.dtype, info.shape, dtype)
    for name, new in drafter.derived.items():
        if name != "t2d":
            weights[name] = _tensor(name, bytearray(new.data), new.dtype, new.shape, dtype)
    borrowed = {
        "embed_tokens.weight": (spec.own_embedding, embedding),
        "lm_head.weight": (spec.own_head, lm_head),
    }
    for name, (owned, lent) in borrowed.items():
        if owned:
            continue
        if lent is None:
            raise ConversionError(
                f"{source} has no {name} and uses its target's", "give the target as well"
            )
        # The target may be padded by some rows, so only the least is known.
        if lent.ndim != 2 or lent.shape[0] < spec.vocab_size or lent.shape[1] != spec.hidden_size:
            raise ConversionError(
                f"{source}: the target's {name} is {list(lent.shape)}, expected "
                f"[{spec.vocab_size}, {spec.hidden_size}]",
                "give the target the drafter was trained for",
            )
        rows = spec.draft_vocab_size if name == "lm_head.weight" else lent.shape[0]
        weights[name] = lent[:rows].detach().to("cpu", dtype)
    return weights


def _tensor(
    name: str, data: bytearray, stored: str, shape: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    """Decode little-endian bytes: numbers to `dtype`, the vocabulary map to int64."""
    kind = _FLOATS.get(stored) or _INTEGERS.get(stored)
    if kind is None:
        raise ConversionError(f"{name} has dtype {stored}, which is not supported by the reference")
    values = torch.frombuffer(data, dtype=kind).reshape(shape)
    return values.to(dtype if stored in _FLOATS else torch.int64)
