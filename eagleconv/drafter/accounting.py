"""Hold every tensor against the facts, and report what is known to go wrong."""

import struct
from collections.abc import Mapping
from typing import Any

from eagleconv.checkpoint.dtypes import CONFIG_NAMES
from eagleconv.drafter import sizes
from eagleconv.drafter.contradiction import Contradiction
from eagleconv.drafter.evidence import present
from eagleconv.drafter.facts import Fact, Question, TargetConfig, Trap
from eagleconv.drafter.names import QUANT_SUFFIXES
from eagleconv.drafter.reading import Evidence
from eagleconv.drafter.rope import base_of

#: What a quantiser may store instead of `weight`.
PACKED = ("qweight", "weight_packed")
#: Embeddings are padded to multiples of 64 to 512 (vllm#5203, vllm#13849); more is another model.
MAX_PADDING = 512


def check_ranks(r: Evidence) -> None:
    """Refuse tensors without values, and matrices that are none, before sizes are read from them.

    Raises:
        SourceError: Naming the tensor.
    """
    for name, shape in r.shapes.items():
        with r.collecting("ranks of tensors"):
            _check_rank(r, name, shape)


def _check_rank(r: Evidence, name: str, shape: tuple[int, ...]) -> None:
    module, _, suffix = name.rpartition(".")
    if suffix not in ("weight", "bias", "d2t", "t2d", "mask_hidden"):
        return  # a quantiser's scale may be a scalar
    flat = suffix == "bias" or "norm" in module or not module
    rank = 3 if name == "mask_hidden" else 1 if flat else 2
    if len(shape) != rank or 0 in shape:
        raise Contradiction(
            "ECT003",
            r.where,
            f"tensor {r.tensors[name]} has shape {list(shape)}, expected {rank} "
            f"size{'s' if rank > 1 else ''} above 0",
            "get the whole checkpoint",
            tensor=r.tensors[name],
        )


def check_tensors(r: Evidence, facts: Mapping[str, Fact]) -> None:
    """Hold every tensor against the shape the facts imply, and miss none."""
    v = {k: f.value for k, f in facts.items()}
    expected = sizes.expected_shapes(v) | _bias_shapes(r, v)
    for name, shape in expected.items():
        if name == "d2t" and ("d2t" in r.derived or _map_is_reported(r)):
            continue
        with r.collecting("every tensor"):
            _check_tensor(r, name, shape, quantized=v["quantization"] is not None)
    for name in r.shapes:
        with r.collecting("every tensor"):
            check_extra(r, name, expected, v)
    if not v["own_head"] and v["own_embedding"] and r.get("tie_word_embeddings")[0] is True:
        r.refuse(
            Contradiction(
                "ECC016",
                r.where,
                "tie_word_embeddings is true beside an own embedding and no lm_head: the "
                "head is that embedding, but engines would use the target's head",
                "store the head as lm_head.weight, or correct the key",
                key="tie_word_embeddings",
            )
        )
    if not v["own_embedding"] and v["hidden_size"] != v["target_hidden_size"]:
        r.refuse(
            Contradiction(
                "ECT008",
                r.where,
                f"the drafter is {v['hidden_size']} wide, its target "
                f"{v['target_hidden_size']}, so it cannot share the embedding, and has none",
                "get the checkpoint with embed_tokens.weight",
            )
        )
    if r.target is not None:
        check_target(r, v, r.target)


def _map_is_reported(r: Evidence) -> bool:
    """Say whether the vocabulary map was found missing or of another size already."""
    return any(trap.code in ("ECV001", "ECV004") for trap in r.traps)


