"""What the bytes of a tensor say: finite, zero, constant, freshly initialised. numpy, in pieces.

Every value is looked at for NaN, infinity, zero and constancy, on its bits, which keeps pace with a
hash; the moments come from a sample spread over the tensor. Vectors, the only ones looked at without
--deep, need no numpy, whose import takes longer than all the rest of it.
"""

import math
import struct
import sys
from array import array
from dataclasses import dataclass
from typing import Any

from eagleconv.checkpoint.checkpoint import Checkpoint, TensorInfo
from eagleconv.checkpoint.values import as_numbers

_PIECE = 1 << 20
#: Values from which mean, deviation and kurtosis are estimated.
_SAMPLE = 1 << 18
#: dtype -> (unsigned integer of its size, bits of the absolute value, bits of infinity).
_BITS = {
    "BF16": ("<u2", 0x7FFF, 0x7F80),
    "F16": ("<u2", 0x7FFF, 0x7C00),
    "F32": ("<u4", 0x7FFF_FFFF, 0x7F80_0000),
    "F64": ("<u8", 0x7FFF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000),
    "F8_E5M2": ("u1", 0x7F, 0x7C),
    "F8_E4M3": ("u1", 0x7F, 0x7F),
}
#: Of those that norms and biases have: array type code, and integer and float code of one value.
_CODES = {
    "BF16": ("H", "<I", "<f"),
    "F16": ("H", "<H", "<e"),
    "F32": ("I", "<I", "<f"),
    "F64": ("Q", "<Q", "<d"),
}
#: Vectors up to so many bytes are summarised without numpy.
_VECTOR = 1 << 18


@dataclass(frozen=True, slots=True)
class Summary:
    """A tensor's values in a few numbers.

    Attributes:
        shape: Its sizes.
        count: Number of values.
        not_finite: How many are NaN or infinite.
        largest: Largest absolute value; infinite or NaN values left out.
        constant: The value all have, or None.
        sampled: Number of values the moments come from; 0 for a vector.
        mean, deviation, kurtosis: Of the sample; kurtosis is 3 for a normal distribution, 1.8 for
            a uniform one.
    """

    shape: tuple[int, ...]
    count: int
    not_finite: int
    largest: float
    constant: float | None
    sampled: int
    mean: float
    deviation: float
    kurtosis: float

    @property
    def matrix(self) -> bool:
        """Whether it has two sizes above 1."""
        return len(self.shape) == 2 and min(self.shape) > 1


