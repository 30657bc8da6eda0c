"""Strict JSON: what two readers could read differently is refused."""

import json
from typing import Any

from eagleconv.errors import SourceError

_BOM = b"\xef\xbb\xbf"


class _Refused(ValueError):
    """Valid for Python's parser, not for us."""


def load_json(data: bytes, label: str) -> Any:
    """Parse strict JSON.

    Args:
        data: The file.
        label: Its name, for the error.

    Returns:
        The parsed value.

    Raises:
        SourceError: Not UTF-8, a byte order mark, a syntax error, a key given twice at any depth,
            NaN or an infinity, a number that no double holds, half a surrogate pair, or nesting
            too deep.
    """
    if data.startswith(_BOM):
        raise SourceError(
            f"{label} starts with a byte order mark, which JSON forbids",
            "save it as UTF-8 without BOM",
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{label} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
            "save it as UTF-8, or download it again",
        ) from None
    # The slow hooks are passed only where the text gives them something to do.
    parse_int = _integer if "-0" in text else None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_constant,
            parse_float=_finite,
            parse_int=parse_int,
        )
        if "\\ud" in text or "\\uD" in text:
            _check_surrogates(value)
    except json.JSONDecodeError as error:
        raise SourceError(
            f"{label} is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}",
            "repair it, or download it again",
        ) from None
    except _Refused as error:
        raise SourceError(
            f"{label}: {error}", "readers disagree on what it means; repair it"
        ) from None
    except RecursionError:
        raise SourceError(f"{label} is nested too deeply to be read", "repair it") from None
    except ValueError as error:  # an integer of thousands of digits
        raise SourceError(f"{label} is not usable JSON: {error}", "repair it") from None
    return value


def load_object(data: bytes, label: str) -> dict[str, Any]:
    """Parse strict JSON whose top level is an object.

    Raises:
        SourceError: As for `load_json`, or the top level is something else.
    """
    value = load_json(data, label)
    if not isinstance(value, dict):
        raise SourceError(
            f"{label} holds {_kind(value)} at the top level where an object {{...}} is expected",
            "check that it is the right file",
        )
    return value


def dump_json(obj: Any) -> bytes:
    """Write JSON as the trainers do: indent 2, UTF-8, key order kept, newline at the end."""
    text = json.dumps(obj, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"key {key!r} is given twice in one object")
            seen.add(key)
    return found


def _constant(text: str) -> Any:
    raise _Refused(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _Refused(f"number {text[:40]} is too large for a double")
    return value


def _integer(text: str) -> int | float:
    # As every reader with a float type does: a minus sign must not get lost.
    return -0.0 if text == "-0" else int(text)


def _check_surrogates(value: Any) -> None:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item.keys()
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str):
            try:
                item.encode("utf-8")
            except UnicodeEncodeError:
                raise _Refused("a string holds half of a surrogate pair") from None


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a string"}
    return names.get(type(value), "a list")
