"""The drafter's own embedding and head against the target's rows."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from eagleconv.checkpoint.checkpoint import Checkpoint, TensorInfo
from eagleconv.checkpoint.ranges import prefetch
from eagleconv.checkpoint.values import as_numbers
from eagleconv.drafter import vocabulary
from eagleconv.drafter.read import Drafter
from eagleconv.target.view import TargetView

#: Rows compared without --deep, chosen by a fixed seed in runs of neighbours: of a repository, one
#: run is one request. Of wide matrices fewer, so that their bytes stay as many.
_ROWS, _RUN, _BYTES = 64, 8, 1 << 19


@dataclass(frozen=True, slots=True)
class Compared:
    """Rows of the drafter's embedding against the target's.

    Attributes:
        tensor: The drafter's stored tensor.
        rows: Rows compared.
        differing: Rows with any value that differs by more than rounding to the drafter's dtype.
        examples: The first differing rows.
        largest: Largest |difference|.
        cosine: Cosine of all compared values.
        sample: Some of the drafter's rows, [n, h] float64.
    """

    tensor: str
    rows: int
    differing: int
    examples: tuple[int, ...]
    largest: float
    cosine: float
    sample: Any

    @property
    def equal(self) -> bool:
        """Whether all rows agree."""
        return self.differing == 0

    @property
    def unrelated(self) -> bool:
        """Whether the two have nothing to do with each other."""
        return abs(self.cosine) < 0.2


@dataclass(frozen=True, slots=True)
class Head:
    """Rows of a frozen lm_head against the target's.

    Attributes:
        tensor: The drafter's stored tensor.
        rows: Rows compared.
        matching: Rows equal to the target's row d2t[i].
        shifted: Whether they are the target's rows d2t[i] and not i + d2t[i].
    """

    tensor: str
    rows: int
    matching: int
    shifted: bool


def row(checkpoint: Checkpoint, tensor: TensorInfo, index: int) -> Any:
    """Read one row as float64."""
    size = row_size(tensor)
    buffer = bytearray(size)
    checkpoint.reader.read_into(tensor, index * size, memoryview(buffer))
    return as_numbers(bytes(buffer), tensor.dtype)


def row_size(tensor: TensorInfo) -> int:
    """Return the bytes of one row."""
    return tensor.nbytes // tensor.shape[0]


def fetch_rows(checkpoint: Checkpoint, tensor: TensorInfo, rows: Iterable[int]) -> None:
    """Have rows ready, of a repository in few requests."""
    size = row_size(tensor)
    inside = {index for index in rows if 0 <= index < tensor.shape[0]}
    prefetch(checkpoint.reader, ((tensor, index * size, size) for index in inside))


def _chosen(rows: int, size: int, everything: bool, run: int = _RUN) -> list[int]:
    """Return all rows, or the first `run` of some runs."""
    if everything or rows <= _ROWS:
        return list(range(rows))
    runs = max(1, min(_ROWS, _BYTES // size) // _RUN)
    starts = sorted(random.Random(0).sample(range(rows // _RUN), runs))
    return [start * _RUN + i for start in starts for i in range(run)]


def _everything(target: Checkpoint, deep: bool) -> bool:
    """Say whether all rows are compared; of a target that was not downloaded, a sample always."""
    return deep and target.root != ""


def compare_embedding(drafter: Drafter, target: TargetView, deep: bool = False) -> Compared | None:
    """Compare the drafter's embedding with the target's.

    Args:
        drafter: The drafter.
        target: The target.
        deep: Compare all rows of a local target, not a sample.

    Returns:
        None where the drafter has none, or the two cannot be compared.
    """
    import numpy as np

    stored = drafter.tensors.get("embed_tokens.weight")
    weights, theirs = target.weights, target.tensor("embedding")
    if stored is None or weights is None or theirs is None:
        return None
    checkpoint = drafter.checkpoint
    ours = checkpoint.tensors[stored]
    if len(ours.shape) != 2 or ours.shape[1:] != theirs.shape[1:]:
        return None
    differing, largest, dot, ours_2, theirs_2 = [], 0.0, 0.0, 0.0, 0.0
    sample: list[Any] = []
    count = min(ours.shape[0], theirs.shape[0])
    rows = _chosen(count, row_size(ours), _everything(weights, deep))
    fetch_rows(checkpoint, ours, rows)
    fetch_rows(weights, theirs, rows)
    rounding = {"BF16": 2.0**-8, "F16": 2.0**-11}.get(ours.dtype, 0.0)
    with np.errstate(all="ignore"):  # NaN differs, and ECT011 names it
        for index in rows:
            a, b = row(checkpoint, ours, index), row(weights, theirs, index)
            if a is None or b is None:
                return None
            if len(sample) < _ROWS:
                sample.append(a)
            delta = np.abs(a - b)
            if ours.dtype == theirs.dtype:
                same = not delta.any()
            else:
                same = bool((delta <= rounding * np.abs(b)).all())
            if not same:
                differing.append(index)
            largest = max(largest, float(delta.max()))
            dot, ours_2, theirs_2 = dot + a @ b, ours_2 + a @ a, theirs_2 + b @ b
    cosine = float(dot / np.sqrt(ours_2 * theirs_2)) if ours_2 and theirs_2 else 0.0
    first = tuple(differing[:3])
    return Compared(stored, len(rows), len(differing), first, largest, cosine, np.stack(sample))


def compare_head(drafter: Drafter, target: TargetView, deep: bool = False) -> Head | None:
    """Compare lm_head rows with the target's rows at d2t[i] and i + d2t[i].

    Args:
        drafter: The drafter.
        target: The target.
        deep: Compare all rows of a local target, not a sample.

    Returns:
        None where there is no such head, or the two cannot be compared.
    """
    stored, map_name = drafter.tensors.get("lm_head.weight"), drafter.tensors.get("d2t")
    weights = target.weights
    theirs = target.tensor("head") or target.tensor("embedding")
    if stored is None or map_name is None or weights is None or theirs is None:
        return None
    checkpoint = drafter.checkpoint
    ours, map_info = checkpoint.tensors[stored], checkpoint.tensors[map_name]
    if ours.shape[1:] != theirs.shape[1:] or map_info.dtype not in vocabulary.INTEGERS:
        return None
    offsets = vocabulary.integers(checkpoint.read(map_name), map_info.dtype, "d2t")
    everything = _everything(weights, deep)
    # Half as many: equal to the last bit says more than nearly equal, and the target's rows for
    # neighbours of the draft vocabulary lie apart.
    rows = _chosen(min(len(offsets), ours.shape[0]), row_size(ours), everything, _RUN // 2)
    # Nearly always no row is wrong, which some of them show.
    few = rows if everything else rows[::2]
    if not any(_equal(checkpoint, ours, weights, theirs, few, offsets)):
        return Head(stored, len(few), 0, False)
    wrong = sum(_equal(checkpoint, ours, weights, theirs, rows, offsets))
    right = sum(_equal(checkpoint, ours, weights, theirs, rows, vocabulary.target_ids(offsets)))
    return Head(stored, len(rows), wrong, wrong > right and wrong * 2 > len(rows))


def _equal(
    drafter: Checkpoint,
    ours: TensorInfo,
    target: Checkpoint,
    theirs: TensorInfo,
    rows: Sequence[int],
    ids: Sequence[int],
) -> list[bool]:
    """Say of each of our rows whether it is their row `ids[row]`."""
    fetch_rows(drafter, ours, rows)
    fetch_rows(target, theirs, (ids[index] for index in rows))
    found = []
    for index in rows:
        same = False
        if 0 <= ids[index] < theirs.shape[0]:
            a, b = row(drafter, ours, index), row(target, theirs, ids[index])
            same = a is not None and b is not None and bool((a == b).all())
        found.append(same)
    return found
