"""A target of the shape of Llama-3.1-70B: 141 GB in 30 files, nearly all of it holes."""

from __future__ import annotations

import json
import random
from pathlib import Path

from eagleconv.checkpoint.source import open_source
from eagleconv.target.quantized import row_bytes, width_of
from eagleconv.target.rows import wanted
from tests.checkpoint.fake_hub import sparse_model

HIDDEN, INNER, KV, VOCAB, LAYERS, SHARDS = 8192, 28672, 1024, 128256, 80, 30


def shapes() -> dict[str, tuple[int, ...]]:
    """Return the tensors in the order in which the published files hold them."""
    out: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        out |= {
            f"{at}.input_layernorm.weight": (HIDDEN,),
            f"{at}.mlp.down_proj.weight": (HIDDEN, INNER),
            f"{at}.mlp.gate_proj.weight": (INNER, HIDDEN),
            f"{at}.mlp.up_proj.weight": (INNER, HIDDEN),
            f"{at}.post_attention_layernorm.weight": (HIDDEN,),
            f"{at}.self_attn.k_proj.weight": (KV, HIDDEN),
            f"{at}.self_attn.o_proj.weight": (HIDDEN, HIDDEN),
            f"{at}.self_attn.q_proj.weight": (HIDDEN, HIDDEN),
            f"{at}.self_attn.v_proj.weight": (KV, HIDDEN),
        }
    return out | {"model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB, HIDDEN)}


def write(root: Path, seed: int = 0) -> Path:
    """Write it; the rows that a fingerprint looks at hold random values, the others zeros."""
    root.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": VOCAB,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    (root / "config.json").write_text(json.dumps(config))
    (root / "tokenizer.json").write_text(json.dumps(tokenizer(), indent=1, ensure_ascii=False))
    (root / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    every = list(shapes().items())
    weight_map = {}
    for shard in range(SHARDS):
        file = f"model-{shard + 1:05d}-of-{SHARDS:05d}.safetensors"
        part = every[shard * len(every) // SHARDS : (shard + 1) * len(every) // SHARDS]
        sparse_model(root / file, {name: ("BF16", shape) for name, shape in part}, {})
        weight_map |= {name: file for name, _ in part}
    index = {"metadata": {}, "weight_map": weight_map}
    (root / "model.safetensors.index.json").write_text(json.dumps(index))
    _fill(root, random.Random(seed))
    return root


def _fill(root: Path, rng: random.Random) -> None:
    checkpoint = open_source(str(root), weights=False)
    for quick in (False, True):
        for _, info, rows in wanted(checkpoint, VOCAB, quick):
            with open(root / info.file, "r+b") as file:
                for row in rows:
                    offset, size = row_bytes(info, row, 0, width_of(info))
                    file.seek(info.offset + offset)
                    # The upper byte below 0x40: no NaN, nothing huge.
                    values = bytearray(rng.randbytes(size))
                    values[1::2] = bytes(b & 0xBF for b in values[1::2])
                    file.write(values)
    checkpoint.close()


def tokenizer() -> dict[str, object]:
    """Return a tokenizer.json of some 9 MB, as large as the published one."""
    vocab: dict[str, int] = {chr(i): i for i in range(33, 127)}
    merges: list[str] = []
    tokens = list(vocab)
    rng = random.Random(0)
    while len(vocab) < 128000:
        pair = [rng.choice(tokens), tokens[rng.randrange(min(len(tokens), 8000))]]
        token = "".join(pair)
        if token in vocab or len(token) > 24:
            continue
        vocab[token] = len(vocab)
        tokens.append(token)
        merges.append(" ".join(pair))
    ids = {token: i for i, token in enumerate(vocab)}
    added = [
        {
            "id": 128000 + i,
            "content": f"<|reserved_special_token_{i}|>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i in range(256)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": ids, "merges": merges, "ignore_merges": True},
    }
