"""What vLLM did once and does no more: why an older version refuses a drafter, or runs it wrongly.

Read in the files of consecutive releases, under vllm/. An `absent_symbol` came with the release
that ended the fact.
"""

from eagleconv.engines.engine import EngineFact

_MODELS = "model_executor/models"
_LLAMA = f"{_MODELS}/llama_eagle3.py"
_QWEN3 = f"{_MODELS}/qwen3_eagle3.py"
_MLA = f"{_MODELS}/deepseek_eagle3.py"
_REGISTRY = f"{_MODELS}/registry.py"
_PER_AUX = ("per_aux", "both")
_CONCAT = ("concat", "both")

VLLM_PAST = (
    EngineFact(
        {"block": ("mla",)},
        "refused",
        "it has no EAGLE-3 class with latent attention before 0.18",
        _REGISTRY,
        versions="<0.18",
        absent_symbol='"Eagle3DeepseekV2ForCausalLM"',
    ),
    EngineFact(
        {"block": ("qwen3",)},
        "refused",
        "it has no EAGLE-3 class with q/k norms before 0.24; the llama class refuses them",
        _REGISTRY,
        versions="<0.24",
        absent_symbol='"Eagle3Qwen3ForCausalLM"',
    ),
    EngineFact(
        {"several_layers": (True,)},
        "refused",
        "it builds one layer and has no place for a second before 0.11.1",
        _LLAMA,
        versions="<0.11.1",
        absent_symbol="layer_idx",
    ),
    EngineFact(
        {"drafting": ("parallel",)},
        "refused",
        "it has no parallel drafting (P-EAGLE) and no place for mask_hidden before 0.16",
        _LLAMA,
        versions="<0.16",
        absent_symbol="mask_hidden",
    ),
    EngineFact(
        {"input_norm": _PER_AUX, "block": ("llama", "qwen3")},
        "refused",
        "fc_norm needs 0.22: there is no parameter for its tensors before",
        _LLAMA,
        versions="<0.22",
        absent_symbol='"fc_norm"',
    ),
    EngineFact(
        {"input_norm": _PER_AUX, "block": ("mla",)},
        "silently wrong",
        "fc_norm needs 0.23 with latent attention: its tensors are dropped before 0.22",
        _MLA,
        versions="<0.22",
        absent_symbol='"fc_norm"',
    ),
    EngineFact(
        {"input_norm": _PER_AUX, "block": ("mla",)},
        "silently wrong",
        "fc_norm needs 0.23 with latent attention: 0.22 loads its tensors and does not apply them",
        f"{_MLA} (combine_hidden_states)",
        versions=">=0.22,<0.23",
        absent_symbol="if self.model.fc_norm is not None",
    ),
    EngineFact(
        {"input_norm": _CONCAT, "block": ("llama", "qwen3")},
        "refused",
        "norm_before_fc needs 0.18: there is no parameter for input_norm before",
        _LLAMA,
        versions="<0.18",
        absent_symbol="norm_before_fc",
    ),
    EngineFact(
        {"input_norm": _CONCAT, "block": ("mla",)},
        "silently wrong",
        "its MLA class has no input_norm, and drops tensors it does not know before 0.25",
        _MLA,
        versions=">=0.18,<0.25",
        symbol="if name not in params_dict",
    ),
    EngineFact(
        {"feedback": ("post_norm",)},
        "silently wrong",
        "norm_output needs 0.22: it is not read before, and what is fed back stays pre-norm",
        _LLAMA,
        versions="<0.22",
        absent_symbol='"norm_output"',
    ),
    EngineFact(
        {"residual": ("normed",)},
        "silently wrong",
        "norm_before_residual needs 0.10.1: it is not read before, and the residual stays raw",
        _LLAMA,
        versions="<0.10.1",
        absent_symbol="norm_before_residual",
    ),
    EngineFact(
        {"aux_three": (False,), "aux_rule": ("explicit", "default")},
        "refused",
        "fc takes three states, whatever the config says, before 0.22",
        _LLAMA,
        versions="<0.22",
        absent_symbol="num_aux_hidden_states",
    ),
    EngineFact(
        {"custom_taps": (True,)},
        "silently wrong",
        "layer ids need 0.11.1: they are not read before, and the default layers are tapped",
        "v1/worker/gpu_model_runner.py",
        versions="<0.11.1",
        absent_symbol="eagle_aux_hidden_state_layer_ids",
    ),
    EngineFact(
        {"taps_last": (True,), "target_type": (None, "llama")},
        "refused",
        "a llama target does not capture its last boundary before 0.18, so fc does not fit",
        f"{_MODELS}/llama.py",
        versions="<0.18",
        absent_symbol="_maybe_add_hidden_state",
    ),
    EngineFact(
        {"aux_rule": ("last",)},
        "silently wrong",
        "use_aux_hidden_state needs 0.12: it is not read before, and an fc is used that no tensor "
        "was loaded into",
        _LLAMA,
        versions="<0.12",
        absent_symbol="use_aux_hidden_state",
    ),
    EngineFact(
        {"fc_bias": (True,), "block": ("llama", "qwen3")},
        "refused",
        "there is no parameter for a bias of fc",
        _LLAMA,
        versions="<0.25",
        symbol="param = params_dict[name]",
    ),
    EngineFact(
        {"fc_bias": (True,), "block": ("mla",)},
        "silently wrong",
        "a bias of fc is dropped",
        _MLA,
        versions=">=0.18,<0.25",
        symbol="if name not in params_dict",
    ),
    EngineFact(
        {"block": ("llama",), "attention_bias": (True,)},
        "refused",
        "biases of q, k and v need 0.16: there is no parameter for them before",
        _LLAMA,
        versions="<0.16",
        absent_symbol="qkv_bias",
    ),
    EngineFact(
        {"window": (True,), "block": ("llama",)},
        "silently wrong",
        "layer_types needs 0.10.2: it is not read before 0.10.1, which looks in it for the layers "
        "of the target",
        f"{_MODELS}/llama.py",
        versions="<0.10.2",
        absent_symbol="target_layer_count",
    ),
    EngineFact(
        {"window": (True,), "block": ("qwen3",)},
        "silently wrong",
        "its qwen3 class reads layer_types from 0.26 on only",
        _QWEN3,
        versions=">=0.24,<0.26",
        absent_symbol="per_layer_sliding_window",
    ),
    EngineFact(
        {"own_embedding_same_width": (True,)},
        "silently wrong",
        "the drafter's embedding is kept from 0.11.1 on; before, the target's replaces it",
        _LLAMA,
        versions="<0.11.1",
        absent_symbol="process_eagle_weight",
    ),
    EngineFact(
        {"own_head": (False,), "vocabulary": ("full",)},
        "silently wrong",
        "the target's head is shared from 0.11 on; before, the drafter's own is used, which no "
        "tensor was loaded into",
        "v1/spec_decode/eagle.py",
        versions="<0.11",
    ),
    EngineFact(
        {"own_head": (True,), "vocabulary": ("full",)},
        "silently wrong",
        "a head of the size of the target's is kept from 0.11.1 on; 0.11.0 replaces it",
        _LLAMA,
        versions="==0.11.0",
        absent_symbol="process_eagle_weight",
    ),
    EngineFact(
        {"quantized": (True,)},
        "refused",
        "the drafter's own quantisation needs 0.11.1: the target's is used before",
        _LLAMA,
        versions="<0.11.1",
        absent_symbol="get_draft_quant_config",
    ),
)
