"""A checkpoint on the Hub: by byte range where headers are enough, else downloaded.

Everything goes through huggingface_hub, so HF_TOKEN, HF_HOME, HF_ENDPOINT and HF_HUB_OFFLINE work.
"""

import os
import sys
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from eagleconv.checkpoint.checkpoint import Checkpoint, TensorInfo
from eagleconv.checkpoint.header import parse_header
from eagleconv.checkpoint.hub_errors import hub_errors
from eagleconv.checkpoint.json_file import load_object
from eagleconv.checkpoint.local import (
    CONFIG,
    MANIFEST,
    check_index,
    collect,
    open_local,
    others,
    with_manifest,
)
from eagleconv.checkpoint.ranges import RangeReader
from eagleconv.checkpoint.remote_file import HEAD, Part, RemoteFile, Repository, fetch
from eagleconv.checkpoint.weight_files import SIDE_META, Choice, choose
from eagleconv.errors import SourceError

#: So much of each of many files is asked for first: a header of some hundred tensors fits.
_HEAD_OF_MANY = 1 << 14
#: Vectors up to this size (norms, biases, d2t, t2d) are fetched together when one is read.
_SMALL = 1 << 20
#: A model of more files than any drafter has is a target: of it, only some headers are wanted.
_FEW = 8
#: A download of more than this is announced.
_LARGE = 64 << 20
#: What nothing here reads and `upgrade` does not carry: other formats, trainers' states, and
#: weights in subdirectories.
_IGNORED = [
    "*.gguf",
    "*.pth",
    "*.ckpt",
    "optimizer*",
    "*/*.safetensors",
    "*/*.bin",
    "*/*.pt",
    "*/*/*",
]


def open_hub(text: str, repo: str, revision: str, *, weights: bool) -> Checkpoint:
    """Open a repository.

    Args:
        text: As the user named it.
        repo: `org/name`.
        revision: Branch, tag or commit; empty for the default branch.
        weights: Download it, into the cache of huggingface_hub; else headers and small files only.

    Raises:
        SourceError: One sentence for each way in which the Hub, or the files, may fail; and where
            without `weights` the weights are no safetensors, which cannot be read in part.
    """
    from huggingface_hub import HfApi, constants

    utils: Any = import_module("huggingface_hub.utils")  # its names are not declared as public
    if not sys.stderr.isatty():
        utils.disable_progress_bars()
    if constants.HF_HUB_OFFLINE:
        return _open_download(text, repo, revision, offline=True)
    with hub_errors(text, repo, revision):
        info = HfApi().model_info(
            repo,
            revision=revision or None,
            files_metadata=True,
            timeout=constants.HF_HUB_ETAG_TIMEOUT,
        )
    sizes = {
        file.rfilename: int(file.size or 0)
        for file in info.siblings or ()
        if file.rfilename.count("/") <= 1
        and not any(part.startswith(".") for part in file.rfilename.split("/"))
    }
    digests = {f.rfilename: f.lfs.sha256 for f in info.siblings or () if f.lfs is not None}
    repository = Repository(text, repo, str(info.sha), sizes, digests)
    choice = choose([name for name in sizes if "/" not in name], text)
    if weights:
        _announce(repository)
        # By the name of the revision: then the cache can resolve that name when it is offline.
        return _open_download(text, repo, revision, offline=False)
    if choice.form != "safetensors":
        files = choice.files or (choice.index,)
        raise SourceError(
            f"{text} holds its weights in {', '.join(files)}, which can only be read whole; "
            "nothing was downloaded",
            f"run: hf download {repo}{f' --revision {revision}' if revision else ''}, and give "
            "the directory it prints",
        )
    return _open_headers(repository, choice)


def _announce(repository: Repository) -> None:
    """Say on stderr how much will be downloaded, where that is much."""
    from huggingface_hub import try_to_load_from_cache

    utils: Any = import_module("huggingface_hub.utils")
    missing = sum(
        repository.sizes[name]
        for name in utils.filter_repo_objects(repository.sizes, ignore_patterns=_IGNORED)
        if not isinstance(
            try_to_load_from_cache(repository.repo, name, revision=repository.sha), str
        )
    )
    if missing > _LARGE:
        print(
            f"{repository.text}: downloading {missing / 1e9:.1f} GB into the cache of "
            "huggingface_hub, because the weights are to be read",
            file=sys.stderr,
            flush=True,
        )


def _open_download(text: str, repo: str, revision: str, *, offline: bool) -> Checkpoint:
    from huggingface_hub import snapshot_download

    with hub_errors(text, repo, revision):
        root = snapshot_download(
            repo, revision=revision or None, local_files_only=offline, ignore_patterns=_IGNORED
        )
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


