"""Names of a target's tensors over the families that have drafters: one table, canonical names.

Sources: the models of transformers 5.24.0 themselves (tests/data/make_target_names.py) and the
checkpoints they were made for: llama, qwen2/3 (and their moe and vl forms), mistral, gemma, gpt-oss, deepseek, kimi,
glm, minimax, phi, gpt-neox, falcon, mamba.
"""

import re
from dataclasses import dataclass
from typing import Literal

#: Parts of names that belong to something else than the language model: towers, projectors,
#: talkers, multi-token-prediction heads and adapters.
OTHERS: tuple[str, ...] = (
    "vision",
    "visual",
    "audio",
    "image",
    "video",
    "projector",
    "connector",
    "talker",
    "token2wav",
    "mtp",
    "nextn",
    "lora_",
    "rotary_emb",
)
#: Last parts of the embedding's name, in the order in which they are looked for.
EMBEDDINGS: tuple[str, ...] = (
    "embed_tokens.weight",
    "wte.weight",
    "word_embeddings.weight",
    "tok_embeddings.weight",
    "embed_in.weight",
    "embeddings.weight",
    "embedding.weight",
    "embed.weight",
)
#: Of the head; none: the embedding is the head.
HEADS: tuple[str, ...] = (
    "lm_head.weight",
    "embed_out.weight",
    "output_layer.weight",
    "output.weight",
    "head.weight",
)
#: Of the norm after the last layer, its weight or its bias.
FINAL_NORMS: tuple[str, ...] = (
    "norm",
    "norm_f",
    "ln_f",
    "final_layernorm",
    "final_layer_norm",
    "final_norm",
    "embedding_norm",
)
#: `layers.3.` and its aliases.
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block|layer)\.(\d+)\.(.+)$")

Role = Literal["embedding", "head", "final_norm", "layer"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor belongs in a target.

    Attributes:
        role: Its part.
        layer: Of a layer's tensor, counted from 0; else -1.
        name: Canonical name, the same under every wrapper: `layers.3.self_attn.q_proj.weight`.
    """

    role: Role
    layer: int
    name: str


def place_of(name: str) -> Place | None:
    """Return where a stored tensor belongs, or None where it is no part of the language model."""
    lower = name.lower()
    if any(part in lower for part in OTHERS):
        return None
    inside = _LAYER.search(name)
    if inside is not None:
        return Place("layer", int(inside[1]), f"layers.{inside[1]}.{inside[2]}")
    tail = ".".join(name.split(".")[-2:])
    if tail in EMBEDDINGS:
        return Place("embedding", -1, "embed_tokens.weight")
    if tail in HEADS:
        return Place("head", -1, "lm_head.weight")
    module, _, kind = tail.rpartition(".")
    if module in FINAL_NORMS and kind in ("weight", "bias"):
        return Place("final_norm", -1, f"norm.{kind}")
    return None
