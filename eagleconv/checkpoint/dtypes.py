"""The dtypes of the safetensors format and their width in bits.

Source: safetensors 0.8 (`safetensors/src/tensor.rs`, enum `Dtype`, `bitsize`).
Tensors are carried as bytes, so a dtype needs no more than a width here.
"""

BITS: dict[str, int] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}

#: safetensors dtype -> the name used in config.json (`dtype`, `torch_dtype`).
CONFIG_NAMES: dict[str, str] = {
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}


def nbytes(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Return the size in bytes of a tensor, or None where it does not end on a byte."""
    bits = BITS[dtype]
    for size in shape:
        bits *= size
    return bits // 8 if bits % 8 == 0 else None
