"""Files of a repository, read by byte range: few requests, each checked, none larger than asked.

A round trip costs as much as some tens of kilobytes, so neighbouring parts are asked for at once,
and what is known to be wanted soon is fetched together, a few requests at a time.
"""

import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from eagleconv.checkpoint.hub_errors import hub_errors, is_transport
from eagleconv.checkpoint.local import MAX_JSON
from eagleconv.errors import SourceError

#: So much of each file is asked for first: the header of a drafter fits.
HEAD = 1 << 16
#: Parts that lie closer are one request.
_GAP = 1 << 16
#: Requests at one time.
_AT_ONCE = 8
#: How often a range is asked for whose bytes did not arrive whole.
_TRIES = 3
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class Repository:
    """One commit of a repository.

    Attributes:
        text: As the user named it.
        repo: `org/name`.
        sha: Of the commit.
        sizes: Its files with their sizes, hidden ones and deep ones left out.
        digests: sha256 of its large files.
    """

    text: str
    repo: str
    sha: str
    sizes: Mapping[str, int]
    digests: Mapping[str, str]

    def download(self, name: str) -> str:
        """Download one small file into the cache and return its path."""
        from huggingface_hub import hf_hub_download

        if self.sizes[name] > MAX_JSON:
            raise SourceError(f"{name} is {self.sizes[name]} bytes, too many for such a file")
        with hub_errors(self.text, self.repo, self.sha):
            return str(hf_hub_download(self.repo, name, revision=self.sha))

    def read_small(self, name: str) -> bytes:
        """Return the bytes of a small file."""
        with open(self.download(name), "rb") as file:
            return file.read()


class RemoteFile:
    """A ByteSource that asks the Hub for ranges, and keeps what it was given."""

    def __init__(self, repository: Repository, name: str) -> None:
        """Take note of the file; nothing is asked for yet."""
        self._repository = repository
        self.label = name
        self.size = repository.sizes[name]
        self._kept: list[tuple[int, bytes]] = []
        #: Parts of this and other files that are fetched when the first of them is read.
        self.together: tuple[Part, ...] = ()

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset`."""
        if length == 0:
            return b""
        if not self.has(offset, length):
            part = Part(self, offset, length)
            fetch(self.together if part in self.together else (part,))
        start, data = next(k for k in self._kept if _covers(k, offset, length))
        return data[offset - start : offset - start + length]

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` with the bytes from `offset`."""
        buffer[:] = self.read(offset, len(buffer))

    def close(self) -> None:
        """Forget what was read; nothing is held open."""
        self._kept.clear()
        self.together = ()

    def has(self, offset: int, length: int) -> bool:
        """Say whether these bytes are here."""
        return any(_covers(kept, offset, length) for kept in self._kept)

    def get(self, offset: int, length: int) -> None:
        """Ask for a range and keep it.

        Raises:
            SourceError: It does not come, or is not what was asked for.
        """
        for attempt in range(1, _TRIES + 1):
            data, broken = self._ask(offset, length)
            if len(data) == length:
                self._kept.append((offset, data))
                return
            if attempt < _TRIES:
                time.sleep(1)
        there = self._repository
        with hub_errors(there.text, there.repo, there.sha):
            if broken is not None:
                raise broken
        raise SourceError(
            f"{there.text}: the Hub gave {len(data)} bytes of {self.label} where {length} were "
            "asked for",
            "run again",
        )

    def _ask(self, offset: int, length: int) -> tuple[bytes, Exception | None]:
        """Return what came, at most `length` bytes, and what broke the connection meanwhile."""
        from huggingface_hub import constants, hf_hub_url

        utils: Any = import_module("huggingface_hub.utils")  # its names are not declared as public
        there = self._repository
        data = bytearray()
        broken: Exception | None = None
        headers = {
            **utils.build_hf_headers(),
            "Range": f"bytes={offset}-{offset + length - 1}",
            "Accept-Encoding": "identity",
        }
        with (
            hub_errors(there.text, there.repo, there.sha),
            utils.http_stream_backoff(
                "GET",
                hf_hub_url(there.repo, self.label, revision=there.sha),
                headers=headers,
                follow_redirects=True,
                timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
            ) as response,
        ):
            utils.hf_raise_for_status(response)
            self._check(response, offset, length)
            try:
                for piece in response.iter_bytes():
                    data += piece
                    if len(data) > length:
                        break
            except Exception as error:
                # Not raised in here: the backoff would take it for a request that failed.
                if not is_transport(error):
                    raise
                broken = error
        if len(data) > length:
            raise SourceError(
                f"{there.text}: the server gave more of {self.label} than the {length} bytes "
                "asked for",
                "download the repository and give the directory",
            )
        return bytes(data), broken

    def _check(self, response: Any, offset: int, length: int) -> None:
        """Refuse another answer than the range, before its body is read.

        Raises:
            SourceError: It is a whole file, another range, or of a file of another size.
        """
        text = self._repository.text
        given = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
        if response.status_code != 206 or given is None:
            raise SourceError(
                f"{text}: the server does not give parts of {self.label}",
                "download the repository and give the directory",
            )
        first, last, total = map(int, given.groups())
        if (first, last) != (offset, offset + length - 1):
            raise SourceError(
                f"{text}: asked for bytes {offset}-{offset + length - 1} of {self.label}, the "
                f"server gave {first}-{last}",
                "run again; a proxy or mirror may be wrong",
            )
        if total != self.size:
            raise SourceError(
                f"{text}: {self.label} has {self.size} bytes by the list of files, {total} by the "
                "server that gives it",
                "run again; a proxy or mirror may be wrong",
            )


@dataclass(frozen=True, slots=True)
class Part:
    """A range of a file."""

    file: RemoteFile
    offset: int
    length: int


def fetch(parts: Iterable[Part]) -> None:
    """Fetch parts of files that are not here yet: neighbours in one request, some at a time.

    Raises:
        SourceError: One of them does not come.
    """
    jobs = merge(p for p in parts if p.length and not p.file.has(p.offset, p.length))
    if len(jobs) < 2:
        for job in jobs:
            job.file.get(job.offset, job.length)
        return
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        for _ in pool.map(lambda job: job.file.get(job.offset, job.length), jobs):
            pass
    finally:
        # After an error, or Ctrl-C, what waits is not sent.
        pool.shutdown(cancel_futures=True)


def merge(parts: Iterable[Part]) -> list[Part]:
    """Return parts that hold these ones, with neighbours made one."""
    merged: list[Part] = []
    for part in sorted(parts, key=lambda p: (p.file.label, p.offset)):
        last = merged[-1] if merged else None
        if last and last.file is part.file and part.offset <= last.offset + last.length + _GAP:
            end = max(last.offset + last.length, part.offset + part.length)
            merged[-1] = Part(part.file, last.offset, end - last.offset)
        else:
            merged.append(part)
    return merged


def _covers(kept: tuple[int, bytes], offset: int, length: int) -> bool:
    start, data = kept
    return start <= offset and offset + length <= start + len(data)
