"""How vLLM reads a drafter's directory. Files are those of the 0.32.0 wheel, under vllm/.

Version ranges were found by reading the same files in the wheels of 0.13 and 0.15 to 0.32 (run: 0.32).
"""

from eagleconv.drafter.names import Rename, same
from eagleconv.engines.loading import Ignored, KeyRead, Lift, Loading, Missing, Nested

_LLAMA = "model_executor/models/llama_eagle3.py"
_MLA = "model_executor/models/deepseek_eagle3.py"
_QWEN3 = "model_executor/models/qwen3_eagle3.py"
_ALGOS = "transformers_utils/configs/speculators/algos.py"
_SKIPPED = "model_executor/model_loader/default_loader.py:508-517 (the check is skipped)"
_IDS = "eagle_aux_hidden_state_layer_ids"

_LIFTED = (
    Lift("draft_vocab_size", "draft_vocab_size", "default", None),
    Lift("target_hidden_size", "target_hidden_size", "leave"),
    Lift("norm_before_fc", "norm_before_fc", "default", False, ">=0.19"),
    Lift(_IDS, _IDS, "leave"),
)
_EAGLE3 = Nested(
    "transformer_layer_config",
    (
        *_LIFTED,
        Lift("norm_before_residual", "norm_before_residual", "default", True),
        # vllm#46488
        Lift("fc_norm", "fc_norm", "default", False, ">=0.25"),
        Lift("norm_output", "norm_output", "default", False, ">=0.25"),
    ),
    {"llama": "Eagle3LlamaForCausalLM", "qwen3": "Eagle3Qwen3ForCausalLM"},
    f"{_ALGOS}:15-49",
    architecture_versions={"Eagle3Qwen3ForCausalLM": ">=0.24"},
)
#: fc_norm and norm_output are not lifted: whatever transformer_layer_config says stays.
_PEAGLE = Nested(
    "transformer_layer_config",
    (
        *_LIFTED,
        Lift("norm_before_residual", "norm_before_residual", "default", False),
        Lift("mask_token_id", "pard_token", "leave"),
    ),
    {"llama": "PeagleLlamaForCausalLM", "qwen3": "PeagleQwen3ForCausalLM"},
    f"{_ALGOS}:52-88",
    versions=">=0.22",
    architecture_versions={"PeagleQwen3ForCausalLM": ">=0.24"},
)

