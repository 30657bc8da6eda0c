"""NVIDIA Model-Optimizer: HF exports (old and new names) and Megatron exports, deep ones too."""

from dataclasses import replace

from eagleconv.drafter.layouts.layout import (
    ENGINE_ID_KEYS,
    FLAG_KEYS,
    FLAT_KEYS,
    FLAT_TOP,
    AuxRule,
    Expressible,
    Layout,
    Note,
    Signature,
)
from eagleconv.drafter.names import Rename, same

_OWN = (
    "use_input_layernorm_in_first_layer",
    "use_last_layernorm",
    "use_mtp_layernorm",
    "next_layer_regular",
    "parallel_draft_step",
    "parallel_draft_heads_num_layers",
)
IDS = ("eagle_config.eagle_aux_hidden_state_layer_ids", "aux_outputs")
_NO = ("input_norm.*", "fc_norm.*", "mask_hidden", "t2d", "embed_tokens.*")
_AUX = AuxRule(
    "open",
    None,
    False,
    "its code writes outputs of layers, but heads were published without ids that were not trained "
    "with the default taps (vllm#50170), and with boundaries instead (gpt-oss, id 36 of 36 layers)",
    unordered=True,
)
DOUBLE_NORM = Note(
    "ECT010",
    "ModelOpt from 0.41 on trains this layout with input_layernorm applied to the hidden state "
    "before hidden_norm (torch/speculative/plugins/modeling_eagle.py); no engine computes that, "
    "and it cannot be folded into the weights exactly",
    "measure acceptance before you serve it",
)
INJECTED_ROPE = Note(
    "ECR006",
    "ModelOpt from 0.44 on trains with base 10000 and no scaling, and injects YaRN (factor 32) "
    "when it exports (modelopt/torch/speculative/config.py:329); the scaling is kept as exported",
    "nothing, unless the target is served with short contexts only",
    {"rope_kind": "yarn"},
)
_EXPRESSIBLE = Expressible(
    facts={
        "block": ("llama",),
        "drafting": ("chain",),
        "input_norm": ("none",),
        "feedback": ("pre_norm",),
        "residual": ("raw",),
    },
    own_embedding=False,
    window=False,
    borrowed_head=False,
    equal_widths=True,
    reason="modelopt/torch/export/plugins/hf_spec_export.py:49-299",
)
HF = Layout(
    name="modelopt-hf",
    producer="ModelOpt",
    title="EAGLE-3 head exported by Model-Optimizer",
    source="Model-Optimizer a2fbac7b: modelopt/torch/export/plugins/hf_spec_export.py",
    signature=Signature(
        tensors=("layers.0.self_attn.*",),
        no_tensors=(*_NO, "*_a_proj*"),
        architectures=("LlamaForCausalLMEagle3",),
        no_keys=("speculators_model_type", "_torchspec_version"),
        values={"norm_before_residual": (None, False)},
    ),
    names=(*FLAT_TOP, *same("layers.{i}.{m}")),
    keys=(
        *FLAT_KEYS,
        IDS,
        ("eagle_config.use_aux_hidden_state", "use_aux_hidden_state"),
    ),
    read_also=(*FLAG_KEYS, ENGINE_ID_KEYS[0]),
    fixed={
        "eagle_config.use_input_layernorm_in_first_layer": True,
        "eagle_config.use_last_layernorm": True,
        "eagle_config.use_mtp_layernorm": False,
        "eagle_config.next_layer_regular": True,
    },
    aux=_AUX,
    architectures={"llama": "LlamaForCausalLMEagle3"},
    model_types={"llama": "llama"},
    omitted=("t2d",),
    notes=(DOUBLE_NORM, INJECTED_ROPE),
    expressible=_EXPRESSIBLE,
    own_keys=tuple(f"eagle_config.{key}" for key in _OWN),
    certain_key="eagle_config.next_layer_regular",
)
HF_MLA = replace(
    HF,
    name="modelopt-mla",
    title="EAGLE-3 head with an MLA block exported by Model-Optimizer",
    signature=replace(
        HF.signature,
        tensors=("layers.0.self_attn.kv_a_proj_with_mqa.*",),
        no_tensors=_NO,
        architectures=("Eagle3DeepseekV2ForCausalLM",),
    ),
    architectures={"mla": "Eagle3DeepseekV2ForCausalLM"},
    model_types={"mla": "kimi_k2"},
    notes=(INJECTED_ROPE,),
    expressible=replace(_EXPRESSIBLE, facts={**_EXPRESSIBLE.facts, "block": ("mla",)}),
)
MEGATRON = replace(
    HF,
    name="modelopt-megatron",
    title="EAGLE-3 head of Model-Optimizer with midlayer names (Megatron, and HF before 0.43)",
    source="Model-Optimizer a2fbac7b: modelopt/torch/export/plugins/mcore_llama.py:93-151",
    signature=replace(
        HF.signature,
        tensors=("midlayer.self_attn.*",),
        keys=("eagle_config",),
    ),
    names=(*FLAT_TOP, Rename("midlayer.{m}", "layers.0.{m}")),
    notes=(INJECTED_ROPE,),
    expressible=replace(_EXPRESSIBLE, max_layers=1),
)
#: Every layer of a deep head has hidden_norm; above the first it is what engines call
#: input_layernorm.
DEEP = replace(
    MEGATRON,
    name="modelopt-megatron-deep",
    title="EAGLE-3 head of Model-Optimizer with several layers (Megatron)",
    signature=replace(
        HF.signature,
        tensors=("midlayer.0.self_attn.*",),
        architectures=("LlamaForCausalLMEagle3Deep", "LlamaForCausalLMEagle3"),
    ),
    names=(
        *FLAT_TOP,
        Rename("midlayer.0.{m}", "layers.0.{m}"),
        Rename("midlayer.{i}.hidden_norm", "layers.{i}.input_layernorm"),
        Rename("midlayer.{i}.{m}", "layers.{i}.{m}"),
    ),
    architectures={"llama": "LlamaForCausalLMEagle3Deep"},
    expressible=_EXPRESSIBLE,
)
