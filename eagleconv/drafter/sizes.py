"""Sizes of a drafter, read from its tensors first and from its config second."""

from collections.abc import Callable, Mapping
from typing import Any

from eagleconv.drafter.contradiction import Contradiction
from eagleconv.drafter.facts import Fact, Mla
from eagleconv.drafter.names import split_layer

Get = Callable[[str], tuple[Any, str]]
Shapes = Mapping[str, tuple[int, ...]]


def count_layers(shapes: Shapes, where: str) -> int:
    """Count decoder layers; they must be numbered without a hole.

    Raises:
        SourceError: There is none, or one is missing.
    """
    indices = sorted({s[0] for name in shapes if (s := split_layer(name))})
    if not indices or indices != list(range(len(indices))):
        raise Contradiction(
            "ECT007",
            where,
            f"decoder layers are numbered {indices}, expected 0, 1, 2, ...",
            "get the whole checkpoint",
        )
    return len(indices)


def rows(shapes: Shapes, name: str, where: str) -> int:
    """Return the first size of a tensor that must be there, packed rows of a matrix too."""
    packed = name.removesuffix("weight") + "weight_packed"
    if name not in shapes and packed in shapes:
        return shapes[packed][0]
    if name not in shapes and name.removesuffix("weight") + "qweight" in shapes:
        # AWQ and GPTQ store [in, out / n]: the scales' last size is the number of rows.
        return shapes[name.removesuffix("weight") + "scales"][-1]
    if name not in shapes:
        raise Contradiction(
            "ECT002", where, f"tensor {name} is missing", "get the whole checkpoint", tensor=name
        )
    return shapes[name][0]


def block_of(shapes: Shapes) -> Fact:
    """Tell the block by its tensors."""
    if any("kv_a_proj_with_mqa" in name for name in shapes):
        return Fact("mla", "read", "tensors kv_a_proj_with_mqa")
    if any(".q_norm." in name for name in shapes):
        return Fact("qwen3", "read", "tensors q_norm and k_norm")
    return Fact("llama", "read", "no q/k norms and no latent projections among the tensors")


