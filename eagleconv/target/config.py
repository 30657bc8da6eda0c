"""The target's config as a drafter sees it."""

import os
from collections.abc import Mapping
from typing import Any

from eagleconv.checkpoint.json_file import load_object
from eagleconv.checkpoint.source import parse_hub_id
from eagleconv.drafter.facts import TargetConfig
from eagleconv.errors import SourceError

#: Where wrappers (vision, audio) keep the config of their language model.
NESTED: tuple[str, ...] = ("text_config", "llm_config", "language_config", "thinker_config")


def read_target(text: str) -> TargetConfig:
    """Read a target's config from a directory, a config.json, or the Hub.

    Raises:
        SourceError: It cannot be read, or says less than a drafter needs.
    """
    path = os.path.join(text, "config.json") if os.path.isdir(text) else text
    if not os.path.exists(text):
        hub_id = parse_hub_id(text)
        if hub_id is None:
            raise SourceError(
                f"target {text}: no such file or directory, and not a Hub id",
                "give a directory, a config.json, org/name or hf://org/name@revision",
            )
        from eagleconv.checkpoint.hub import download_config

        path = download_config(hub_id.repo, hub_id.revision)
    try:
        with open(path, "rb") as file:
            config = load_object(file.read(), f"target {path}")
    except OSError as error:
        raise SourceError(f"target {path} cannot be read: {error.strerror}") from None
    return target_of(config, text)


def language_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of the language model, inside wrappers too."""
    while "num_hidden_layers" not in config:
        inner = next((config[k] for k in NESTED if isinstance(config.get(k), dict)), None)
        if inner is None:
            break
        config = inner
    return config


def target_of(config: Mapping[str, Any], name: str) -> TargetConfig:
    """Read the facts from a parsed config, inside wrappers too.

    Raises:
        SourceError: A number is missing, or the config is a drafter's.
    """
    if "draft_vocab_size" in config or "speculators_model_type" in config:
        raise SourceError(f"target {name} is a drafter itself", "give the model it drafts for")
    text = language_config(config)
    values = {}
    for key in ("num_hidden_layers", "hidden_size", "vocab_size"):
        value = text.get(key, config.get(key))
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise SourceError(
                f"target {name}: config.json says no usable {key}", "give the target's own config"
            )
        values[key] = value
    return TargetConfig(
        name,
        str(text.get("model_type", config.get("model_type", ""))),
        values["num_hidden_layers"],
        values["hidden_size"],
        values["vocab_size"],
    )
