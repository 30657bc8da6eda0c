"""A checkpoint in a local directory."""

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from eagleconv.checkpoint.checkpoint import Checkpoint, TensorInfo
from eagleconv.checkpoint.header import LocalFile, parse_header, unreadable
from eagleconv.checkpoint.json_file import load_object
from eagleconv.checkpoint.ranges import RangeReader
from eagleconv.checkpoint.weight_files import SIDE_META, Choice, choose
from eagleconv.errors import SourceError

CONFIG = "config.json"
MANIFEST = "eagleconv.json"
#: No config or index of a model comes near it; a larger file is not what its name says.
MAX_JSON = 64 << 20
_WEIGHT_ENDINGS = (".safetensors", ".bin", ".pt", ".index.json")


def open_local(path: str) -> Checkpoint:
    """Open the checkpoint in a directory.

    Args:
        path: The directory. A training output that holds its checkpoint in `model/` is followed.

    Returns:
        The checkpoint; nothing but headers and small files is read.

    Raises:
        SourceError: The directory, a header or an index is missing, unreadable or contradicts
            another.
        MissingExtraError: The weights are a pickle and torch is not installed.
    """
    root = os.path.abspath(path)
    sizes = list_files(root, path)
    if CONFIG not in sizes and f"model/{CONFIG}" in sizes and not _has_weights(sizes):
        note = f"{path} is a training output: its model/ was read"
        inner = open_local(os.path.join(path, "model"))
        return replace(inner, source=path, notes=(note, *inner.notes))
    choice = choose([name for name in sizes if "/" not in name], path)
    config_bytes = read_small(root, CONFIG) if CONFIG in sizes else b"{}"
    config = load_object(config_bytes, CONFIG)
    if not config and choice.form != "side files":
        if CONFIG in sizes:
            raise SourceError(f"{path}: {CONFIG} holds no keys")
        raise SourceError(
            f"{path} holds {_first_weight(choice)} but no {CONFIG}", "copy it beside the weights"
        )
    if choice.form == "safetensors":
        checkpoint = _open_safetensors(path, root, config, sizes, choice)
    else:
        from eagleconv.checkpoint.pickle_file import open_pickles

        checkpoint = open_pickles(path, root, config, sizes, choice)
    if not checkpoint.tensors:
        checkpoint.close()
        raise SourceError(
            f"{path}: {_first_weight(choice)} holds no tensors",
            "it was written before training ended?",
        )
    return with_manifest(checkpoint, sizes, config_bytes, partial(read_small, root, MANIFEST))


def list_files(root: str, label: str) -> dict[str, int]:
    """List the regular files of a directory and of its subdirectories, without hidden ones.

    Args:
        root: The directory.
        label: As the user named it, for the error.

    Returns:
        Sizes by relative name with `/`, sorted.

    Raises:
        SourceError: It is not a directory, may not be listed, or holds a link to nothing.
    """
    try:
        if not stat.S_ISDIR(os.stat(root).st_mode):
            raise SourceError(
                f"{label} is a file, not a directory",
                f"give the directory that holds it and {CONFIG}",
            )
    except OSError as error:
        raise unreadable(label, error) from None
    found: dict[str, int] = {}
    for folder in ("", *_folders(root, label)):
        for entry in _scan(os.path.join(root, folder), label):
            name = f"{folder}/{entry.name}" if folder else entry.name
            try:
                status = entry.stat()
            except FileNotFoundError:
                if name == CONFIG or name.endswith(_WEIGHT_ENDINGS):
                    raise SourceError(
                        f"{label}: {name} is a link to a file that is not there",
                        "finish the download",
                    ) from None
                continue
            except OSError as error:
                raise unreadable(f"{label}: {name}", error) from None
            if stat.S_ISREG(status.st_mode):
                found[name] = status.st_size
    return dict(sorted(found.items()))


def read_small(root: str, name: str, limit: int = MAX_JSON) -> bytes:
    """Return the bytes of a small file.

    Raises:
        SourceError: It cannot be read, or is larger than `limit`.
    """
    file = LocalFile(os.path.join(root, name), name)
    try:
        if file.size > limit:
            raise SourceError(
                f"{name} is {file.size} bytes, more than such a file ever holds ({limit})"
            )
        return file.read(0, file.size)
    finally:
        file.close()


def read_json(root: str, name: str) -> dict[str, Any]:
    """Return a JSON object file, strictly parsed."""
    return load_object(read_small(root, name), name)


def check_index(index: Mapping[str, Any], label: str) -> dict[str, str]:
    """Return the `weight_map` of an index: tensor name to file.

    Raises:
        SourceError: It has none, is empty, or names a file outside the checkpoint.
    """
    weights = index.get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise SourceError(
            f"{label} has no weight_map of tensor names to files", "download it again"
        )
    for tensor, file in weights.items():
        if not isinstance(file, str) or not file:
            raise SourceError(f"{label}: the file of tensor {tensor!r} is not a name")
        parts = file.replace("\\", "/").split("/")
        if file.startswith("/") or ".." in parts or "" in parts or ":" in parts[0]:
            raise SourceError(
                f"{label}: {file!r} of tensor {tensor!r} is not inside the checkpoint"
            )
    return weights


