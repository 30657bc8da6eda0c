"""Summaries of tensors: nothing that is NaN, infinite, zero or constant passes, wherever it is."""

import math
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagleconv.checkpoint.checkpoint import Checkpoint, TensorInfo
from eagleconv.checkpoint.dtypes import BITS
from eagleconv.rules import values
from eagleconv.rules.values import Summary, fresh_like, summarise

pytestmark = pytest.mark.filterwarnings("error")
ROOT = Path(__file__).resolve().parents[2]
FLOATS = ("BF16", "F16", "F32", "F64")
#: One and a half, minus two, infinity and NaN, as bits.
PATTERNS = {
    "BF16": (0x3FC0, 0xC000, 0x7F80, 0xFFC1),
    "F16": (0x3E00, 0xC000, 0x7C00, 0xFC01),
    "F32": (0x3FC00000, 0xC0000000, 0x7F800000, 0xFF800001),
    "F64": (0x3FF8 << 48, 0xC000 << 48, 0x7FF0 << 48, (0xFFF0 << 48) + 1),
}


class Bytes:
    """A TensorReader over one tensor."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def chunks(self, tensor: TensorInfo, size: int) -> Iterator[memoryview]:
        for start in range(0, len(self.data), size):
            yield memoryview(self.data)[start : start + size]

    def read_into(self, tensor: TensorInfo, start: int, buffer: memoryview) -> None:
        buffer[:] = self.data[start : start + len(buffer)]

    def close(self) -> None:
        pass


def summary(data: bytes, dtype: str, shape: tuple[int, ...] | None = None) -> Summary:
    info = TensorInfo(
        "x", dtype, shape or (8 * len(data) // BITS[dtype],), len(data), "x.safetensors", 0
    )
    checkpoint = Checkpoint(
        "", "", "", {}, {"x": info}, {}, (), {}, {}, "safetensors", Bytes(data), None, ()
    )
    found = summarise(checkpoint, info)
    assert found is not None
    return found


def packed(dtype: str, pattern: int) -> bytes:
    return pattern.to_bytes(BITS[dtype] // 8, "little")


@pytest.mark.parametrize("way", ["stdlib", "numpy"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_one_bad_value_anywhere_is_seen(
    dtype: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "numpy":
        monkeypatch.setattr(values, "_VECTOR", 0)
    half, minus, infinity, nan = (packed(dtype, p) for p in PATTERNS[dtype])
    many = 4000
    for place in (0, 1, many // 2, many - 1):
        for bad in (infinity, nan):
            parts = [half if i % 2 else minus for i in range(many)]
            parts[place] = bad
            found = summary(b"".join(parts), dtype)
            assert (found.count, found.not_finite, found.largest) == (many, 1, 2.0)
            assert found.constant is None
    sound = summary((half + minus) * 50, dtype)
    assert (sound.not_finite, sound.largest, sound.constant) == (0, 2.0, None)
    assert summary(half * 50, dtype).constant == 1.5
    zeros = bytes(len(half))
    assert summary((zeros + packed(dtype, 1 << BITS[dtype] - 1)) * 50, dtype).constant == 0.0
    assert summary(zeros * 49 + half, dtype).constant is None
    assert summary(nan * 50, dtype).not_finite == 50


@pytest.mark.parametrize("dtype", FLOATS)
def test_both_ways_say_the_same(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = random.Random(0)
    for length in (1, 2, 3, 500):
        for _ in range(20):
            data = draws.randbytes(length * BITS[dtype] // 8)
            with monkeypatch.context() as patched:
                quick = summary(data, dtype)
                patched.setattr(values, "_VECTOR", 0)
                slow = summary(data, dtype)
            for name in ("shape", "count", "not_finite", "largest", "constant"):
                a, b = getattr(quick, name), getattr(slow, name)
                assert a == b or (a != a and b != b), name


@pytest.mark.parametrize("place", [0, (3 << 19) + 17, (1 << 21) - 1])
def test_one_bad_value_of_a_matrix_is_seen(place: int) -> None:
    # Four pieces, of which the sample sees every eighth value.
    data = bytearray(b"\x80\x3f\x00\xc0" * (1 << 20))
    data[2 * place : 2 * place + 2] = b"\xc0\x7f"
    data[200:202] = b"\x40\x40"
    found = summary(bytes(data), "BF16", (1 << 10, 1 << 11))
    assert (found.count, found.not_finite, found.largest) == (1 << 21, 1, 3.0)


def test_a_matrix_with_one_other_value_is_not_constant() -> None:
    same = b"\x80\x3f" * (1 << 20)
    assert summary(same, "BF16", (1 << 10, 1 << 10)).constant == 1.0
    other = same[:-2] + b"\x81\x3f"
    assert summary(other, "BF16", (1 << 10, 1 << 10)).constant is None
    assert summary(bytes(1 << 20) + b"\x01\x00" * 8, "BF16", (8, 65537)).constant is None


def test_the_sample_meets_every_column() -> None:
    # Every 64th column is another; a sample of each 32nd value would see it in every second one.
    row = [8.0 if i % 64 == 0 else math.sin(i) for i in range(4096)]
    found = summary(struct.pack("<4096f", *row) * 2048, "F32", (2048, 4096))
    assert found.sampled < 2048 * 4096 / 16
    mean = sum(row) / len(row)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in row) / len(row))
    assert found.mean == pytest.approx(mean, abs=0.01)
    assert found.deviation == pytest.approx(deviation, rel=0.02)


@pytest.mark.parametrize("pattern", [1, 0x0008 << 48, 0x7FEF << 48, 0x7FEF << 48 | 1])
def test_extreme_values_have_moments(pattern: int) -> None:
    data = (packed("F64", pattern) + bytes(8)) * 4096
    found = summary(data, "F64", (2, 4096))
    assert found.not_finite == 0
    assert found.constant is None
    assert fresh_like(found) == ""


def test_without_deep_nothing_imports_numpy() -> None:
    code = (
        "import sys, eagleconv\n"
        "found = eagleconv.validate(sys.argv[1], engines=['vllm', 'sglang'])\n"
        "assert not found.unreadable and found.checks_run\n"
        "print(*sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "fixtures/smollm2-135m-eagle3")],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert not {"numpy", "torch", "huggingface_hub", "jsonschema"} & set(run.stdout.split())
