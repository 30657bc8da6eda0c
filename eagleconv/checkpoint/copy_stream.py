"""Bytes on their way into a new file: hashed, written and checked, in constant memory.

The main thread reads the source, a second one hashes, a third writes. Large files are written past
the page cache where the file system can (O_DIRECT): that costs half the processor time, starts the
disk at once, and leaves the final fsync little to wait for.
"""

import errno
import mmap
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType

from eagleconv.checkpoint.manifest import FileRecord
from eagleconv.errors import ConversionError, EagleconvError

PIECE = 16 << 20
PIECES = 4
#: Files from this size on are written past the page cache.
DIRECT_FROM = 32 << 20
#: Direct writes start and end at multiples of it, in the file and in memory.
BLOCK = 4096


def write_error(label: str, error: OSError) -> EagleconvError:
    """Return the one sentence for a file that the system does not let us write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ConversionError(
            f"disk full while writing {label}", "free space there, or give another -o"
        )
    if error.errno == errno.EFBIG:
        return ConversionError(
            f"{label} is larger than the file system or the file size limit (ulimit -f) allows",
            "give another -o",
        )
    if isinstance(error, PermissionError):
        return ConversionError(f"{label} cannot be written: permission denied", "give another -o")
    reason = (error.strerror or str(error)).lower()
    return ConversionError(f"{label} cannot be written: {reason}")


class CopyStream:
    """One new file. Use as a context manager, which ends the threads whatever happens."""

    def __init__(
        self,
        fd: int,
        label: str,
        size: int = PIECE * PIECES,
        progress: Callable[[int], None] | None = None,
        read_back: bool = False,
    ) -> None:
        """Start the threads.

        Args:
            fd: An empty file, open for reading and writing; it stays open.
            label: Its name, for errors.
            size: So many bytes will come; a small file needs few buffers.
            progress: Called with the number of bytes of each piece that is on its way to the disk.
            read_back: Read all bytes back from the disk and compare them; else the first and the
                last block of each piece.
        """
        import hashlib

        self._fd = fd
        self._label = label
        self._progress = progress
        self._read_back = read_back
        self._digest = hashlib.sha256()
        self._size = 0
        self._error: BaseException | None = None
        count = min(PIECES, size // PIECE + 2)
        length = min(PIECE, -(-max(size, 1) // BLOCK) * BLOCK)
        self._pieces = [mmap.mmap(-1, length) for _ in range(count)]
        self._back = mmap.mmap(-1, length)
        self._free: SimpleQueue[int] = SimpleQueue()
        self._to_hash: SimpleQueue[memoryview | None] = SimpleQueue()
        self._hashed: SimpleQueue[bool] = SimpleQueue()
        self._to_write: SimpleQueue[tuple[int, int, memoryview] | None] = SimpleQueue()
        for number in range(1, count):
            self._free.put(number)
        self._number = 0
        self._used = 0
        self._direct = size >= DIRECT_FROM and self._reserve(size)
        self._threads = [
            threading.Thread(target=self._hash, daemon=True),
            threading.Thread(target=self._write, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "CopyStream":
        """Return the stream."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the threads; nothing uses the file afterwards."""
        self._stop()

    def space(self, limit: int) -> memoryview:
        """Return room for at most `limit` bytes, at least one; say with `filled` how many came."""
        return memoryview(self._pieces[self._number])[self._used : self._used + limit]

    def filled(self, count: int) -> None:
        """Take the first `count` bytes of the last `space` as the next bytes of the file."""
        self._used += count
        if self._used == len(self._pieces[0]):
            self._pass_on()

    def put(self, data: bytes) -> None:
        """Append bytes."""
        view = memoryview(data)
        while view:
            room = self.space(len(view))
            room[:] = view[: len(room)]
            view = view[len(room) :]
            self.filled(len(room))

    def finish(self) -> FileRecord:
        """Write what is left, wait for the disk, and return the digest.

        Raises:
            ConversionError: The file could not be written, or reads back as something else.
        """
        if self._used:
            self._pass_on()
        self._stop()
        self._raise()
        try:
            os.ftruncate(self._fd, self._size)
            os.fsync(self._fd)
        except OSError as error:
            raise write_error(self._label, error) from None
        return FileRecord(self._digest.hexdigest(), self._size)

    def _pass_on(self) -> None:
        piece = memoryview(self._pieces[self._number])[: self._used]
        self._to_hash.put(piece)
        self._to_write.put((self._number, self._size, piece))
        self._size += self._used
        self._used = 0
        self._number = self._free.get()
        self._raise()
        if self._progress is not None:
            self._progress(len(piece))

    def _hash(self) -> None:
        while (piece := self._to_hash.get()) is not None:
            self._digest.update(piece)
            self._hashed.put(True)

    def _write(self) -> None:
        while (item := self._to_write.get()) is not None:
            number, start, piece = item
            if self._error is None:
                try:
                    self._write_piece(start, piece)
                except BaseException as error:
                    self._error = error
            self._hashed.get()
            self._free.put(number)

    def _write_piece(self, start: int, piece: memoryview) -> None:
        done = 0
        while done < len(piece):
            if self._direct and (start + done) % BLOCK == 0 and len(piece) - done >= BLOCK:
                stop = done + (len(piece) - done) // BLOCK * BLOCK
            else:
                self._go_indirect()
                stop = len(piece)
            try:
                done += os.pwrite(self._fd, piece[done:stop], start + done)
            except OSError as error:
                if error.errno != errno.EINVAL or not self._direct:
                    raise
                self._go_indirect()
        size = len(piece)
        for first, last in ((0, size),) if self._read_back else ((0, BLOCK), (size - BLOCK, size)):
            self._compare(start, piece, max(0, first) // BLOCK * BLOCK, min(last, size))

    def _compare(self, start: int, piece: memoryview, first: int, last: int) -> None:
        while first < last:
            room = memoryview(self._back)[: -(-(last - first) // BLOCK) * BLOCK]
            count = min(os.preadv(self._fd, [room], start + first), last - first)
            # Bytes compare with memcmp, memoryviews element by element.
            if count == 0 or self._back[:count] != piece[first : first + count]:
                raise ConversionError(
                    f"{self._label} reads back differently from byte {start + first} on",
                    "check the disk and the memory of this machine",
                )
            first += count

    def _reserve(self, size: int) -> bool:
        """Reserve the space, which tells now whether the disk is full, and go past the cache."""
        import fcntl

        failed = _fallocate(self._fd, size)
        if failed in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise write_error(self._label, OSError(failed, os.strerror(failed)))
        try:
            flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
            fcntl.fcntl(self._fd, fcntl.F_SETFL, flags | getattr(os, "O_DIRECT", 0))
        except OSError:
            return False
        return hasattr(os, "O_DIRECT")

    def _go_indirect(self) -> None:
        if self._direct:
            import fcntl

            flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
            fcntl.fcntl(self._fd, fcntl.F_SETFL, flags & ~os.O_DIRECT)
            self._direct = False

    def _raise(self) -> None:
        if isinstance(self._error, OSError):
            raise write_error(self._label, self._error) from None
        if self._error is not None:
            raise self._error

    def _stop(self) -> None:
        self._to_hash.put(None)
        self._to_write.put(None)
        for thread in self._threads:
            thread.join()


def _fallocate(fd: int, size: int) -> int:
    """Reserve space; return the error number, 0 for success.

    Not os.posix_fallocate: where the file system cannot, that writes a byte into every block.
    """
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).fallocate
    except (AttributeError, OSError):
        return errno.ENOSYS
    if ctypes.sizeof(ctypes.c_long) != 8:
        return errno.ENOSYS
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return ctypes.get_errno() if call(fd, 0, 0, size) else 0
