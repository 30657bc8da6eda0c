"""Decide every fact of a drafter: tensors first, then config keys as producers meant them."""

from eagleconv.drafter import sizes
from eagleconv.drafter.accounting import check_ranks, check_tensors, report_notes
from eagleconv.drafter.draft_vocabulary import read_vocabulary
from eagleconv.drafter.facts import Fact
from eagleconv.drafter.habits import (
    read_dtype,
    read_feedback,
    read_mask_token,
    read_quantization,
    read_residual,
    read_window,
)
from eagleconv.drafter.item_kinds import KIND_OF
from eagleconv.drafter.reading import Evidence
from eagleconv.drafter.rope import read_rope
from eagleconv.drafter.taps import read_input_norm, read_taps
from eagleconv.errors import SourceError


def decide(r: Evidence) -> dict[str, Fact]:
    """Decide every fact.

    Raises:
        SourceError: A tensor is missing, has a wrong shape, or contradicts the config.
    """
    s, get, where = r.shapes, r.get, r.where
    for item in KIND_OF:
        get(item)
    check_ranks(r)
    out: dict[str, Fact] = {}
    out["block"] = sizes.block_of(s)
    parallel = "mask_hidden" in s
    out["drafting"] = Fact(
        "parallel" if parallel else "chain",
        "read",
        "tensor mask_hidden" if parallel else "no tensor mask_hidden",
    )
    out["num_layers"] = Fact(sizes.count_layers(s), "read", "counted from the tensors")
    h = sizes.rows(s, "norm.weight", where)
    out["hidden_size"] = Fact(h, "read", "norm.weight")
    said, key = get("hidden_size")
    if said is not None and said != h:
        raise SourceError(
            f"{where}: config.json says {key} {said}, norm.weight has {h} values",
            "correct the config",
        )
    inner, key = get("intermediate_size")
    rows = sizes.rows(s, "layers.0.mlp.gate_proj.weight", where)
    if inner is not None and inner != rows:
        raise SourceError(
            f"{where}: config.json says {key} {inner}, mlp.gate_proj has {rows} rows",
            "correct the config",
        )
    out["input_norm"] = read_input_norm(r)
    out |= read_taps(r, h)
    out["intermediate_size"] = Fact(
        sizes.rows(s, "layers.0.mlp.gate_proj.weight", where), "read", "mlp.gate_proj.weight"
    )
    if out["block"].value == "mla":
        out["mla"] = sizes.latent(s, get, where)
        out["num_attention_heads"] = r.scalar("num_attention_heads")
        kv = get("num_key_value_heads")[0]
        n = out["num_attention_heads"].value
        out["num_key_value_heads"] = Fact(kv or n, "read" if kv else "inferred", "MLA")
        m = out["mla"].value
        dim = get("head_dim")[0]
        out["head_dim"] = Fact(
            dim or m.qk_nope_head_dim + m.qk_rope_head_dim,
            "read" if dim else "inferred",
            "nope + rope",
        )
    else:
        out["mla"] = Fact(None, "read", "no latent projections")
        q, kv_heads, d = sizes.heads(s, get, h, where)
        out |= {"num_attention_heads": q, "num_key_value_heads": kv_heads, "head_dim": d}
    out |= read_vocabulary(r)
    out["feedback"] = read_feedback(r)
    out["residual"] = read_residual(r)
    for name, value in (
        ("fc_bias", "fc.bias"),
        ("attention_bias", "q_proj.bias"),
        ("output_bias", "o_proj.bias"),
    ):
        there = any(k.endswith(value) for k in s)
        out[name] = Fact(there, "read", f"{'a' if there else 'no'} tensor {value}")
    there = any(".mlp." in k and k.endswith(".bias") for k in s)
    out["mlp_bias"] = Fact(there, "read", "MLP bias tensors" if there else "no MLP bias")
    eps = r.scalar("rms_norm_eps")
    out["rms_norm_eps"] = Fact(float(eps.value), eps.origin, eps.why, eps.keys)
    out["max_position_embeddings"] = r.scalar("max_position_embeddings")
    out["hidden_act"] = r.scalar("hidden_act")
    out["rope"], asked = read_rope(
        get,
        [] if r.ours else [(x.producer, x.rope) for x in r.layouts],
        r.default("rope"),
        r.declared.rope_theta,
        r.declared.rope_scaling,
        r.declared.partial_rotary_factor,
    )
    r.questions += asked
    out["window"] = read_window(r, out["num_layers"].value, out["block"].value)
    out["mask_token_id"] = read_mask_token(r, parallel, out["vocab_size"].value)
    out["dtype"] = read_dtype(r)
    out["quantization"] = read_quantization(r)
    check_tensors(r, out)
    report_notes(r, out)
    return out
