"""Which rows of a target identify its weights, and their values.

One row of every matrix of every layer, 64 rows of the embedding and of the head, and the norms:
chosen by a fixed seed from the tensor's canonical name, so that every build of the same model is
asked for the same rows, whatever its shards. A change merged into one projection of one layer
(a rank-r update is dense in its rows) changes the row looked at.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eagleconv.checkpoint.checkpoint import Checkpoint, TensorInfo
from eagleconv.checkpoint.ranges import prefetch
from eagleconv.drafter.names import QUANT_SUFFIXES
from eagleconv.target.names import Place, place_of
from eagleconv.target.quantized import is_readable, read_row, row_bytes, width_of

#: Version of the choice of rows; another one makes other fingerprints.
SEED = 1
#: Rows of embedding and head, in groups of neighbours so that few requests fetch them.
GROUPS, GROUP = 8, 8
#: Values kept of each row.
KEPT = 64
#: Values read of each row, and where such a part may start: enough to show a quantiser's grid, and
#: a wide target costs no more than a narrow one.
WIDEST, ALIGNED = 4096, 256
_EXPERT = re.compile(r"\.experts\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a target's tensor, or a norm.

    Attributes:
        name: Canonical name of the tensor.
        index: Row, counted from 0; 0 for a vector.
        shape: Of the tensor.
        dtype: As stored.
        digest: sha256 (16 hex digits) of the stored bytes that were read of the row.
        values: KEPT of its values at fixed places, float32.
    """

    name: str
    index: int
    shape: tuple[int, ...]
    dtype: str
    digest: str
    values: tuple[float, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it: values as base64 of little-endian float32."""
        import numpy as np

        data = np.asarray(self.values, "<f4").tobytes()
        return {
            "index": self.index,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "digest": self.digest,
            "values": base64.b64encode(data).decode(),
        }


@dataclass(frozen=True, slots=True)
class Weights:
    """The sampled rows of a target.

    Attributes:
        seed: Version of the choice of rows (`SEED`).
        quick: Whether fewer rows were read.
        rows: Values and digests.
    """

    seed: int
    quick: bool
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows:
            rows.setdefault(row.name, []).append(row.as_json())
        return {"seed": self.seed, "quick": self.quick, "rows": dict(sorted(rows.items()))}


def weights_from_json(text: Mapping[str, Any]) -> Weights:
    """Read what `Weights.as_json` returned."""
    rows = tuple(row_from_json(name, row) for name, rows in text["rows"].items() for row in rows)
    return Weights(text["seed"], text["quick"], rows)


def row_from_json(name: str, text: Mapping[str, Any]) -> Row:
    """Read what `as_json` returned."""
    import numpy as np

    values = np.frombuffer(base64.b64decode(text["values"]), "<f4")
    return Row(
        name,
        text["index"],
        tuple(text["shape"]),
        text["dtype"],
        text["digest"],
        tuple(float(v) for v in values),
    )


def span(name: str, width: int) -> tuple[int, int]:
    """Return the first value and the number of values that are read of a row."""
    if width <= WIDEST:
        return 0, width
    places = (width - WIDEST) // ALIGNED + 1
    return random.Random(f"{SEED}:span:{name}").randrange(places) * ALIGNED, WIDEST


def columns(name: str, count: int) -> list[int]:
    """Return the places of the values that are kept, in what is read of a row."""
    if count <= KEPT:
        return list(range(count))
    return sorted(random.Random(f"{SEED}:columns:{name}").sample(range(count), KEPT))


def rows_of(place: Place, count: int) -> list[int]:
    """Return the rows of a matrix that are looked at.

    Args:
        place: Where the tensor belongs.
        count: Its rows; of embedding and head the rows of the vocabulary without padding, so that
            a padded build is asked for the same ones.
    """
    rng = random.Random(f"{SEED}:rows:{place.name}")
    if place.role == "layer":
        return [rng.randrange(count)]
    if count <= GROUPS * GROUP:
        return list(range(count))
    # One group in each eighth: a change of a part of the vocabulary is seen.
    step = count // GROUPS
    starts = [part * step + rng.randrange(step - GROUP + 1) for part in range(GROUPS)]
    return [start + i for start in starts for i in range(GROUP)]


def wanted(
    target: Checkpoint, vocabulary: int, quick: bool
) -> list[tuple[Place, TensorInfo, list[int]]]:
    """Return what to read of a target.

    Args:
        target: Opened for its headers.
        vocabulary: Ids of the tokenizer, or the config's vocabulary size.
        quick: Norms of the layers, embedding and head, and one matrix a layer.
    """
    found: list[tuple[Place, TensorInfo]] = []
    for name, info in target.tensors.items():
        place = place_of(name)
        if place is not None and _is_weight(name) and 1 <= len(info.shape) <= 3 and info.nbytes:
            found.append((place, info))
    experts = _chosen_experts(found)
    one = _one_a_layer(found) if quick else None
    out = []
    for place, info in found:
        expert = _EXPERT.search(place.name)
        if expert is not None and int(expert[1]) != experts[place.layer]:
            continue
        matrix = len(info.shape) >= 2
        if one is not None and place.role == "layer":
            if info.name in one:
                out.append((place, info, [one[info.name]]))
            continue
        rows = [0]
        if matrix:
            count = info.shape[0]
            if place.role in ("embedding", "head") and 0 < vocabulary <= count:
                count = vocabulary
            rows = rows_of(place, count)
        out.append((place, info, rows))
    return out


def _is_weight(name: str) -> bool:
    return name.rpartition(".")[2] not in QUANT_SUFFIXES


def _chosen_experts(found: Iterable[tuple[Place, TensorInfo]]) -> dict[int, int]:
    """Return one expert of each layer that has any."""
    there: dict[int, set[int]] = {}
    for place, _ in found:
        expert = _EXPERT.search(place.name)
        if expert is not None:
            there.setdefault(place.layer, set()).add(int(expert[1]))
    return {
        layer: sorted(ids)[random.Random(f"{SEED}:expert:{layer}").randrange(len(ids))]
        for layer, ids in there.items()
    }


def _one_a_layer(found: Sequence[tuple[Place, TensorInfo]]) -> dict[str, int]:
    """Return, for each layer, one matrix and the norm stored next to it, with the row to read.

    The row is the one that touches the norm, so that one request brings both.
    """
    layers: dict[int, list[TensorInfo]] = {}
    for place, info in found:
        if place.role == "layer" and _EXPERT.search(place.name) is None:
            layers.setdefault(place.layer, []).append(info)
    chosen: dict[str, int] = {}
    for infos in layers.values():
        infos.sort(key=lambda i: (i.file, i.offset))
        pairs = [
            (a, b)
            for a, b in itertools.pairwise(infos)
            if {len(a.shape), len(b.shape)} == {1, 2} and a.file == b.file
        ]
        if pairs:
            first, second = pairs[0]
            norm, matrix = (first, second) if len(first.shape) == 1 else (second, first)
            chosen |= {norm.name: 0, matrix.name: 0 if norm is first else matrix.shape[0] - 1}
        else:
            chosen |= {i.name: 0 for i in infos if len(i.shape) == 2 and not chosen.get(i.name)}
    return chosen


def read_weights(target: Checkpoint, vocabulary: int, quick: bool = False) -> Weights:
    """Read the rows that identify a target's weights.

    Args:
        target: Opened for its headers; of a repository only these rows are fetched.
        vocabulary: Ids in use, so that padding does not move the rows.
        quick: See `wanted`.

    Returns:
        Rows sorted by name. Packed matrices that cannot be read row by row are left out.
    """
    plan = [(p, i, r) for p, i, r in wanted(target, vocabulary, quick) if is_readable(target, i)]
    prefetch(target.reader, [part(i, p.name, row) for p, i, rows in plan for row in rows])
    rows = [read_one(target, p.name, info, row) for p, info, rows in plan for row in rows]
    return Weights(SEED, quick, tuple(sorted(rows, key=lambda row: (row.name, row.index))))


def part(info: TensorInfo, name: str, index: int) -> tuple[TensorInfo, int, int]:
    """Return what is read of a row, for `prefetch`."""
    return (info, *row_bytes(info, index, *span(name, width_of(info))))


def read_one(target: Checkpoint, name: str, info: TensorInfo, index: int) -> Row:
    """Read one row as values, dequantised where its scales are beside it."""
    stored, values = read_row(target, info, index, *span(name, width_of(info)))
    chosen = columns(name, len(values))
    digest = hashlib.sha256(stored).hexdigest()[:16]
    kept = values[chosen].astype("<f4").tolist()
    return Row(name, index, info.shape, info.dtype, digest, tuple(kept))
