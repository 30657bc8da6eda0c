"""Drafters and targets made for tests of the Hub: large ones full of holes, small ones with rows."""

import json
import random
import shutil
from pathlib import Path

from tests.checkpoint.fake_hub import sparse_model

ROOT = Path(__file__).resolve().parents[1]
HIDDEN, INNER, KV, DRAFT, VOCAB, LAYERS = 4096, 20480, 1024, 32000, 128000, 32
STEP = VOCAB // DRAFT


def drafter_tensors() -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the tensors of a drafter of 2 GB."""
    shapes = {
        "embed_tokens": (VOCAB, HIDDEN),
        "midlayer.hidden_norm": (HIDDEN,),
        "midlayer.self_attn.q_proj": (HIDDEN, 2 * HIDDEN),
        "midlayer.self_attn.k_proj": (KV, 2 * HIDDEN),
        "midlayer.self_attn.v_proj": (KV, 2 * HIDDEN),
        "midlayer.input_layernorm": (HIDDEN,),
        "midlayer.self_attn.o_proj": (HIDDEN, HIDDEN),
        "midlayer.mlp.gate_proj": (INNER, HIDDEN),
        "midlayer.mlp.up_proj": (INNER, HIDDEN),
        "midlayer.mlp.down_proj": (HIDDEN, INNER),
        "midlayer.post_attention_layernorm": (HIDDEN,),
        "fc": (HIDDEN, 3 * HIDDEN),
        "norm": (HIDDEN,),
        "lm_head": (DRAFT, HIDDEN),
    }
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {"d2t": ("I64", (DRAFT,))}
    tensors |= {f"{name}.weight": ("BF16", shape) for name, shape in shapes.items()}
    tensors["t2d"] = ("BOOL", (VOCAB,))
    return tensors


def large_drafter(root: Path) -> Path:
    """Write a drafter of 2 GB, nearly all of it holes."""
    root.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HIDDEN // 128,
        "num_key_value_heads": KV // 128,
        "head_dim": 128,
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "max_position_embeddings": 8192,
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    (root / "config.json").write_text(json.dumps(config))
    tensors = drafter_tensors()
    # 1.0 and 1.5, turn and turn about.
    data = {name: b"\x80\x3f\xc0\x3f" * (HIDDEN // 2) for name in tensors if "norm" in name}
    data["d2t"] = b"".join((i * (STEP - 1)).to_bytes(8, "little") for i in range(DRAFT))
    data["t2d"] = (b"\1" + bytes(STEP - 1)) * DRAFT
    path = sparse_model(root / "model.safetensors", tensors, data)
    assert path.stat().st_size > 2e9
    return root


def large_target(root: Path, shards: int) -> Path:
    """Write a target of 16 GB in so many files, nearly all of it holes."""
    root.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "vocab_size": VOCAB,
        "torch_dtype": "bfloat16",
    }
    (root / "config.json").write_text(json.dumps(config))
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        shapes[f"{at}.input_layernorm.weight"] = (HIDDEN,)
        shapes |= {f"{at}.mlp.{n}_proj.weight": (INNER, HIDDEN) for n in ("up", "gate", "down")}
    shapes |= {"model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB, HIDDEN)}
    files: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {}
    for number, (name, shape) in enumerate(shapes.items()):
        shard = number * shards // len(shapes) + 1
        file = (
            f"model-{shard:05d}-of-{shards:05d}.safetensors" if shards > 1 else "model.safetensors"
        )
        files.setdefault(file, {})[name] = ("BF16", shape)
    for file, tensors in files.items():
        sparse_model(root / file, tensors, {})
    if shards > 1:
        weight_map = {name: file for file, tensors in files.items() for name in tensors}
        index = {"metadata": {}, "weight_map": weight_map}
        (root / "model.safetensors.index.json").write_text(json.dumps(index))
    return root


def with_target(root: Path, change: str) -> tuple[Path, Path]:
    """Write a drafter with 4096 target ids, and a target that has other rows."""
    rows = random.Random(1).randbytes(4096 * 128)
    # Bits that are NaN or huge would be another finding.
    rows = bytes(b & 0x3F if i % 2 else b for i, b in enumerate(rows))
    ids = [3 * i for i in range(1024)]

    def head(i: int) -> bytes:
        at = {"head": ids[i] - i}.get(change, ids[i]) * 128
        return rows[at : at + 128]

    source = ROOT / "fixtures/valid/specforge"
    config = json.loads((source / "config.json").read_text())
    config |= {"vocab_size": 4096, "draft_vocab_size": 1024}
    shutil.copytree(source, root / "drafter")
    with open(source / "model.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        start = file.tell()
        tensors, data = {}, {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            tensors[name] = (entry["dtype"], tuple(entry["shape"]))
            file.seek(start + entry["data_offsets"][0])
            data[name] = file.read(entry["data_offsets"][1] - entry["data_offsets"][0])
    tensors |= {
        "embed_tokens.weight": ("BF16", (4096, 64)),
        "lm_head.weight": ("BF16", (1024, 64)),
        "d2t": ("I64", (1024,)),
        "t2d": ("BOOL", (4096,)),
    }
    data |= {
        "embed_tokens.weight": rows,
        "lm_head.weight": b"".join(head(i) for i in range(1024)),
        "d2t": b"".join((t - i).to_bytes(8, "little") for i, t in enumerate(ids)),
        "t2d": bytes(i % 3 == 0 and i < 3072 for i in range(4096)),
    }
    sparse_model(root / "drafter/model.safetensors", tensors, data)
    (root / "drafter/config.json").write_text(json.dumps(config))
    target = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 8,
        "vocab_size": 4096,
    }
    (root / "target").mkdir()
    (root / "target/config.json").write_text(json.dumps(target))
    if change == "embedding":
        rows = bytes(b ^ 1 if i % 2 == 0 else b for i, b in enumerate(rows))
    sparse_model(
        root / "target/model.safetensors",
        {"lm_head.weight": ("BF16", (4096, 64)), "model.embed_tokens.weight": ("BF16", (4096, 64))},
        {"lm_head.weight": rows, "model.embed_tokens.weight": rows},
    )
    return root / "drafter", root / "target"
