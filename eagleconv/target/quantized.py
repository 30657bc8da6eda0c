"""Rows of quantised matrices as numbers, and whether numbers come from a quantiser.

A quantised build of the same weights differs from them by rounding to a grid; a fine-tune differs
by something else. Whether a row lies on a grid is visible in the row itself, and how far rounding
to that grid can move a value is known for each scheme.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eagleconv.checkpoint.checkpoint import Checkpoint, TensorInfo
from eagleconv.checkpoint.values import as_numbers

#: Dtypes whose rows can be read as numbers.
STORED: tuple[str, ...] = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I8")
#: Rounding of a stored dtype, relative to the value: half a unit in the last place.
ROUNDING = {"F64": 2.0**-53, "F32": 2.0**-24, "F16": 2.0**-11, "BF16": 2.0**-8}


#: Tensors beside a quantised matrix that it is multiplied by.
_SCALES = ("weight_scale_inv", "weight_scale")


def is_readable(checkpoint: Checkpoint, info: TensorInfo) -> bool:
    """Say whether `read_row` can make numbers of a tensor's rows."""
    if info.dtype in ROUNDING:
        return True
    if info.dtype not in STORED or len(info.shape) != 2:
        return False
    scale = _scale_of(checkpoint, info)
    return scale is None or (scale.dtype in ROUNDING and len(scale.shape) <= 2)


def read_row(
    checkpoint: Checkpoint, info: TensorInfo, index: int, start: int, count: int
) -> tuple[bytes, Any]:
    """Return the stored bytes of a part of a row, and its values, float64.

    fp8 and int8 rows are multiplied by the scales stored beside them: one per tensor, one per row,
    or one per block (DeepSeek's weight_scale_inv).

    Args:
        checkpoint: Opened.
        info: A tensor that `is_readable`.
        index: The row; a vector is row 0.
        start: First value.
        count: Values.
    """
    import numpy as np

    offset, size = row_bytes(info, index, start, count)
    buffer = bytearray(size)
    checkpoint.reader.read_into(info, offset, memoryview(buffer))
    stored = bytes(buffer)
    if info.dtype in ROUNDING:
        return stored, as_numbers(stored, info.dtype)
    bits = np.frombuffer(stored, "u1")
    values = _fp8(bits, info.dtype) if info.dtype != "I8" else bits.view("i1").astype(np.float64)
    return stored, values * _scale(checkpoint, info, index, start, count)


def width_of(info: TensorInfo) -> int:
    """Return the number of values of one row; a vector is one row."""
    return math.prod(info.shape if len(info.shape) == 1 else info.shape[1:])


def row_bytes(info: TensorInfo, index: int, start: int, count: int) -> tuple[int, int]:
    """Return the first byte and the number of bytes of a part of a row."""
    each = info.nbytes // math.prod(info.shape)
    return (index * width_of(info) + start) * each, count * each


def _fp8(bits: Any, dtype: str) -> Any:
    import numpy as np

    if dtype == "F8_E5M2":
        return (bits.astype("<u2") << 8).view("<f2").astype(np.float64)
    sign = np.where(bits & 0x80, -1.0, 1.0)
    exponent, mantissa = (bits >> 3) & 0xF, bits & 0x7
    normal = (1 + mantissa / 8) * np.exp2(exponent.astype(np.float64) - 7)
    return sign * np.where(exponent == 0, mantissa / 8 * 2.0**-6, normal)


def _scale_of(checkpoint: Checkpoint, info: TensorInfo) -> TensorInfo | None:
    module = info.name.rpartition(".")[0]
    found = (checkpoint.tensors.get(f"{module}.{suffix}") for suffix in _SCALES)
    return next((scale for scale in found if scale is not None), None)


