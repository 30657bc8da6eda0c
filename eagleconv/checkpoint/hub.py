"""A checkpoint on the Hub: by byte range where headers are enough, else downloaded.

Everything goes through huggingface_hub, so HF_TOKEN, HF_HOME, HF_ENDPOINT and HF_HUB_OFFLINE work.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

from eagleconv.checkpoint.checkpoint import Checkpoint, TensorInfo
from eagleconv.checkpoint.header import parse_header
from eagleconv.checkpoint.json_file import load_object
from eagleconv.checkpoint.local import (
    CONFIG,
    MANIFEST,
    MAX_JSON,
    check_index,
    collect,
    open_local,
    others,
    with_manifest,
)
from eagleconv.checkpoint.ranges import RangeReader
from eagleconv.checkpoint.weight_files import SIDE_META, choose
from eagleconv.errors import SourceError

#: So much of each file is asked for first: the header of a drafter fits.
_HEAD = 1 << 16
_CONTENT_RANGE = re.compile(r"bytes \d+-\d+/(\d+)")


@dataclass(frozen=True, slots=True)
class Repository:
    """One commit of a repository.

    Attributes:
        text: As the user named it.
        repo: `org/name`.
        sha: Of the commit.
        sizes: Its files with their sizes, hidden ones and deep ones left out.
    """

    text: str
    repo: str
    sha: str
    sizes: Mapping[str, int]

    def download(self, name: str) -> str:
        """Download one file into the cache and return its path."""
        from huggingface_hub import hf_hub_download

        with hub_errors(self.text, self.repo, self.sha):
            return str(hf_hub_download(self.repo, name, revision=self.sha))

    def read_small(self, name: str) -> bytes:
        """Return the bytes of a small file."""
        if self.sizes[name] > MAX_JSON:
            raise SourceError(f"{name} is {self.sizes[name]} bytes, too many for such a file")
        with open(self.download(name), "rb") as file:
            return file.read()


class RemoteFile:
    """A ByteSource that asks the Hub for ranges."""

    def __init__(self, repository: Repository, name: str) -> None:
        """Read the beginning of the file, which tells its size too.

        Raises:
            SourceError: The Hub does not give it.
        """
        self._repository = repository
        self.label = name
        self._head = b""
        self.size = repository.sizes[name]
        if self.size:
            self._head, self.size = self._get(0, _HEAD)

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset`."""
        if offset + length <= len(self._head):
            return self._head[offset : offset + length]
        if length == 0:
            return b""
        data, _ = self._get(offset, length)
        if len(data) != length:
            raise SourceError(
                f"{self.label}: the Hub gave {len(data)} bytes where {length} were asked for",
                "run again",
            )
        return data

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` with the bytes from `offset`."""
        buffer[:] = self.read(offset, len(buffer))

    def close(self) -> None:
        """Nothing is held open."""

    def _get(self, offset: int, length: int) -> tuple[bytes, int]:
        from huggingface_hub import hf_hub_url

        utils: Any = import_module("huggingface_hub.utils")

        there = self._repository
        url = hf_hub_url(there.repo, self.label, revision=there.sha)
        headers = {**utils.build_hf_headers(), "Range": f"bytes={offset}-{offset + length - 1}"}
        with (
            hub_errors(there.text, there.repo, there.sha),
            utils.get_session().stream(
                "GET", url, headers=headers, follow_redirects=True
            ) as response,
        ):
            utils.hf_raise_for_status(response)
            total = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
            if response.status_code != 206 or total is None:
                raise SourceError(
                    f"{there.text}: the server does not give parts of {self.label}",
                    "download the repository and give the directory",
                )
            return response.read(), int(total[1])


def open_hub(text: str, repo: str, revision: str, *, weights: bool) -> Checkpoint:
    """Open a repository.

    Args:
        text: As the user named it.
        repo: `org/name`.
        revision: Branch, tag or commit; empty for the default branch.
        weights: Download all of it; else headers and small files only.

    Raises:
        SourceError: One sentence for each way in which the Hub, or the files, may fail.
    """
    from huggingface_hub import HfApi, constants

    utils: Any = import_module("huggingface_hub.utils")  # its names are not declared as public
    if not sys.stderr.isatty():
        utils.disable_progress_bars()
    if constants.HF_HUB_OFFLINE:
        return _open_download(text, repo, revision, offline=True)
    with hub_errors(text, repo, revision):
        info = HfApi().model_info(repo, revision=revision or None, files_metadata=True)
    sizes = {
        file.rfilename: int(file.size or 0)
        for file in info.siblings or ()
        if file.rfilename.count("/") <= 1
        and not any(part.startswith(".") for part in file.rfilename.split("/"))
    }
    repository = Repository(text, repo, str(info.sha), sizes)
    choice = choose([name for name in sizes if "/" not in name], text)
    if weights or choice.form != "safetensors":
        # By the name of the revision: then the cache can resolve that name when it is offline.
        return _open_download(text, repo, revision, offline=False)
    return _open_headers(repository)


def _open_download(text: str, repo: str, revision: str, *, offline: bool) -> Checkpoint:
    from huggingface_hub import snapshot_download

    with hub_errors(text, repo, revision):
        root = snapshot_download(repo, revision=revision or None, local_files_only=offline)
    try:
        opened = open_local(root)
    except SourceError as error:
        message = error.message.replace(root, text)
        if offline:
            raise SourceError(
                f"{message} (offline: only what is in the cache was looked at)",
                "run once without HF_HUB_OFFLINE",
            ) from None
        raise SourceError(message, error.hint) from None
    return replace(opened, source=text, revision=os.path.basename(os.path.normpath(root)))


def _open_headers(repository: Repository) -> Checkpoint:
    sizes, text = repository.sizes, repository.text
    choice = choose([name for name in sizes if "/" not in name], text)
    if CONFIG not in sizes:
        raise SourceError(f"{text} holds weights but no {CONFIG}")
    config_bytes = repository.read_small(CONFIG)
    weight_map = None
    if choice.index:
        weight_map = check_index(
            load_object(repository.read_small(choice.index), choice.index), choice.index
        )
    files = choice.files if weight_map is None else tuple(sorted(set(weight_map.values())))
    sources: dict[str, RemoteFile] = {}
    headers: dict[str, list[TensorInfo]] = {}
    metadata: dict[str, str] = {}
    for file in files:
        if file not in sizes:
            raise SourceError(
                f"{text}: {choice.index} names {file}, which is not there",
                "its upload is incomplete",
            )
        sources[file] = RemoteFile(repository, file)
        headers[file], found = parse_header(sources[file])
        metadata = {**found, **metadata}
    weight_files = (*files, choice.index) if choice.index else files
    checkpoint = Checkpoint(
        source=text,
        root="",
        revision=repository.sha,
        config=load_object(config_bytes, CONFIG),
        tensors=collect(headers, weight_map, choice.index),
        metadata=metadata,
        weight_files=weight_files,
        other_files=others(sizes, weight_files),
        side_data=_side_data(repository),
        form="safetensors",
        reader=RangeReader(sources),
        manifest=None,
        notes=choice.notes,
    )
    return with_manifest(checkpoint, sizes, config_bytes, partial(repository.read_small, MANIFEST))


def _side_data(repository: Repository) -> Mapping[str, Any]:
    for name in SIDE_META:
        if name in repository.sizes:
            from eagleconv.checkpoint.pickle_file import SideData

            return SideData(partial(repository.download, name), name)
    return {}


@contextmanager
def hub_errors(text: str, repo: str, revision: str) -> Iterator[None]:
    """Turn what huggingface_hub raises into one sentence."""
    from huggingface_hub import errors

    at = f" at revision {revision}" if revision else ""
    try:
        yield
    except errors.GatedRepoError:
        raise SourceError(
            f"{text}: access to {repo} is gated, and this account has not been granted it",
            "accept its terms on its page, then set HF_TOKEN or run: hf auth login",
        ) from None
    except errors.RepositoryNotFoundError:
        raise SourceError(
            f"{text}: no such directory, and the Hub has no repository {repo} that we may read",
            "check the name; for a private one set HF_TOKEN or run: hf auth login",
        ) from None
    except errors.RevisionNotFoundError:
        raise SourceError(f"{text}: {repo} has no revision {revision}", "check it") from None
    except errors.LocalEntryNotFoundError:
        raise SourceError(
            f"{text}: {repo}{at} is not complete in the cache, and the Hub was not reached",
            "run once without HF_HUB_OFFLINE and with a connection",
        ) from None
    except errors.OfflineModeIsEnabled:
        raise SourceError(f"{text}: HF_HUB_OFFLINE is set", "unset it to read the Hub") from None
    except errors.HFValidationError as error:
        raise SourceError(f"{text} is not a Hub id: {str(error).splitlines()[0]}") from None
    except errors.HfHubHTTPError as error:
        raise _status_error(text, getattr(error.response, "status_code", 0)) from None
    except OSError as error:
        raise SourceError(f"{text}: {(error.strerror or str(error)).lower()}") from None
    except SourceError:
        raise
    except Exception as error:
        # The HTTP library below huggingface_hub differs between its versions.
        if type(error).__module__.split(".")[0] not in ("httpx", "httpx2", "requests"):
            raise
        endpoint = os.environ.get("HF_ENDPOINT") or "the Hub"
        what = "did not answer in time" if "Timeout" in type(error).__name__ else "was not reached"
        raise SourceError(
            f"{text}: {endpoint} {what}",
            "check the connection and HF_ENDPOINT; HF_HUB_OFFLINE=1 reads the cache",
        ) from None


def _status_error(text: str, status: int) -> SourceError:
    if status == 429:
        return SourceError(
            f"{text}: the Hub limits the rate of requests (429)", "wait, or set HF_TOKEN"
        )
    if status == 401:
        return SourceError(f"{text}: the Hub does not know this token (401)", "check HF_TOKEN")
    if status == 403:
        return SourceError(f"{text}: the Hub denies access (403)", "check the token's permissions")
    if status >= 500:
        return SourceError(
            f"{text}: the Hub has a problem of its own ({status})", "try again later"
        )
    return SourceError(f"{text}: the Hub answered with status {status}", "check the name")


def download_config(repo: str, revision: str) -> str:
    """Download a repository's config.json into the cache and return its path.

    Raises:
        SourceError: It cannot be had.
    """
    from huggingface_hub import hf_hub_download

    with hub_errors(repo, repo, revision):
        return str(hf_hub_download(repo, CONFIG, revision=revision or None))
