"""The atomic output: every byte verified, and nothing at the destination before all of it is there.

Files are written without a name (O_TMPFILE) where the file system can, so that even a process that
is killed leaves nothing behind; they get their names in a work directory, which is then renamed.
"""

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType

from eagleconv.checkpoint.checkpoint import TensorInfo, TensorReader
from eagleconv.checkpoint.copy_stream import CopyStream, write_error
from eagleconv.checkpoint.header import LocalFile, parse_header
from eagleconv.checkpoint.manifest import FileRecord
from eagleconv.checkpoint.tensor_file import (
    INDEX_NAME,
    TensorEntry,
    TensorFile,
    data_size,
    index_bytes,
    plan_files,
)
from eagleconv.checkpoint.uninterrupted import uninterrupted
from eagleconv.checkpoint.work_directory import WorkDirectory, remove_stale, sync_directory
from eagleconv.errors import ConversionError

MANIFEST = "eagleconv.json"
MAX_SHARD = 5_000_000_000
#: So many files without a name are held open; more than that get their names early.
_MAX_UNNAMED = 128

Entry = TensorEntry | tuple[str, str, tuple[int, ...], tuple[TensorReader, TensorInfo] | bytes]


class OutputDirectory:
    """A directory that is written as a whole, or not at all.

    with OutputDirectory(destination, source=root) as output:
        output.add_bytes("config.json", data)
        output.add_tensors(entries, {})
        output.commit(lambda records: manifest_bytes(records))
    """

    def __init__(
        self,
        destination: str,
        source: str = "",
        progress: Callable[[int], None] | None = None,
        read_back: bool = False,
    ) -> None:
        """Take note; nothing is touched before `with`.

        Args:
            destination: Path that does not exist, or is an empty directory.
            source: Directory that is read, which must not contain the destination; may be empty.
            progress: Called with the number of bytes of each piece that was written.
            read_back: Read every byte back from the disk; else two blocks of every 16 MiB.
        """
        self._destination = destination
        self._source = source
        self._progress = progress
        self._read_back = read_back
        self._parent, self._name = os.path.split(os.path.abspath(destination))
        self._parent = os.path.realpath(self._parent)
        self._path = os.path.join(self._parent, self._name)
        self._work: WorkDirectory | None = None
        self._unnamed: dict[str, int] = {}
        self._records: dict[str, FileRecord] = {}
        self._tensor_files: dict[str, TensorFile] = {}

    def __enter__(self) -> "OutputDirectory":
        """Check the destination and remove what killed processes left beside it.

        Raises:
            ConversionError: The destination exists, is in the source, or cannot be written.
        """
        self._check_destination()
        remove_stale(self._parent, self._name)
        self._work = WorkDirectory(self._parent, self._name)
        if can_be_unnamed(self._parent):
            # Made only to learn now, not after gigabytes, that it can be.
            self._work.remove()
            self._work = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove everything that was not committed."""
        try:
            for fd in self._unnamed.values():
                os.close(fd)
            self._unnamed.clear()
        finally:
            if self._work is not None:
                self._work.remove()

    @property
    def records(self) -> Mapping[str, FileRecord]:
        """Digest and size of every file added so far."""
        return self._records

    def add_bytes(self, name: str, data: bytes) -> FileRecord:
        """Write a small file."""
        return self._write(name, len(data), lambda stream: stream.put(data))

    def add_file(self, name: str, source_path: str) -> FileRecord:
        """Copy a file as it is now."""
        source = LocalFile(source_path, name)

        def copy(stream: CopyStream) -> None:
            done = 0
            while done < source.size:
                room = stream.space(source.size - done)
                source.read_into(done, room)
                stream.filled(len(room))
                done += len(room)

        try:
            return self._write(name, source.size, copy)
        finally:
            source.close()

    def add_tensors(
        self,
        entries: Iterable[Entry],
        metadata: Mapping[str, str],
        max_shard_bytes: int = MAX_SHARD,
    ) -> tuple[str, ...]:
        """Write tensors as `model.safetensors`, or as shards and their index.

        Args:
            entries: Name, dtype, shape and data of each tensor, in the order they are wanted.
            metadata: `__metadata__`; `format` is `pt` unless given.
            max_shard_bytes: Most bytes of tensors in one file.

        Returns:
            Names of the files written.

        Raises:
            ConversionError: An entry contradicts itself, or the disk does not take it.
            SourceError: The source changed or failed while it was read.
        """
        files = plan_files((TensorEntry(*entry) for entry in entries), metadata, max_shard_bytes)
        for file in files:
            self._write(file.name, file.size, partial(_put_tensors, file=file))
            self._tensor_files[file.name] = file
        names = [file.name for file in files]
        if len(files) > 1:
            self.add_bytes(INDEX_NAME, index_bytes(files))
            names.append(INDEX_NAME)
        return tuple(names)

    def commit(
        self,
        manifest: Callable[[Mapping[str, FileRecord]], bytes],
        on_written: Callable[[], None] | None = None,
    ) -> None:
        """Write `eagleconv.json`, check everything by reopening it, and rename into place.

        Args:
            manifest: Gives the bytes of `eagleconv.json` for the records of all other files.
            on_written: Called the moment the output is in place, before any signal is heard again.

        Raises:
            ConversionError: A file is not what was asked for, or the destination has appeared.
        """
        data = manifest(dict(self._records))
        self._write(MANIFEST, len(data), lambda stream: stream.put(data))
        work = self._name_files()
        folders = {os.path.dirname(os.path.join(work.path, name)) for name in self._records}
        for name, record in self._records.items():
            self._check_written(os.path.join(work.path, name), name, record)
        for folder in sorted(folders | {work.path}, reverse=True):
            sync_directory(folder)
        if os.path.isdir(self._path):
            os.chmod(work.path, stat.S_IMODE(os.stat(self._path).st_mode))
        with uninterrupted():
            work.publish(self._path)
            if on_written is not None:
                on_written()

    def _check_destination(self) -> None:
        shown = self._destination
        if not self._name:
            raise ConversionError(f"{shown} cannot be an output directory", "give a new name")
        if not os.path.isdir(self._parent):
            raise ConversionError(
                f"{shown} cannot be made: {self._parent} is not a directory", "make it first"
            )
        if self._source:
            source = os.path.realpath(self._source)
            if os.path.join(os.path.realpath(self._path), "").startswith(os.path.join(source, "")):
                raise ConversionError(
                    f"{shown} is inside the source {self._source}, which is never touched",
                    "give a directory outside of it",
                )
        if not os.path.lexists(self._path):
            return
        if os.path.islink(self._path) or not os.path.isdir(self._path):
            raise ConversionError(f"{shown} exists and is not a directory", "give another -o")
        try:
            with os.scandir(self._path) as entries:
                empty = next(entries, None) is None
        except OSError as error:
            raise write_error(shown, error) from None
        if not empty:
            raise ConversionError(
                f"{shown} exists and is not empty; nothing is ever overwritten",
                "give another -o, or remove it first",
            )
        if os.path.ismount(self._path) or self._path == os.path.realpath(os.curdir):
            raise ConversionError(
                f"{shown} is a mount point or the current directory and cannot be replaced",
                "give a new directory inside it",
            )

    def _write(self, name: str, size: int, produce: Callable[[CopyStream], None]) -> FileRecord:
        parts = name.split("/")
        if name in self._records or MANIFEST in self._records or {"", ".", ".."} & {*parts}:
            raise ConversionError(f"{name!r} cannot be added to the output twice or at all")
        if name == MANIFEST and not self._records:
            raise ConversionError("an output without files is not written")
        fd = self._create(name)
        try:
            with CopyStream(fd, name, size, self._progress, self._read_back) as stream:
                produce(stream)
                record = stream.finish()
        except BaseException:
            os.close(fd)
            raise
        self._records[name] = record
        if self._work is not None:
            os.close(fd)
            return record
        self._unnamed[name] = fd
        if len(self._unnamed) >= _MAX_UNNAMED:
            self._name_files()
        return record

    def _create(self, name: str) -> int:
        try:
            if self._work is None:
                return os.open(self._parent, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o666)
            path = os.path.join(self._work.path, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise write_error(name, error) from None

    def _name_files(self) -> WorkDirectory:
        """Give the files that have none a name in the work directory."""
        if self._work is None:
            self._work = WorkDirectory(self._parent, self._name)
        for name, fd in list(self._unnamed.items()):
            path = os.path.join(self._work.path, name)
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                # A directory descriptor makes Python call linkat, which follows the link in /proc.
                os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
            except OSError as error:
                raise write_error(name, error) from None
            os.close(self._unnamed.pop(name))
        return self._work

    def _check_written(self, path: str, name: str, record: FileRecord) -> None:
        file = LocalFile(path, name)
        try:
            if file.size != record.size:
                raise ConversionError(f"{name} is {file.size} bytes, {record.size} were written")
            if name not in self._tensor_files:
                return
            asked = self._tensor_files[name]
            found = [(t.name, t.dtype, t.shape) for t in parse_header(file)[0]]
            if sorted(found) != sorted((e.name, e.dtype, tuple(e.shape)) for e in asked.entries):
                raise ConversionError(f"{name} does not hold the tensors that were written to it")
        finally:
            file.close()


def can_be_unnamed(parent: str) -> bool:
    """Say whether files can be written in this directory before they have a name."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return False
    try:
        os.close(os.open(parent, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o666))
    except OSError:
        return False
    return True


def _put_tensors(stream: CopyStream, file: TensorFile) -> None:
    stream.put(file.header)
    for entry in file.entries:
        if isinstance(entry.data, bytes):
            stream.put(entry.data)
            continue
        reader, info = entry.data
        done, size = 0, data_size(entry)
        while done < size:
            room = stream.space(size - done)
            reader.read_into(info, done, room)
            stream.filled(len(room))
            done += len(room)
