"""Adapters that are served with a target: what they change of it.

Form: peft 0.18 `utils/save_and_load.py` (`get_peft_model_state_dict`), `tuners/lora/config.py`:
adapter_config.json beside adapter_model.safetensors, whose tensors are named
`base_model.model.<module>.lora_A.weight` [r, in] and `.lora_B.weight` [out, r].
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from eagleconv.checkpoint.checkpoint import TensorInfo
from eagleconv.checkpoint.header import LocalFile, parse_header
from eagleconv.checkpoint.local import read_json
from eagleconv.errors import SourceError

_CONFIG, _WEIGHTS, _PICKLE = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "adapter_model.bin",
)
_LAYER = re.compile(r"\.layers\.(\d+)\.(?:.+\.)?([^.]+)\.lora_")
_WHOLE = re.compile(r"([^.]+)\.(?:modules_to_save\.)?(?:original_module\.)?weight$")
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter beside a target.

    Attributes:
        directory: Where it lies.
        kind: `LORA`, ...
        rank: r; 0 where it has none.
        base: The model it was made for, as its config names it; may be empty.
        modules: Short names of what it changes: `q_proj`, `lm_head`.
        layers: Layers it changes, ascending.
        changes_nothing: Whether every matrix B is zero, as before training.
    """

    directory: str
    kind: str
    rank: int
    base: str
    modules: tuple[str, ...]
    layers: tuple[int, ...]
    changes_nothing: bool

    def sentence(self) -> str:
        """Return one line about it."""
        what = f"{self.kind}, rank {self.rank}" if self.rank else self.kind
        text = f"adapter {self.directory} ({what}) changes {', '.join(self.modules) or 'nothing'}"
        if self.layers:
            first, last = self.layers[0], self.layers[-1]
            whole = len(self.layers) == last - first + 1
            text += f" of {len(self.layers)} layers"
            text += f", {first} to {last}" if whole and last > first else f", first {first}"
        if self.base:
            text += f", made for {self.base}"
        return text + (": all its matrices B are zero" if self.changes_nothing else "")


def find_adapters(given: Sequence[str], target: str) -> tuple[Adapter, ...]:
    """Read adapters that were named, and one that lies in the target's directory.

    Args:
        given: Directories.
        target: The target's directory; empty where it has none.

    Raises:
        SourceError: A named one is none, or one cannot be read.
    """
    found = []
    if target and os.path.isfile(os.path.join(target, _CONFIG)):
        found.append(read_adapter(target))
    for directory in given:
        if not os.path.isfile(os.path.join(directory, _CONFIG)):
            raise SourceError(
                f"{directory} holds no {_CONFIG}", "give the directory of a PEFT adapter"
            )
        found.append(read_adapter(directory))
    return tuple(found)


def read_adapter(directory: str) -> Adapter:
    """Read an adapter: its config, and its weights without torch.

    Raises:
        SourceError: It cannot be read.
    """
    config = read_json(directory, _CONFIG)
    kind = str(config.get("peft_type") or "adapter").replace("LORA", "LoRA")
    rank = config.get("r")
    modules, layers, zero = _weights(directory)
    if not modules:
        targets = config.get("target_modules")
        listed = [targets] if isinstance(targets, str) else list(targets or ())
        modules = tuple(map(str, [*listed, *(config.get("modules_to_save") or ())]))
    return Adapter(
        directory,
        kind,
        rank if type(rank) is int else 0,
        str(config.get("base_model_name_or_path") or ""),
        modules,
        layers,
        zero,
    )


def _weights(directory: str) -> tuple[tuple[str, ...], tuple[int, ...], bool]:
    """Return what the tensors change, in which layers, and whether they change nothing."""
    path = os.path.join(directory, _WEIGHTS)
    if not os.path.isfile(path):
        if os.path.isfile(os.path.join(directory, _PICKLE)):
            return (), (), False  # pickled: its config has to do
        raise SourceError(f"{directory} holds {_CONFIG} but no {_WEIGHTS}", "download it again")
    file = LocalFile(path, _WEIGHTS)
    try:
        tensors, _ = parse_header(file)
        modules: dict[str, None] = {}
        layers = set()
        zero = bool(tensors)
        for info in tensors:
            found = _LAYER.search(info.name)
            whole = None if ".lora_" in info.name else _WHOLE.search(info.name)
            name = found[2] if found else whole[1] if whole else info.name.split(".lora_")[0]
            modules[name.rpartition(".")[2]] = None
            if found:
                layers.add(int(found[1]))
            if ".lora_A" not in info.name and zero:
                zero = ".lora_B" in info.name and _is_zero(file, info)
        return tuple(modules), tuple(sorted(layers)), zero
    finally:
        file.close()


def _is_zero(file: LocalFile, info: TensorInfo) -> bool:
    for start in range(0, info.nbytes, _PIECE):
        if any(file.read(info.offset + start, min(_PIECE, info.nbytes - start))):
            return False
    return True