def _open_headers(repository: Repository, choice: Choice) -> Checkpoint:
    sizes, text = repository.sizes, repository.text
    if CONFIG not in sizes:
        raise SourceError(f"{text} holds weights but no {CONFIG}")
    config_bytes = repository.read_small(CONFIG)
    weight_map = None
    if choice.index:
        weight_map = check_index(
            load_object(repository.read_small(choice.index), choice.index), choice.index
        )
    files = choice.files if weight_map is None else tuple(sorted(set(weight_map.values())))
    for file in files:
        if file not in sizes:
            raise SourceError(
                f"{text}: {choice.index} names {file}, which is not there",
                "its upload is incomplete",
            )
    sources = {file: RemoteFile(repository, file) for file in files}
    tensors: Mapping[str, TensorInfo]
    metadata: dict[str, str] = {}
    if weight_map is not None and len(files) > _FEW:
        tensors = LateTensors(
            weight_map,
            choice.index,
            lambda file: parse_header(sources[file])[0],
            lambda wanted: fetch(Part(sources[f], 0, min(_HEAD_OF_MANY, sizes[f])) for f in wanted),
        )
    else:
        fetch(Part(source, 0, min(HEAD, source.size)) for source in sources.values())
        headers: dict[str, list[TensorInfo]] = {}
        for file, source in sources.items():
            headers[file], found = parse_header(source)
            metadata = {**found, **metadata}
        tensors = collect(headers, weight_map, choice.index)
        small = tuple(
            Part(sources[t.file], t.offset, t.nbytes)
            for t in tensors.values()
            if len(t.shape) == 1 and t.nbytes <= _SMALL
        )
        for source in sources.values():
            source.together = small
    weight_files = (*files, choice.index) if choice.index else files
    checkpoint = Checkpoint(
        source=text,
        root="",
        revision=repository.sha,
        config=load_object(config_bytes, CONFIG),
        tensors=tensors,
        metadata=metadata,
        weight_files=weight_files,
        other_files=others(sizes, weight_files),
        side_data=_side_data(repository),
        form="safetensors",
        reader=RangeReader(
            sources,
            lambda spans: fetch(Part(sources[file], *span) for file, *span in spans),
        ),
        manifest=None,
        notes=choice.notes,
        digests={f: repository.digests[f] for f in files if f in repository.digests},
    )
    return with_manifest(checkpoint, sizes, config_bytes, partial(repository.read_small, MANIFEST))


class LateTensors(Mapping[str, TensorInfo]):
    """The tensors of many files: the header of a file is read when one of its tensors is wanted.

    Each header is then held against the index as `collect` does it. `__metadata__` is not read.
    """

    def __init__(
        self,
        weight_map: Mapping[str, str],
        index: str,
        load: Callable[[str], list[TensorInfo]],
        ahead: Callable[[Sequence[str]], None],
    ) -> None:
        """Take note of the index.

        Args:
            weight_map: Tensor name to file.
            index: Name of the index, for errors.
            load: Reads the header of a file.
            ahead: Fetches the heads of files that are about to be read, together.
        """
        self._weight_map, self._index, self._load = weight_map, index, load
        self._ahead = ahead
        self._read: dict[str, dict[str, TensorInfo]] = {}

    def __getitem__(self, name: str) -> TensorInfo:
        file = self._weight_map[name]
        if file not in self._read:
            self._ahead((file,))
            here = {n: f for n, f in self._weight_map.items() if f == file}
            self._read[file] = collect({file: self._load(file)}, here, self._index)
        return self._read[file][name]

    def items(self) -> ItemsView[str, TensorInfo]:
        """Return all of them: every header is needed then, and they are fetched together."""
        self._ahead([f for f in dict.fromkeys(self._weight_map.values()) if f not in self._read])
        return super().items()

    def __iter__(self) -> Iterator[str]:
        return iter(self._weight_map)

    def __len__(self) -> int:
        return len(self._weight_map)


def _side_data(repository: Repository) -> Mapping[str, Any]:
    for name in SIDE_META:
        if name in repository.sizes:
            from eagleconv.checkpoint.pickle_file import SideData

            return SideData(partial(repository.download, name), name)
    return {}


def download_config(repo: str, revision: str) -> str:
    """Download a repository's config.json into the cache and return its path.

    Raises:
        SourceError: It cannot be had.
    """
    from huggingface_hub import hf_hub_download

    with hub_errors(repo, repo, revision):
        return str(hf_hub_download(repo, CONFIG, revision=revision or None))


def read_file(text: str, repo: str, revision: str, name: str) -> bytes:
    """Download a small file into the cache and return its bytes.

    Args:
        text: The repository as the user named it.
        repo: `org/name`.
        revision: The commit.
        name: Of the file.

    Raises:
        SourceError: It cannot be had.
    """
    from huggingface_hub import hf_hub_download

    with hub_errors(text, repo, revision):
        path = hf_hub_download(repo, name, revision=revision)
    with open(path, "rb") as file:
        return file.read()