def heads(shapes: Shapes, get: Get, hidden: int, where: str) -> tuple[Fact, Fact, Fact]:
    """Return query heads, key/value heads and head size, agreeing with the projections.

    Raises:
        SourceError: Config and projections disagree.
    """
    q_rows = rows(shapes, "layers.0.self_attn.q_proj.weight", where)
    k_rows = rows(shapes, "layers.0.self_attn.k_proj.weight", where)
    count, count_key = get("num_attention_heads")
    size, size_key = get("head_dim")
    if not isinstance(count, int) or count <= 0:
        if not isinstance(size, int) or size <= 0:
            raise Contradiction(
                "ECC007",
                where,
                "config.json has no num_attention_heads",
                "add it",
                key="num_attention_heads",
            )
        count, count_key = q_rows // size, ""
    if q_rows % count or (isinstance(size, int) and size * count != q_rows):
        raise Contradiction(
            "ECC005",
            where,
            f"q_proj has {q_rows} rows, but config.json says {count} heads"
            + (f" of {size}" if size else ""),
            "correct num_attention_heads or head_dim",
            key="num_attention_heads",
        )
    dim = q_rows // count
    if k_rows % dim:
        raise Contradiction(
            "ECC005",
            where,
            f"k_proj has {k_rows} rows, no multiple of head_dim {dim}",
            key="head_dim",
        )
    kv, kv_key = get("num_key_value_heads")
    if kv is not None and kv * dim != k_rows:
        raise Contradiction(
            "ECC005",
            where,
            f"k_proj has {k_rows} rows, config.json says {kv} key/value heads of {dim}",
            "correct num_key_value_heads",
            key="num_key_value_heads",
        )
    why = f"q_proj has {q_rows} rows, k_proj {k_rows}"
    return (
        Fact(count, "read", why, (count_key,) if count_key else ()),
        Fact(k_rows // dim, "read" if kv is not None else "inferred", why, (kv_key,) if kv else ()),
        Fact(dim, "read" if size else "inferred", why, (size_key,) if size else ()),
    )


def latent(shapes: Shapes, get: Get, where: str) -> Fact:
    """Return the sizes of latent attention.

    Raises:
        SourceError: One is missing from the config, or contradicts a projection.
    """
    values = {}
    for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        value, _ = get(key)
        if not isinstance(value, int):
            raise Contradiction(
                "ECC007", where, f"config.json has no {key}", "an MLA block needs it", key=key
            )
        values[key] = value
    rank, _ = get("q_lora_rank")
    mla = Mla(q_lora_rank=rank, **values)
    found = rows(shapes, "layers.0.self_attn.kv_a_proj_with_mqa.weight", where)
    expected = mla.kv_lora_rank + mla.qk_rope_head_dim
    if found != expected:
        raise Contradiction(
            "ECC005",
            where,
            f"kv_a_proj_with_mqa has {found} rows, expected kv_lora_rank + "
            f"qk_rope_head_dim = {expected}",
            key="kv_lora_rank",
        )
    return Fact(mla, "read", "config.json, checked against kv_a_proj_with_mqa")


def expected_shapes(v: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return name -> shape of every tensor the facts require.

    Args:
        v: Fact values.
    """
    h, wide, n = v["hidden_size"], v["target_hidden_size"], v["aux"].count
    heads_, kv, dim, inner = (
        v["num_attention_heads"],
        v["num_key_value_heads"],
        v["head_dim"],
        v["intermediate_size"],
    )
    out: dict[str, tuple[int, ...]] = {"norm.weight": (h,)}
    if v["aux"].rule != "last":
        out["fc.weight"] = (h, n * wide)
        if v["input_norm"] in ("per_aux", "both"):
            out |= {f"fc_norm.{i}.weight": (wide,) for i in range(n)}
        if v["input_norm"] in ("concat", "both"):
            out["input_norm.weight"] = (n * wide,)
    if v["fc_bias"]:
        out["fc.bias"] = (h,)
    if v["own_embedding"]:
        out["embed_tokens.weight"] = (v["vocab_size"], h)
    if v["own_head"]:
        out["lm_head.weight"] = (v["draft_vocab_size"], h)
    if v["vocabulary"] == "reduced":
        out["d2t"] = (v["draft_vocab_size"],)
    if v["drafting"] == "parallel":
        out["mask_hidden"] = (1, 1, n * wide)
    for i in range(v["num_layers"]):
        x = 2 * h if i == 0 else h
        p = f"layers.{i}."
        out |= {f"{p}{m}.weight": (h,) for m in ("input_layernorm", "post_attention_layernorm")}
        if i == 0 and v["aux"].rule != "last":
            out[f"{p}hidden_norm.weight"] = (h,)
        out[f"{p}mlp.gate_proj.weight"] = out[f"{p}mlp.up_proj.weight"] = (inner, h)
        out[f"{p}mlp.down_proj.weight"] = (h, inner)
        a = f"{p}self_attn."
        if v["block"] == "mla":
            m = v["mla"]
            q_out = heads_ * (m.qk_nope_head_dim + m.qk_rope_head_dim)
            if m.q_lora_rank is None:
                out[f"{a}q_proj.weight"] = (q_out, x)
            else:
                out[f"{a}q_a_proj.weight"] = (m.q_lora_rank, x)
                out[f"{a}q_a_layernorm.weight"] = (m.q_lora_rank,)
                out[f"{a}q_b_proj.weight"] = (q_out, m.q_lora_rank)
            out[f"{a}kv_a_proj_with_mqa.weight"] = (m.kv_lora_rank + m.qk_rope_head_dim, x)
            out[f"{a}kv_a_layernorm.weight"] = (m.kv_lora_rank,)
            kv_out = heads_ * (m.qk_nope_head_dim + m.v_head_dim)
            out[f"{a}kv_b_proj.weight"] = (kv_out, m.kv_lora_rank)
            out[f"{a}o_proj.weight"] = (h, heads_ * m.v_head_dim)
        else:
            out[f"{a}q_proj.weight"] = (heads_ * dim, x)
            out[f"{a}k_proj.weight"] = out[f"{a}v_proj.weight"] = (kv * dim, x)
            out[f"{a}o_proj.weight"] = (h, heads_ * dim)
            if v["block"] == "qwen3":
                out[f"{a}q_norm.weight"] = out[f"{a}k_norm.weight"] = (dim,)
    return out
