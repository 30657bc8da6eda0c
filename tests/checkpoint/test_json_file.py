"""Strict JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagleconv.checkpoint.json_file import dump_json, load_json, load_object
from eagleconv.errors import SourceError

REFUSED = {
    "bom": (b'\xef\xbb\xbf{"a": 1}', "byte order mark"),
    "utf-16": ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
    "latin-1": (b'{"a": "\xe9"}', "byte 0xe9 at offset 7"),
    "syntax": (b'{"a": 1,}', "line 1, column"),
    "empty": (b"", "not valid JSON"),
    "trailing": (b"{} {}", "Extra data"),
    "duplicate": (b'{"a": 1, "a": 1}', "'a' is given twice"),
    "duplicate below": (b'{"x": [{"rope_theta": 1, "b": 2, "rope_theta": 3}]}', "'rope_theta'"),
    "nan": (b'{"a": NaN}', "NaN"),
    "infinity": (b'{"a": -Infinity}', "-Infinity"),
    "too large": (b'{"a": 1e999}', "1e999"),
    "half surrogate": (b'{"a": "\\ud800"}', "surrogate"),
    "half surrogate in a key": (b'{"\\uDC00": 1}', "surrogate"),
    "digits": (b'{"a": ' + b"9" * 5000 + b"}", "usable"),
    "deep": (b"[" * 100_000 + b"]" * 100_000, "deeply"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_sentence(case: str) -> None:
    data, expected = REFUSED[case]
    with pytest.raises(SourceError) as caught:
        load_json(data, "config.json")
    assert expected in caught.value.message
    assert "config.json" in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 3
    assert caught.value.hint


@pytest.mark.parametrize(
    ("data", "kind"), [(b"[1]", "a list"), (b"null", "null"), (b'"x"', "string")]
)
def test_top_level_must_be_an_object(data: bytes, kind: str) -> None:
    load_json(data, "x.json")
    with pytest.raises(SourceError, match=kind):
        load_object(data, "x.json")


def test_dump_keeps_order_and_text() -> None:
    value = {"b": 1, "a": {"é": 1e-05, "z": [True, None, "\u4e2d"]}}
    data = dump_json(value)
    lines = ["{", '  "b": 1,', '  "a": {', '    "é": 1e-05,', '    "z": [', "      true,"]
    lines += ["      null,", '      "中"', "    ]", "  }", "}", ""]
    assert data == "\n".join(lines).encode()
    assert list(load_object(data, "x")) == ["b", "a"]


def test_dump_never_writes_what_load_refuses() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_json({"a": float("nan")})


def test_minus_zero_survives() -> None:
    assert dump_json(load_json(b'{"a": -0}', "x")) == b'{\n  "a": -0.0\n}\n'


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
)


@given(PLAIN)
def test_round_trip(value: object) -> None:
    assert load_json(dump_json(value), "x") == value
    assert load_json(json.dumps(value).encode(), "x") == value


@given(st.binary(max_size=40) | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_never_another_error(data: bytes) -> None:
    try:
        load_json(data, "x")
    except SourceError:
        return
    json.loads(data)
