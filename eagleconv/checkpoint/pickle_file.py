"""Weights in pickles: `pytorch_model.bin` and the side files that trainers write.

They are read by torch, restricted to tensors and plain values, and memory-mapped where the file
allows it. Nothing in a pickle is ever executed.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eagleconv.checkpoint.checkpoint import Checkpoint, TensorInfo
from eagleconv.checkpoint.header import unreadable
from eagleconv.checkpoint.weight_files import SIDE_META, Choice
from eagleconv.errors import MissingExtraError, SourceError

if TYPE_CHECKING:
    import torch

#: Keys under which trainers nest the weights, in the order they are looked for.
NESTED = ("draft_state_dict", "state_dict", "model", "module")
#: An integer tensor of more elements is not given as plain values.
MAX_PLAIN = 1_000_000
#: torch dtype -> safetensors dtype. Names, because a torch that is older than a dtype lacks it.
DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float4_e2m1fn_x2": "F4",
}
_SAVE = "load it with the trainer that wrote it and save its state dict as safetensors"


@dataclass(frozen=True, slots=True)
class PickleFile:
    """What one pickle holds.

    Attributes:
        tensors: The weights by name.
        plain: Everything else that is numbers, text, small integer tensors, or lists and
            dictionaries of them.
        unread: Keys of what is neither.
    """

    tensors: dict[str, "torch.Tensor"]
    plain: dict[str, Any]
    unread: tuple[str, ...]


class SideData(Mapping[str, Any]):
    """The plain values of a trainer's side file, read when first asked for: it takes torch."""

    def __init__(self, path: Callable[[], str], label: str) -> None:
        """Take note of the file.

        Args:
            path: Gives the file, once; a remote one is downloaded then.
            label: Its name, for errors.
        """
        self._path = path
        self._label = label
        self._values: dict[str, Any] | None = None

    def __getitem__(self, key: str) -> Any:
        return self._read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> dict[str, Any]:
        if self._values is None:
            self._values = plain_values(load_pickle(self._path(), self._label), self._label)[0]
        return self._values


class PickleReader:
    """A TensorReader over tensors that torch has loaded."""

    def __init__(self, tensors: Mapping[str, "torch.Tensor"]) -> None:
        """Take over the tensors; `close` releases them and their memory maps."""
        self._tensors = dict(tensors)
        self._name = ""
        self._view = memoryview(b"")

    def chunks(self, tensor: TensorInfo, size: int) -> Iterator[memoryview]:
        """Yield the tensor's bytes, `size` at a time, without a copy where they lie in order."""
        data = self._bytes(tensor.name)
        for start in range(0, tensor.nbytes, size):
            yield data[start : start + size]

    def read_into(self, tensor: TensorInfo, start: int, buffer: memoryview) -> None:
        """Fill `buffer` with the tensor's bytes from `start`."""
        buffer[:] = self._bytes(tensor.name)[start : start + len(buffer)]

    def close(self) -> None:
        """Release the tensors."""
        self._tensors = {}
        self._name, self._view = "", memoryview(b"")

    def _bytes(self, name: str) -> memoryview:
        # One tensor is kept: it is asked for piece by piece, and may have to be put in order first.
        if name != self._name:
            import torch

            tensor = self._tensors[name]
            if tensor.numel() == 0:
                return memoryview(b"")
            flat = tensor.contiguous().reshape(-1).view(torch.uint8)
            self._name, self._view = name, flat.numpy().data
        return self._view


def open_pickles(
    path: str, root: str, config: dict[str, Any], sizes: Mapping[str, int], choice: Choice
) -> Checkpoint:
    """Open a checkpoint whose weights are pickles.

    Args:
        path: As the user named it.
        root: The directory.
        config: Parsed config.json, {} where side files carry none.
        sizes: All files of the directory with their sizes.
        choice: The files to read.

    Raises:
        SourceError: A file cannot be read, or holds what is not a tensor.
        MissingExtraError: torch is not installed.
    """
    from eagleconv.checkpoint.local import check_index, collect, others, read_json

    weight_map = check_index(read_json(root, choice.index), choice.index) if choice.index else None
    files = choice.files if weight_map is None else tuple(sorted(set(weight_map.values())))
    tensors: dict[str, torch.Tensor] = {}
    headers: dict[str, list[TensorInfo]] = {}
    side_data: dict[str, Any] = {}
    notes = list(choice.notes)
    if choice.form == "side files":
        for name in (name for name in SIDE_META if name in sizes):
            found, unread = plain_values(load_pickle(os.path.join(root, name), name), name)
            side_data = {**found, **side_data}
            notes += _unread_note(name, unread)
    for file in files:
        if file not in sizes and not os.path.exists(os.path.join(root, file)):
            raise SourceError(
                f"{path}: {choice.index} names {file}, which is not there", "download it again"
            )
        held = read_pickle(os.path.join(root, file), file)
        headers[file] = [describe(name, tensor, file) for name, tensor in held.tensors.items()]
        tensors.update(held.tensors)
        side_data.update(held.plain)
        notes += _unread_note(file, held.unread)
    weight_files = (*files, choice.index) if choice.index else files
    return Checkpoint(
        source=path,
        root=root,
        revision="",
        config=config,
        tensors=collect(headers, weight_map, choice.index),
        metadata={},
        weight_files=weight_files,
        other_files=others(sizes, weight_files),
        side_data=side_data,
        form=choice.form,
        reader=PickleReader(tensors),
        manifest=None,
        notes=tuple(notes),
    )


