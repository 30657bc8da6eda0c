"""The header of safetensors files, held against the safetensors library."""

import json
import os
import struct
from pathlib import Path

import pytest
import safetensors
from checkpoint_files import SMALL, entry, model, pack
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from eagleconv.checkpoint.checkpoint import TensorInfo
from eagleconv.checkpoint.dtypes import BITS
from eagleconv.checkpoint.header import LocalFile, parse_header
from eagleconv.errors import SourceError


class Memory:
    """A ByteSource over bytes."""

    def __init__(self, data: bytes) -> None:
        self.size, self.label, self.data = len(data), "m.safetensors", data

    def read(self, offset: int, length: int) -> bytes:
        assert 0 <= offset <= offset + length <= self.size
        return self.data[offset : offset + length]

    def read_into(self, offset: int, buffer: memoryview) -> None:
        buffer[:] = self.read(offset, len(buffer))

    def close(self) -> None:
        pass


T = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
TEXT = json.dumps(T)[1:-1]
FOUR = b"\0" * 4
LIES = {
    "empty": (b"", "0 bytes"),
    "seven bytes": (b"\0" * 7, "7 bytes"),
    "header longer than file": (struct.pack("<Q", 100) + b"{}", "header length is 100"),
    "header over 100 MB": (struct.pack("<Q", 100_000_001) + b"{}", "header length"),
    "huge header": (b"\xff" * 8 + b"{}", "header length"),
    "lfs pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "LFS pointer"),
    "no json": (pack(b""), "not valid JSON"),
    "padding with NUL": (pack(b'{"a":{%b}}\0' % TEXT.encode(), FOUR), "not valid JSON"),
    "a list": (pack(b"[]"), "a list"),
    "not utf-8": (pack(b'{"\xff":{}}'), "not UTF-8"),
    "name twice": (
        pack(b'{"a":{%b},"a":{%b}}' % (TEXT.encode(), TEXT.encode()), FOUR),
        "'a' is given twice",
    ),
    "metadata null": (pack({"__metadata__": None, "a": T}, FOUR), "__metadata__"),
    "metadata number": (pack({"__metadata__": {"n": 1}, "a": T}, FOUR), "'n' is not a string"),
    "entry is a list": (pack({"a": ["F32", [1], [0, 4]]}, FOUR), "'a' is not described"),
    "no dtype": (pack({"a": {"shape": [1], "data_offsets": [0, 4]}}, FOUR), "no dtype"),
    "no shape": (pack({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, FOUR), "no shape"),
    "no offsets": (pack({"a": {"dtype": "F32", "shape": [1]}}, FOUR), "no data_offsets"),
    "unknown dtype": (pack({"a": {**T, "dtype": "F9"}}, FOUR), "dtype 'F9', known are"),
    "dtype in lower case": (pack({"a": {**T, "dtype": "f32"}}, FOUR), "dtype 'f32'"),
    "dtype is an object": (pack({"a": {**T, "dtype": {"F32": None}}}, FOUR), "dtype"),
    "field is a list": (pack({"a": {**T, "x": [1]}}, FOUR), "x is a list"),
    "shape of floats": (pack({"a": {**T, "shape": [1.0]}}, FOUR), "shape [1.0]"),
    "shape of booleans": (pack({"a": {**T, "shape": [True]}}, FOUR), "shape [True]"),
    "negative shape": (pack({"a": {**T, "shape": [-1]}}, FOUR), "shape [-1]"),
    "shape null": (pack({"a": {**T, "shape": None}}, FOUR), "shape None"),
    "shape overflows": (pack({"a": {**T, "shape": [2**63, 2**63, 0]}}, FOUR), "more elements"),
    "minus zero": (
        pack(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[-0,4]}}', FOUR),
        "data_offsets",
    ),
    "three offsets": (pack({"a": {**T, "data_offsets": [0, 4, 4]}}, FOUR), "data_offsets"),
    "end before begin": (pack({"a": {**T, "data_offsets": [4, 0]}}, FOUR), "data_offsets"),
    "half a byte": (
        pack({"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 2]}}, b"\0\0"),
        "end on a byte",
    ),
    "shape against range": (pack({"a": {**T, "shape": [2]}}, FOUR), "takes 8 bytes, not 4"),
    "hole": (pack({"a": T, "b": {**T, "data_offsets": [8, 12]}}, FOUR * 3), "'b' leaves a hole"),
    "hole at the start": (
        pack({"a": {**T, "data_offsets": [4, 8]}}, FOUR * 2),
        "'a' leaves a hole",
    ),
    "overlap": (pack({"a": T, "b": T}, FOUR), "'b' overlaps"),
    "empty tensor inside another": (
        pack({"a": T, "z": {"dtype": "F32", "shape": [0], "data_offsets": [2, 2]}}, FOUR),
        "'z' overlaps",
    ),
    "cut off": (pack({"a": T}, FOUR[:3]), "cut off: 3 bytes of data, the header describes 4"),
    "bytes too many": (pack({"a": T}, FOUR + b"\0"), "belong to no tensor"),
}
#: Refused here, read by the library.
STRICTER = {
    "name twice",
    "metadata null",
    "entry is a list",
    "dtype is an object",
    "field is a list",
}


def library_reads(data: bytes) -> bool:
    try:
        safetensors.deserialize(data)
    except safetensors.SafetensorError:
        return False
    return True


@pytest.mark.parametrize("case", LIES)
def test_a_lie_is_one_sentence(case: str) -> None:
    data, expected = LIES[case]
    with pytest.raises(SourceError) as caught:
        parse_header(Memory(data))
    assert expected in caught.value.message
    assert "m.safetensors" in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint
    assert library_reads(data) == (case in STRICTER)


GOOD = {
    "every dtype": model({dtype: (dtype, [3, 8]) for dtype in BITS}, {"format": "pt"}),
    "empty and scalar": model({"z": ("F32", [0, 5]), "s": ("I64", []), "y": ("BF16", [0])}),
    "no tensors": pack({}),
    "metadata only": pack({"__metadata__": {"a": "b"}}),
    "blanks around": pack(b' {"a":{%b}} \n' % TEXT.encode(), FOUR),
    "surrogate pair": pack(b'{"\\ud83d\\ude00":{%b}}' % TEXT.encode(), FOUR),
    "empty name": pack({"": T}, FOUR),
    "unknown plain field": pack({"a": {**T, "x": 1}}, FOUR),
    "order of names is not order of data": pack(
        {"b": {**T, "data_offsets": [4, 8]}, "a": T}, FOUR * 2
    ),
    "zero times much": pack(
        {"z": {"dtype": "F32", "shape": [0, 2**63, 2**63], "data_offsets": [0, 0]}}
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_same_tensors_as_the_library(case: str) -> None:
    data = GOOD[case]
    ours = {
        tensor.name: (
            tensor.dtype,
            list(tensor.shape),
            data[tensor.offset : tensor.offset + tensor.nbytes],
        )
        for tensor in parse_header(Memory(data))[0]
    }
    theirs = {
        n: (d["dtype"], d["shape"], bytes(d["data"])) for n, d in safetensors.deserialize(data)
    }
    assert ours == theirs


def test_order_metadata_and_absolute_offsets() -> None:
    data = pack({"__metadata__": {"k": "v"}, "b": {**T, "data_offsets": [4, 8]}, "a": T}, FOUR * 2)
    tensors, metadata = parse_header(Memory(data))
    start = len(data) - 8
    assert tensors == [
        TensorInfo("a", "F32", (1,), 4, "m.safetensors", start),
        TensorInfo("b", "F32", (1,), 4, "m.safetensors", start + 4),
    ]
    assert metadata == {"k": "v"}


SEED = model(
    {**SMALL, "c": ("F4", [4]), "d": ("BOOL", [3]), "e": ("I64", [0, 2])}, {"format": "pt"}
)
CHANGES = st.lists(
    st.tuples(
        st.integers(0, len(SEED) - 1), st.integers(0, 255), st.sampled_from(["set", "cut", "add"])
    ),
    min_size=1,
    max_size=4,
)


def agree(data: bytes) -> None:
    """Never read what the library refuses; refuse what it reads only where documented."""
    try:
        tensors, _ = parse_header(Memory(data))
    except SourceError as error:
        said = error.message
    else:
        said = ""
    if said:
        documented = (
            "given twice",
            "__metadata__ is not",
            "not described",
            "dtype {",
            "is a list or",
        )
        assert not library_reads(data) or any(reason in said for reason in documented), said
        return
    theirs = {
        n: (d["dtype"], d["shape"], bytes(d["data"])) for n, d in safetensors.deserialize(data)
    }
    assert theirs == {
        t.name: (t.dtype, list(t.shape), data[t.offset : t.offset + t.nbytes]) for t in tensors
    }


@settings(max_examples=1500, deadline=None)
@given(CHANGES)
def test_fuzz_bytes(changes: list[tuple[int, int, str]]) -> None:
    data = bytearray(SEED)
    for place, value, how in changes:
        place = min(place, len(data))
        if how == "set" and place < len(data):
            data[place] = value
        elif how == "cut":
            del data[place : place + value % 7]
        else:
            data[place:place] = bytes([value])
    agree(bytes(data))


NUMBERS = st.sampled_from(
    [0, 1, 2, 3, 4, 8, 12, 16, -1, 2**32, 2**63, 2**64 - 1, 2**64, 1.0, True, None, "4"]
)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from([*BITS, "F9", "", None, 1, ["F32"], {"F32": None}]),
        "shape": st.lists(NUMBERS, max_size=4) | NUMBERS,
        "data_offsets": st.lists(NUMBERS, max_size=3) | st.tuples(NUMBERS, NUMBERS).map(list),
        "extra": st.sampled_from([1, "x", [[]], {}]),
    },
)


@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example({"a": entry("F4", [3, 2], 0)}, 3)
@given(
    st.dictionaries(st.sampled_from(["a", "b", "c", "__metadata__"]), ENTRIES, max_size=3),
    st.integers(0, 24),
)
def test_fuzz_structure(header: dict[str, object], size: int) -> None:
    agree(pack(json.loads(json.dumps(header)), bytes(size)))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(list(BITS)), st.lists(st.integers(0, 5), max_size=3)), max_size=5
    )
)
def test_fuzz_valid(tensors: list[tuple[str, list[int]]]) -> None:
    padded = {str(i): (dtype, [*shape, 8]) for i, (dtype, shape) in enumerate(tensors)}
    parse_header(Memory(model(padded)))
    agree(model(padded))


def test_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(model(SMALL))
    file = LocalFile(str(path), "m.safetensors")
    tensors, _ = parse_header(file)
    os.truncate(path, 30)
    with pytest.raises(SourceError, match="is shorter than the 179 bytes"):
        file.read(tensors[0].offset, 4)
    file.close()
    file.close()


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.safetensors")
    with pytest.raises(SourceError, match="not a regular file"):
        LocalFile(str(tmp_path / "m.safetensors"), "m.safetensors")
