"""Drafters one step away from a good one: a flag, a tensor, an id, a key, a file.

Each is a public failure made small (families F1 to F11 of tests/test_bug_census.py), or a legal
variant that must not be rejected.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from fixtures import changes
from fixtures.changes import Change, Tensors, adding, both, editing, rename, without

GONE = object()
_IDS = "eagle_aux_hidden_state_layer_ids"


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One step away from a good drafter.

    Attributes:
        family: Of the census.
        name: In words.
        base: Name of the good drafter (test_agreement.BASES).
        change: What is done to its directory.
        trained: Whose forward is the right one: the `base`'s (the change is a defect), or the
            `file`'s own (the change states another drafter, legally).
        target: Other sizes of the target, e.g. its vocabulary.
    """

    family: str
    name: str
    base: str
    change: Change
    trained: Literal["base", "file"] = "base"
    target: dict[str, int] = dataclasses.field(default_factory=dict)


def config(**values: Any) -> Change:
    """Set config keys; `__` stands for a dot, GONE removes the key."""

    def change(directory: Path) -> None:
        path = directory / "config.json"
        whole = json.loads(path.read_text())
        for dotted, value in values.items():
            *homes, key = dotted.split("__")
            inner = whole
            for home in homes:
                inner = inner.setdefault(home, {})
            if value is GONE:
                inner.pop(key, None)
            else:
                inner[key] = value
        path.write_text(json.dumps(whole, indent=2))

    return change


def nothing(directory: Path) -> None:
    """Leave it as it is."""


def offsets(edit: Callable[[list[int]], list[int]], dtype: str = "I64") -> Change:
    """Replace the values of d2t."""
    form = {"I64": "q", "I32": "i"}[dtype]

    def change(tensors: Tensors) -> None:
        stored, shape, data = tensors["d2t"]
        width = {"I64": "q", "I32": "i"}[stored]
        values = edit(list(struct.unpack(f"<{shape[0]}{width}", data)))
        tensors["d2t"] = (dtype, (len(values),), struct.pack(f"<{len(values)}{form}", *values))

    return editing(change)


def wrapped(tensors: Tensors) -> None:
    """Put `model.` before every name but the head's and the map's."""
    for name in list(tensors):
        if name not in ("lm_head.weight", "d2t", "t2d"):
            tensors[f"model.{name}"] = tensors.pop(name)


def zeroed(name: str) -> Change:
    """Set every value of a tensor to zero."""
    return editing(lambda t: t.__setitem__(name, (*t[name][:2], bytes(len(t[name][2])))))


def with_nan(name: str) -> Change:
    """Make the first value of a bfloat16 tensor a NaN."""

    def change(tensors: Tensors) -> None:
        dtype, shape, data = tensors[name]
        assert dtype == "BF16", dtype
        tensors[name] = (dtype, shape, b"\xc0\x7f" + data[2:])

    return editing(change)


def as_float32(name: str) -> Change:
    """Store one bfloat16 tensor in float32, value for value."""

    def change(tensors: Tensors) -> None:
        dtype, shape, data = tensors[name]
        assert dtype == "BF16", dtype
        wide = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
        tensors[name] = ("F32", shape, wide)

    return editing(change)


def flattened(name: str) -> Change:
    """Swap the two sizes of a matrix."""
    return editing(lambda t: t.__setitem__(name, (t[name][0], t[name][1][::-1], t[name][2])))


def copied(source: str, *names: str) -> Change:
    """Add tensors that are copies of another one."""
    return editing(lambda t: t.update(dict.fromkeys(names, t[source])))


def biases(tensors: Tensors) -> None:
    """Add q, k and v biases."""
    for member in "qkv":
        module = next(n for n in tensors if n.endswith(f"self_attn.{member}_proj.weight"))
        rows = tensors[module][1][0]
        tensors[module.replace("weight", "bias")] = ("BF16", (rows,), b"\x80\x3e" * rows)


def vector(rows: int) -> tuple[str, tuple[int, ...], bytes]:
    """Return a bfloat16 vector of 0.25."""
    return "BF16", (rows,), b"\x80\x3e" * rows


def inside(directory: Path) -> None:
    """Move config and weights into a directory of their own."""
    inner = directory / "model"
    inner.mkdir()
    for name in ("config.json", changes.WEIGHTS):
        (directory / name).rename(inner / name)


