"""Small random targets of several families, and drafters that fit them."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    Qwen3Config,
)
from transformers_oracle import random_weights

from eagleconv.drafter.facts import AuxLayers
from eagleconv.runtime.reference import ReferenceDrafter
from eagleconv.runtime.target_model import TargetModel
from tests.drafters import make_spec

HIDDEN, LAYERS, VOCAB = 64, 6, 160
_SIZES: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCAB,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,
}


def model(family: str) -> Any:
    """Return a random model in float64."""
    torch.manual_seed(0)
    made: Any
    if family == "llava":
        vision = {
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "image_size": 8,
        }
        vision |= {"num_attention_heads": 2, "patch_size": 4}
        config = LlavaConfig(
            text_config=LlamaConfig(**_SIZES),
            vision_config={"model_type": "clip_vision_model", **vision},
            image_token_index=VOCAB - 1,
        )
        made = LlavaForConditionalGeneration(config)
    else:
        config = {
            "llama": lambda: LlamaConfig(**_SIZES),
            "qwen3": lambda: Qwen3Config(**_SIZES),
            "gemma3": lambda: Gemma3TextConfig(**_SIZES, sliding_window=4),
        }[family]()
        made = AutoModelForCausalLM.from_config(config)
    return made.double().eval()


def target(family: str = "llama") -> TargetModel:
    """Return it, ready to run."""
    return TargetModel(model(family))


def drafter(one: TargetModel, **facts: Any) -> ReferenceDrafter:
    """Return a random drafter for it, which drafts badly."""
    facts = {"aux": AuxLayers(3, (2, 3, 5), "explicit"), "own_embedding": False, **facts}
    spec = make_spec(hidden_size=HIDDEN, target_hidden_size=HIDDEN, vocab_size=VOCAB, **facts)
    weights = random_weights(spec)
    if not spec.own_embedding:
        weights["embed_tokens.weight"] = one.embedding
    return ReferenceDrafter(spec, weights)
