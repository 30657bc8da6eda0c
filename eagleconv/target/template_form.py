"""A Jinja template in a form that only a change of what it renders changes.

The lexer of jinja2 3.1 (`lexer.py`, `Lexer.__init__` and `tokeniter`) with `trim_blocks` and
`lstrip_blocks`, as transformers renders chat templates (`utils/chat_template_utils.py`,
`_compile_jinja_template`), in small: whitespace inside tags, comments, quotes and what trimming
removes anyway are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

#: A piece of text, or the tokens of a tag, its opening bracket first.
Piece = tuple[str, ...]
TEXT = "text"

_OPEN = re.compile(
    r"(?P<raw>\{%[-+]?\s*raw\s*(?:-%\}\s*|%\}))|(?P<comment>\{#)|(?P<block>\{%)|(?P<variable>\{\{)"
)
_RAW_END = re.compile(r"(.*?)\{%([-+]?)\s*endraw\s*(?:\+%\}|-%\}\s*|%\}\n?)", re.DOTALL)
_COMMENT_END = re.compile(r".*?(?:\+#\}|-#\}\s*|#\}\n?)", re.DOTALL)
_BLOCK_END = re.compile(r"\+%\}|-%\}\s*|%\}\n?")
_VARIABLE_END = re.compile(r"-\}\}\s*|\}\}")
_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<float>(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+))"
    r"|(?P<number>0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*)"
    r"|(?P<name>\w+)"
    r"|(?P<string>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<operator>//|\*\*|==|!=|>=|<=|[-+/*%~\[\](){}=<>.:|,;])",
    re.DOTALL | re.IGNORECASE,
)
_PAIRS = {"{": "}", "(": ")", "[": "]"}


class NotJinja(ValueError):
    """The text is no template that jinja2 would read."""


def pieces(template: str) -> tuple[Piece, ...]:
    """Return what a template is made of, neighbouring texts joined.

    Raises:
        NotJinja: A tag does not end, or holds what no expression does.
    """
    out: list[Piece] = []
    for piece in _pieces(template):
        if piece[0] == TEXT and out and out[-1][0] == TEXT:
            out[-1] = (TEXT, out[-1][1] + piece[1])
        elif piece != (TEXT, ""):
            out.append(piece)
    return tuple(out)


def lines(parts: tuple[Piece, ...]) -> list[str]:
    """Return pieces as lines for people: each text and each tag by itself."""
    return [
        repr(part[1]) if part[0] == TEXT else " ".join(part) + (" %}" if part[0] == "{%" else " }}")
        for part in parts
    ]


def _pieces(template: str) -> Iterator[Piece]:
    source = re.sub(r"\r\n|\r|\n", "\n", template)
    # keep_trailing_newline is off.
    source = source.removesuffix("\n")
    at = 0
    starts_line = True
    while True:
        found = _OPEN.search(source, at)
        if found is None:
            yield TEXT, source[at:]
            return
        text = source[at : found.start()]
        kind = str(found.lastgroup)
        sign = source[found.start() + 2 : found.start() + 3]
        yield TEXT, _stripped(text, sign, kind, starts_line)
        at = found.end()
        if kind != "raw" and sign in ("-", "+"):
            at += 1
        if kind in ("raw", "comment") and at == len(source):
            return  # as jinja2: nothing follows, so nothing is missing
        if kind == "raw":
            raw = _RAW_END.match(source, at)
            if raw is None:
                raise NotJinja("a raw block does not end")
            yield TEXT, _stripped(raw[1], raw[2], "block", found[0].endswith("\n"))
            at = raw.end()
        elif kind == "comment":
            comment = _COMMENT_END.match(source, at)
            if comment is None:
                raise NotJinja("a comment does not end")
            at = comment.end()
        else:
            tag = "{%" if kind == "block" else "{{"
            tokens, at = _tag(source, at, _BLOCK_END if kind == "block" else _VARIABLE_END)
            yield (tag, *tokens)
        starts_line = source[at - 1 : at] == "\n"


def _stripped(text: str, sign: str, kind: str, starts_line: bool) -> str:
    """Return the text before a tag without what the tag's sign, or `lstrip_blocks`, takes."""
    if sign == "-":
        return text.rstrip()
    if sign != "+" and kind != "variable":
        start = text.rfind("\n") + 1
        if (start > 0 or starts_line) and not text[start:].strip():
            return text[:start]
    return text


def _tag(source: str, at: int, end: re.Pattern[str]) -> tuple[list[str], int]:
    tokens: list[str] = []
    expected: list[str] = []
    while True:
        closed = None if expected else end.match(source, at)
        if closed is not None:
            return tokens, closed.end()
        found = _TOKEN.match(source, at)
        if found is None:
            raise NotJinja(f"{source[at : at + 10]!r} in a tag")
        at, text = found.end(), found[0]
        if found.lastgroup == "space":
            continue
        if found.lastgroup == "string":
            text = repr(_unescaped(text[1:-1]))
        elif found.lastgroup in ("number", "float"):
            text = text.replace("_", "").lower()
        elif text in _PAIRS:
            expected.append(_PAIRS[text])
        elif text in _PAIRS.values() and (not expected or expected.pop() != text):
            raise NotJinja(f"{text} closes nothing")
        tokens.append(text)


def _unescaped(text: str) -> str:
    try:
        return text.encode("ascii", "backslashreplace").decode("unicode-escape")
    except UnicodeDecodeError as error:
        raise NotJinja(str(error)) from None
