"""Small made targets, as numpy arrays and as directories."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.drafters import write_safetensors

Arrays = dict[str, Any]
#: A hidden size at which rows are long enough to show a grid.
SIZES = {"hidden": 128, "inner": 192, "layers": 3, "vocab": 640}


def arrays(seed: int = 0, layers: int = SIZES["layers"]) -> Arrays:
    """Return the weights of a llama-like target, float32."""
    rng = np.random.default_rng(seed)
    h, inner, vocab = SIZES["hidden"], SIZES["inner"], SIZES["vocab"]

    def matrix(rows: int, width: int) -> Any:
        return rng.normal(0.0, 0.05, (rows, width)).astype(np.float32)

    def norm() -> Any:
        return rng.normal(1.0, 0.1, h).astype(np.float32)

    out: Arrays = {"model.embed_tokens.weight": matrix(vocab, h)}
    for i in range(layers):
        p = f"model.layers.{i}."
        out[f"{p}input_layernorm.weight"] = norm()
        out[f"{p}mlp.down_proj.weight"] = matrix(h, inner)
        out[f"{p}mlp.gate_proj.weight"] = matrix(inner, h)
        out[f"{p}mlp.up_proj.weight"] = matrix(inner, h)
        out[f"{p}post_attention_layernorm.weight"] = norm()
        for m in ("k", "o", "q", "v"):
            out[f"{p}self_attn.{m}_proj.weight"] = matrix(h, h)
    out["model.norm.weight"] = norm()
    out["lm_head.weight"] = matrix(vocab, h)
    return out


def stored(values: Any, dtype: str) -> tuple[str, tuple[int, ...], bytes]:
    """Return an array as a safetensors entry, rounded to nearest."""
    if dtype == "BF16":
        bits = values.astype(np.float32).view(np.uint32)
        bits = bits + 0x7FFF + ((bits >> 16) & 1)
        return dtype, values.shape, (bits >> 16).astype("<u2").tobytes()
    kinds = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I8": "i1", "F8_E4M3": "u1"}
    return dtype, values.shape, values.astype(kinds[dtype]).tobytes()


def write(
    directory: Path,
    weights: Arrays,
    dtype: str = "F32",
    shards: int = 1,
    extra: Mapping[str, tuple[str, tuple[int, ...], bytes]] | None = None,
    **config: Any,
) -> Path:
    """Write a target's directory: config, weights in one file or several, no tokenizer."""
    directory.mkdir(parents=True)
    whole = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": SIZES["hidden"],
        "intermediate_size": SIZES["inner"],
        "num_hidden_layers": SIZES["layers"],
        "num_attention_heads": 4,
        "vocab_size": SIZES["vocab"],
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "dtype": {"BF16": "bfloat16", "F16": "float16"}.get(dtype, "float32"),
    } | config
    (directory / "config.json").write_text(json.dumps(whole))
    entries = {name: stored(v, dtype) for name, v in weights.items()} | dict(extra or {})
    if shards == 1:
        write_safetensors(directory / "model.safetensors", entries)
        return directory
    names = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    weight_map = {}
    for number, file in enumerate(names):
        part = dict(list(entries.items())[number::shards])
        write_safetensors(directory / file, part)
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def matrices(weights: Arrays, change: Callable[[Any], Any]) -> Arrays:
    """Return the weights with every projection changed; embedding, head and norms stay."""
    return {
        name: change(v) if v.ndim == 2 and "_proj" in name else v for name, v in weights.items()
    }


def int8(w: Any) -> Any:
    """Round to int8 with one scale a row, and back."""
    scale = np.abs(w).max(axis=1, keepdims=True) / 127
    return (np.round(w / scale) * scale).astype(np.float32)


def int4(w: Any, group: int = 64) -> Any:
    """Round to int4 with one scale for each group of columns, and back."""
    parts = w.reshape(w.shape[0], -1, group)
    scale = np.abs(parts).max(axis=2, keepdims=True) / 7
    return (np.round(parts / scale) * scale).reshape(w.shape).astype(np.float32)


def fp8_bits(w: Any) -> Any:
    """Round to e4m3, nearest, and return the bits."""
    grid = np.array([_e4m3(b) for b in range(127)])
    magnitude = np.abs(w).astype(np.float64)
    above = np.clip(np.searchsorted(grid, magnitude), 1, len(grid) - 1)
    below = above - 1
    nearest = np.where(magnitude - grid[below] <= grid[above] - magnitude, below, above)
    return (nearest + np.where(w < 0, 128, 0)).astype(np.uint8)


def _e4m3(bits: int) -> float:
    exponent, mantissa = bits >> 3, bits & 7
    return mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def fp8(w: Any) -> Any:
    """Round to e4m3 with one scale a matrix, and back."""
    scale = np.abs(w).max() / 448
    bits = fp8_bits(w / scale)
    grid = np.array([_e4m3(b) for b in range(127)])
    return (np.where(bits & 128, -1.0, 1.0) * grid[bits & 127] * scale).astype(np.float32)


def scales(values: Any) -> tuple[str, tuple[int, ...], bytes]:
    """Return scales as a float32 entry."""
    flat = np.asarray(values, "<f4")
    return "F32", flat.shape, struct.pack(f"<{flat.size}f", *flat.ravel())
