"""The draft vocabulary map: d2t holds offsets, t2d a mask; each implies the other.

Source of the convention: vLLM 0.32.0 `models/llama_eagle3.py`, SGLang 0.5.23
`models/llama_eagle3.py`: target id = i + d2t[i]. ModelOpt and NeMo Automodel order the draft
vocabulary by frequency, so ids need not ascend and offsets may be negative.
"""

from __future__ import annotations  # array[int] is a type for checkers only before 3.12

import struct
import sys
from array import array

from eagleconv.errors import SourceError

_CODES = {"I64": "q", "I32": "i", "I16": "h", "U8": "B", "I8": "b"}
#: The dtypes a map may have.
INTEGERS = tuple(_CODES)


def integers(data: bytes, dtype: str, name: str) -> array[int]:
    """Decode little-endian integers.

    Raises:
        SourceError: The dtype is no integer.
    """
    if dtype not in _CODES:
        raise SourceError(
            f"{name} has dtype {dtype}; a vocabulary map holds integers",
            "store it as int64",
        )
    values = array(_CODES[dtype])
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def target_ids(offsets: array[int]) -> list[int]:
    """Return the target id of every draft id: i + d2t[i]."""
    return [index + offset for index, offset in enumerate(offsets)]


def map_problem(offsets: array[int], mask: bytes | None, vocab_size: int) -> tuple[str, str] | None:
    """Say what is wrong with a map read as offsets: rule and sentence; None where nothing is.

    Args:
        offsets: d2t, D values.
        mask: t2d, V bytes of 0 or 1, or None where it is absent.
        vocab_size: V.
    """
    ids = target_ids(offsets)
    outside = next((i for i, t in enumerate(ids) if not 0 <= t < vocab_size), None)
    if outside is not None:
        return (
            "ECV002",
            f"draft id {outside} maps to {ids[outside]} (= {outside} + d2t[{outside}]), "
            f"outside the target's {vocab_size} ids",
        )
    if len(set(ids)) != len(ids):
        seen: set[int] = set()
        twice = next(t for t in ids if t in seen or seen.add(t))  # type: ignore[func-returns-value]
        return "ECV003", f"two draft ids map to target id {twice}"
    if mask is not None:
        marked = sum(1 for byte in mask if byte)
        if marked != len(ids):
            return "ECV004", f"t2d marks {marked} ids, d2t maps {len(ids)}"
        missing = next((t for t in ids if not mask[t]), None)
        if missing is not None:
            return "ECV004", f"d2t maps to target id {missing}, which t2d does not mark"
    return None


def are_absolute(values: array[int], mask: bytes | None, vocab_size: int) -> bool:
    """Say whether t2d proves that d2t holds absolute ids instead of offsets."""
    if mask is None or any(not 0 <= v < vocab_size for v in values):
        return False
    return len(set(values)) == len(values) and {*values} == {
        i for i, byte in enumerate(mask) if byte
    }


def offsets_of(ids: list[int]) -> bytes:
    """Return d2t as int64 bytes for target ids."""
    return struct.pack(f"<{len(ids)}q", *(t - i for i, t in enumerate(ids)))


def mask_of(ids: list[int], vocab_size: int) -> bytes:
    """Return t2d as bool bytes for target ids."""
    mask = bytearray(vocab_size)
    for target in ids:
        mask[target] = 1
    return bytes(mask)
