"""The header of a safetensors file, read as strictly as the Rust library reads it.

The format: 8 bytes little endian length N, N bytes of JSON, then the tensors' data without hole.

Stricter than safetensors 0.8, where the library takes the last of two answers or a form that
nobody writes: a name or a metadata key given twice, `"__metadata__": null`, a tensor described by
a list instead of an object, a dtype that is not a string, an unknown field that holds a list or an
object.
"""

import os
import stat
import struct
from typing import Any, Protocol

from eagleconv.checkpoint.checkpoint import TensorInfo
from eagleconv.checkpoint.dtypes import BITS
from eagleconv.checkpoint.json_file import load_object
from eagleconv.errors import SourceError

MAX_HEADER = 100_000_000
_MAX_SIZE = 2**64 - 1
_AGAIN = "the file is damaged or incomplete: copy or download it again"
_WRITER = "the file was not written by a safetensors library: write it again with one"


class ByteSource(Protocol):
    """A file of known size that is read by range.

    Attributes:
        size: In bytes.
        label: Name relative to the checkpoint, used in messages and as `TensorInfo.file`.
    """

    size: int
    label: str

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset`, or raise SourceError."""
        ...

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` with the bytes from `offset`, or raise SourceError."""
        ...

    def close(self) -> None:
        """Release the file."""
        ...


class LocalFile:
    """A regular file, read with pread: one that shrinks meanwhile is an error, not a crash."""

    def __init__(self, path: str, label: str) -> None:
        """Open the file.

        Raises:
            SourceError: It cannot be opened, or is not a regular file.
        """
        self.label = label
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise SourceError(f"{label} is not a regular file")
            self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise unreadable(label, error) from None
        self.size = os.fstat(self._fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset`."""
        try:
            data = os.pread(self._fd, length, offset)
        except OSError as error:
            raise unreadable(self.label, error) from None
        if len(data) == length:
            return data
        rest = bytearray(length)
        self.read_into(offset, memoryview(rest))
        return bytes(rest)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` with the bytes from `offset`."""
        done = 0
        while done < len(buffer):
            try:
                count = os.preadv(self._fd, [buffer[done:]], offset + done)
            except OSError as error:
                raise unreadable(self.label, error) from None
            if count == 0:
                raise SourceError(
                    f"{self.label} is shorter than the {self.size} bytes it had when it was opened",
                    "something changed it while it was read: run again when it is complete",
                )
            done += count

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def unreadable(label: str, error: OSError) -> SourceError:
    """Return the one sentence for a file that the system does not give us."""
    if isinstance(error, FileNotFoundError):
        return SourceError(f"{label}: no such file or directory")
    if isinstance(error, PermissionError):
        return SourceError(f"{label}: permission denied", "make it readable for this user")
    reason = (error.strerror or str(error)).lower()
    return SourceError(f"{label} cannot be read: {reason}")


def parse_header(source: ByteSource) -> tuple[list[TensorInfo], dict[str, str]]:
    """Read and check the header.

    Args:
        source: The file.

    Returns:
        The tensors in the order of their data, with offsets that count from the start of the
        file, and `__metadata__`.

    Raises:
        SourceError: Anything in the header that is not so.
    """
    label = source.label
    header, start = _read_json(source)
    metadata = _metadata(header.pop("__metadata__", {}), label)
    ranges: list[tuple[int, int, TensorInfo]] = []
    for name, entry in header.items():
        ranges.append(_tensor(name, entry, label, start))
    ranges.sort(key=lambda item: item[:2])
    end = 0
    for first, last, tensor in ranges:
        if first != end:
            what = "overlaps the tensor before it" if first < end else "leaves a hole before it"
            raise SourceError(
                f"{label}: tensor {tensor.name!r} {what} (data starts at {first}, expected {end})",
                _WRITER,
            )
        end = last
    held = source.size - start
    if end != held:
        what = "is cut off" if held < end else "holds bytes that belong to no tensor"
        raise SourceError(
            f"{label} {what}: {held} bytes of data, the header describes {end}", _AGAIN
        )
    return [tensor for _, _, tensor in ranges], metadata


def _read_json(source: ByteSource) -> tuple[dict[str, Any], int]:
    label = source.label
    if source.size < 8:
        raise SourceError(
            f"{label} holds {source.size} bytes, too few for a safetensors file", _AGAIN
        )
    (length,) = struct.unpack("<Q", source.read(0, 8))
    if length > MAX_HEADER or length > source.size - 8:
        start = source.read(0, min(source.size, 64))
        if start.startswith(b"version https://git-lfs"):
            raise SourceError(
                f"{label} is a Git LFS pointer, not the file itself", "run: git lfs pull"
            )
        limit = min(MAX_HEADER, source.size - 8)
        raise SourceError(
            f"{label}: header length is {length} bytes, at most {limit} are possible", _AGAIN
        )
    return load_object(source.read(8, length), f"header of {label}"), 8 + length


def _metadata(value: Any, label: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise SourceError(f"{label}: __metadata__ is not an object of strings", _WRITER)
    for key, text in value.items():
        if not isinstance(text, str):
            raise SourceError(f"{label}: __metadata__ key {key!r} is not a string", _WRITER)
    return value


def _tensor(name: str, entry: Any, label: str, start: int) -> tuple[int, int, TensorInfo]:
    where = f"{label}: tensor {name!r}"
    if not isinstance(entry, dict):
        raise SourceError(f"{where} is not described by an object", _WRITER)
    for key in ("dtype", "shape", "data_offsets"):
        if key not in entry:
            raise SourceError(f"{where} has no {key}", _WRITER)
    for key, value in entry.items():
        if key not in ("shape", "data_offsets") and isinstance(value, (list, dict)):
            raise SourceError(f"{where}: {key} is a list or an object", _WRITER)
    dtype = entry["dtype"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise SourceError(
            f"{where} has dtype {dtype!r}, known are {', '.join(BITS)}",
            "a newer eagleconv may know it",
        )
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _sizes(shape):
        raise SourceError(f"{where} has shape {shape!r}, expected a list of sizes", _WRITER)
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise SourceError(f"{where} has data_offsets {offsets!r}, expected [begin, end]", _WRITER)
    bits = _checked_bits(dtype, shape)
    if bits is None:
        raise SourceError(
            f"{where}: shape {shape} has more elements than can be addressed", _WRITER
        )
    if bits % 8:
        raise SourceError(f"{where}: {dtype} of shape {shape} does not end on a byte", _WRITER)
    first, last = offsets
    if last - first != bits // 8:
        raise SourceError(
            f"{where}: {dtype} of shape {shape} takes {bits // 8} bytes, not {last - first}",
            _WRITER,
        )
    return first, last, TensorInfo(name, dtype, tuple(shape), last - first, label, start + first)


def _sizes(value: Any) -> bool:
    # bool is an int for isinstance, not for us; 1.0 and -0 arrive as float.
    return isinstance(value, list) and all(
        type(size) is int and 0 <= size <= _MAX_SIZE for size in value
    )


def _checked_bits(dtype: str, shape: list[int]) -> int | None:
    """Return the size in bits, or None where the library's 64-bit product overflows on the way."""
    product = 1
    for size in (*shape, BITS[dtype]):
        product *= size
        if product > _MAX_SIZE:
            return None
    return product
