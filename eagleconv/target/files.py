"""The small files of a target (tokenizer, templates), from a directory or the Hub."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from eagleconv.checkpoint.checkpoint import Checkpoint
from eagleconv.checkpoint.local import list_files, read_small
from eagleconv.checkpoint.source import parse_hub_id


class Files(Protocol):
    """Files by name, read whole."""

    @property
    def label(self) -> str:
        """What the user named."""

    def has(self, name: str) -> bool:
        """Say whether there is such a file."""

    def names(self) -> tuple[str, ...]:
        """Return the names of all files, sorted."""

    def read(self, name: str) -> bytes:
        """Return the bytes of a file.

        Raises:
            SourceError: It cannot be read.
        """


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Files of a directory."""

    label: str
    root: str

    def has(self, name: str) -> bool:
        """Say whether there is such a file."""
        return os.path.isfile(os.path.join(self.root, name))

    def names(self) -> tuple[str, ...]:
        """Return the names of the files of the directory itself and one folder below, sorted."""
        return tuple(sorted(list_files(self.root, self.root)))

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        return read_small(self.root, name)


@dataclass(frozen=True, slots=True)
class GivenFiles:
    """Files that something else reads: a repository, or a test."""

    label: str
    known: Mapping[str, object]
    get: Callable[[str], bytes]
    _kept: dict[str, bytes] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Say whether there is such a file."""
        return name in self.known

    def names(self) -> tuple[str, ...]:
        """Return the names of all files, sorted."""
        return tuple(sorted(self.known))

    def read(self, name: str) -> bytes:
        """Return the bytes of a file; it is asked for once."""
        if name not in self._kept:
            self._kept[name] = self.get(name)
        return self._kept[name]


def files_of(checkpoint: Checkpoint) -> Files:
    """Return the files beside an opened checkpoint's weights."""
    if checkpoint.root:
        return LocalFiles(checkpoint.source, checkpoint.root)
    from eagleconv.checkpoint.hub import read_file

    hub_id = parse_hub_id(checkpoint.source)
    assert hub_id is not None
    repo, revision = hub_id.repo, checkpoint.revision
    return GivenFiles(
        checkpoint.source,
        checkpoint.other_files,
        lambda name: read_file(checkpoint.source, repo, revision, name),
    )
