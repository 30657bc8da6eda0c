"""How tensors lie in safetensors files: shards, order, header."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eagleconv.checkpoint.checkpoint import TensorInfo, TensorReader
from eagleconv.checkpoint.dtypes import BITS, nbytes
from eagleconv.checkpoint.json_file import dump_json
from eagleconv.checkpoint.weight_files import SAFETENSORS_INDEX
from eagleconv.errors import ConversionError


class TensorEntry(NamedTuple):
    """One tensor to write.

    Attributes:
        name: In the output.
        dtype: A safetensors dtype name.
        shape: Sizes, outermost first.
        data: Where its bytes come from, or the bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: tuple[TensorReader, TensorInfo] | bytes


@dataclass(frozen=True, slots=True)
class TensorFile:
    """One safetensors file to write.

    Attributes:
        name: Of the file.
        entries: Its tensors in the order of their data.
        header: Its first bytes, up to the data.
        size: Of the whole file.
    """

    name: str
    entries: tuple[TensorEntry, ...]
    header: bytes
    size: int


def plan_files(
    entries: Iterable[TensorEntry], metadata: Mapping[str, str], max_shard_bytes: int
) -> list[TensorFile]:
    """Distribute tensors over files.

    Args:
        entries: The tensors.
        metadata: `__metadata__` of every file; `format` is set to `pt` where it is missing.
        max_shard_bytes: Most bytes of tensors in one file; a larger tensor has a file of its own.

    Returns:
        `model.safetensors`, or shards in the order of the tensors.

    Raises:
        ConversionError: A name is given twice, or a tensor's bytes do not fit its dtype and shape.
    """
    shards: list[list[TensorEntry]] = [[]]
    held = 0
    names: set[str] = set()
    for entry in entries:
        size = _check(entry, names)
        names.add(entry.name)
        if held + size > max_shard_bytes and shards[-1]:
            shards.append([])
            held = 0
        held += size
        shards[-1].append(entry)
    if len(shards) == 1:
        return [_file("model.safetensors", shards[0], metadata)]
    return [
        _file(f"model-{number:05d}-of-{len(shards):05d}.safetensors", shard, metadata)
        for number, shard in enumerate(shards, 1)
    ]


def index_bytes(files: Sequence[TensorFile]) -> bytes:
    """Return `model.safetensors.index.json` of these shards."""
    total = sum(data_size(entry) for file in files for entry in file.entries)
    weight_map = {entry.name: file.name for file in files for entry in file.entries}
    return dump_json({"metadata": {"total_size": total}, "weight_map": weight_map})


INDEX_NAME = SAFETENSORS_INDEX


def data_size(entry: TensorEntry) -> int:
    """Return the number of bytes of the tensor's data."""
    return len(entry.data) if isinstance(entry.data, bytes) else entry.data[1].nbytes


def _check(entry: TensorEntry, names: set[str]) -> int:
    if entry.name in names or entry.name == "__metadata__":
        raise ConversionError(f"tensor name {entry.name!r} cannot be written twice or at all")
    if entry.dtype not in BITS:
        raise ConversionError(f"tensor {entry.name!r} has dtype {entry.dtype!r}, which no file has")
    expected = nbytes(entry.dtype, entry.shape)
    size = data_size(entry)
    if size != expected:
        raise ConversionError(
            f"tensor {entry.name!r} has {size} bytes; {entry.dtype} of shape {list(entry.shape)} "
            f"takes {expected if expected is not None else 'no whole number of them'}"
        )
    return size


def _file(name: str, entries: list[TensorEntry], metadata: Mapping[str, str]) -> TensorFile:
    # Wide dtypes first: then every tensor starts at a multiple of its own width, which readers that
    # view the bytes in place need.
    ordered = sorted(entries, key=lambda entry: -BITS[entry.dtype])
    described: dict[str, object] = {"__metadata__": {"format": "pt", **metadata}}
    end = 0
    for entry in ordered:
        start, end = end, end + data_size(entry)
        described[entry.name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    return TensorFile(name, tuple(ordered), header, len(header) + end)
