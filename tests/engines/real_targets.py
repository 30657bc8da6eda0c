"""The real target in other clothes, and other targets that look like it.

Made from its float32 safetensors with numpy alone; each has the name of what was done to it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.target import made

Arrays = dict[str, Any]


def load(source: Path) -> Arrays:
    """Return the target's tensors, float32."""
    from safetensors.numpy import load_file

    loaded: Arrays = load_file(source / "model.safetensors")
    return loaded


def save(source: Path, output: Path, weights: Arrays, dtype: str = "F32", **config: Any) -> Path:
    """Write a target with these weights, and the other files of the real one."""
    shutil.copytree(source, output, ignore=shutil.ignore_patterns("*.safetensors"))
    named = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}[dtype]
    text = json.loads((source / "config.json").read_text()) | config | {"dtype": named}
    (output / "config.json").write_text(json.dumps(text, indent=2))
    from tests.drafters import write_safetensors

    entries = {name: made.stored(values, dtype) for name, values in weights.items()}
    write_safetensors(output / "model.safetensors", entries)
    return output


def merged(weights: Arrays, name: str, size: float = 0.02) -> Arrays:
    """Merge a rank-4 update into one matrix, `size` of the matrix' own spread."""
    rng = np.random.default_rng(4)
    w = weights[name]
    update = rng.normal(size=(w.shape[0], 4)) @ rng.normal(size=(4, w.shape[1])) / 2
    return weights | {name: (w + size * w.std() * update).astype(np.float32)}


def rounded(weights: Arrays, scheme: Callable[[Any], Any]) -> Arrays:
    """Round every projection."""
    return made.matrices(weights, scheme)


def rotated(weights: Arrays) -> Arrays:
    """Turn the residual stream by an orthogonal matrix: the same logits, other hidden states.

    Norm weights are folded into the matrices that follow, since a norm commutes with a rotation
    only when its weights are one (SliceGPT, arXiv:2401.15024 section 3).
    """
    rng = np.random.default_rng(6)
    embedding = weights["model.embed_tokens.weight"].astype(np.float64)
    width = embedding.shape[1]
    turn = np.linalg.qr(rng.normal(size=(width, width)))[0]
    out = dict(weights)

    def ones(name: str) -> Any:
        scale = weights[name].astype(np.float64)
        out[name] = np.ones(width, np.float32)
        return scale

    def reads(name: str, scale: Any) -> None:
        out[name] = ((weights[name].astype(np.float64) * scale) @ turn).astype(np.float32)

    def writes(name: str) -> None:
        out[name] = (turn.T @ weights[name].astype(np.float64)).astype(np.float32)

    layers = 1 + max(int(n.split(".")[2]) for n in weights if n.startswith("model.layers."))
    for i in range(layers):
        at = f"model.layers.{i}"
        scale = ones(f"{at}.input_layernorm.weight")
        for m in "qkv":
            reads(f"{at}.self_attn.{m}_proj.weight", scale)
        writes(f"{at}.self_attn.o_proj.weight")
        scale = ones(f"{at}.post_attention_layernorm.weight")
        for m in ("gate", "up"):
            reads(f"{at}.mlp.{m}_proj.weight", scale)
        writes(f"{at}.mlp.down_proj.weight")
    out["lm_head.weight"] = ((embedding * ones("model.norm.weight")) @ turn).astype(np.float32)
    out["model.embed_tokens.weight"] = (embedding @ turn).astype(np.float32)
    return out
