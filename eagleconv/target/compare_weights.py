"""Are these the same weights? Rows of two targets, told apart from rounding and quantisation."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eagleconv.checkpoint.checkpoint import Checkpoint, TensorInfo
from eagleconv.checkpoint.ranges import prefetch
from eagleconv.target.names import place_of
from eagleconv.target.quantized import ROUNDING, Scheme, is_readable, read_row, schemes_of, width_of
from eagleconv.target.rows import Row, Weights, columns, part, span

#: Below this share of a row's largest value, a difference is a matter of the arithmetic that made
#: the file.
_TINY = 1e-6
Answer = Literal["identical", "rounded", "quantised", "different", "unreadable"]


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """What one recorded row says of a target.

    Attributes:
        name: Canonical name of the tensor.
        index: The row.
        answer: `rounded` to another dtype, `quantised` by a scheme whose grid the row lies on,
            or `different`.
        scheme: Of a quantised one.
        change: Largest |difference|, as a share of the row's largest |value|.
    """

    name: str
    index: int
    answer: Answer
    scheme: str = ""
    change: float = 0.0


def compare_with_target(recorded: Weights, target: Checkpoint) -> tuple[RowAnswer, ...]:
    """Hold recorded rows against a target's weights; only these rows are read."""
    by_name = {
        place.name: info
        for name, info in target.tensors.items()
        if (place := place_of(name)) is not None and is_readable(target, info)
    }
    fitting = [(row, by_name[row.name]) for row in recorded.rows if _fits(row, by_name)]
    prefetch(target.reader, [part(info, row.name, row.index) for row, info in fitting])
    found = [
        _compare_row(row, target, by_name[row.name])
        if row.name in by_name
        else RowAnswer(row.name, row.index, "unreadable")
        for row in recorded.rows
    ]
    return tuple(found)


def _fits(row: Row, by_name: Mapping[str, TensorInfo]) -> bool:
    """Say whether there is such a row: those of padding may differ, widths may not."""
    info = by_name.get(row.name)
    return info is not None and info.shape[1:] == row.shape[1:] and row.index < info.shape[0]


def _compare_row(recorded: Row, target: Checkpoint, info: TensorInfo) -> RowAnswer:
    import numpy as np

    if not _fits(recorded, {recorded.name: info}):
        return RowAnswer(recorded.name, recorded.index, "different", change=1.0)
    stored, values = read_row(target, info, recorded.index, *span(recorded.name, width_of(info)))
    chosen = columns(recorded.name, len(values))
    if len(chosen) != len(recorded.values):
        return RowAnswer(recorded.name, recorded.index, "different", change=1.0)
    ours, theirs = np.asarray(recorded.values), values[chosen]
    # The values as well: other scales beside the same quantised bytes are other weights.
    same = info.dtype == recorded.dtype and hashlib.sha256(stored).hexdigest()[:16]
    if same == recorded.digest and (ours == theirs.astype(np.float32)).all():
        return RowAnswer(recorded.name, recorded.index, "identical")
    schemes = schemes_of(values, info.dtype)
    return _judge(recorded, ours, theirs, info.dtype, schemes, values, chosen)


def _judge(
    recorded: Row,
    ours: Any,
    theirs: Any,
    dtype: str,
    schemes: tuple[Scheme, ...],
    row: Any,
    chosen: list[int],
) -> RowAnswer:
    import numpy as np

    delta = np.abs(ours - theirs)
    top = float(np.abs(ours).max()) or 1.0
    change = float(delta.max()) / top
    # A value rounded to two dtypes in turn may be off by both; in one dtype it is off by nothing
    # but what another order of the same arithmetic leaves (dequantised files).
    share = 0.0
    if dtype != recorded.dtype:
        share = 2 * max(ROUNDING.get(dtype, 0.0), ROUNDING.get(recorded.dtype, 0.0))
    if (delta <= share * np.maximum(np.abs(ours), np.abs(theirs)) + _TINY * top).all():
        return RowAnswer(recorded.name, recorded.index, "rounded", change=change)
    for scheme in schemes:
        if (delta <= scheme.bound(row)[chosen] + share * np.abs(ours)).all():
            return RowAnswer(recorded.name, recorded.index, "quantised", scheme.name, change)
    return RowAnswer(recorded.name, recorded.index, "different", change=change)


def compare_recorded(one: Weights, other: Weights) -> tuple[RowAnswer, ...]:
    """Hold two fingerprints' rows against each other, where both have the same ones."""
    import numpy as np

    theirs = {(row.name, row.index): row for row in other.rows}
    found = []
    for row in one.rows:
        twin = theirs.get((row.name, row.index))
        if twin is None:
            continue
        if row.digest and row.digest == twin.digest and row.dtype == twin.dtype:
            found.append(RowAnswer(row.name, row.index, "identical"))
            continue
        a, b = np.asarray(row.values), np.asarray(twin.values)
        if a.shape != b.shape:
            found.append(RowAnswer(row.name, row.index, "different", change=1.0))
            continue
        # Whole rows are not at hand: a quantised build cannot be told from other weights.
        found.append(_judge(row, a, b, twin.dtype, (), b, list(range(len(b)))))
    return tuple(found)
