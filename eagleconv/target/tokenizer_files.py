"""Tokenizers that are not stored as tokenizer.json: sentencepiece, tiktoken, tekken, vocab and merges.

Sources: sentencepiece 0.2 `src/sentencepiece_model.proto`; tiktoken 0.9 `tiktoken/load.py`,
`load_tiktoken_bpe`; mistral-common 1.8 `tokens/tokenizers/tekken.py`; transformers 5
`models/{gpt2,bert}/tokenization_*.py` for vocab.json, merges.txt and vocab.txt.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from eagleconv.checkpoint.json_file import load_object
from eagleconv.errors import SourceError
from eagleconv.target.files import Files
from eagleconv.target.tokenizer_json import FLAGS, GAP, AddedToken, Parsed, score_text

_CONFIG = "tokenizer_config.json"
#: Types of pieces that are no part of a text (sentencepiece_model.proto, SentencePiece.Type).
_CONTROL = {2: "unknown", 3: "control", 5: "unused"}


def read_other(files: Files) -> Parsed | None:
    """Read the first known form there is; None where there is none.

    Raises:
        SourceError: It is there and cannot be read.
    """
    names = [n for n in files.names() if "/" not in n]
    models = [n for n in names if n.endswith((".model", ".tiktoken"))]
    for name in (*sorted(models, key=lambda n: n != "tokenizer.model"), "tekken.json"):
        if name not in names:
            continue
        try:
            data = files.read(name)
            if name == "tekken.json":
                return _with_added(files, _tekken(load_object(data, name)))
            kind = _tiktoken if _is_tiktoken(data) else _sentencepiece
            return _with_added(files, kind(data))
        except (ValueError, KeyError, TypeError, struct.error, IndexError) as error:
            raise _broken(files, name, error) from None
    for vocabulary in ("vocab.json", "vocab.txt"):
        if vocabulary in names:
            try:
                return _with_added(files, _listed(files, vocabulary))
            except (ValueError, KeyError, TypeError) as error:
                raise _broken(files, vocabulary, error) from None
    return None


def _broken(files: Files, name: str, error: Exception) -> SourceError:
    return SourceError(
        f"{files.label}: {name} is no tokenizer of a known form ({type(error).__name__}: {error})",
        "download it again",
    )


def _is_tiktoken(data: bytes) -> bool:
    """Say whether a file is lines of base64 and rank, and no protobuf."""
    first = data.split(b"\n", 1)[0].split()
    try:
        return (
            len(first) == 2
            and first[1].isdigit()
            and bool(base64.b64decode(first[0], validate=True))
        )
    except binascii.Error:
        return False


def _tiktoken(data: bytes) -> Parsed:
    ids = {}
    for line in data.splitlines():
        if line.strip():
            token, rank = line.split()
            ids[int(rank)] = base64.b64decode(token, validate=True).decode("latin-1")
    # The pattern that splits a text is in the model's code, not in its files.
    return Parsed("tiktoken", ids, None, (), {"model": {"type": "tiktoken"}})


def _tekken(text: Mapping[str, Any]) -> Parsed:
    config = text["config"]
    special = [
        AddedToken(int(t["rank"]), str(t["token_str"]), FLAGS["special"])
        for t in text.get("special_tokens") or ()
    ]
    first = int(config.get("default_num_special_tokens", len(special)))
    count = int(config.get("default_vocab_size", first + len(text["vocab"]))) - first
    ids = {
        first + int(t["rank"]): base64.b64decode(t["token_bytes"]).decode("latin-1")
        for t in text["vocab"][:count]
    }
    ids |= {token.id: token.content for token in special}
    model = {"type": "tekken", "pattern": config["pattern"]}
    return Parsed("tekken", ids, None, tuple(special), {"model": model})


def _listed(files: Files, vocabulary: str) -> Parsed:
    if vocabulary == "vocab.txt":
        lines = files.read(vocabulary).decode("utf-8").splitlines()
        return Parsed(
            "vocab.txt", dict(enumerate(lines)), None, (), {"model": {"type": "WordPiece"}}
        )
    ids = {int(i): token for token, i in load_object(files.read(vocabulary), vocabulary).items()}
    merges = None
    if files.has("merges.txt"):
        lines = files.read("merges.txt").decode("utf-8").splitlines()
        pairs = (line for line in lines if line.strip() and not line.startswith("#version"))
        merges = tuple(GAP.join(pair.split()) for pair in pairs)
    return Parsed("vocab.json", ids, merges, (), {"model": {"type": "BPE"}})


def _with_added(files: Files, parsed: Parsed) -> Parsed:
    """Complete a tokenizer by the added tokens that transformers keeps beside it."""
    added = {token.id: token for token in parsed.added}
    if files.has("added_tokens.json"):
        text = load_object(files.read("added_tokens.json"), "added_tokens.json")
        added |= {int(i): AddedToken(int(i), content, "") for content, i in text.items()}
    if files.has(_CONFIG):
        text = load_object(files.read(_CONFIG), _CONFIG)
        for number, token in (text.get("added_tokens_decoder") or {}).items():
            flags = "".join(letter for name, letter in FLAGS.items() if token.get(name))
            added[int(number)] = AddedToken(int(number), str(token["content"]), flags)
    ordered = tuple(added[i] for i in sorted(added))
    ids = {**parsed.ids, **{token.id: token.content for token in ordered}}
    return Parsed(parsed.kind, ids, parsed.merges, ordered, parsed.components)


def _sentencepiece(data: bytes) -> Parsed:
    ids: dict[int, str] = {}
    scores, added = [], []
    model: dict[str, Any] = {"type": "sentencepiece", "model_type": 1, "byte_fallback": False}
    normalizer: dict[str, Any] = {
        "add_dummy_prefix": True,
        "remove_extra_whitespaces": True,
        "escape_whitespaces": True,
    }
    for field, value in _fields(data):
        if field == 1:
            piece = dict(_fields(_bytes(value)))
            number, text = len(ids), _bytes(piece[1]).decode("utf-8")
            ids[number] = text
            scores.append(score_text(struct.unpack("<f", struct.pack("<I", piece.get(2, 0)))[0]))
            kind = piece.get(3, 1)
            if kind in _CONTROL:
                added.append(AddedToken(number, text, _CONTROL[kind][0]))
        elif field == 2:
            trainer = dict(_fields(_bytes(value)))
            model |= {"model_type": trainer.get(3, 1), "byte_fallback": bool(trainer.get(35, 0))}
        elif field == 3:
            spec = dict(_fields(_bytes(value)))
            normalizer |= {
                "charsmap": _digest(spec.get(2, b"")),
                "add_dummy_prefix": bool(spec.get(3, 1)),
                "remove_extra_whitespaces": bool(spec.get(4, 1)),
                "escape_whitespaces": bool(spec.get(5, 1)),
            }
    if not ids:
        raise ValueError("no pieces")
    components = {"model": model, "normalizer": normalizer}
    return Parsed("sentencepiece", ids, tuple(scores), tuple(added), components)


def _digest(value: Any) -> str:
    import hashlib

    return hashlib.sha256(_bytes(value)).hexdigest()


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number where bytes are expected")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of every field of a protobuf message: integers, and bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        value: Any
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("it ends early")
            value, at = data[at : at + size], at + size
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            (value,) = struct.unpack_from("<Q" if kind == 1 else "<I", data, at)
            at += size
        else:
            raise ValueError("it is no protobuf")
        yield key >> 3, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("it is no protobuf, or ends early")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
