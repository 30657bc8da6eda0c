"""tokenizer.json in a form that no library version, key order or spelling of a default changes.

Defaults and old spellings are those of the `tokenizers` crate 0.23 (tokenizers/src): models/bpe/
serialization.rs, models/wordpiece/mod.rs, models/unigram/serialization.rs, pre_tokenizers/{byte_level,
metaspace,split,punctuation,digits}.rs, normalizers/bert.rs, processors/{template,roberta}.rs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eagleconv.errors import SourceError

#: Between the parts of an entry; no token holds it.
GAP = "\x00"


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that is found in a text before anything else happens to it.

    Attributes:
        id: Its id.
        content: Its text.
        flags: Letters of those that are set (`FLAGS`).
    """

    id: int
    content: str
    flags: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """A tokenizer, whatever it is stored as.

    Attributes:
        kind: What it was read from.
        ids: Id -> text of its token, added ones included.
        merges: Pairs in the order of their rank, or scores; None where the form has none.
        added: By id.
        components: `model`, `normalizer`, `pre_tokenizer`, `post_processor`: canonical, or None.
    """

    kind: str
    ids: Mapping[int, str]
    merges: tuple[str, ...] | None
    added: tuple[AddedToken, ...]
    components: Mapping[str, Any]


#: Type -> key -> what its absence means; keys that do not move ids are in _IRRELEVANT.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "ByteLevel": {"add_prefix_space": True, "use_regex": True},
    "Metaspace": {"replacement": "▁", "prepend_scheme": "always", "split": True},
    "Split": {"invert": False},
    "Punctuation": {"behavior": "Isolated"},
    "Digits": {"individual_digits": False},
    "BertNormalizer": {
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    "RobertaProcessing": {"add_prefix_space": True},
}
_IRRELEVANT = {
    "ByteLevel": ("trim_offsets",),
    "RobertaProcessing": ("trim_offsets",),
    "Metaspace": ("str_rep",),
    # Only texts that come in pairs look at it.
    "TemplateProcessing": ("pair",),
}
_MODEL: dict[str, dict[str, Any]] = {
    "BPE": {
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    },
    "Unigram": {"unk_id": None, "byte_fallback": False},
    "WordPiece": {
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    },
    "WordLevel": {"unk_token": "<unk>"},
}
#: Flags of added tokens and their letters.
FLAGS = {"single_word": "w", "lstrip": "l", "rstrip": "r", "normalized": "n", "special": "s"}


def parse(text: Mapping[str, Any], label: str) -> Parsed:
    """Read a parsed tokenizer.json.

    Raises:
        SourceError: It is none that the `tokenizers` library would read.
    """
    try:
        return _parse(text)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise SourceError(
            f"{label} is no tokenizer of a known form ({type(error).__name__}: {error})",
            "download it again, or save it again with the tokenizers library",
        ) from None


def _parse(text: Mapping[str, Any]) -> Parsed:
    model = text["model"]
    added = tuple(sorted(map(_added, text.get("added_tokens") or ()), key=lambda a: a.id))
    vocab = model["vocab"]
    # Before 0.8 a model did not say its type.
    kind = model.get("type") or _guess(model)
    merges: tuple[str, ...] | None = None
    if isinstance(vocab, list):
        ids = {i: _string(piece) for i, (piece, _) in enumerate(vocab)}
        merges = tuple(score_text(score) for _, score in vocab)
    else:
        ids = {_integer(i): _string(token) for token, i in vocab.items()}
        if len(ids) != len(vocab):
            raise ValueError("two tokens have one id")
        if model.get("merges") is not None:
            merges = tuple(_merge(pair) for pair in model["merges"])
    options = {k: model.get(k) for k in _MODEL.get(kind, {})}
    options = {k: v if v not in (None, "") else _MODEL[kind][k] for k, v in options.items()}
    return Parsed(
        "tokenizer.json",
        ids | {a.id: a.content for a in added},
        merges,
        added,
        {
            "model": {"type": kind, **options},
            "normalizer": canonical(text.get("normalizer")),
            "pre_tokenizer": canonical(text.get("pre_tokenizer")),
            "post_processor": _post(canonical(text.get("post_processor"))),
        },
    )


def score_text(score: float) -> str:
    """Return a score as text: versions of the library differ in the last digits they read."""
    return f"{float(score):.7g}"


def _guess(model: Mapping[str, Any]) -> str:
    if isinstance(model["vocab"], list):
        return "Unigram"
    if "merges" in model:
        return "BPE"
    return "WordPiece" if "max_input_chars_per_word" in model else "WordLevel"


def _integer(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no id")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no token")
    return value


def _merge(pair: Any) -> str:
    left, right = pair.split(" ") if isinstance(pair, str) else pair
    return f"{_string(left)}{GAP}{_string(right)}"


def _added(token: Mapping[str, Any]) -> AddedToken:
    absent = {"normalized": not token.get("special")}
    flags = (letter for name, letter in FLAGS.items() if token.get(name, absent.get(name)))
    return AddedToken(_integer(token["id"]), _string(token["content"]), "".join(flags))


def canonical(component: Any) -> Any:
    """Return a component with its defaults written out, or None where it does nothing."""
    if component is None:
        return None
    kind = component["type"]
    if kind == "Sequence":
        children = next(
            component[k]
            for k in ("normalizers", "pretokenizers", "processors", "decoders")
            if k in component
        )
        flat: list[Any] = []
        for child in map(canonical, children):
            flat += child if isinstance(child, list) else [] if child is None else [child]
        return flat if len(flat) > 1 else flat[0] if flat else None
    found = {**_DEFAULTS.get(kind, {}), **_renamed(kind, component)}
    for key in _IRRELEVANT.get(kind, ()):
        found.pop(key, None)
    if "precompiled_charsmap" in found:
        # Some hundred kilobytes of base64.
        data = json.dumps(found["precompiled_charsmap"]).encode()
        found["precompiled_charsmap"] = hashlib.sha256(data).hexdigest()
    return dict(sorted(found.items()))


def _renamed(kind: str, component: Mapping[str, Any]) -> dict[str, Any]:
    """Return a component with old keys in their new form."""
    out = dict(component)
    # 0.15 wrote both, with the scheme `always` beside a false prefix, which won; 0.19 refuses such
    # a pair (pre_tokenizers/metaspace.rs, `Deserialize`).
    if kind == "Metaspace" and not out.pop("add_prefix_space", True):
        out["prepend_scheme"] = "never"
    return out


def _post(component: Any) -> Any:
    """Drop processors that only move offsets."""
    if isinstance(component, list):
        kept = [c for c in component if c["type"] != "ByteLevel"]
        return kept if len(kept) > 1 else kept[0] if kept else None
    return None if component is not None and component["type"] == "ByteLevel" else component
