"""What a checkpoint is to the rest of the house: a config, named bytes, the files beside them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One stored tensor.

    Attributes:
        name: As stored.
        dtype: A safetensors dtype name (`F16`, `BF16`, `F8_E4M3`, `I64`, `BOOL`, ...).
        shape: Sizes, outermost first.
        nbytes: Size of the data in bytes.
        file: File that holds it, relative to the checkpoint.
        offset: First byte of the data in that file; -1 where the file is a pickle.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    file: str
    offset: int


class TensorReader(Protocol):
    """Bytes of tensors, in pieces, wherever they lie."""

    def chunks(self, tensor: TensorInfo, size: int) -> Iterator[memoryview]:
        """Yield the tensor's bytes, little endian and row major, `size` bytes at a time.

        A yielded view is valid until the next one is asked for.
        """
        ...

    def read_into(self, tensor: TensorInfo, start: int, buffer: memoryview) -> None:
        """Fill `buffer` with the tensor's bytes from byte `start` of it."""
        ...

    def close(self) -> None:
        """Release files and memory maps."""
        ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened checkpoint. Nothing is read from it but headers and small files.

    Attributes:
        source: As the user named it.
        root: Local directory that holds the files; empty for a remote checkpoint read by range.
        revision: Commit sha for a Hub source, else empty.
        config: Parsed config.json ({} where the side files of a trainer carry none).
        tensors: Every stored tensor by name, in the order of the files.
        metadata: Merged `__metadata__` of the safetensors headers.
        weight_files: Files that hold the tensors, and the index if there is one.
        other_files: All other regular files beside them, relative names, with their sizes.
        side_data: What a trainer's side files say beyond tensors, as plain values.
        form: `safetensors`, `pickle` or `side files`.
        reader: Gives the bytes.
        manifest: The `eagleconv.json` beside the weights, when it describes these very files.
        notes: Sentences about the files that a reader should see (index missing, ...).
        digests: sha256 of weight files, where the Hub tells it.
    """

    source: str
    root: str
    revision: str
    config: dict[str, Any]
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    weight_files: tuple[str, ...]
    other_files: Mapping[str, int]
    side_data: Mapping[str, Any]
    form: str
    reader: TensorReader
    manifest: dict[str, Any] | None
    notes: tuple[str, ...]
    digests: Mapping[str, str] = field(default_factory=dict)

    def read(self, name: str) -> bytes:
        """Return all bytes of one tensor. For small tensors: d2t, t2d, norms."""
        return b"".join(bytes(part) for part in self.reader.chunks(self.tensors[name], 1 << 20))

    def close(self) -> None:
        """Release files and memory maps."""
        self.reader.close()
