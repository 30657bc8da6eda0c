"""The chat-template level of a fingerprint: the same for every way to store the same template."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from eagleconv.checkpoint.json_file import load_object
from eagleconv.errors import SourceError
from eagleconv.target.files import Files
from eagleconv.target.template_form import TEXT, NotJinja, Piece, lines, pieces

# transformers 5.24 `utils/hub.py` and `tokenization_utils_base.py`, `_from_pretrained`: files win
# over tokenizer_config.json. chat_template.json is what processors had before.
_FILE, _FOLDER = "chat_template.jinja", "additional_chat_templates/"
_CONFIG, _PROCESSOR = "tokenizer_config.json", "chat_template.json"
_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class TemplatePrint:
    """What identifies the chat templates of a target.

    Attributes:
        templates: Name -> the template's pieces in canonical form, one line each.
    """

    templates: Mapping[str, tuple[str, ...]]

    @property
    def digest(self) -> str:
        """Return sha256 of all templates."""
        text = json.dumps({n: list(t) for n, t in self.templates.items()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {
            "digest": self.digest,
            "templates": {name: list(parts) for name, parts in sorted(self.templates.items())},
        }

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> TemplatePrint:
        """Read what `as_json` returned."""
        return cls({name: tuple(parts) for name, parts in text["templates"].items()})


def read_templates(files: Files) -> TemplatePrint | None:
    """Read the templates in use; None where there are none, as for base models.

    Raises:
        SourceError: A file is there and cannot be read.
    """
    found: dict[str, str] = {}
    if files.has(_FILE):
        found[_DEFAULT] = _text(files, _FILE)
    for name in files.names():
        if name.startswith(_FOLDER) and name.endswith(".jinja"):
            found[name[len(_FOLDER) : -len(".jinja")]] = _text(files, name)
    for name in (_CONFIG, _PROCESSOR):
        if not found and files.has(name):
            found = _of_config(load_object(files.read(name), name), f"{files.label}: {name}")
    if not found:
        return None
    return TemplatePrint({name: _canonical(text) for name, text in sorted(found.items())})


def _text(files: Files, name: str) -> str:
    try:
        return files.read(name).decode("utf-8")
    except UnicodeDecodeError:
        raise SourceError(f"{files.label}: {name} is no UTF-8 text", "download it again") from None


def _of_config(config: Mapping[str, Any], label: str) -> dict[str, str]:
    given = config.get("chat_template")
    if given is None:
        return {}
    if isinstance(given, str):
        return {_DEFAULT: given}
    if isinstance(given, list):
        given = {t.get("name"): t.get("template") for t in given if isinstance(t, dict)}
    if not isinstance(given, dict) or not all(
        isinstance(k, str) and isinstance(v, str) for k, v in given.items()
    ):
        raise SourceError(
            f"{label}: chat_template is neither a text nor a list of names and templates",
            "save the tokenizer again with transformers",
        )
    return given


def _canonical(text: str) -> tuple[str, ...]:
    parts: tuple[Piece, ...]
    try:
        parts = pieces(text)
    except NotJinja:
        # transformers would not render it either: the text itself, line ends apart.
        parts = ((TEXT, text.replace("\r\n", "\n")),)
    return tuple(lines(parts))


def compare_templates(ours: TemplatePrint, theirs: TemplatePrint) -> tuple[str, ...]:
    """Return a sentence for each template that differs; the first differing piece of each."""
    out = []
    for name in sorted({*ours.templates, *theirs.templates}):
        a, b = ours.templates.get(name), theirs.templates.get(name)
        if a == b:
            continue
        label = "the template" if name == _DEFAULT else f"the template {name!r}"
        if a is None or b is None:
            out.append(f"{label} is {'new' if a is None else 'gone'}")
            continue
        pairs = zip_longest(a, b, fillvalue="its end")
        at, (old, new) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        old, new = _near(old, new)
        out.append(f"{label} differs first in piece {at + 1}: {new}, recorded {old}")
    return tuple(out)


def _near(a: str, b: str) -> tuple[str, str]:
    """Return two texts from a little before the place where they part."""
    pairs = zip_longest(a, b)
    parted = next(i for i, (x, y) in enumerate(pairs) if x != y)
    start = max(0, parted - 20)
    return _cut(a[start:], start), _cut(b[start:], start)


def _cut(text: str, start: int) -> str:
    return ("..." if start else "") + (text if len(text) <= 60 else text[:57] + "...")
