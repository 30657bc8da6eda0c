"""Config items of a drafter: the values every layout's key table refers to by name."""

from collections.abc import Mapping
from typing import Any

from eagleconv.drafter.facts import DrafterSpec
from eagleconv.drafter.rope import write_rope

#: An item that is not written at all, not even as null.
OMIT: Any = type("Omit", (), {"__repr__": lambda self: "absent"})()

#: Item -> the fact it says, for the reason of an edit.
FACT_OF: Mapping[str, str] = {
    "fc_norm": "input_norm",
    "norm_before_fc": "input_norm",
    "norm_output": "feedback",
    "norm_output_head": "feedback",
    "norm_before_residual": "residual",
    "aux_boundaries": "aux",
    "aux_outputs": "aux",
    "aux_sglang": "aux",
    "num_aux_hidden_states": "aux",
    "use_aux_hidden_state": "aux",
    "num_hidden_layers": "num_layers",
    "target_hidden_size_own": "target_hidden_size",
    "rope_parameters": "rope",
    "rope_theta": "rope",
    "rope_scaling": "rope",
    "partial_rotary_factor": "rope",
    "layer_types": "window",
    "sliding_window": "window",
    "use_sliding_window": "window",
    "tie_word_embeddings": "own_head",
    "quantization_config": "quantization",
    "q_lora_rank": "mla",
    "kv_lora_rank": "mla",
    "qk_nope_head_dim": "mla",
    "qk_rope_head_dim": "mla",
    "v_head_dim": "mla",
}

#: Targets for which SGLang takes nested ids as boundaries unless the first is 1.
#: Source: sglang 0.5.23 `models/deepseek_v2.py:3458-3473`, `glm4_moe_lite`.
_AS_IS_UNLESS_ONE = ("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite")


def nested_ids(spec: DrafterSpec, target_type: str, layers: int | None) -> Any:
    """Return the ids SGLang must be given, or OMIT where its form cannot say them.

    SGLang adds one to ids, except for DeepSeek-like targets whose first id is not 1 and for
    gpt-oss with the last boundary (`models/gpt_oss.py:1337-1352`).
    """
    ids = spec.aux.boundaries
    if ids is None or spec.aux.rule == "last" or ids[0] == 0:
        return OMIT
    outputs = [b - 1 for b in ids]
    if target_type in _AS_IS_UNLESS_ONE or (not target_type and spec.block == "mla"):
        if ids[0] == 2:
            return outputs
        return OMIT if ids[0] == 1 else list(ids)
    if target_type == "gpt_oss" and layers is not None and ids[-1] == layers:
        return list(ids)
    return outputs


def encode(spec: DrafterSpec, target_type: str = "", layers: int | None = None) -> dict[str, Any]:
    """Return every config item of a drafter; OMIT where the layout must not have the key."""
    aux, windows = spec.aux, [w for w in spec.window if w]
    one_state, outputs = aux.rule == "last", aux.outputs()
    out: dict[str, Any] = {
        name: getattr(spec, name)
        for name in (
            "hidden_size",
            "intermediate_size",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "vocab_size",
            "rms_norm_eps",
            "hidden_act",
            "max_position_embeddings",
            "attention_bias",
            "mlp_bias",
            "target_hidden_size",
            "dtype",
            "fc_bias",
        )
    }
    out |= {
        "num_hidden_layers": spec.num_layers,
        # null, not a number, where the target's head is borrowed: SGLang shares it only then.
        "draft_vocab_size": (
            None if spec.vocabulary == "full" and not spec.own_head else spec.draft_vocab_size
        ),
        "fc_norm": spec.input_norm in ("per_aux", "both"),
        "norm_before_fc": spec.input_norm in ("concat", "both"),
        "norm_output": spec.feedback == "post_norm",
        "norm_output_head": True,
        "norm_before_residual": spec.residual == "normed",
        "num_aux_hidden_states": OMIT if one_state else aux.count,
        "use_aux_hidden_state": not one_state,
        "aux_boundaries": OMIT if aux.boundaries is None else list(aux.boundaries),
        "aux_outputs": (OMIT if outputs is None or one_state or -1 in outputs else list(outputs)),
        "aux_sglang": nested_ids(spec, target_type, layers),
        "mask_token_id": OMIT if spec.mask_token_id is None else spec.mask_token_id,
        "tie_word_embeddings": False,
        "quantization_config": OMIT if spec.quantization is None else dict(spec.quantization),
        "layer_types": (
            ["sliding_attention" if w else "full_attention" for w in spec.window]
            if windows
            else OMIT
        ),
        "sliding_window": windows[0] if windows else OMIT,
        # A flat qwen3 config without it loses the window (configuration_qwen3.py:87).
        "use_sliding_window": True if windows else OMIT,
        "layer_model_type": spec.block if spec.block in ("llama", "qwen3") else OMIT,
    }
    out["target_hidden_size_own"] = spec.target_hidden_size if spec.own_embedding else OMIT
    for name, value in write_rope(spec.rope).items():
        out[name] = OMIT if value is None else value
    for name in (
        "q_lora_rank",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
    ):
        out[name] = OMIT if spec.mla is None else getattr(spec.mla, name)
    return out
