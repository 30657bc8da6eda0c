"""What kind of JSON value each config item must be, checked wherever an item is read."""

from collections.abc import Callable, Mapping
from typing import Any


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    whole_or_real = isinstance(value, int | float) and not isinstance(value, bool)
    return whole_or_real and 0 < value < 1e30


#: Kind -> (test, words).
_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "size": (lambda v: _whole(v) and 0 < v < 1 << 40, "a positive integer"),
    "id": (lambda v: _whole(v) and 0 <= v < 1 << 40, "an integer from 0"),
    "number": (_number, "a positive number"),
    "flag": (lambda v: isinstance(v, bool), "true or false"),
    "share": (lambda v: _number(v) and v <= 1, "a number above 0, up to 1"),
    "text": (lambda v: isinstance(v, str) and v != "", "a text"),
    "object": (lambda v: isinstance(v, dict), "an object"),
    "list": (lambda v: isinstance(v, list), "a list"),
}

KIND_OF: Mapping[str, str] = {
    "hidden_size": "size",
    "intermediate_size": "size",
    "num_attention_heads": "size",
    "num_key_value_heads": "size",
    "head_dim": "size",
    "num_hidden_layers": "size",
    "target_num_layers": "size",
    "vocab_size": "size",
    "draft_vocab_size": "size",
    "target_hidden_size": "size",
    "num_aux_hidden_states": "size",
    "max_position_embeddings": "size",
    "q_lora_rank": "size",
    "kv_lora_rank": "size",
    "qk_nope_head_dim": "size",
    "qk_rope_head_dim": "size",
    "v_head_dim": "size",
    "mask_token_id": "id",
    "rms_norm_eps": "number",
    "rope_theta": "number",
    "partial_rotary_factor": "share",
    "rope_parameters": "object",
    "rope_scaling": "object",
    "quantization_config": "object",
    "layer_types": "list",
    "sliding_window": "id",
    "use_sliding_window": "flag",
    "hidden_act": "text",
    "dtype": "text",
    "fc_norm": "flag",
    "norm_output": "flag",
    "norm_output_head": "flag",
    "norm_before_fc": "flag",
    "norm_before_residual": "flag",
    "use_aux_hidden_state": "flag",
    "fc_bias": "flag",
    "attention_bias": "flag",
    "mlp_bias": "flag",
    "tie_word_embeddings": "flag",
}


def kind_problem(item: str, value: Any) -> str:
    """Say what an item must be where it is not; empty where it is, or has no fixed kind."""
    kind = KIND_OF.get(item)
    if kind is None or _KINDS[kind][0](value):
        return ""
    return f"expected {_KINDS[kind][1]}"
