"""Decide every fact of a drafter: tensors first, then config keys as producers meant them."""

from collections.abc import Callable
from dataclasses import dataclass

from eagleconv.drafter import sizes
from eagleconv.drafter.accounting import check_ranks, check_tensors, report_notes
from eagleconv.drafter.contradiction import Contradiction
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

Facts = dict[str, Fact]


@dataclass(frozen=True, slots=True)
class Section:
    """Facts that are read together.

    Attributes:
        name: What is read, for the report of what could not be.
        read: Returns the facts; may raise Contradiction.
        needs: Facts that must have been read before.
    """

    name: str
    read: Callable[[Evidence, Facts], Facts]
    needs: tuple[str, ...] = ()


def decide(r: Evidence) -> Facts:
    """Decide every fact.

    Raises:
        SourceError: A tensor is missing, has a wrong shape, or contradicts the config. A collecting
            `Evidence` records it instead, and leaves out the facts that cannot be read then.
    """
    out: Facts = {}
    for section in SECTIONS:
        missing = [name for name in section.needs if name not in out]
        if missing:
            r.unread[section.name] = f"it needs {', '.join(missing)}, which could not be read"
            continue
        with r.collecting(section.name):
            out |= section.read(r, out)
    return out


def _read_kinds(r: Evidence, _: Facts) -> Facts:
    for item in KIND_OF:
        with r.collecting("kinds of config values"):
            r.get(item)
    return {}


def _read_ranks(r: Evidence, _: Facts) -> Facts:
    check_ranks(r)
    return {}


def _read_block(r: Evidence, _: Facts) -> Facts:
    parallel = "mask_hidden" in r.shapes
    drafting = ("parallel", "tensor mask_hidden") if parallel else ("chain", "no mask_hidden")
    return {
        "block": sizes.block_of(r.shapes),
        "drafting": Fact(drafting[0], "read", drafting[1]),
    }


def _read_layers(r: Evidence, _: Facts) -> Facts:
    layers = sizes.count_layers(r.shapes, r.where)
    return {"num_layers": Fact(layers, "read", "counted from the tensors")}


def _read_hidden_size(r: Evidence, _: Facts) -> Facts:
    h = sizes.rows(r.shapes, "norm.weight", r.where)
    said, key = r.get("hidden_size")
    if said is not None and said != h:
        r.refuse(
            Contradiction(
                "ECC005",
                r.where,
                f"config.json says {key} {said}, norm.weight has {h} values",
                "correct the config",
                key=key,
            )
        )
    return {"hidden_size": Fact(h, "read", "norm.weight")}


def _read_mlp(r: Evidence, _: Facts) -> Facts:
    rows = sizes.rows(r.shapes, "layers.0.mlp.gate_proj.weight", r.where)
    said, key = r.get("intermediate_size")
    if said is not None and said != rows:
        r.refuse(
            Contradiction(
                "ECC005",
                r.where,
                f"config.json says {key} {said}, mlp.gate_proj has {rows} rows",
                "correct the config",
                key=key,
            )
        )
    return {"intermediate_size": Fact(rows, "read", "mlp.gate_proj.weight")}


def _read_norms(r: Evidence, _: Facts) -> Facts:
    return {"input_norm": read_input_norm(r)}


def _read_taps(r: Evidence, out: Facts) -> Facts:
    return read_taps(r, out["hidden_size"].value)


def _read_heads(r: Evidence, out: Facts) -> Facts:
    if out["block"].value != "mla":
        q, kv, dim = sizes.heads(r.shapes, r.get, out["hidden_size"].value, r.where)
        return {
            "mla": Fact(None, "read", "no latent projections"),
            "num_attention_heads": q,
            "num_key_value_heads": kv,
            "head_dim": dim,
        }
    mla = sizes.latent(r.shapes, r.get, r.where)
    heads = r.scalar("num_attention_heads")
    said_kv, said_dim = r.get("num_key_value_heads")[0], r.get("head_dim")[0]
    return {
        "mla": mla,
        "num_attention_heads": heads,
        "num_key_value_heads": Fact(
            said_kv or heads.value, "read" if said_kv else "inferred", "MLA"
        ),
        "head_dim": Fact(
            said_dim or mla.value.qk_nope_head_dim + mla.value.qk_rope_head_dim,
            "read" if said_dim else "inferred",
            "nope + rope",
        ),
    }