def _bias_shapes(r: Evidence, v: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the biases that must be there since others of their kind are."""
    plain = sizes.expected_shapes(v)
    kinds = {"attention_bias": "self_attn.{}_proj", "mlp_bias": "mlp.{}_proj"}
    members = {"attention_bias": "qkv", "mlp_bias": ("gate", "up", "down")}
    out = {}
    for fact, template in kinds.items():
        for layer in range(v["num_layers"]) if v[fact] and v["block"] != "mla" else ():
            for member in members[fact]:
                module = f"layers.{layer}.{template.format(member)}"
                out[f"{module}.bias"] = plain[f"{module}.weight"][:1]
    return out


def _check_tensor(r: Evidence, name: str, shape: tuple[int, ...], *, quantized: bool) -> None:
    """Check one tensor's presence, shape and dtype.

    A quantiser may store `qweight` or `weight_packed` instead of a matrix, or two 4-bit values in
    a byte; norms, biases and the map keep their shape and dtype.
    """
    module = name.rpartition(".")[0]
    matrix = len(shape) == 2
    if name not in r.shapes:
        if quantized and matrix and any(f"{module}.{s}" in r.shapes for s in PACKED):
            return
        raise Contradiction(
            "ECT002",
            r.where,
            f"tensor {name} is missing",
            "engines would leave it uninitialised or at 1.0, silently; get the whole file",
            tensor=name,
        )
    found, dtype = r.shapes[name], r.checkpoint.tensors[r.tensors[name]].dtype
    halved = (shape[0], shape[1] // 2) if matrix else shape
    if found != shape and not (quantized and matrix and dtype == "U8" and found == halved):
        raise Contradiction(
            "ECT003",
            r.where,
            f"tensor {r.tensors[name]} has shape {list(found)}, expected {list(shape)}",
            "config and weights do not belong together",
            tensor=r.tensors[name],
        )
    if name != "d2t" and dtype not in CONFIG_NAMES and not (quantized and matrix):
        raise Contradiction(
            "ECT004",
            r.where,
            f"tensor {r.tensors[name]} has dtype {dtype}, expected a floating dtype "
            f"({', '.join(CONFIG_NAMES)})",
            "quantised weights need the quantization_config they were written with",
            tensor=r.tensors[name],
        )


def check_buffers(r: Evidence, facts: Mapping[str, Fact]) -> None:
    """Hold saved rotary buffers against the rope facts: they show what the trainer rotated with.

    inv_freq[i] = base^(-2i/d) for unscaled rope, float32, d/2 values.
    """
    rope = facts["rope"].value
    for name, info in r.checkpoint.tensors.items():
        if not name.endswith("rotary_emb.inv_freq") or name.startswith("target_model."):
            continue
        if info.dtype != "F32" or info.shape[0] < 2 or rope.scaling is not None:
            continue
        values = struct.unpack(f"<{info.shape[0]}f", r.checkpoint.read(name))
        base = values[1] ** -float(info.shape[0])
        if abs(base / rope.theta - 1) > 1e-3 and r.declared.rope_theta is None:
            r.questions.append(
                Question(
                    "rope theta",
                    f"config.json says rope base {rope.theta:g}, but the saved buffer {name} was "
                    f"made with {base:.6g}.",
                    f"--rope-theta {base:.6g} (as trained) or --rope-theta {rope.theta:g}",
                )
            )


def check_target(r: Evidence, v: Mapping[str, Any], target: TargetConfig) -> None:
    """Refuse another target; a vocabulary that differs by padding alone is reported."""
    wide, vocab = v["target_hidden_size"], v["vocab_size"]
    padded = 0 < abs(target.vocab_size - vocab) <= MAX_PADDING
    if wide != target.hidden_size or (vocab != target.vocab_size and not padded):
        fact, ours, theirs = (
            ("width", wide, target.hidden_size)
            if wide != target.hidden_size
            else ("vocabulary", vocab, target.vocab_size)
        )
        raise Contradiction(
            "ECP001",
            r.where,
            f"the drafter was made for a target {fact} of {ours}, {target.name} has {theirs}",
            "give the target it was trained for",
        )
    if padded:
        r.traps.append(
            Trap(
                "ECP002",
                f"the drafter knows {vocab} ids, the target {target.vocab_size}: padding, if their "
                "tokenizers are equal",
                "compare the tokenizers",
                key="vocab_size",
            )
        )


def check_extra(
    r: Evidence, name: str, expected: Mapping[str, tuple[int, ...]], v: Mapping[str, Any]
) -> None:
    """Refuse a tensor that no part of this variant would use."""
    module, _, suffix = name.rpartition(".")
    if name in expected or r.tensors[name] in r.dropped:
        return
    shape = r.shapes[name]
    wanted: tuple[int, ...] | None = None
    if suffix in QUANT_SUFFIXES and v["quantization"] is not None:
        if f"{module}.weight" in expected:
            return
    elif name == "t2d":
        wanted = (v["vocab_size"],)
    elif suffix == "bias" and (name == "fc.bias" or "_proj" in module):
        wanted = expected.get(f"{module}.weight", (0,))[:1]
    if wanted is None:
        raise Contradiction(
            "ECT005",
            r.where,
            f"tensor {r.tensors[name]} has no place in this variant "
            f"({v['block']} block, {v['num_layers']} layers, input norm {v['input_norm']})",
            "engines would drop it or refuse the file; get a checkpoint whose parts fit",
            tensor=r.tensors[name],
        )
    if shape != wanted:
        raise Contradiction(
            "ECT003",
            r.where,
            f"tensor {r.tensors[name]} has shape {list(shape)}, expected {list(wanted)}",
            "config and weights do not belong together",
            tensor=r.tensors[name],
        )


def report_notes(r: Evidence, facts: Mapping[str, Fact]) -> None:
    """Report the traps of the possible layouts."""
    rope = facts["rope"].value
    kind = "default" if rope.scaling is None else str(rope.scaling.get("rope_type"))
    check_buffers(r, facts)
    known = {name: fact.value for name, fact in facts.items()} | {"rope_kind": kind}
    for layout in r.layouts:
        sure = not layout.certain_key or present(r.checkpoint.config, layout.certain_key)
        for note in layout.notes if sure or len(r.layouts) == 1 else ():
            if all(known[k] == w for k, w in note.when.items()):
                r.traps.append(Trap(note.code, note.message, note.hint))
    rare = [x for x in r.layouts if base_of(x.rope, kind) == "rarely 10000"]
    open_rope = any(q.fact == "rope theta" for q in r.questions)
    if (
        rare
        and not open_rope
        and rope.theta != 10000.0
        and r.declared.rope_theta is None
        and not r.ours
    ):
        r.traps.append(
            Trap(
                "ECR002",
                f"engines rotate with base {rope.theta:g}, as written, but {rare[0].producer}: "
                f"{rare[0].rope.why}",
                "if it was trained then, say so with --rope-theta 10000",
                key="rope_theta",
            )
        )
    tied, key = r.get("tie_word_embeddings")
    if tied is True and facts["own_head"].value:
        r.traps.append(
            Trap(
                "ECC011",
                "tie_word_embeddings is true beside an own lm_head; SGLang would use the "
                "embedding as head",
                "upgrade writes false",
                key=key,
            )
        )
