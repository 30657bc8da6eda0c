"""The drafter's own embedding and head against the target's rows."""

import random
from dataclasses import dataclass
from typing import Any

from eagleconv.checkpoint.checkpoint import Checkpoint, TensorInfo
from eagleconv.checkpoint.values import as_numbers
from eagleconv.drafter import vocabulary
from eagleconv.rules.subject import Subject
from eagleconv.rules.values import fresh_like, moments

#: Ends of the names of a target's embedding and head, over the families that have drafters.
_EMBEDDINGS = (
    "embed_tokens.weight",
    "wte.weight",
    "word_embeddings.weight",
    "tok_embeddings.weight",
)
_HEADS = ("lm_head.weight", "output_layer.weight", "embed_out.weight")
#: Rows compared without --deep, chosen by a fixed seed.
_ROWS = 64


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
        fresh: Whether the drafter's rows look freshly initialised.
    """

    tensor: str
    rows: int
    differing: int
    examples: tuple[int, ...]
    largest: float
    cosine: float
    fresh: bool

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


def find(target: Checkpoint, ends: tuple[str, ...]) -> TensorInfo | None:
    """Return the first tensor with one of the endings, shortest name first."""
    names = sorted((n for n in target.tensors if n.endswith(ends)), key=len)
    return target.tensors[names[0]] if names else None


def row(checkpoint: Checkpoint, tensor: TensorInfo, index: int) -> Any:
    """Read one row as float64."""
    size = tensor.nbytes // tensor.shape[0]
    buffer = bytearray(size)
    checkpoint.reader.read_into(tensor, index * size, memoryview(buffer))
    return as_numbers(bytes(buffer), tensor.dtype)


def _chosen(rows: int, deep: bool) -> list[int]:
    if deep or rows <= _ROWS:
        return list(range(rows))
    return sorted(random.Random(0).sample(range(rows), _ROWS))


def compare_embedding(s: Subject) -> Compared | None:
    """Compare; None where the drafter has none, or the two cannot be compared."""
    import numpy as np

    stored = s.drafter.tensors.get("embed_tokens.weight")
    weights = s.target.weights if s.target else None
    theirs = find(weights, _EMBEDDINGS) if weights else None
    if stored is None or weights is None or theirs is None:
        return None
    ours = s.checkpoint.tensors[stored]
    if len(ours.shape) != 2 or ours.shape[1:] != theirs.shape[1:]:
        return None
    differing, largest, dot, ours_2, theirs_2 = [], 0.0, 0.0, 0.0, 0.0
    sample: list[Any] = []
    rows = _chosen(min(ours.shape[0], theirs.shape[0]), s.deep)
    rounding = {"BF16": 2.0**-8, "F16": 2.0**-11}.get(ours.dtype, 0.0)
    for index in rows:
        a, b = row(s.checkpoint, ours, index), row(weights, theirs, index)
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
    fresh = fresh_like(moments(np.concatenate(sample), ours.shape)) != ""
    return Compared(stored, len(rows), len(differing), tuple(differing[:3]), largest, cosine, fresh)


def compare_head(s: Subject) -> Head | None:
    """Compare lm_head rows with the target's rows at d2t[i] and i + d2t[i]; None if impossible."""
    stored, map_name = s.drafter.tensors.get("lm_head.weight"), s.drafter.tensors.get("d2t")
    weights = s.target.weights if s.target else None
    theirs = (find(weights, _HEADS) or find(weights, _EMBEDDINGS)) if weights else None
    if stored is None or map_name is None or weights is None or theirs is None:
        return None
    ours, map_info = s.checkpoint.tensors[stored], s.checkpoint.tensors[map_name]
    if ours.shape[1:] != theirs.shape[1:] or map_info.dtype not in vocabulary.INTEGERS:
        return None
    offsets = vocabulary.integers(s.checkpoint.read(map_name), map_info.dtype, "d2t")
    right = wrong = 0
    rows = _chosen(min(len(offsets), ours.shape[0]), s.deep)
    for index in rows:
        a = row(s.checkpoint, ours, index)
        for target, is_right in ((index + offsets[index], True), (offsets[index], False)):
            if 0 <= target < theirs.shape[0] and (a == row(weights, theirs, target)).all():
                right, wrong = right + is_right, wrong + (not is_right)
    return Head(stored, len(rows), wrong, wrong > right and wrong * 2 > len(rows))