VLLM_LOADING = Loading(
    engine="vllm",
    architectures={
        **dict.fromkeys(
            (
                *("PEagleDraftModel", "PeagleLlamaForCausalLM", "Eagle3LlamaForCausalLM"),
                *("Eagle3MiniMaxM2ForCausalLM", "LlamaForCausalLMEagle3"),
                *("Eagle3Qwen2_5vlForCausalLM", "Eagle3Qwen3vlForCausalLM"),
            ),
            "llama",
        ),
        **dict.fromkeys(("Eagle3Qwen3ForCausalLM", "PeagleQwen3ForCausalLM"), "qwen3"),
        **dict.fromkeys(("Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM"), "mla"),
    },
    architecture_source="model_executor/models/registry.py:658-673",
    architecture_versions={
        "PEagleDraftModel": ">=0.22",
        "PeagleLlamaForCausalLM": ">=0.22",
        "Eagle3MiniMaxM2ForCausalLM": ">=0.18",
        "Eagle3Qwen3ForCausalLM": ">=0.24",
        "PeagleQwen3ForCausalLM": ">=0.24",
        "Eagle3DeepseekV2ForCausalLM": ">=0.18",
        "Eagle3DeepseekV3ForCausalLM": ">=0.18",
    },
    # vllm#49343
    positions_raised=">=0.27",
    prefix="Eagle3",
    refused_model_types={
        "deepseek_v3": "it is taken for a multi-token-prediction model (config/speculative.py:680)",
    },
    nested={"eagle3": _EAGLE3, "peagle": _PEAGLE},
    reads=(
        KeyRead("hidden_size", ("hidden_size",), "=class", "transformers"),
        KeyRead("intermediate_size", ("intermediate_size",), "=class", "transformers"),
        KeyRead("num_hidden_layers", ("num_hidden_layers",), "=class", "transformers"),
        KeyRead("num_attention_heads", ("num_attention_heads",), "=class", "transformers"),
        KeyRead("num_key_value_heads", ("num_key_value_heads",), "=class", "transformers"),
        KeyRead("head_dim", ("head_dim",), "=class", "transformers"),
        KeyRead("vocab_size", ("vocab_size",), "=class", "transformers"),
        KeyRead("rms_norm_eps", ("rms_norm_eps",), "=class", "transformers"),
        KeyRead("hidden_act", ("hidden_act",), "=class", "transformers"),
        KeyRead("max_position_embeddings", ("max_position_embeddings",), "=class", "transformers"),
        KeyRead("attention_bias", ("attention_bias",), False, f"{_LLAMA}:83"),
        KeyRead("mlp_bias", ("mlp_bias",), False, "model_executor/models/llama.py"),
        KeyRead("draft_vocab_size", ("draft_vocab_size",), "=vocab_size", f"{_LLAMA}:313-316"),
        KeyRead(
            "target_hidden_size",
            ("target_hidden_size",),
            "=hidden_size",
            f"{_LLAMA}:211-213",
            null="refused",
        ),
        KeyRead(
            "count",
            (
                "num_aux_layers",
                "num_aux_hidden_states",
                f"len({_IDS})",
                f"len(eagle_config.{_IDS})",
            ),
            3,
            f"{_QWEN3}:202-210",
            blocks=("qwen3",),
        ),
        KeyRead(
            "count",
            ("num_aux_hidden_states", f"len(eagle_config.{_IDS})"),
            3,
            f"{_LLAMA}:203-209",
            blocks=("llama", "mla"),
            versions=">=0.22",
        ),
        KeyRead("count", (), 3, f"{_LLAMA} of 0.21", blocks=("llama", "mla"), versions="<0.22"),
        KeyRead(
            "ids",
            (_IDS, f"eagle_config.{_IDS}"),
            None,
            "v1/worker/gpu_model_runner.py:5251",
            versions=">=0.22",
        ),
        KeyRead("ids", (_IDS,), None, "v1/worker/gpu_model_runner.py of 0.21", versions="<0.22"),
        KeyRead(
            "ids",
            (_IDS, "target_layer_ids", "eagle_config.layer_ids"),
            None,
            "v1/worker/gpu/spec_decode/eagle/eagle3_utils.py:100-137",
            runner="V2",
        ),
        KeyRead("use_aux", ("eagle_config.use_aux_hidden_state",), True, f"{_LLAMA}:179-183"),
        KeyRead("fc_norm", ("fc_norm",), False, f"{_LLAMA}:231", versions=">=0.22"),
        KeyRead(
            "norm_before_fc",
            ("eagle_config.norm_before_fc", "norm_before_fc"),
            False,
            f"{_LLAMA}:184-188",
            blocks=("llama", "qwen3"),
            versions=">=0.22",
        ),
        KeyRead(
            "norm_before_fc",
            ("norm_before_fc",),
            False,
            f"{_LLAMA} of 0.18 to 0.21",
            blocks=("llama",),
            versions=">=0.18,<0.22",
        ),
        KeyRead("norm_output", ("norm_output",), False, f"{_LLAMA}:252", versions=">=0.22"),
        KeyRead("norm_output", (), False, f"{_LLAMA} of 0.21", versions="<0.22"),
        KeyRead("norm_before_residual", ("norm_before_residual",), False, f"{_LLAMA}:101"),
        KeyRead(
            "mask_token_id",
            ("dflash_config.mask_token_id", "mask_token_id", "pard_token", "ptd_token_id"),
            None,
            "v1/spec_decode/llm_base_proposer.py:358-379",
        ),
        KeyRead("logit_scale", ("logit_scale",), 1.0, f"{_LLAMA}:325"),
    ),
    names=(
        *same("{t}", "fc_norm.{i}", "{b}"),
        Rename("midlayer.{m}", "layers.0.{m}"),
        *same("layers.{i}.{m}"),
    ),
    ignored=(
        Ignored("*t2d*", "t2d is not read", f"{_LLAMA} load_weights", harmless=True),
        Ignored(
            "*rotary_emb.inv_freq",
            "rotary buffers are recomputed",
            "model_executor/models/utils.py (REMOVE_UNUSED_ROTARY_EMBEDS_MAPPER)",
            harmless=True,
        ),
        Ignored(
            "input_norm.*",
            "input_norm is dropped where norm_before_fc is off",
            f"{_LLAMA} load_weights (end)",
            when={"norm_before_fc": (False,), "block": ("llama", "qwen3")},
        ),
        Ignored(
            "mask_hidden",
            "mask_hidden is dropped where parallel drafting is off",
            f"{_LLAMA} load_weights",
            when={"parallel": (False,)},
        ),
        Ignored(
            "fc.*",
            "fc is dropped where use_aux_hidden_state is false",
            f"{_LLAMA} load_weights (end)",
            when={"use_aux": (False,)},
        ),
        Ignored(
            "*.bias",
            "a bias without a parameter is dropped",
            "model_executor/models/utils.py:458",
        ),
    ),
    unknown="refused",
    unknown_source="model_executor/models/utils.py:437-445",
    missing=(
        Missing(
            "mask_hidden",
            "refused",
            "parallel drafting needs mask_hidden",
            f"{_LLAMA} load_weights",
        ),
        Missing(
            "embed_tokens.weight",
            "shared",
            "the target's embedding is shared",
            "v1/spec_decode/llm_base_proposer.py:1443-1496",
        ),
        Missing(
            "lm_head.weight",
            "shared",
            "the target's head is shared",
            "v1/spec_decode/llm_base_proposer.py:1502-1525",
        ),
        Missing(
            "d2t",
            "wrong",
            "d2t stays all zeros, so draft ids are the first target ids",
            f"{_LLAMA}:338-345; {_SKIPPED}",
        ),
        Missing("*norm*", "wrong", "the norm's gains stay at 1.0", _SKIPPED),
        Missing("*", "wrong", "it stays uninitialised", _SKIPPED),
    ),
    map_at_full="refused",
    ids_are="boundary",
    ids_source="model_executor/models/interfaces.py:1577-1610",
    window_needs_flag=("qwen3",),
    rope_types=(
        *("default", "linear", "ntk", "dynamic", "yarn", "llama3", "mllama4", "longrope", "su"),
        *("mrope", "proportional", "openpangu", "bailing_mrope"),
        *("deepseek_yarn", "deepseek_llama_scaling"),
    ),
    rope_source="model_executor/layers/rotary_embedding/__init__.py:102-350",
    runners=("V1", "V2"),
    map_source=f"{_LLAMA} compute_logits",
)
