"""What identifies a target to its drafters, level by level, in a file of some hundred kilobytes."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eagleconv import __version__
from eagleconv.checkpoint.json_file import load_object
from eagleconv.errors import SourceError
from eagleconv.target.chat_template import TemplatePrint, read_templates
from eagleconv.target.rows import Weights, read_weights, weights_from_json
from eagleconv.target.tokenizer import TokenizerPrint, print_from_json, read_tokenizer
from eagleconv.target.view import TargetView, quantization_of

KIND = "eagleconv target fingerprint"
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: The levels that the digest covers; where a target lies, and who says what its files hash to, are
#: no part of it.
_LEVELS = (
    "hidden_states",
    "vocabulary",
    "positions",
    "quantization",
    "tokenizer",
    "chat_template",
    "weights",
)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A target, level by level (schemas/fingerprint.schema.json).

    Attributes:
        source: Repository, or the last part of a local path.
        revision: Commit sha of a Hub source, else empty.
        hidden_states: Model type, number of layers, width and stated dtype of what is tapped.
        vocabulary: Size by the config, rows of the embedding, whether the head is tied to it.
        positions: Longest context and rope.
        quantization: Scheme of the stored weights; empty where there is none.
        tokenizer: None where there is none.
        chat_template: None where there is none.
        weights: Sampled rows; None where none could be read.
        files: Weight file -> sha256, where known without reading it.
        missing: Level -> why it could not be read.
    """

    source: str
    revision: str
    hidden_states: Mapping[str, Any]
    vocabulary: Mapping[str, Any]
    positions: Mapping[str, Any]
    quantization: str
    tokenizer: TokenizerPrint | None
    chat_template: TemplatePrint | None
    weights: Weights | None
    files: Mapping[str, str]
    missing: Mapping[str, str]

    @property
    def digest(self) -> str:
        """Return sha256 of the levels in canonical JSON: equal wherever the same target lies."""
        return _digest(self._levels())

    def _levels(self) -> dict[str, Any]:
        return {
            "hidden_states": dict(self.hidden_states),
            "vocabulary": dict(self.vocabulary),
            "positions": dict(self.positions),
            "quantization": self.quantization,
            "tokenizer": self.tokenizer.as_json() if self.tokenizer else None,
            "chat_template": self.chat_template.as_json() if self.chat_template else None,
            "weights": self.weights.as_json() if self.weights else None,
        }

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it, its digest on top."""
        return {
            "schema_version": 1,
            "kind": KIND,
            "digest": self.digest,
            "tool": {"name": "eagleconv", "version": __version__},
            "source": self.source,
            "revision": self.revision,
            **self._levels(),
            "files": dict(self.files),
            "missing": dict(self.missing),
        }


def _digest(levels: Mapping[str, Any]) -> str:
    text = json.dumps(levels, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def take_fingerprint(view: TargetView, quick: bool = False, *, weights: bool = True) -> Fingerprint:
    """Read what identifies a target; of a repository some megabytes are fetched.

    Args:
        view: From `open_target`.
        quick: Of the weights, read embedding, head, and one matrix and one norm of each layer.
        weights: Read rows of the weights; else that level is None.

    Raises:
        SourceError: A file that is there cannot be read.
    """
    files, facts = view.files, view.facts
    tokenizer = read_tokenizer(files) if files else None
    template = read_templates(files) if files else None
    missing = {}
    if files is None:
        missing = dict.fromkeys(("tokenizer", "chat_template"), "only a config.json was given")
    rows = None
    if view.weights is None:
        missing["weights"] = view.why
    elif view.weights.form != "safetensors":
        missing["weights"] = "the weights are pickled, which cannot be read row by row"
    elif weights:
        ids = tokenizer.largest_id + 1 if tokenizer else facts.vocab_size
        rows = read_weights(view.weights, min(ids, facts.vocab_size), quick)
    embedding = view.tensor("embedding")
    return Fingerprint(
        source=facts.name if view.revision else os.path.basename(os.path.abspath(facts.name)),
        revision=view.revision,
        hidden_states={
            "model_type": facts.model_type,
            "num_layers": facts.num_layers,
            "hidden_size": facts.hidden_size,
            "dtype": view.dtype,
        },
        vocabulary={
            "size": facts.vocab_size,
            "rows": embedding.shape[0] if embedding else None,
            "tied": view.tied,
        },
        positions=view.positions(),
        quantization=quantization_of(view),
        tokenizer=tokenizer,
        chat_template=template,
        weights=rows,
        files=_known_digests(view),
        missing=missing,
    )


def _known_digests(view: TargetView) -> dict[str, str]:
    """Return sha256 of weight files as far as the Hub, or its cache, tells."""
    if view.weights is None:
        return {}
    if not view.weights.root:
        return dict(view.weights.digests)
    found = {}
    for name in view.weights.weight_files:
        # The cache of huggingface_hub links names to files named by their digest.
        real = os.path.realpath(os.path.join(view.weights.root, name))
        if os.path.basename(os.path.dirname(real)) == "blobs" and _SHA256.fullmatch(
            os.path.basename(real)
        ):
            found[name] = os.path.basename(real)
    return found


def parse_fingerprint(text: Mapping[str, Any], label: str) -> Fingerprint:
    """Read what `Fingerprint.as_json` returned.

    Args:
        text: Parsed JSON.
        label: Where it comes from, for errors.

    Raises:
        SourceError: It has another form, or its digest is not that of its levels.
    """
    if text.get("kind") != KIND or text.get("schema_version") != 1:
        raise SourceError(
            f"{label} is no fingerprint of this version", "make it with `eagleconv fingerprint`"
        )
    try:
        levels = {name: text[name] for name in _LEVELS}
        if text["digest"] != _digest(levels):
            raise SourceError(
                f"{label} was changed: its digest is not that of its levels",
                "make it again with `eagleconv fingerprint`",
            )
        return Fingerprint(
            source=text["source"],
            revision=text["revision"],
            hidden_states=text["hidden_states"],
            vocabulary=text["vocabulary"],
            positions=text["positions"],
            quantization=text["quantization"],
            tokenizer=_maybe(print_from_json, text["tokenizer"]),
            chat_template=_maybe(TemplatePrint.from_json, text["chat_template"]),
            weights=_maybe(weights_from_json, text["weights"]),
            files=text["files"],
            missing=text["missing"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SourceError(
            f"{label} is no whole fingerprint ({type(error).__name__}: {error})",
            "make it again with `eagleconv fingerprint`",
        ) from None


def _maybe(read: Any, text: Any) -> Any:
    return None if text is None else read(text)


def load_fingerprint(path: str) -> Fingerprint | None:
    """Read a file; None where it is JSON of another kind, as a config.json.

    Raises:
        SourceError: It cannot be read, is not JSON, or is a broken fingerprint.
    """
    try:
        with open(path, "rb") as file:
            text = load_object(file.read(), path)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {(error.strerror or '').lower()}") from None
    return parse_fingerprint(text, path) if "kind" in text else None