def collect(
    headers: Mapping[str, list[TensorInfo]], weight_map: Mapping[str, str] | None, index: str
) -> dict[str, TensorInfo]:
    """Merge the tensors of several files and hold them against the index.

    Args:
        headers: Tensors by file.
        weight_map: Tensor name to file, None without an index.
        index: Name of the index, for the error.

    Raises:
        SourceError: A tensor lies in two files, or index and files disagree.
    """
    found: dict[str, TensorInfo] = {}
    for file, tensors in headers.items():
        for tensor in tensors:
            if tensor.name in found:
                raise SourceError(
                    f"tensor {tensor.name!r} is both in {found[tensor.name].file} and in {file}",
                    "remove the shard that is stale",
                )
            if weight_map is not None and tensor.name not in weight_map:
                raise SourceError(
                    f"{index} does not know tensor {tensor.name!r} of {file}",
                    "index and shards are of two versions",
                )
            found[tensor.name] = tensor
    for name, file in (weight_map or {}).items():
        if name not in found:
            raise SourceError(
                f"{index} names tensor {name!r}, which {file} does not hold",
                "download the shards again",
            )
        if found[name].file != file:
            raise SourceError(
                f"{index} says tensor {name!r} is in {file}, it is in {found[name].file}"
            )
    return found


def _folders(root: str, label: str) -> list[str]:
    return sorted(entry.name for entry in _scan(root, label) if entry.is_dir())


def _scan(folder: str, label: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise unreadable(label, error) from None


def _has_weights(sizes: Mapping[str, int]) -> bool:
    top = (name for name in sizes if "/" not in name and name not in SIDE_META)
    return any(name.endswith(_WEIGHT_ENDINGS) for name in top)


def _first_weight(choice: Choice) -> str:
    return choice.index or choice.files[0]


def _open_safetensors(
    path: str, root: str, config: dict[str, Any], sizes: Mapping[str, int], choice: Choice
) -> Checkpoint:
    weight_map = check_index(read_json(root, choice.index), choice.index) if choice.index else None
    files = (
        choice.files if weight_map is None else tuple(dict.fromkeys(sorted(weight_map.values())))
    )
    notes = list(choice.notes)
    for file in files:
        if file not in sizes and not os.path.exists(os.path.join(root, file)):
            raise SourceError(
                f"{path}: {choice.index} names {file}, which is not there", "download it again"
            )
    if choice.index and "model.safetensors" in sizes and "model.safetensors" not in files:
        notes.append(
            f"model.safetensors was not read: {choice.index} does not name it, "
            "but some engines read it instead"
        )
    sources: dict[str, LocalFile] = {}
    headers: dict[str, list[TensorInfo]] = {}
    metadata: dict[str, str] = {}
    try:
        for file in files:
            sources[file] = LocalFile(os.path.join(root, file), file)
            headers[file], found = parse_header(sources[file])
            metadata = {**found, **metadata}
        tensors = collect(headers, weight_map, choice.index)
    except BaseException:
        RangeReader(sources).close()
        raise
    weight_files = (*files, choice.index) if choice.index else files
    return Checkpoint(
        source=path,
        root=root,
        revision="",
        config=config,
        tensors=tensors,
        metadata=metadata,
        weight_files=weight_files,
        other_files=others(sizes, weight_files),
        side_data=_side_data(root, sizes),
        form="safetensors",
        reader=RangeReader(sources),
        manifest=None,
        notes=tuple(notes),
    )


def others(sizes: Mapping[str, int], weight_files: tuple[str, ...]) -> dict[str, int]:
    """Return the files that are neither weights nor one of the two this package parses."""
    known = {*weight_files, CONFIG, MANIFEST}
    return {name: size for name, size in sizes.items() if name not in known}


def _side_data(root: str, sizes: Mapping[str, int]) -> Mapping[str, Any]:
    """Find a trainer's side file in the directory, or above its `model/`; read when asked for."""
    folders = [root]
    if os.path.basename(root) == "model":
        folders.append(os.path.dirname(root))
    for folder in folders:
        for name in SIDE_META:
            if os.path.isfile(os.path.join(folder, name)):
                from eagleconv.checkpoint.pickle_file import SideData

                return SideData(partial(os.path.join, folder, name), name)
    return {}


def with_manifest(
    checkpoint: Checkpoint,
    sizes: Mapping[str, int],
    config_bytes: bytes,
    manifest_bytes: Callable[[], bytes],
) -> Checkpoint:
    """Add the `eagleconv.json` beside the weights, or a note on why it is not about them."""
    if MANIFEST not in sizes:
        return checkpoint
    from eagleconv.checkpoint.manifest import describes

    try:
        manifest = load_object(manifest_bytes(), MANIFEST)
        reason = describes(manifest, sizes, config_bytes, checkpoint.weight_files)
    except SourceError as error:
        reason = error.message
    if reason:
        note = f"{MANIFEST} does not describe these files ({reason})"
        return replace(checkpoint, notes=(*checkpoint.notes, note))
    return replace(checkpoint, manifest=manifest)
