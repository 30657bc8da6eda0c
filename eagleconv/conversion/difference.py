"""Compare two drafters: facts by meaning, tensors by canonical name and value."""

from dataclasses import dataclass
from typing import Any

from eagleconv.checkpoint.checkpoint import Checkpoint
from eagleconv.drafter.facts import FACT_NAMES
from eagleconv.drafter.read import Drafter

_PIECE = 8 << 20


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """What differs in one tensor.

    Attributes:
        name: Canonical name.
        kind: `only in A`, `only in B`, `shape`, `dtype` or `values`.
        detail: In words, with the largest difference where values differ.
    """

    name: str
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Difference:
    """How two drafters differ.

    Attributes:
        facts: Fact -> value in A, value in B; open facts are None.
        tensors: One entry per tensor that differs.
        equal: Tensors that are equal byte for byte.
        renamed: Canonical name -> stored names in A and B, where they differ.
    """

    facts: dict[str, tuple[Any, Any]]
    tensors: tuple[TensorDifference, ...]
    equal: int
    renamed: dict[str, tuple[str, str]]

    @property
    def same(self) -> bool:
        """Whether both compute the same, by facts and bytes."""
        return not self.facts and not self.tensors


def compare(a: Drafter, b: Drafter) -> Difference:
    """Compare facts and every carried tensor, all bytes of it."""
    facts = {}
    alike = a.checkpoint.config == b.checkpoint.config
    for name in FACT_NAMES:
        left, right = a.facts[name], b.facts[name]
        # An open fact equals nothing, unless both files say the very same.
        undecided = "open" in (left.origin, right.origin) and not alike
        if left.value != right.value or undecided:
            facts[name] = (
                "open" if left.origin == "open" else left.value,
                "open" if right.origin == "open" else right.value,
            )
    found: list[TensorDifference] = []
    renamed: dict[str, tuple[str, str]] = {}
    equal = 0
    for name in (*a.tensors, *(n for n in b.tensors if n not in a.tensors)):
        here, there = a.tensors.get(name), b.tensors.get(name)
        if here is None or there is None:
            one, drafter = (there, b) if here is None else (here, a)
            if one not in drafter.dropped:
                found.append(
                    TensorDifference(name, f"only in {'B' if here is None else 'A'}", str(one))
                )
            continue
        if here != there:
            renamed[name] = (here, there)
        one_way = _compare_tensor(a.checkpoint, here, b.checkpoint, there)
        if one_way is None:
            equal += 1
        else:
            found.append(TensorDifference(name, *one_way))
    return Difference(facts, tuple(found), equal, renamed)


def _compare_tensor(a: Checkpoint, left: str, b: Checkpoint, right: str) -> tuple[str, str] | None:
    x, y = a.tensors[left], b.tensors[right]
    if x.shape != y.shape:
        return "shape", f"{list(x.shape)} and {list(y.shape)}"
    if x.dtype == y.dtype and all(
        p == q for p, q in zip(a.reader.chunks(x, _PIECE), b.reader.chunks(y, _PIECE), strict=True)
    ):
        return None
    from eagleconv.checkpoint.values import largest_difference

    delta = largest_difference(a.read(left), x.dtype, b.read(right), y.dtype)
    size = "" if delta is None else f", max |delta| {delta:.6g}"
    if x.dtype != y.dtype:
        return "dtype", f"{x.dtype} and {y.dtype}{size}"
    return "values", f"{x.dtype}{size}"
