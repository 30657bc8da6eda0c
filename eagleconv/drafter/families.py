"""Checkpoints that are no EAGLE-3 drafter of this house, so that each is called by its name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eagleconv.drafter.evidence import fits
from eagleconv.drafter.layouts.layout import Signature


@dataclass(frozen=True, slots=True)
class Family:
    """Something recognised and refused.

    Attributes:
        name: What it is, in words.
        signatures: Any of them recognises it.
        reason: Why it is not read, and what to do.
    """

    name: str
    signatures: tuple[Signature, ...]
    reason: str


_FEATURES = (
    "it predicts the target's last feature with the target's own head; it has no aux hidden "
    "states, so no EAGLE-3 or 3.1 form of it exists without training"
)

FAMILIES: tuple[Family, ...] = (
    Family(
        "a DFlash drafter",
        (
            Signature(keys=("dflash_config",)),
            Signature(tensors=("context_proj.*",)),
            Signature(architectures=("DFlashDraftModel", "DFlashForCausalLM")),
            Signature(values={"speculators_model_type": ("dflash", "dspark")}),
        ),
        "it drafts blocks by diffusion; EAGLE layouts cannot express it",
    ),
    Family(
        "an EAGLE-1/2 head in vLLM's old wrapper (model_type eagle)",
        (Signature(values={"model_type": ("eagle",)}, keys=("model",)),),
        _FEATURES,
    ),
    Family(
        "an EAGLE-1/2 head",
        (
            Signature(
                tensors=("fc.weight", "layers.0.self_attn.q_proj.*"),
                no_tensors=("*hidden_norm*", "lm_head.*", "norm.*", "mask_hidden"),
            ),
            Signature(architectures=("LlamaForCausalLMEagle", "EagleSpeculator")),
        ),
        _FEATURES,
    ),
    Family(
        "Medusa heads",
        (Signature(tensors=("0.0.linear.*",)), Signature(keys=("medusa_num_heads",))),
        "they are independent heads, not a drafter that reads hidden states step by step",
    ),
    Family(
        "a multi-token-prediction (MTP) head",
        (
            Signature(tensors=("*eh_proj.*",)),
            Signature(tensors=("mtp.*",)),
            Signature(values={"speculators_model_type": ("mtp",)}),
        ),
        "it belongs to its target's own checkpoint",
    ),
    Family(
        "an EAGLE-3 drafter with a mixture-of-experts block",
        (
            Signature(tensors=("*hidden_norm*", "*.mlp.experts.*")),
            Signature(
                tensors=("*hidden_norm*", "*.mlp.gate.weight"), no_tensors=("*.mlp.up_proj.*",)
            ),
            Signature(values={"use_moe": (True,)}),
            Signature(architectures=("Glm4MoeForCausalLMEagle3",)),
        ),
        "no EAGLE-3 class of vLLM 0.32 or SGLang 0.5.23 reads expert weights",
    ),
    Family(
        "an EAGLE-3 drafter with latent attention that does not rotate (mla_use_nope, Kimi K3)",
        (
            Signature(values={"mla_use_nope": (True,)}),
            Signature(tensors=("*hidden_norm*", "*.self_attn.g_proj.*")),
        ),
        "no EAGLE-3 class of vLLM 0.32 or SGLang 0.5.23 reads that key; they would rotate",
    ),
    Family(
        "a LoRA adapter",
        (Signature(tensors=("*lora_A*",)), Signature(keys=("peft_type",))),
        "merge it into its base model; it is no drafter",
    ),
    Family(
        "a target model, not a drafter",
        (
            Signature(
                tensors=("model.layers.0.input_layernorm.weight",),
                no_tensors=("*hidden_norm*", "*fc.weight", "mask_hidden"),
            ),
            Signature(
                tensors=("model.embed_tokens.weight", "model.layers.1.*"),
                no_tensors=("*hidden_norm*", "*fc.weight", "mask_hidden"),
            ),
        ),
        "give the drafter first; a target goes behind --target",
    ),
)


def recognise(config: Mapping[str, Any], names: Iterable[str]) -> Family | None:
    """Return the family a checkpoint belongs to, or None where it may be a drafter of the house."""
    names = tuple(names)
    for family in FAMILIES:
        if any(fits(signature, config, names) is not None for signature in family.signatures):
            return family
    return None