def summarise(checkpoint: Checkpoint, tensor: TensorInfo) -> Summary | None:
    """Read one tensor and summarise it; None where its dtype is no floating one.

    Args:
        checkpoint: Gives the bytes.
        tensor: Any size; it is read in pieces of 1 MiB.
    """
    if tensor.dtype not in _BITS or tensor.nbytes == 0:
        return None
    if len(tensor.shape) == 1 and tensor.nbytes <= _VECTOR and tensor.dtype in _CODES:
        return _summarise_vector(checkpoint.read(tensor.name), tensor)
    import numpy as np

    kind, absolute, infinite = _BITS[tensor.dtype]
    size = np.dtype(kind).itemsize
    pieces = -(-tensor.nbytes // _PIECE)
    wanted = -(-_SAMPLE // pieces)
    not_finite, largest, low, high = 0, 0, None, None
    sample: list[Any] = []
    for piece in checkpoint.reader.chunks(tensor, _PIECE):
        bits = np.frombuffer(piece, kind)
        top = int((bits & absolute).max())
        if top >= infinite:
            plain = bits & absolute
            not_finite += int((plain >= infinite).sum())
            top = int(plain[plain < infinite].max(initial=0))
        largest = max(largest, top)
        smallest, biggest = int(bits.min()), int(bits.max())
        low = smallest if low is None else min(low, smallest)
        high = biggest if high is None else max(high, biggest)
        # Odd, so that it does not meet the same columns of every row.
        step = max(1, (len(bits) // wanted - 1) | 1)
        sample.append(bits[::step][:wanted].copy())
    with np.errstate(all="ignore"):  # NaN and infinity are what is looked for
        values = _floats(np.concatenate(sample), tensor.dtype)
        values = values[np.isfinite(values)]
        mean, deviation, kurtosis = _moments(values)
        greatest = float(_floats(np.array([largest], kind), tensor.dtype)[0])
        # A zero of either sign is a zero.
        constant = 0.0 if largest == 0 and not not_finite else None
        if low == high and constant is None:
            constant = float(_floats(np.array([low], kind), tensor.dtype)[0])
    return Summary(
        tensor.shape,
        tensor.nbytes // size,
        not_finite,
        greatest,
        constant,
        len(values),
        mean,
        deviation,
        kurtosis,
    )


def _summarise_vector(data: bytes, tensor: TensorInfo) -> Summary:
    """Summarise without numpy and without moments: only matrices can look fresh."""
    _, absolute, infinite = _BITS[tensor.dtype]
    code, integer, floating = _CODES[tensor.dtype]
    bits = array(code, data)
    if sys.byteorder == "big":
        bits.byteswap()
    distinct = set(bits)
    bad = {b for b in distinct if b & absolute >= infinite}
    largest = max((b & absolute for b in distinct - bad), default=0)

    def value(pattern: int) -> float:
        # The upper half of a float32.
        whole = pattern << 16 if tensor.dtype == "BF16" else pattern
        found: float = struct.unpack(floating, struct.pack(integer, whole))[0]
        return found

    constant = None
    if largest == 0 and not bad:
        constant = 0.0  # of either sign
    elif len(distinct) == 1:
        constant = value(bits[0])
    return Summary(
        tensor.shape,
        len(bits),
        sum(1 for b in bits if b in bad) if bad else 0,
        value(largest),
        constant,
        0,
        math.nan,
        math.nan,
        math.nan,
    )


def moments(values: Any, shape: tuple[int, ...]) -> Summary:
    """Summarise values that are at hand, float64 and finite, by their moments alone."""
    return Summary(
        shape, len(values), 0, float(abs(values).max()), None, len(values), *_moments(values)
    )


def _moments(values: Any) -> tuple[float, float, float]:
    """Return mean, deviation and kurtosis of float64 values."""
    if not len(values):
        return math.nan, 0.0, math.nan
    mean = float(values.mean())
    variance = float(((values - mean) ** 2).mean())
    fourth = float(((values - mean) ** 4).mean())
    # A product, which may be 0 or infinite; a power may not.
    squared = variance * variance
    kurtosis = fourth / squared if squared > 0 else math.nan
    return mean, math.sqrt(variance), kurtosis


def _floats(bits: Any, dtype: str) -> Any:
    """Return bit patterns as float64."""
    import numpy as np

    if dtype == "F8_E5M2":
        # The upper half of a float16.
        return (bits.astype("<u2") << 8).view("<f2").astype(np.float64)
    if dtype == "F8_E4M3":
        sign = np.where(bits & 0x80, -1.0, 1.0)
        exponent, mantissa = (bits >> 3) & 0xF, bits & 0x7
        normal = (1 + mantissa / 8) * np.exp2(exponent.astype(np.float64) - 7)
        values = sign * np.where(exponent == 0, mantissa / 8 * 2.0**-6, normal)
        return np.where((bits & 0x7F) == 0x7F, np.nan, values)
    return as_numbers(bits.tobytes(), dtype)


#: Deviation of a normal initialiser -> who uses it.
_NORMAL = {0.02: "transformers' initialiser", 1.0: "torch.nn.Embedding"}


def fresh_like(x: Summary, initializer_range: float | None = None) -> str:
    """Name the initialiser whose distribution a matrix has; empty where none fits.

    Normal with deviation 0.02 or `initializer_range` (transformers), 1 (torch.nn.Embedding) or
    Xavier's; uniform within 1 / sqrt(columns) (torch.nn.Linear) or Xavier's bound. A matrix that was
    trained has heavier or lighter tails, another width, or a mean. Too few values to tell are not
    fresh.

    Args:
        x: Of a matrix.
        initializer_range: What the config says it was initialised with, if it does.
    """
    if x.sampled < 4096 or x.deviation == 0 or x.not_finite:
        return ""
    # Standard errors of a sample of n: mean s/sqrt(n), kurtosis sqrt(24/n) (normal).
    n = x.sampled
    if abs(x.mean) > 5 * x.deviation / math.sqrt(n):
        return ""
    xavier = math.sqrt(2 / sum(x.shape))
    if abs(x.kurtosis - 3) < 0.02 + 4 * math.sqrt(24 / n):
        named = {initializer_range or 0.02: "transformers' initialiser", **_NORMAL}
        named[xavier] = "Xavier's normal initialiser"
    elif abs(x.kurtosis - 1.8) < 0.02 + 4 / math.sqrt(n):
        named = {1 / math.sqrt(3 * x.shape[1]): "torch.nn.Linear"}
        named[xavier] = "Xavier's uniform initialiser"
    else:
        return ""
    near_width = 0.01 + 3 / math.sqrt(2 * n)
    return next((who for d, who in named.items() if abs(x.deviation / d - 1) < near_width), "")
