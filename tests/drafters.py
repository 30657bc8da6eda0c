"""Make small drafters from facts, in any layout, for tests."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from eagleconv.drafter.facts import AuxLayers, DrafterSpec, Mla, Rope
from eagleconv.drafter.layouts.layout import Layout
from eagleconv.drafter.sizes import expected_shapes
from eagleconv.drafter.vocabulary import mask_of
from eagleconv.drafter.write import tensor_name, write_config

DTYPES = {"float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2)}


def make_spec(**changes: Any) -> DrafterSpec:
    """Return the facts of a tiny llama EAGLE-3 drafter, changed as asked."""
    values: dict[str, Any] = {
        "block": "llama",
        "drafting": "chain",
        "input_norm": "none",
        "feedback": "pre_norm",
        "residual": "raw",
        "aux": AuxLayers(3, None, "default"),
        "num_layers": 1,
        "hidden_size": 64,
        "target_hidden_size": 64,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "mla": None,
        "vocab_size": 160,
        "draft_vocab_size": 48,
        "vocabulary": "reduced",
        "own_embedding": True,
        "own_head": True,
        "rope": Rope(10000.0, None),
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 2048,
        "hidden_act": "silu",
        "attention_bias": False,
        "output_bias": False,
        "mlp_bias": False,
        "fc_bias": False,
        "window": (None,),
        "mask_token_id": None,
        "dtype": "bfloat16",
        "quantization": None,
    }
    values |= changes
    if "window" not in changes:
        values["window"] = (None,) * values["num_layers"]
    if values["vocabulary"] == "full":
        values["draft_vocab_size"] = values["vocab_size"]
    if values["block"] == "mla":
        values["mla"] = values["mla"] or Mla(24, 32, 16, 16, 16)
        values["head_dim"] = 32
        values["num_key_value_heads"] = values["num_attention_heads"]
    return DrafterSpec(**values, origins={})


def make_tensors(spec: DrafterSpec, seed: int = 0) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return canonical name -> (dtype, shape, bytes): random weights and a sorted vocabulary map."""
    rng = np.random.default_rng(seed)
    out = {}
    shapes = expected_shapes(spec.values())
    if spec.attention_bias:
        shapes |= {
            f"layers.{i}.self_attn.{m}_proj.bias": shapes[f"layers.{i}.self_attn.{m}_proj.weight"][
                :1
            ]
            for i in range(spec.num_layers)
            for m in "qkv"
        }
    for name, shape in shapes.items():
        if name == "d2t":
            continue
        values = rng.normal(1.0 if len(shape) == 1 else 0.0, 0.1, shape).astype(np.float32)
        if spec.dtype == "bfloat16":
            data = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
        else:
            data = values.astype(spec.dtype).tobytes()
        out[name] = (DTYPES[spec.dtype][0], shape, data)
    if spec.vocabulary == "reduced":
        ids = sorted(rng.choice(spec.vocab_size, spec.draft_vocab_size, replace=False).tolist())
        offsets = [t - i for i, t in enumerate(ids)]
        out["d2t"] = ("I64", (len(ids),), struct.pack(f"<{len(ids)}q", *offsets))
        out["t2d"] = ("BOOL", (spec.vocab_size,), mask_of(ids, spec.vocab_size))
    return out


def write_safetensors(
    path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]
) -> None:
    """Write tensors of any dtype, wide dtypes first."""
    order = sorted(tensors, key=lambda n: tensors[n][0] in ("BOOL", "U8"))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        dtype, shape, data = tensors[name]
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [end, end + len(data)],
        }
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(tensors[name][2])


def write_drafter(
    directory: Path, spec: DrafterSpec, layout: Layout, seed: int = 0, **config: Any
) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Write a drafter in a layout and return its canonical tensors."""
    directory.mkdir(parents=True)
    tensors = make_tensors(spec, seed)
    stored = {
        tensor_name(n, layout, spec.num_layers): t
        for n, t in tensors.items()
        if n not in layout.omitted
    }
    if spec.vocabulary == "full" and "d2t" in layout.required:
        n = spec.vocab_size
        stored[tensor_name("d2t", layout, 1)] = ("I64", (n,), bytes(8 * n))
        stored[tensor_name("t2d", layout, 1)] = ("BOOL", (n,), b"\x01" * n)
    written = write_config(spec, layout, {}) | config
    (directory / "config.json").write_text(json.dumps(written, indent=2))
    write_safetensors(directory / "model.safetensors", stored)
    return tensors
