"""NVIDIA NeMo Automodel: every backbone tensor under `model.`."""

from eagleconv.drafter.layouts.layout import (
    ENGINE_ID_KEYS,
    FLAG_KEYS,
    FLAT_KEYS,
    MASK_KEYS,
    AuxRule,
    Expressible,
    Layout,
    RopeRule,
    Signature,
)
from eagleconv.drafter.names import Rename, same

_FLAGS = (
    ("fc_norm", "fc_norm"),
    ("norm_output", "norm_output"),
    ("num_aux_hidden_states", "num_aux_hidden_states"),
    MASK_KEYS[0],
)
_KEYS = tuple(row for row in FLAT_KEYS if row[1] != "num_hidden_layers")

AUTOMODEL = Layout(
    name="automodel",
    producer="NeMo Automodel",
    title="EAGLE-3 drafter of NeMo Automodel",
    source="NeMo Automodel 36044ad3: nemo_automodel/components/speculative/eagle/draft_llama.py",
    signature=Signature(
        tensors=("model.layers.0.*", "model.fc.*"),
        architectures=("LlamaEagle3DraftModel", "LlamaForCausalLMEagle3", ""),
        no_keys=("speculators_model_type",),
    ),
    names=(
        *same("lm_head", "{b}"),
        Rename("model.{t}", "{t}"),
        Rename("model.fc_norm.{i}", "fc_norm.{i}"),
        Rename("model.layers.{i}.{m}", "layers.{i}.{m}"),
    ),
    keys=(*_KEYS, *_FLAGS),
    # The config is the target's with overrides: num_hidden_layers is the target's count.
    read_also=(
        *(row for row in FLAG_KEYS if row not in _FLAGS),
        *ENGINE_ID_KEYS,
        *MASK_KEYS[1:],
        ("num_hidden_layers", "target_num_layers"),
        ("hidden_activation", "hidden_act"),
    ),
    aux=AuxRule(
        "open",
        None,
        False,
        "the recipe's aux_layer_ids are never written to the config "
        "(components/speculative/eagle/target.py:42-61)",
    ),
    architectures={"llama": "LlamaEagle3DraftModel", "mla": "LlamaEagle3DraftModel"},
    model_types={"llama": "llama", "mla": "kimi_k2"},
    rope=RopeRule(
        scaling_doubt=("yarn", "linear", "dynamic", "longrope"),
        partial="ignored",
        why="before 2026-06-29 it ran every scaling but llama3 as llama3 "
        "(components/models/llama/rope_utils.py:175-285), and it rotates whole heads",
    ),
    derived=("t2d",),
    own_keys=("down_sample_ratio", "down_sample_ratio_min", "num_depths", "attn_implementation"),
    expressible=Expressible(
        facts={
            "block": ("llama", "mla"),
            "input_norm": ("none", "per_aux"),
            "residual": ("raw",),
        },
        ids="default",
        own_embedding=True,
        quantized=False,
        window=False,
        borrowed_head=False,
        reason="components/speculative/eagle/draft_llama.py",
    ),
)
