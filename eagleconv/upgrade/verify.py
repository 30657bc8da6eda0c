"""Hold an output against its manifest: files by digest, tensors by name."""

import os
from dataclasses import dataclass

from eagleconv.checkpoint.json_file import load_object
from eagleconv.checkpoint.local import MANIFEST, open_local
from eagleconv.checkpoint.manifest import verify_files
from eagleconv.errors import SourceError


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of `verify`.

    Attributes:
        problems: One sentence each; empty where everything is as recorded.
        files: Files checked.
        tensors: Tensors accounted for.
    """

    problems: tuple[str, ...]
    files: int
    tensors: int


def verify(directory: str) -> Verified:
    """Check a directory that eagleconv wrote.

    Raises:
        SourceError: It has no eagleconv.json, or cannot be read.
    """
    path = os.path.join(directory, MANIFEST)
    try:
        with open(path, "rb") as file:
            manifest = load_object(file.read(), path)
    except FileNotFoundError:
        raise SourceError(
            f"{directory} has no {MANIFEST}: nothing to verify it against",
            "verify what eagleconv wrote, or inspect other checkpoints",
        ) from None
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from None
    problems = verify_files(directory, manifest)
    recorded = manifest.get("tensors")
    count = 0
    if not isinstance(recorded, dict) or not recorded:
        problems.append(f"{MANIFEST} accounts for no tensors")
    elif not problems:
        checkpoint = open_local(directory)
        try:
            count = len(checkpoint.tensors)
            for name in checkpoint.tensors:
                if name not in recorded:
                    problems.append(f"tensor {name} is not accounted for in {MANIFEST}")
            for name in recorded:
                if name not in checkpoint.tensors:
                    problems.append(f"tensor {name} is recorded, but not there")
        finally:
            checkpoint.close()
    files = manifest.get("files")
    return Verified(tuple(problems), len(files) if isinstance(files, dict) else 0, count)
