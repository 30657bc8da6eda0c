"""Tensor names: the canonical ones, and rename tables that read in both directions.

A template is a module path with holes: `{t}` a module outside the layers, `{i}` a number, `{m}` a
module of a decoder layer, `{b}` a bare tensor, `{any}` anything. A table is one tuple of
`(theirs, canonical)`; the inverse is the same table read the other way, and a canonical of None
drops the tensor by the rule named beside it.
"""

import re
from dataclasses import dataclass
from functools import cache

#: Modules outside the layers whose tensors are `<module>.weight` (and `.bias`).
TOP_MODULES: tuple[str, ...] = ("embed_tokens", "fc", "input_norm", "norm", "lm_head")
#: Tensors without a module.
BARE: tuple[str, ...] = ("d2t", "t2d", "mask_hidden")
#: Modules of one decoder layer, over all blocks of the house.
LAYER_MODULES: tuple[str, ...] = (
    "input_layernorm",
    "hidden_norm",
    "post_attention_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "self_attn.q_norm",
    "self_attn.k_norm",
    "self_attn.q_a_proj",
    "self_attn.q_a_layernorm",
    "self_attn.q_b_proj",
    "self_attn.kv_a_proj_with_mqa",
    "self_attn.kv_a_layernorm",
    "self_attn.kv_b_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
#: What quantisers put after the last dot beside (or instead of) `weight`.
#: Source: compressed-tensors, ModelOpt's `hf_quant_config` exports, AWQ and GPTQ checkpoints.
QUANT_SUFFIXES: tuple[str, ...] = (
    "weight_scale",
    "weight_scale_2",
    "weight_scale_inv",
    "weight_zero_point",
    "weight_packed",
    "weight_shape",
    "weight_global_scale",
    "weight_g_idx",
    "input_scale",
    "input_global_scale",
    "input_zero_point",
    "output_scale",
    "k_scale",
    "v_scale",
    "pre_quant_scale",
    "qweight",
    "qzeros",
    "scales",
    "g_idx",
)


@dataclass(frozen=True, slots=True)
class Rename:
    """One row of a rename table.

    Attributes:
        theirs: Template of the name as the producer stores it.
        canonical: Template of the canonical name; None drops the tensor.
        reason: Why it may be dropped; empty for carried tensors.
    """

    theirs: str
    canonical: str | None
    reason: str = ""


def same(*templates: str) -> tuple[Rename, ...]:
    """Return rows for names that are stored canonically."""
    return tuple(Rename(t, t) for t in templates)


_HOLES = {
    "{t}": "|".join(re.escape(m) for m in TOP_MODULES),
    "{b}": "|".join(BARE),
    "{m}": "|".join(re.escape(m) for m in LAYER_MODULES),
    "{i}": r"\d+",
    "{any}": r".*",
}


@cache
def _pattern(template: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """Compile a template; a tensor suffix follows every module template but not a bare one."""
    holes = tuple(re.findall(r"\{\w+\}", template))
    body = re.escape(template)
    for hole in holes:
        body = body.replace(re.escape(hole), f"({_HOLES[hole]})", 1)
    if holes != ("{b}",) and holes[-1:] != ("{any}",):
        body += r"\.(" + "|".join(("weight", "bias", *QUANT_SUFFIXES)) + ")"
    return re.compile(body), holes


def _apply(name: str, source: str, target: str) -> str | None:
    """Rewrite `name` from template `source` to template `target`, or None where it does not fit."""
    pattern, holes = _pattern(source)
    match = pattern.fullmatch(name)
    if match is None:
        return None
    groups = match.groups()
    result = target
    for hole, text in zip(holes, groups, strict=False):
        result = result.replace(hole, text, 1)
    return result + (f".{groups[-1]}" if len(groups) > len(holes) else "")


def to_canonical(name: str, table: tuple[Rename, ...]) -> tuple[str | None, Rename] | None:
    """Return the canonical name (None if dropped) and the row; None where no row fits."""
    for row in table:
        if row.canonical is None:
            if _pattern(row.theirs)[0].fullmatch(name):
                return None, row
        else:
            found = _apply(name, row.theirs, row.canonical)
            if found is not None:
                return found, row
    return None


def from_canonical(name: str, table: tuple[Rename, ...]) -> str | None:
    """Return the producer's name of a canonical tensor, or None where its layout has none."""
    for row in table:
        if row.canonical is not None:
            found = _apply(name, row.canonical, row.theirs)
            if found is not None:
                return found
    return None


def split_layer(name: str) -> tuple[int, str] | None:
    """Split `layers.3.mlp.up_proj.weight` into (3, `mlp.up_proj.weight`)."""
    match = re.fullmatch(r"layers\.(\d+)\.(.+)", name)
    return (int(match[1]), match[2]) if match else None