_SCALED = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
_M = "midlayer."

MUTATIONS: tuple[Mutation, ...] = (
    # The good ones, as they are.
    Mutation("-", "flat 3.1 as upgraded", "flat31", nothing, "file"),
    Mutation("-", "speculators as trained", "speculators", nothing, "file"),
    Mutation("-", "speculators with fc_norm", "speculators31", nothing, "file"),
    Mutation("-", "qwen3 block", "qwen3", nothing, "file"),
    Mutation("-", "MLA block", "mla", nothing, "file"),
    Mutation("-", "full vocabulary, borrowed head", "full", nothing, "file"),
    Mutation("-", "P-EAGLE", "peagle", nothing, "file"),
    Mutation("-", "two layers", "two", nothing, "file"),
    Mutation("-", "attention window", "window", nothing, "file"),
    Mutation("-", "SpecForge as trained", "plain", nothing, "file"),
    # F1: identity and packaging.
    Mutation("F1", "class of the target", "plain", config(architectures=["Qwen3ForCausalLM"])),
    Mutation("F1", "class vLLM rewrites", "flat31", config(architectures=["LlamaForCausalLM"])),
    Mutation("F1", "class of Automodel", "flat31", config(architectures=["LlamaEagle3DraftModel"])),
    Mutation("F1", "class of flat P-EAGLE", "flat31", config(architectures=["PEagleDraftModel"])),
    Mutation("F1", "no architectures", "flat31", config(architectures=GONE)),
    Mutation("F1", "no model_type", "flat31", config(model_type=GONE)),
    Mutation("F1", "model_type of an MTP", "flat31", config(model_type="deepseek_v3")),
    Mutation("F1", "names in model.", "flat31", editing(wrapped)),
    Mutation(
        "F1",
        "one tensor renamed",
        "flat31",
        rename(_M + "mlp.gate_proj.weight", _M + "mlp.gate.weight"),
    ),
    Mutation("F1", "a tensor too many", "flat31", adding("extra.weight", vector(4))),
    Mutation(
        "F1",
        "layers.0 for midlayer",
        "flat31",
        editing(
            lambda t: [
                t.__setitem__(n.replace(_M, "layers.0."), t.pop(n))
                for n in list(t)
                if n.startswith(_M)
            ]
        ),
    ),  # type: ignore[func-returns-value]
    Mutation("F1", "weights in a .bin", "flat31", changes.pickled, "file"),
    Mutation("F1", "shards without index", "flat31", changes.shards(False), "file"),
    Mutation("F1", "download cut short", "flat31", changes.cut),
    Mutation(
        "F1", "broken config.json", "flat31", changes.text("config.json", '{"hidden_size": 64,')
    ),
    Mutation("F1", "weights in a directory inside", "flat31", inside),
    Mutation("F1", "a trainer's state", "flat31", changes.training_state("eagle3")),
    Mutation(
        "F1",
        "speculators for mistral",
        "speculators",
        config(transformer_layer_config__model_type="mistral"),
    ),
    Mutation(
        "F1",
        "speculators of an unknown kind",
        "speculators",
        config(speculators_model_type="eagle"),
    ),
    # F2: norm flags.
    Mutation("F2", "fc_norm tensors, no key", "flat31", config(fc_norm=GONE)),
    Mutation("F2", "fc_norm tensors, key false", "flat31", config(fc_norm=False)),
    Mutation("F2", "fc_norm key, no tensors", "plain", config(fc_norm=True)),
    Mutation("F2", "one fc_norm missing", "flat31", without("fc_norm.1.weight")),
    Mutation(
        "F2", "norm_output off, as the file says", "flat31", config(norm_output=False), "file"
    ),
    Mutation(
        "F2",
        "norm_output nested",
        "flat31",
        config(norm_output=GONE, eagle_config__norm_output=True),
    ),
    Mutation(
        "F2",
        "norm_before_residual on, as the file says",
        "flat31",
        config(norm_before_residual=True),
        "file",
    ),
    Mutation(
        "F2",
        "norm_before_fc key, no tensor",
        "full",
        config(norm_before_fc=True, eagle_config__norm_before_fc=True),
    ),
    Mutation(
        "F2",
        "input_norm tensor, no key",
        "full",
        adding("input_norm.weight", vector(192)),
        "file",
    ),
    Mutation(
        "F2",
        "speculators: norm_output in the layer's config",
        "speculators",
        config(norm_output=GONE, transformer_layer_config__norm_output=True),
    ),
    Mutation("F2", "speculators: norm_before_fc gone", "speculators", config(norm_before_fc=GONE)),
    Mutation("F2", "speculators: fc_norm gone", "speculators31", config(fc_norm=GONE)),
    Mutation(
        "F2",
        "speculators: norm_before_residual gone",
        "speculators",
        config(norm_before_residual=GONE),
    ),
    Mutation(
        "F2",
        "P-EAGLE: norm_output, which vLLM does not lift",
        "peagle",
        config(norm_output=True),
        "file",
    ),
    # F3: layer ids.
    Mutation("F3", "ids nested only", "flat31", config(**{_IDS: GONE})),
    Mutation(
        "F3", "no ids at all", "flat31", config(**{_IDS: GONE, f"eagle_config__{_IDS}": GONE})
    ),
    Mutation("F3", "ids of the other numbering", "flat31", config(**{_IDS: [1, 3, 4]})),
    Mutation(
        "F3",
        "both homes in one numbering",
        "flat31",
        config(**{_IDS: [1, 3, 4], f"eagle_config__{_IDS}": [1, 3, 4]}),
    ),
    Mutation(
        "F3",
        "ids out of order",
        "flat31",
        config(**{_IDS: [5, 2, 4], f"eagle_config__{_IDS}": [4, 1, 3]}),
    ),
    Mutation(
        "F3",
        "an id twice",
        "flat31",
        config(**{_IDS: [2, 2, 5], f"eagle_config__{_IDS}": [1, 1, 4]}),
    ),
    Mutation(
        "F3",
        "four ids for three states",
        "flat31",
        config(**{_IDS: [2, 3, 4, 5], f"eagle_config__{_IDS}": [1, 2, 3, 4]}),
    ),
    Mutation(
        "F3",
        "an id past the target",
        "flat31",
        config(**{_IDS: [2, 4, 99], f"eagle_config__{_IDS}": [1, 3, 98]}),
    ),
    Mutation(
        "F3",
        "the last boundary",
        "flat31",
        config(**{_IDS: [2, 4, 8], f"eagle_config__{_IDS}": [1, 3, 7]}),
        "file",
    ),
    Mutation("F3", "null ids, default taps", "plain", config(**{_IDS: None}), "file"),
    Mutation("F3", "count removed", "flat31", config(num_aux_hidden_states=GONE), "file"),
    Mutation("F3", "count of four", "flat31", config(num_aux_hidden_states=4)),
    Mutation(
        "F3", "one state, beside an fc", "flat31", config(eagle_config__use_aux_hidden_state=False)
    ),
    # F4: vocabulary.
    Mutation("F4", "no d2t, no t2d", "flat31", without("d2t", "t2d")),
    Mutation("F4", "no d2t, t2d kept", "plain", without("d2t")),
    Mutation("F4", "no t2d", "plain", without("t2d")),
    Mutation("F4", "absolute ids", "plain", editing(changes.absolute_ids)),
    Mutation("F4", "one id past the vocabulary", "flat31", offsets(lambda v: [*v[:-1], 192])),
    Mutation("F4", "two ids one target", "flat31", offsets(lambda v: [v[0], v[0] - 1, *v[2:]])),
    Mutation("F4", "another map", "plain", offsets(lambda v: [v[-1], *v[:-1]])),
    Mutation("F4", "d2t in int32", "flat31", offsets(list, "I32"), "file"),
    Mutation("F4", "d2t too short", "flat31", offsets(lambda v: v[:-4])),
    Mutation(
        "F4", "d2t at full vocabulary", "full", adding("d2t", ("I64", (192,), bytes(8 * 192)))
    ),
    Mutation("F4", "draft_vocab_size of another head", "flat31", config(draft_vocab_size=64)),
    Mutation("F4", "draft_vocab_size gone", "flat31", config(draft_vocab_size=GONE)),
    Mutation("F4", "vocab_size of another target", "flat31", config(vocab_size=200)),
    Mutation("F4", "target padded", "flat31", nothing, "file", {"padded_to": 256}),
    # F5: embedding and head.
    Mutation("F5", "no lm_head, reduced vocabulary", "flat31", without("lm_head.weight")),
    Mutation("F5", "no embedding", "flat31", without("embed_tokens.weight"), "file"),
    Mutation("F5", "tied beside a head", "flat31", config(tie_word_embeddings=True), "file"),
    Mutation("F5", "null draft_vocab_size", "full", config(draft_vocab_size=None), "file"),
    Mutation("F5", "no embedding of another width", "own-width", without("embed_tokens.weight")),
    # F6: positions.
    Mutation(
        "F6",
        "another base, as the file says",
        "flat31",
        config(
            rope_theta=500000.0, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}
        ),
        "file",
    ),
    Mutation("F6", "base written twice", "flat31", config(rope_theta=500000.0)),
    Mutation(
        "F6",
        "scaling in both spellings",
        "flat31",
        config(rope_parameters=_SCALED, rope_scaling=_SCALED),
        "file",
    ),
    Mutation(
        "F6",
        "rope by attention type",
        "flat31",
        config(rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
    ),
    Mutation(
        "F6", "positions of 64, target 256", "flat31", config(max_position_embeddings=64), "file"
    ),
    # F7: widths and heads.
    Mutation("F7", "hidden_size of another", "flat31", config(hidden_size=128)),
    Mutation("F7", "null target_hidden_size", "flat31", config(target_hidden_size=None)),
    Mutation("F7", "three layers declared", "flat31", config(num_hidden_layers=3)),
    Mutation(
        "F7",
        "two layers in the file, one declared",
        "two",
        config(transformer_layer_config__num_hidden_layers=1),
    ),
    Mutation("F7", "heads of another size", "flat31", config(head_dim=64)),
    Mutation("F7", "fc transposed", "flat31", flattened("fc.weight")),
    Mutation(
        "F7",
        "q/k norms in a llama block",
        "flat31",
        adding(_M + "self_attn.q_norm.weight", vector(32)),
    ),
    # F8: precision.
    Mutation(
        "F8",
        "dtype key of another",
        "flat31",
        config(dtype="float16", torch_dtype="float16"),
        "file",
    ),
    Mutation("F8", "one norm in float32", "flat31", as_float32("norm.weight"), "file"),
    Mutation(
        "F8",
        "quantization_config of the target",
        "flat31",
        config(quantization_config={"quant_method": "fp8", "activation_scheme": "dynamic"}),
    ),
    Mutation("F8", "a NaN", "flat31", with_nan("norm.weight")),
    Mutation("F8", "fc all zeros", "flat31", zeroed("fc.weight")),
    # Tensors that vanish without a word.
    Mutation("F1", "no hidden_norm", "flat31", without(_M + "hidden_norm.weight")),
    Mutation("F1", "no final norm", "flat31", without("norm.weight")),
    Mutation("F1", "no q_proj", "flat31", without(_M + "self_attn.q_proj.weight")),
    Mutation("F1", "no fc", "flat31", without("fc.weight")),
    Mutation(
        "F1",
        "qwen3 without q_norm",
        "qwen3",
        without("layers.0.self_attn.q_norm.weight", "layers.0.self_attn.k_norm.weight"),
    ),
    Mutation("F1", "MLA without kv_b_proj", "mla", without(_M + "self_attn.kv_b_proj.weight")),
    Mutation("F1", "bias of fc", "flat31", both(adding("fc.bias", vector(64)), config(bias=True))),
    Mutation("F1", "q/k/v biases, no key", "flat31", editing(biases), "file"),
    Mutation("F1", "attention_bias, no tensors", "flat31", config(attention_bias=True)),
    Mutation("F1", "gelu", "flat31", config(hidden_act="gelu"), "file"),
    Mutation("F1", "logit_scale", "flat31", config(logit_scale=2.0)),
    Mutation("F1", "P-EAGLE without mask_hidden", "peagle", without("mask_hidden")),
    Mutation("F1", "P-EAGLE without mask token", "peagle", config(mask_token_id=GONE)),
    # F11: what the target is.
    Mutation("F11", "target of another width", "flat31", nothing, "base", {"hidden_size": 128}),
    Mutation(
        "F11", "target with more layers", "flat31", nothing, "file", {"num_hidden_layers": 10}
    ),
)