def load_pickle(path: str, label: str) -> Any:
    """Load a pickle through torch, restricted to tensors and plain values.

    Raises:
        SourceError: It is not such a file, or wants to call anything.
        MissingExtraError: torch is not installed.
    """
    try:
        import torch
    except ImportError:
        raise MissingExtraError(
            f"{label} is a pickle, and reading it needs torch", "pip install 'eagleconv[run]'"
        ) from None
    import pickle
    import warnings

    try:
        with open(path, "rb") as file:
            zipped = file.read(4) == b"PK\x03\x04"
    except OSError as error:
        raise unreadable(label, error) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        named = _foreign(str(error))
        if named is None:
            what = "is not a file that torch.save wrote; loading it could execute code"
        else:
            what = f"holds objects other than tensors{named}; loading it would execute code"
        raise SourceError(f"{label} {what}", _SAVE) from None
    except Exception as error:  # a damaged file may raise anything
        reason = (str(error).splitlines() or [""])[0].split(". ")[0]
        if " " not in reason:
            reason = f"it is damaged ({type(error).__name__})"
        raise SourceError(
            f"{label} cannot be read by torch: {reason[:160]}", "copy or download it again"
        ) from None


def read_pickle(path: str, label: str) -> PickleFile:
    """Load a pickle and tell its weights from the rest.

    Raises:
        SourceError: As `load_pickle`, or it holds no dictionary of tensors.
    """
    loaded = load_pickle(path, label)
    import torch

    if not isinstance(loaded, dict):
        raise SourceError(f"{label} holds a {type(loaded).__name__}, expected a state dict", _SAVE)
    rest: dict[Any, Any] = {}
    state = loaded
    while not any(isinstance(value, torch.Tensor) for value in state.values()):
        key = next((key for key in NESTED if isinstance(state.get(key), dict)), None)
        if key is None:
            raise SourceError(f"{label} holds no state dict (keys: {_keys(loaded)})", _SAVE)
        rest.update({name: value for name, value in state.items() if name != key})
        state = state[key]
    tensors: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            tensors[str(name)] = _checked(str(name), value, label)
        else:
            rest[name] = value
    plain, unread = plain_values(rest, label)
    return PickleFile(tensors, plain, unread)


def plain_values(loaded: Any, label: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what of a dictionary is plain values, and the keys of what is not.

    Raises:
        SourceError: It is no dictionary.
    """
    if not isinstance(loaded, dict):
        raise SourceError(f"{label} holds a {type(loaded).__name__}, expected a dictionary")
    plain: dict[str, Any] = {}
    unread = []
    for key, value in loaded.items():
        try:
            plain[str(key)] = _plain(value)
        except TypeError:
            unread.append(str(key))
    return plain, tuple(unread)


def describe(name: str, tensor: "torch.Tensor", file: str) -> TensorInfo:
    """Return the description of a loaded tensor."""
    dtype = DTYPES[str(tensor.dtype).removeprefix("torch.")]
    shape = tuple(tensor.shape)
    if dtype == "F4":  # torch counts bytes of two elements each
        shape = (*shape[:-1], 2 * shape[-1]) if shape else (2,)
    return TensorInfo(name, dtype, shape, tensor.numel() * tensor.element_size(), file, -1)


def _checked(name: str, tensor: "torch.Tensor", label: str) -> "torch.Tensor":
    import torch

    where = f"{label}: tensor {name!r}"
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        kind = type(tensor).__name__
        raise SourceError(f"{where} is a {kind}, a part of a tensor or a wrapped one", _SAVE)
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise SourceError(f"{where} is sparse or quantised by torch", _SAVE)
    if tensor.device.type != "cpu":
        raise SourceError(f"{where} has no data (device {tensor.device})", _SAVE)
    if str(tensor.dtype).removeprefix("torch.") not in DTYPES:
        raise SourceError(f"{where} has dtype {tensor.dtype}, which safetensors does not have")
    return tensor.detach().resolve_conj().resolve_neg()


def _plain(value: Any) -> Any:
    import torch

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    if type(value) is torch.Tensor and value.layout is torch.strided and not value.is_quantized:
        whole = not (value.is_floating_point() or value.is_complex())
        if (whole and value.numel() <= MAX_PLAIN) or (value.dim() == 0 and not value.is_complex()):
            return value.tolist()
    raise TypeError


def _foreign(message: str) -> str | None:
    """Return which object torch refused, empty if it does not say, None if it refused none."""
    for marker in ("GLOBAL ", "Unsupported global: GLOBAL "):
        if marker in message:
            return f" ({message.split(marker, 1)[1].split()[0].rstrip('.,')})"
    refused = ("Unsupported class", "REDUCE", "BUILD", "Trying to call", "Can only")
    return "" if any(word in message for word in refused) else None


def _keys(loaded: dict[Any, Any]) -> str:
    names = [str(key) for key in loaded]
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") if names else "none"


def _unread_note(file: str, unread: tuple[str, ...]) -> list[str]:
    return [f"{file}: {', '.join(unread[:4])} not read"] if unread else []