def _read_vocabulary(r: Evidence, _: Facts) -> Facts:
    return read_vocabulary(r)


def _read_feedback(r: Evidence, _: Facts) -> Facts:
    return {"feedback": read_feedback(r)}


def _read_residual(r: Evidence, _: Facts) -> Facts:
    return {"residual": read_residual(r)}


def _read_biases(r: Evidence, _: Facts) -> Facts:
    out = {}
    for name, suffix in (
        ("fc_bias", "fc.bias"),
        ("attention_bias", "q_proj.bias"),
        ("output_bias", "o_proj.bias"),
    ):
        there = any(k.endswith(suffix) for k in r.shapes)
        out[name] = Fact(there, "read", f"{'a' if there else 'no'} tensor {suffix}")
    there = any(".mlp." in k and k.endswith(".bias") for k in r.shapes)
    out["mlp_bias"] = Fact(there, "read", "MLP bias tensors" if there else "no MLP bias")
    return out


def _read_eps(r: Evidence, _: Facts) -> Facts:
    eps = r.scalar("rms_norm_eps")
    return {"rms_norm_eps": Fact(float(eps.value), eps.origin, eps.why, eps.keys)}


def _read_positions(r: Evidence, _: Facts) -> Facts:
    return {"max_position_embeddings": r.scalar("max_position_embeddings")}


def _read_activation(r: Evidence, _: Facts) -> Facts:
    return {"hidden_act": r.scalar("hidden_act")}


def _read_rope(r: Evidence, _: Facts) -> Facts:
    rope, asked = read_rope(
        r.get,
        [] if r.ours else [(x.producer, x.rope) for x in r.layouts],
        r.default("rope"),
        r.declared.rope_theta,
        r.declared.rope_scaling,
        r.declared.partial_rotary_factor,
    )
    r.questions += asked
    return {"rope": rope}


def _read_window(r: Evidence, out: Facts) -> Facts:
    return {"window": read_window(r, out["num_layers"].value, out["block"].value)}


def _read_mask_token(r: Evidence, out: Facts) -> Facts:
    parallel = out["drafting"].value == "parallel"
    return {"mask_token_id": read_mask_token(r, parallel, out["vocab_size"].value)}


def _read_dtype(r: Evidence, _: Facts) -> Facts:
    return {"dtype": read_dtype(r)}


def _read_quantization(r: Evidence, _: Facts) -> Facts:
    return {"quantization": read_quantization(r)}


def _check_tensors(r: Evidence, out: Facts) -> Facts:
    check_tensors(r, out)
    return {}


def _report_notes(r: Evidence, out: Facts) -> Facts:
    report_notes(r, out)
    return {}


#: In the order in which a reader wants to hear of trouble.
SECTIONS: tuple[Section, ...] = (
    Section("kinds of config values", _read_kinds),
    Section("ranks of tensors", _read_ranks),
    Section("block", _read_block),
    Section("layers", _read_layers),
    Section("hidden size", _read_hidden_size),
    Section("MLP", _read_mlp),
    Section("input norm", _read_norms),
    Section("taps", _read_taps, ("hidden_size",)),
    Section("heads", _read_heads, ("block", "hidden_size")),
    Section("draft vocabulary", _read_vocabulary),
    Section("feedback", _read_feedback),
    Section("residual", _read_residual),
    Section("biases", _read_biases),
    Section("eps of the norms", _read_eps),
    Section("positions", _read_positions),
    Section("activation", _read_activation),
    Section("rope", _read_rope),
    Section("attention window", _read_window, ("num_layers", "block")),
    Section("mask token", _read_mask_token, ("drafting", "vocab_size")),
    Section("dtype", _read_dtype),
    Section("quantisation", _read_quantization),
    Section(
        "every tensor",
        _check_tensors,
        (
            *("block", "drafting", "num_layers", "hidden_size", "intermediate_size", "input_norm"),
            *("aux", "target_hidden_size", "num_attention_heads", "head_dim", "vocab_size"),
            *("own_head", "own_embedding", "quantization"),
        ),
    ),
    Section("known trouble", _report_notes, ("rope", "vocabulary")),
)
