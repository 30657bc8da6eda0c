"""The part of `eagleconv.json` that is about bytes: a digest and a size for every file.

    "files": {"config.json": {"sha256": "…", "size": 1234}, …}

Names are relative to the directory, with `/`. `eagleconv.json` itself is not among them.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eagleconv.checkpoint.header import LocalFile
from eagleconv.errors import SourceError

_PIECE = 4 << 20
_WEIGHTS = (".safetensors", ".bin", ".pt", ".safetensors.index.json", ".bin.index.json")


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What is recorded of one file.

    Attributes:
        sha256: Digest in hexadecimal.
        size: In bytes.
    """

    sha256: str
    size: int


def read_records(manifest: Mapping[str, Any]) -> dict[str, FileRecord]:
    """Return the records of a parsed manifest.

    Raises:
        SourceError: `files` is missing, or a record has another form.
    """
    files = manifest.get("files")
    if not isinstance(files, dict) or not files:
        raise SourceError("it lists no files")
    records = {}
    for name, entry in files.items():
        digest, size = (
            (entry.get("sha256"), entry.get("size")) if isinstance(entry, dict) else (None, None)
        )
        if not isinstance(digest, str) or len(digest) != 64 or type(size) is not int or size < 0:
            raise SourceError(f"its record of {name!r} is not a sha256 and a size")
        if name.startswith("/") or ".." in name.split("/"):
            raise SourceError(f"its record {name!r} is not inside the directory")
        records[name] = FileRecord(digest, size)
    return records


def write_records(records: Mapping[str, FileRecord]) -> dict[str, dict[str, Any]]:
    """Return the value of `files`."""
    return {
        name: {"sha256": record.sha256, "size": record.size}
        for name, record in sorted(records.items())
    }


def hash_file(path: str, label: str, progress: Callable[[int], None] | None = None) -> FileRecord:
    """Hash a file in constant memory.

    Args:
        path: The file.
        label: Its name, for the error.
        progress: Called with the number of bytes of each piece.

    Raises:
        SourceError: It cannot be read.
    """
    import hashlib

    digest = hashlib.sha256()
    file = LocalFile(path, label)
    try:
        buffer = memoryview(bytearray(min(_PIECE, file.size)))
        for start in range(0, file.size, _PIECE):
            piece = buffer[: min(_PIECE, file.size - start)]
            file.read_into(start, piece)
            digest.update(piece)
            if progress is not None:
                progress(len(piece))
        return FileRecord(digest.hexdigest(), file.size)
    finally:
        file.close()


def describes(
    manifest: Mapping[str, Any],
    sizes: Mapping[str, int],
    config: bytes,
    weight_files: Iterable[str],
) -> str:
    """Say why a manifest is not about these files, without hashing the weights.

    Args:
        manifest: Parsed `eagleconv.json`.
        sizes: The files beside it with their sizes.
        config: The bytes of config.json.
        weight_files: The files the weights are read from.

    Returns:
        The reason; empty where config.json has the recorded digest and every weight file the
        recorded size.
    """
    import hashlib

    records = read_records(manifest)
    for name in ("config.json", *weight_files):
        if name not in records:
            return f"it does not list {name}"
    digest = hashlib.sha256(config).hexdigest()
    if records["config.json"] != FileRecord(digest, len(config)):
        return "config.json changed since it was written"
    for name in weight_files:
        if sizes.get(name) != records[name].size:
            return f"{name} changed since it was written"
    return ""


def verify_files(
    root: str, manifest: Mapping[str, Any], progress: Callable[[int], None] | None = None
) -> list[str]:
    """Hold every file of a directory against its manifest, all bytes of it.

    Args:
        root: The directory.
        manifest: Parsed `eagleconv.json`.
        progress: Called with the number of bytes of each piece that was hashed.

    Returns:
        One sentence per problem: a file that is missing, has another size or other bytes, or
        weights that the manifest does not list.
    """
    from eagleconv.checkpoint.local import list_files

    try:
        records = read_records(manifest)
    except SourceError as error:
        return [f"eagleconv.json cannot be used: {error.message}"]
    problems = []
    for name, record in records.items():
        path = os.path.join(root, name)
        if not os.path.lexists(path):
            problems.append(f"{name} is missing")
            continue
        try:
            size = os.stat(path).st_size
            if size != record.size:
                problems.append(f"{name} is {size} bytes, recorded are {record.size}")
            elif hash_file(path, name, progress) != record:
                problems.append(f"{name} has other bytes than were recorded (sha256 differs)")
        except (SourceError, OSError) as error:
            problems.append(str(error))
    for name in list_files(root, root):
        if name not in records and name.endswith(_WEIGHTS):
            problems.append(f"{name} is not recorded, but a reader may take it for weights")
    return problems
