"""The flat layout engines read: what `upgrade` writes, and what people write by hand for vLLM."""

from dataclasses import replace

from eagleconv.drafter.layouts.layout import (
    DEAD_BUFFERS,
    ENGINE_ID_KEYS,
    FLAG_KEYS,
    FLAT_KEYS,
    FLAT_TOP,
    MASK_KEYS,
    AuxRule,
    Expressible,
    Layout,
    Signature,
)
from eagleconv.drafter.names import Rename, same

_ARCHITECTURES = (
    "LlamaForCausalLMEagle3",
    "Eagle3LlamaForCausalLM",
    "Eagle3Qwen3ForCausalLM",
    "Eagle3DeepseekV2ForCausalLM",
    "Eagle3DeepseekV3ForCausalLM",
    "Eagle3MiniMaxM2ForCausalLM",
    "Eagle3Qwen2_5vlForCausalLM",
    "Eagle3Qwen3vlForCausalLM",
    "PeagleLlamaForCausalLM",
    "PeagleQwen3ForCausalLM",
)
CANONICAL = Layout(
    name="eagle-3.1",
    producer="unknown",
    title="flat layout of the engines with explicit EAGLE-3.1 keys",
    source="vLLM 0.32.0 models/llama_eagle3.py, SGLang 0.5.23 models/llama_eagle3.py",
    signature=Signature(
        architectures=_ARCHITECTURES,
        any_keys=(
            "norm_before_residual",
            "num_aux_hidden_states",
            "eagle_aux_hidden_state_layer_ids",
        ),
        no_tensors=("model.*", "aux_norm_*", "midlayer.0.*"),
        no_keys=("speculators_model_type",),
    ),
    names=(
        *FLAT_TOP,
        Rename("midlayer.{m}", "layers.0.{m}"),
        *same("layers.{i}.{m}"),
        *DEAD_BUFFERS,
    ),
    keys=(*FLAT_KEYS, *FLAG_KEYS, *ENGINE_ID_KEYS, MASK_KEYS[0]),
    read_also=MASK_KEYS[1:],
    aux=AuxRule("open", None, False, "the file does not show who trained it"),
    architectures={
        "llama": "LlamaForCausalLMEagle3",
        "qwen3": "Eagle3Qwen3ForCausalLM",
        "mla": "Eagle3DeepseekV2ForCausalLM",
    },
    model_types={"llama": "llama", "qwen3": "qwen3", "mla": "kimi_k2"},
    full_attention=False,
    expressible=Expressible(),
)
#: The names SGLang used before `fc_norm`. Source: sglang 0.5.23 models/llama_eagle3.py:360-378.
SGLANG_LEGACY = replace(
    CANONICAL,
    name="sglang-legacy",
    title="SGLang's older names of the per-state norms",
    signature=Signature(
        tensors=("aux_norm_low.weight", "aux_norm_mid.weight", "aux_norm_high.weight"),
        no_keys=("speculators_model_type",),
    ),
    names=(
        Rename("aux_norm_low", "fc_norm.0"),
        Rename("aux_norm_mid", "fc_norm.1"),
        Rename("aux_norm_high", "fc_norm.2"),
        *CANONICAL.names,
    ),
    keys=(
        *FLAT_KEYS,
        ("use_aux_norm", "fc_norm"),
        *(row for row in FLAG_KEYS if row[0] != "fc_norm"),
        ENGINE_ID_KEYS[1],
    ),
    read_also=(("fc_norm", "fc_norm"), ENGINE_ID_KEYS[0], *MASK_KEYS),
    aux=AuxRule("default", 3, True, "SGLang taps (2, n//2, n-3) without ids and adds one to ids"),
    architectures={"llama": "LlamaForCausalLMEagle3"},
    model_types={"llama": "llama"},
    own_keys=("use_aux_norm",),
    full_attention=True,
    expressible=Expressible(
        facts={
            "block": ("llama",),
            "drafting": ("chain",),
            "input_norm": ("per_aux",),
            "residual": ("raw",),
        },
        max_layers=1,
        aux_count=3,
        window=False,
    ),
)
