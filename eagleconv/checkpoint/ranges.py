"""Tensors of safetensors files, read by range from wherever the files lie."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from eagleconv.checkpoint.checkpoint import TensorInfo, TensorReader
from eagleconv.checkpoint.header import ByteSource

#: File, first byte and length.
Span = tuple[str, int, int]


class RangeReader:
    """A TensorReader over files that are read by range."""

    def __init__(
        self,
        sources: Mapping[str, ByteSource],
        fetch: Callable[[Iterable[Span]], None] | None = None,
    ) -> None:
        """Take over the files; `close` closes them.

        Args:
            sources: The files by `TensorInfo.file`.
            fetch: Makes spans ready, where reading them one by one would be slow.
        """
        self._sources = sources
        self.fetch = fetch

    def chunks(self, tensor: TensorInfo, size: int) -> Iterator[memoryview]:
        """Yield the tensor's bytes, `size` at a time, in one buffer that is filled again."""
        buffer = memoryview(bytearray(min(size, tensor.nbytes)))
        for start in range(0, tensor.nbytes, size):
            piece = buffer[: min(size, tensor.nbytes - start)]
            self.read_into(tensor, start, piece)
            yield piece

    def read_into(self, tensor: TensorInfo, start: int, buffer: memoryview) -> None:
        """Fill `buffer` with the tensor's bytes from `start`."""
        if start < 0 or start + len(buffer) > tensor.nbytes:
            raise ValueError(
                f"{start}+{len(buffer)} is outside the {tensor.nbytes} bytes of {tensor.name!r}"
            )
        self._sources[tensor.file].read_into(tensor.offset + start, buffer)

    def close(self) -> None:
        """Close the files."""
        for source in self._sources.values():
            source.close()


def prefetch(reader: TensorReader, parts: Iterable[tuple[TensorInfo, int, int]]) -> None:
    """Have parts of tensors ready before they are read one by one, if they are far away.

    Args:
        reader: Any; only one over a network does something.
        parts: Tensor, first byte of it, number of bytes.
    """
    if isinstance(reader, RangeReader) and reader.fetch is not None:
        reader.fetch((t.file, t.offset + start, length) for t, start, length in parts)
