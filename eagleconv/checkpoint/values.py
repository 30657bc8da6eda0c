"""Tensor bytes as numbers, for comparisons."""

from typing import Any

_NUMPY = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "u1",
    "U16": "<u2",
    "U32": "<u4",
    "U64": "<u8",
}


def as_numbers(data: bytes, dtype: str) -> Any:
    """Return bytes as a flat numpy array of float64; None for dtypes without a numpy form."""
    import numpy as np

    if dtype == "BF16":
        wide = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return wide.view(np.float32).astype(np.float64)
    if dtype not in _NUMPY:
        return None
    return np.frombuffer(data, _NUMPY[dtype]).astype(np.float64)


def largest_difference(a: bytes, a_dtype: str, b: bytes, b_dtype: str) -> float | None:
    """Return max |a - b|, NaN where one side has a NaN the other has not; None if not comparable."""
    import numpy as np

    x, y = as_numbers(a, a_dtype), as_numbers(b, b_dtype)
    if x is None or y is None:
        return None
    if x.size == 0:
        return 0.0
    both_nan = np.isnan(x) & np.isnan(y)
    same = both_nan | (x == y)
    return float(
        np.max(np.where(same, 0.0, np.abs(np.where(same, 0.0, x) - np.where(same, 0.0, y))))
    )
