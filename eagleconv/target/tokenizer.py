"""The tokenizer level of a fingerprint: what it does to a text, however it is stored."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eagleconv.checkpoint.json_file import load_object
from eagleconv.target import probe_text
from eagleconv.target.files import Files
from eagleconv.target.tokenizer_files import read_other
from eagleconv.target.tokenizer_json import AddedToken, Parsed, parse

_FILE = "tokenizer.json"
#: Entries of a list that share a digest of four hex digits.
BLOCK = 256


@dataclass(frozen=True, slots=True)
class Listed:
    """A long list (ids, merges) in a form that names the first entry that differs.

    Attributes:
        count: Entries.
        digest: sha256 (16 hex digits) of all of them.
        each: One byte of a digest for each entry: 255 of 256 changes show in it.
        blocks: Four hex digits for each `BLOCK` entries: the rest shows there.
        texts: The entries themselves, where they were read just now; not stored.
    """

    count: int
    digest: str
    each: bytes
    blocks: str
    texts: Sequence[str] | None = field(default=None, compare=False, repr=False)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {
            "count": self.count,
            "digest": self.digest,
            "each": base64.b64encode(self.each).decode(),
            "blocks": self.blocks,
        }


def listed(texts: Sequence[str]) -> Listed:
    """Digest a list."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    each = bytes(hashlib.blake2b(e, digest_size=1).digest()[0] for e in encoded)
    blocks = "".join(
        hashlib.sha256(b"\n".join(_framed(encoded[start : start + BLOCK]))).hexdigest()[:4]
        for start in range(0, len(encoded), BLOCK)
    )
    digest = hashlib.sha256(b"\n".join(_framed(encoded))).hexdigest()[:16]
    return Listed(len(texts), digest, each, blocks, texts)


def _framed(entries: Iterable[bytes]) -> Iterable[bytes]:
    return (b"%d:%s" % (len(entry), entry) for entry in entries)


def listed_from_json(text: Mapping[str, Any]) -> Listed:
    """Read what `Listed.as_json` returned."""
    return Listed(text["count"], text["digest"], base64.b64decode(text["each"]), text["blocks"])


@dataclass(frozen=True, slots=True)
class TokenizerPrint:
    """What identifies a tokenizer.

    Attributes:
        kind: What it was read from: `tokenizer.json`, `sentencepiece`, `tiktoken`, ...
        vocabulary: Texts by id; ids that are not used are empty.
        merges: Merges by rank, or scores by id; None where the form has none.
        added: Added tokens by id.
        components: `model` (its options), `normalizer`, `pre_tokenizer`, `post_processor`.
        probe: Ids of `probe_text.TEXT`; None where another library would be needed.
    """

    kind: str
    vocabulary: Listed
    merges: Listed | None
    added: tuple[AddedToken, ...]
    components: Mapping[str, Any]
    probe: tuple[int, ...] | None

    @property
    def count(self) -> int:
        """Return one more than the largest id."""
        return self.vocabulary.count

    @property
    def largest_id(self) -> int:
        """Return the largest id."""
        return self.vocabulary.count - 1

    @property
    def digest(self) -> str:
        """Return sha256 of all parts but the probe, which follows from them."""
        parts = {k: v for k, v in self.as_json().items() if k not in ("digest", "probe")}
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {
            "kind": self.kind,
            "vocabulary": self.vocabulary.as_json(),
            "merges": self.merges.as_json() if self.merges else None,
            "added_tokens": [[t.id, t.content, t.flags] for t in self.added],
            "components": dict(self.components),
            "probe": None
            if self.probe is None
            else {"version": probe_text.VERSION, "ids": list(self.probe)},
        }


def print_from_json(text: Mapping[str, Any]) -> TokenizerPrint:
    """Read what `TokenizerPrint.as_json` returned."""
    probe = text["probe"]
    return TokenizerPrint(
        text["kind"],
        listed_from_json(text["vocabulary"]),
        listed_from_json(text["merges"]) if text["merges"] else None,
        tuple(AddedToken(*token) for token in text["added_tokens"]),
        text["components"],
        tuple(probe["ids"]) if probe and probe["version"] == probe_text.VERSION else None,
    )


def read_tokenizer(files: Files) -> TokenizerPrint | None:
    """Read a tokenizer; None where there is none. tokenizer.json wins over other forms.

    Raises:
        SourceError: It is there and cannot be read.
    """
    if not files.has(_FILE):
        other = read_other(files)
        return None if other is None else _print(other, None)
    data = files.read(_FILE)
    label = f"{files.label}: {_FILE}"
    return _print(parse(load_object(data, label), label), _probe(data))


def _print(parsed: Parsed, probe: tuple[int, ...] | None) -> TokenizerPrint:
    ids = parsed.ids
    texts = [ids.get(i, "") for i in range(max(ids, default=-1) + 1)]
    return TokenizerPrint(
        parsed.kind,
        listed(texts),
        None if parsed.merges is None else listed(parsed.merges),
        parsed.added,
        parsed.components,
        probe,
    )


def _probe(data: bytes) -> tuple[int, ...] | None:
    """Encode the probe text; None where the installed library is older than the file's form."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(data.decode("utf-8"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tuple(tokenizer.encode(probe_text.TEXT, add_special_tokens=False).ids)
    except Exception:  # the library raises Exception itself
        return None