def _scale(checkpoint: Checkpoint, info: TensorInfo, index: int, start: int, count: int) -> Any:
    """Return what a row is multiplied by; 1.0 where no scale is stored beside it."""
    import numpy as np

    scale = _scale_of(checkpoint, info)
    if scale is None:
        return 1.0
    if len(scale.shape) < 2 or scale.shape[1] == 1:
        values = as_numbers(checkpoint.read(scale.name), scale.dtype)
        return values[index] if len(values) == info.shape[0] else values[0]
    # One scale per block of rows and columns.
    high, wide = (-(-all_ // blocks) for all_, blocks in zip(info.shape, scale.shape, strict=True))
    size = scale.nbytes // scale.shape[0]
    buffer = bytearray(size)
    checkpoint.reader.read_into(scale, index // high * size, memoryview(buffer))
    return np.repeat(as_numbers(bytes(buffer), scale.dtype), wide)[start : start + count]


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way of rounding weights.

    Attributes:
        name: As people call it.
        on_grid: Whether a whole row, as read, lies on its grid.
        bound: Largest distance rounding moves values of a row by, one for each value.
    """

    name: str
    on_grid: Callable[[Any], bool]
    bound: Callable[[Any], Any]


def _groups(row: Any, size: int) -> Any:
    import numpy as np

    padded = np.pad(row, (0, -len(row) % size))
    return padded.reshape(-1, size)


def _steps(row: Any, levels: int, size: int) -> Any:
    """Return the step of the grid k * step that each group (0: the row) lies on; NaN: on none.

    The largest value need not be on the last level: only a part of a row may be at hand, and
    quantisers clip.
    """
    import numpy as np

    groups = _groups(row, size or len(row))
    top = np.abs(groups).max(axis=1, keepdims=True)
    steps = np.full(len(groups), np.nan)
    for level in range(levels, levels // 2, -1):
        step = np.where(top == 0, 1.0, top / level)
        ratio = groups / step
        # What a 16-bit dtype adds grows with k: only small k can tell a grid from chance.
        small = (np.abs(ratio) > 0.5) & (np.abs(ratio) <= min(levels - 1, 12))
        off = (np.abs(ratio - np.round(ratio)) <= 0.1) & small
        fits = np.isnan(steps) & (off.sum(axis=1) >= 0.97 * small.sum(axis=1))
        steps[fits] = step[fits, 0]
    return steps


def _integer_grid(levels: int, size: int) -> Callable[[Any], bool]:
    """Return a test for rows of k * step, |k| <= levels, one step for each group (0: the row)."""

    def on_grid(row: Any) -> bool:
        import numpy as np

        groups = _groups(row, size or len(row))
        steps = _steps(row, levels, size)
        if np.isnan(steps).any():
            return False
        ratio = np.abs(groups / steps[:, None])
        return int(((ratio > 0.5) & (ratio <= min(levels - 1, 12))).sum()) >= 10

    return on_grid


def _integer_bound(levels: int, size: int) -> Callable[[Any], Any]:
    def bound(row: Any) -> Any:
        import numpy as np

        steps = _steps(row, levels, size)
        return np.repeat(steps, size or len(row))[: len(row)] * 0.52

    return bound


def _fp8_grid(row: Any) -> bool:
    """Say whether all values share at most 8 mantissas, whatever their common scale."""
    import numpy as np

    values = np.abs(row[row != 0])
    if len(values) < 16:
        return False
    # Subnormals of the scheme have fewer bits, not others; the smallest values are left out.
    values = values[values > values.max() * 2.0**-12]
    mantissa = np.sort(np.log2(values) % 1.0)
    gaps = np.diff(np.concatenate([mantissa, mantissa[:1] + 1.0]))
    return int((gaps > 0.01).sum()) <= 8 and float(gaps[gaps > 0.01].sum()) > 0.9


def _fp8_bound(row: Any) -> Any:
    import numpy as np

    return np.abs(row) * 2.0**-3.9 + np.abs(row).max() * 2.0**-14


#: Finest first, so that a row is called what it is.
SCHEMES: tuple[Scheme, ...] = (
    Scheme("int8 per row", _integer_grid(127, 0), _integer_bound(127, 0)),
    *(
        Scheme(f"int8 in groups of {g}", _integer_grid(127, g), _integer_bound(127, g))
        for g in (128, 64, 32)
    ),
    Scheme("fp8 (e4m3)", _fp8_grid, _fp8_bound),
    *(
        Scheme(f"int4 in groups of {g}", _integer_grid(7, g), _integer_bound(7, g))
        for g in (128, 64, 32)
    ),
)


#: How rounding to a stored dtype moves a value, whatever grid its row lies on.
OF_DTYPE = {
    "F8_E4M3": Scheme("fp8 (e4m3)", lambda row: True, _fp8_bound),
    "F8_E5M2": Scheme("fp8 (e5m2)", lambda row: True, lambda row: 2 * _fp8_bound(row)),
    "I8": Scheme("int8 per row", lambda row: True, _integer_bound(127, 0)),
}


def schemes_of(row: Any, dtype: str) -> tuple[Scheme, ...]:
    """Return the schemes a whole row can come from: its dtype's, or those whose grid it lies on."""
    if dtype in OF_DTYPE:
        return (OF_DTYPE[dtype],)
    return tuple(s for s in SCHEMES if len(row) >= 64 and s.on_grid(row))
