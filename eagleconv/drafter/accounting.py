"""Hold every tensor against the facts, and report what is known to go wrong."""

import struct
from collections.abc import Mapping
from typing import Any

from eagleconv.drafter import sizes
from eagleconv.drafter.evidence import present
from eagleconv.drafter.facts import Fact, Question, TargetConfig, Trap
from eagleconv.drafter.reading import Evidence
from eagleconv.drafter.rope import base_of
from eagleconv.errors import SourceError

#: Embeddings are padded to multiples of 64 to 512 (vllm#5203, vllm#13849); more is another model.
MAX_PADDING = 512


def check_tensors(r: Evidence, facts: Mapping[str, Fact]) -> None:
    """Hold every tensor against the shape the facts imply, and miss none."""
    v = {k: f.value for k, f in facts.items()}
    packed = v["quantization"] is not None
    expected = sizes.expected_shapes(v, packed)
    for name, shape in expected.items():
        if name == "d2t" and "d2t" in r.derived:
            continue
        if name not in r.shapes:
            raise SourceError(
                f"{r.where}: tensor {name} is missing",
                "engines would leave it uninitialised or at 1.0, silently; get the whole file",
            )
        if r.shapes[name] != shape:
            raise SourceError(
                f"{r.where}: tensor {r.tensors[name]} has shape "
                f"{list(r.shapes[name])}, expected {list(shape)}",
                "config and weights do not belong together",
            )
    for name in r.shapes:
        check_extra(r, name, expected, v)
    if not v["own_embedding"] and v["hidden_size"] != v["target_hidden_size"]:
        raise SourceError(
            f"{r.where}: the drafter is {v['hidden_size']} wide, its target "
            f"{v['target_hidden_size']}, so it cannot share the embedding, and has none",
            "get the checkpoint with embed_tokens.weight",
        )
    if r.target is not None:
        check_target(r, v, r.target)


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
        raise SourceError(
            f"{r.where}: the drafter was made for a target {fact} of {ours}, {target.name} has "
            f"{theirs}",
            "give the target it was trained for",
        )
    if padded:
        r.traps.append(
            Trap(
                "ECP002",
                "vocabulary-differs-by-padding",
                "warning",
                f"the drafter knows {vocab} ids, the target {target.vocab_size}: padding, if their "
                "tokenizers are equal",
                "compare the tokenizers",
                "vocab_size",
            )
        )


def check_extra(
    r: Evidence, name: str, expected: Mapping[str, tuple[int, ...]], v: Mapping[str, Any]
) -> None:
    """Refuse a tensor that no part of this variant would use."""
    module, _, suffix = name.rpartition(".")
    if name in expected or r.tensors[name] in r.dropped:
        return
    if v["quantization"] is not None and module:
        return
    shape = r.shapes[name]
    if name == "t2d":
        wanted: tuple[int, ...] = (v["vocab_size"],)
    elif suffix == "bias" and f"{module}.weight" in expected:
        wanted = expected[f"{module}.weight"][:1]
    else:
        raise SourceError(
            f"{r.where}: tensor {r.tensors[name]} has no place in this variant "
            f"({v['block']} block, {v['num_layers']} layers, input norm {v['input_norm']})",
            "engines would drop it or refuse the file; get a checkpoint whose parts fit",
        )
    if shape != wanted:
        raise SourceError(
            f"{r.where}: tensor {r.tensors[name]} has shape {list(shape)}, expected {list(wanted)}",
            "config and weights do not belong together",
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
                r.traps.append(Trap(note.code, note.name, note.severity, note.message, note.hint))
    rare = [x for x in r.layouts if base_of(x.rope, kind) == "rarely 10000"]
    if rare and rope.theta != 10000.0 and r.declared.rope_theta is None and not r.ours:
        r.traps.append(
            Trap(
                "ECC012",
                "rope-base-by-version",
                "warning",
                f"rope base {rope.theta:g} is kept as written; {rare[0].producer}: "
                f"{rare[0].rope.why}",
                "if it was trained then, say so with --rope-theta 10000",
                "rope_theta",
            )
        )
    tied, key = r.get("tie_word_embeddings")
    if tied is True and facts["own_head"].value:
        r.traps.append(
            Trap(
                "ECC011",
                "tied-with-own-head",
                "warning",
                "tie_word_embeddings is true beside an own lm_head; SGLang would use the "
                "embedding as head",
                "upgrade writes false",
                key,
            )
        )
