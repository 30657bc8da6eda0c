"""A drafter and its target, loaded to run together."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagleconv import __version__
from eagleconv.checkpoint.source import open_source
from eagleconv.drafter.declared import Declared
from eagleconv.drafter.read import Drafter, read_drafter
from eagleconv.errors import MissingExtraError, SourceError, UsageError
from eagleconv.runtime.target_model import TargetModel, load_target
from eagleconv.runtime.weights import load_weights
from eagleconv.target.config import read_target

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


@dataclass(frozen=True, slots=True)
class Pair:
    """What runs.

    Attributes:
        read: The drafter, understood; its files are closed.
        weights: Its tensors, on the target's device.
        target: The target.
        tokenizer: The target's, of transformers.
        ends: Tokens that end a text.
        device: What it runs on, by name.
        dtype: What it computes in.
    """

    read: Drafter
    weights: dict[str, Tensor]
    target: TargetModel
    tokenizer: Any
    ends: set[int]
    device: str
    dtype: str


def load_pair(
    drafter: str, target: str, device: str, dtype: str, declared: Declared | None
) -> Pair:
    """Load both.

    Args:
        drafter: A directory or Hub id.
        target: A directory or Hub id that transformers loads.
        device: `auto`, `cpu`, `cuda` or `cuda:1`.
        dtype: A name of `DTYPES`, or `auto`: float32 on a CPU, where half precision is slow, else
            bfloat16.
        declared: What the drafter's weights were trained with, where the files leave it open.

    Raises:
        SourceError: One of them cannot be read.
        OpenQuestions: The drafter's files allow more than one reading.
        ConversionError: The drafter is one that is not computed here.
        MissingExtraError: transformers, or the device, is missing.
        UsageError: No such device or dtype.
    """
    where = find_device(device)
    name = ("float32" if where == "cpu" else "bfloat16") if dtype == "auto" else dtype
    if name not in DTYPES:
        raise UsageError(f"--dtype {dtype} is not auto, {', '.join(DTYPES)}")
    checkpoint = open_source(drafter, weights=True)
    try:
        read = read_drafter(checkpoint, declared, read_target(target))
        read.spec()  # open questions come before minutes of work
        model = load_target(target, DTYPES[name], where)
        loaded = load_weights(read, DTYPES[name], model.embedding, model.lm_head)
    finally:
        checkpoint.close()
    tokenizer = _tokenizer(target)
    return Pair(
        read,
        {key: tensor.to(model.device) for key, tensor in loaded.items()},
        model,
        tokenizer,
        _ends(model, tokenizer),
        _device_name(where),
        name,
    )


def _tokenizer(target: str) -> Any:
    from transformers import AutoTokenizer

    loader: Any = AutoTokenizer
    try:
        return loader.from_pretrained(target)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise SourceError(
            f"the tokenizer of target {target} cannot be loaded: {str(error).splitlines()[0]}",
            "give a target with its tokenizer",
        ) from error


def find_device(text: str) -> str:
    """Return the device for `auto`, `cpu`, `cuda` or `cuda:1`.

    Raises:
        MissingExtraError: There is none of that kind.
        UsageError: It is none of these.
    """
    if text == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind = text.split(":")[0]
    if kind not in ("cpu", "cuda"):
        raise UsageError(f"--device {text} is not auto, cpu, cuda or cuda:N")
    if kind == "cuda" and not torch.cuda.is_available():
        raise MissingExtraError(
            f"--device {text}: torch finds no CUDA device", "give --device cpu, or none"
        )
    return text


def _ends(model: TargetModel, tokenizer: Any) -> set[int]:
    """Return the tokens that end a text, as the target's generation config has them."""
    given = getattr(model.model, "generation_config", None)
    ends = getattr(given, "eos_token_id", None)
    found = set(ends if isinstance(ends, list) else [] if ends is None else [ends])
    return found | ({tokenizer.eos_token_id} - {None})


def _device_name(device: str) -> str:
    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    return f"CPU ({platform.machine()}, {torch.get_num_threads()} threads)"


def versions() -> dict[str, str]:
    """Return versions of what computes."""
    import transformers

    return {
        "eagleconv": __version__,
        "torch": str(torch.__version__),
        "transformers": str(transformers.__version__),
        "python": platform.python_version(),
    }
