"""Makes the files that the tests of this folder read: safetensors bytes written by hand."""

import json
import struct
from pathlib import Path
from typing import Any

from eagleconv.checkpoint.dtypes import BITS


def entry(dtype: str, shape: list[int], start: int) -> dict[str, Any]:
    """Return the header entry of a tensor whose data starts at `start`."""
    bits = BITS[dtype]
    for size in shape:
        bits *= size
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, start + bits // 8]}


def pack(header: dict[str, Any] | bytes, data: bytes = b"") -> bytes:
    """Return a file of this header, right or wrong, and this data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def model(
    tensors: dict[str, tuple[str, list[int]]], metadata: dict[str, str] | None = None
) -> bytes:
    """Return a valid file of these tensors; byte k of the data is k mod 251."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for name, (dtype, shape) in tensors.items():
        header[name] = entry(dtype, shape, end)
        end = header[name]["data_offsets"][1]
    return pack(header, bytes(k % 251 for k in range(end)))


SMALL = {"a.weight": ("BF16", [2, 3]), "b.weight": ("F32", [4])}


def checkpoint(root: Path, files: dict[str, bytes] | None = None, config: Any = None) -> Path:
    """Write a directory of these files; by default config.json and one valid model.safetensors."""
    root.mkdir(parents=True, exist_ok=True)
    if config is not False:
        (root / "config.json").write_text(json.dumps(config or {"model_type": "llama"}))
    for name, data in ({"model.safetensors": model(SMALL)} if files is None else files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def index(weight_map: dict[str, str]) -> bytes:
    """Return an index file."""
    return json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}).encode()
