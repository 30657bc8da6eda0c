"""Which target a drafter's files name: the config, the model card."""

from __future__ import annotations

from typing import Any

from eagleconv.checkpoint.checkpoint import Checkpoint
from eagleconv.drafter.evidence import lookup
from eagleconv.errors import SourceError
from eagleconv.target.files import files_of

#: Config keys in which trainers name the target (speculators, Model-Optimizer, AngelSlim).
_KEYS = ("speculators_config.verifier.name_or_path", "base_model_name_or_path", "target_model")
_CARD = "README.md"


def declared_names(checkpoint: Checkpoint) -> tuple[tuple[str, str], ...]:
    """Return (where, name) of every place that names the target."""
    found = []
    for key in _KEYS:
        value = lookup(checkpoint.config, key)
        if isinstance(value, str) and value:
            found.append((key, value))
    for value in _base_models(checkpoint):
        found.append((f"base_model of {_CARD}", value))
    return tuple(found)


def _base_models(checkpoint: Checkpoint) -> list[str]:
    """Return `base_model` of the model card's metadata (huggingface_hub `repocard_data.py`)."""
    files = files_of(checkpoint)
    if not files.has(_CARD):
        return []
    try:
        text = files.read(_CARD).decode("utf-8", "replace").lstrip("\ufeff")
    except SourceError:
        return []
    if not text.startswith("---"):
        return []
    from huggingface_hub import ModelCard

    try:
        base: Any = ModelCard(text, ignore_metadata_errors=True).data.get("base_model")
    except Exception:  # its YAML library raises what it likes; a broken card names nothing
        return []
    names = base if isinstance(base, list) else [base]
    return [name for name in names if isinstance(name, str) and name]
