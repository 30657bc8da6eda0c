"""Config keys that some layout, some engine or transformers itself knows."""

from collections.abc import Mapping
from typing import Any

from eagleconv.drafter.layouts import LAYOUTS

#: Keys of `PretrainedConfig` and of the config classes trainers copy from, that decide nothing in
#: a drafter. Source: transformers 5.24.0 `configuration_utils.py` and the model classes.
HARMLESS = frozenset(
    [
        "_name_or_path",
        "_attn_implementation",
        "_attn_implementation_autoset",
        "add_cross_attention",
        "attention_dropout",
        "attn_implementation",
        "auto_map",
        "bad_words_ids",
        "begin_suppress_tokens",
        "bos_token_id",
        "chunk_size_feed_forward",
        "cross_attention_hidden_size",
        "decoder_start_token_id",
        "diversity_penalty",
        "do_sample",
        "early_stopping",
        "encoder_no_repeat_ngram_size",
        "eos_token_id",
        "exponential_decay_length_penalty",
        "finetuning_task",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "id2label",
        "initializer_range",
        "is_decoder",
        "is_encoder_decoder",
        "label2id",
        "length_penalty",
        "max_length",
        "max_window_layers",
        "min_length",
        "model_type",
        "no_repeat_ngram_size",
        "num_beam_groups",
        "num_beams",
        "num_return_sequences",
        "output_attentions",
        "output_hidden_states",
        "output_scores",
        "pad_token_id",
        "prefix",
        "pretraining_tp",
        "problem_type",
        "pruned_heads",
        "remove_invalid_values",
        "repetition_penalty",
        "return_dict",
        "return_dict_in_generate",
        "router_aux_loss_coef",
        "sep_token_id",
        "suppress_tokens",
        "task_specific_params",
        "temperature",
        "tf_legacy_loss",
        "tie_encoder_decoder",
        "tokenizer_class",
        "top_k",
        "top_p",
        "torchscript",
        "transformers_version",
        "typical_p",
        "use_bfloat16",
        "use_cache",
        "architectures",
        "qkv_bias",
    ]
)
#: Keys of the target's family that trainers copy along; no drafter class reads them.
COPIED = frozenset(
    [
        "attn_module_list_cfg",
        "image_token_id",
        "video_token_id",
        "vision_end_token_id",
        "vision_start_token_id",
        "vision_token_id",
        "aux_loss_alpha",
        "base_model_ep_plan",
        "base_model_tp_plan",
        "base_model_pp_plan",
        "decoder_sparse_step",
        "embedding_multiplier",
        "ep_size",
        "expert_intermediate_size",
        "experts_per_token",
        "final_logit_softcapping",
        "first_k_dense_replace",
        "interleave_moe_layer_step",
        "layer_idx",
        "mlp_only_layers",
        "moe_intermediate_size",
        "moe_layer_freq",
        "n_group",
        "n_routed_experts",
        "n_shared_experts",
        "norm_topk_prob",
        "no_rope_layers",
        "num_experts",
        "num_experts_per_tok",
        "num_local_experts",
        "num_nextn_predict_layers",
        "output_router_logits",
        "qk_norm",
        "query_pre_attn_scalar",
        "routed_scaling_factor",
        "router_jitter_noise",
        "scoring_func",
        "seq_aux",
        "shared_expert_intermediate_size",
        "swiglu_limit",
        "topk_group",
        "topk_method",
        "use_qk_norm",
        "attn_logit_softcapping",
        "attn_scale",
        "attn_temperature_tuning",
        "attention_chunk_size",
        "intermediate_size_mlp",
        "for_llm_compressor",
        "initial_context_length",
        "floor_scale",
        "cache_implementation",
        "no_rope_layer_interval",
        "use_sliding_window",
        "rope_local_base_freq",
    ]
)
#: Read by engines, or written by trainers as notes, beyond the tables of the layouts.
NOTES = frozenset(
    [
        "logit_scale",
        "num_aux_layers",
        "layer_ids",
        "dflash_config",
        "eagle_config",
        "transformer_layer_config",
        "speculators_config",
        "speculators_model_type",
        "speculators_version",
        "has_no_defaults_at_init",
        "draft_model_type",
        "modal_type",
        "length",
        "target_model_type",
        "parallel_drafting",
    ]
)


def unknown_keys(config: Mapping[str, Any]) -> list[str]:
    """Return dotted keys that nobody knows, in the order of the file."""
    known = {
        path
        for layout in LAYOUTS
        for path, _ in (*layout.keys, *layout.read_also, *((k, "") for k in layout.fixed))
    } | {path for layout in LAYOUTS for path in (*layout.own_keys, *layout.signature.keys)}
    tails = {path.rsplit(".", 1)[-1] for path in known} | HARMLESS | COPIED | NOTES
    found = []
    for key, value in config.items():
        if key in ("quantization_config", "auto_map", "speculators_config"):
            continue
        if key not in tails:
            found.append(key)
        elif key in ("eagle_config", "transformer_layer_config") and isinstance(value, Mapping):
            found += [f"{key}.{inner}" for inner in value if inner not in tails]
    return found
