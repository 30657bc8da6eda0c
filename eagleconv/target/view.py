"""A target as a drafter sees it: its language model's config, its weights, the files beside them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eagleconv.checkpoint.checkpoint import Checkpoint, TensorInfo
from eagleconv.checkpoint.json_file import load_object
from eagleconv.checkpoint.source import open_source, parse_hub_id
from eagleconv.drafter.facts import TargetConfig
from eagleconv.errors import EagleconvError, SourceError
from eagleconv.target.config import language_config, target_of
from eagleconv.target.files import Files, LocalFiles, files_of
from eagleconv.target.names import Role, place_of

#: Names of the longest context in configs, the usual one first.
_LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")


@dataclass(frozen=True, slots=True)
class TargetView:
    """An opened target. Of weights, only headers are read.

    Attributes:
        facts: What every drafter needs to know.
        config: Its config.json.
        weights: Its opened checkpoint, or None, and then `why` says why not.
        directory: Its local directory, or empty.
        why: Why there are no weights.
    """

    facts: TargetConfig
    config: dict[str, Any]
    weights: Checkpoint | None
    directory: str
    why: str = ""

    @property
    def text_config(self) -> Mapping[str, Any]:
        """Config of the language model, inside wrappers too."""
        return language_config(self.config)

    @property
    def revision(self) -> str:
        """Commit sha of a Hub source, else empty."""
        return self.weights.revision if self.weights else ""

    @property
    def files(self) -> Files | None:
        """The small files beside the weights; None where only a config.json is known."""
        if self.weights is not None:
            return files_of(self.weights)
        return LocalFiles(self.facts.name, self.directory) if self.directory else None

    def close(self) -> None:
        """Release the files of its weights."""
        if self.weights is not None:
            self.weights.close()

    def value(self, key: str) -> Any:
        """Return a value of the config, of its language model first."""
        return self.text_config.get(key, self.config.get(key))

    @property
    def dtype(self) -> str:
        """The dtype its config states under either spelling; empty where it does not."""
        found = self.value("dtype") or self.value("torch_dtype")
        return found.removeprefix("torch.") if isinstance(found, str) else ""

    @property
    def tied(self) -> bool | None:
        """Whether the head is the embedding; None where neither config nor weights tell."""
        stated = self.value("tie_word_embeddings")
        if isinstance(stated, bool):
            return stated
        return None if self.weights is None else self.tensor("head") is None

    def tensor(self, role: Role) -> TensorInfo | None:
        """Return the embedding, head or final norm, under whatever name; None where none is stored.

        A wrapper may hold several of them: the shortest name is the language model's own.
        """
        if self.weights is None:
            return None
        names = (
            n
            for n in self.weights.tensors
            if (p := place_of(n)) is not None and p.role == role and p.name.endswith(".weight")
        )
        name = min(names, key=lambda n: (len(n), n), default=None)
        return None if name is None else self.weights.tensors[name]

    def positions(self) -> dict[str, Any]:
        """Return the longest context and rope, the same for every spelling of the same rope."""
        length = next((v for k in _LENGTHS if isinstance(v := self.value(k), int)), None)
        return {"max_position_embeddings": length, "rope": _rope(self)}


def _rope(view: TargetView) -> dict[str, Any]:
    """Return theta, scaling and what else turns heads, as transformers 5 groups it.

    Older files have `rope_theta` and `rope_scaling` side by side, with `type` for `rope_type`
    (transformers `modeling_rope_utils.py`, `RotaryEmbeddingConfigMixin`).
    """
    given = view.value("rope_parameters") or {}
    if not isinstance(given, dict):
        return {}
    if given and all(isinstance(v, dict) for v in given.values()):
        return {kind: _one_rope(view, rope) for kind, rope in sorted(given.items())}
    return _one_rope(view, given)


def _one_rope(view: TargetView, given: Mapping[str, Any]) -> dict[str, Any]:
    scaling = view.value("rope_scaling")
    merged = {
        "rope_theta": view.value("rope_theta"),
        "partial_rotary_factor": view.value("partial_rotary_factor"),
        **(scaling if isinstance(scaling, dict) else {}),
        **given,
    }
    merged.setdefault("rope_type", merged.pop("type", "default"))
    merged.pop("type", None)
    numbers = {k: float(v) if type(v) is int else v for k, v in merged.items()}
    return {k: v for k, v in sorted(numbers.items()) if v is not None}


def quantization_of(view: TargetView) -> str:
    """Return how the weights are quantised, as `awq (4 bits)`; empty where they are not."""
    found = view.value("quantization_config") or view.value("compression_config")
    if not isinstance(found, dict):
        files = view.files
        if files is None or not files.has("hf_quant_config.json"):
            return ""
        # Model-Optimizer writes its scheme beside config.json.
        beside = load_object(files.read("hf_quant_config.json"), "hf_quant_config.json")
        inner = beside.get("quantization")
        found = inner if isinstance(inner, dict) else {}
        return str(found.get("quant_algo") or "unknown scheme").lower()
    method = str(found.get("quant_method") or "unknown scheme")
    detail = found.get("quant_algo") or found.get("format")
    bits = found.get("bits")
    if detail:
        return f"{method} ({str(detail).lower()})"
    return f"{method} ({bits} bits)" if isinstance(bits, int) else method


def open_target(text: str) -> TargetView:
    """Open a target: its config, and headers of its weights where there are any.

    Args:
        text: A directory, a config.json, or a Hub id.

    Raises:
        SourceError: Its config cannot be read, or says less than a drafter needs.
    """
    directory = text if os.path.isdir(text) else ""
    path = os.path.join(text, "config.json") if directory else text
    hub_id = None if os.path.exists(text) else parse_hub_id(text)
    if hub_id is not None:
        from eagleconv.checkpoint.hub import download_config

        path = download_config(hub_id.repo, hub_id.revision)
    config = _load_config(path, text)
    facts = target_of(config, text)
    weights: Checkpoint | None = None
    why = "the target is a config.json without weights"
    if directory or hub_id is not None:
        try:
            weights = open_source(text, weights=False)
        except EagleconvError as error:
            why = f"the target's weights cannot be read: {error.message}"
    return TargetView(facts, config, weights, directory, "" if weights else why)


def _load_config(path: str, text: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return load_object(file.read(), f"target {text}")
    except OSError as error:
        raise SourceError(
            f"target {text} cannot be read: {(error.strerror or str(error)).lower()}",
            "give a directory, a config.json, org/name or hf://org/name@revision",
        ) from None
