"""The same drafters put together from transformers' own modules, in float64.

Attention, rotary positions, MLP and activations are transformers'; norms are torch's, because
transformers' compute in float32. Only the wiring of a draft step is written here, a second time.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DeepseekV3Config, LlamaConfig, Qwen3Config, StableLmConfig
from transformers.masking_utils import causal_mask_function, sliding_window_causal_mask_function
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen3 import modeling_qwen3 as qwen3
from transformers.models.stablelm import modeling_stablelm as stablelm

from eagleconv.drafter.facts import DrafterSpec
from eagleconv.drafter.sizes import expected_shapes

BIASES = {
    "attention_bias": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "output_bias": ("self_attn.o_proj",),
    "mlp_bias": ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
}


def random_weights(spec: DrafterSpec, seed: int = 0) -> dict[str, Tensor]:
    """Every tensor of a drafter, borrowed ones too, large enough that a slip shows."""
    draw = torch.Generator().manual_seed(seed)
    shapes = expected_shapes(replace(spec, own_embedding=True, own_head=True).values())
    for fact, modules in BIASES.items():
        for layer in range(spec.num_layers) if getattr(spec, fact) else ():
            for module in modules:
                name = f"layers.{layer}.{module}"
                shapes[f"{name}.bias"] = shapes[f"{name}.weight"][:1]
    weights = {}
    for name, shape in shapes.items():
        values = torch.randn(shape, generator=draw, dtype=torch.float64)
        wide = len(shape) == 2 and not name.startswith("embed")
        weights[name] = values / shape[1] ** 0.5 * 1.5 if wide else values
    if spec.vocabulary == "reduced":
        ids = torch.randperm(spec.vocab_size, generator=draw)[: spec.draft_vocab_size]
        weights["d2t"] = ids - torch.arange(len(ids))
    return weights


def random_inputs(spec: DrafterSpec, rows: int = 9, first: int = 5) -> tuple[Tensor, ...]:
    """Aux states, ids and positions."""
    draw = torch.Generator().manual_seed(rows)
    width = max(spec.aux.count, 1) * spec.target_hidden_size
    aux = torch.randn(rows, width, generator=draw, dtype=torch.float64)
    ids = torch.randint(spec.vocab_size, (rows,), generator=draw)
    return aux, ids, torch.arange(first, first + rows)


def rope_parameters(spec: DrafterSpec) -> dict[str, Any]:
    """A rope as a transformers 5 config spells it; text sees plain rope where images have axes."""
    scaling = {"rope_type": "default", **(spec.rope.scaling or {})}
    scaling = {k: v for k, v in scaling.items() if not k.startswith("mrope")}
    if scaling["rope_type"] == "mrope":
        scaling["rope_type"] = "default"
    share = spec.rope.partial_rotary_factor
    return scaling | {"rope_theta": spec.rope.theta, "partial_rotary_factor": share}


def parts(spec: DrafterSpec) -> tuple[Any, type[nn.Module], nn.Module]:
    """Config, attention class and rotary module of transformers for a block."""
    values: dict[str, Any] = {
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_attention_heads": spec.num_attention_heads,
        "num_key_value_heads": spec.num_key_value_heads,
        "head_dim": spec.head_dim,
        "hidden_act": spec.hidden_act,
        "max_position_embeddings": spec.max_position_embeddings,
        "rope_parameters": rope_parameters(spec),
        "attn_implementation": "sdpa",  # the eager one has a float32 softmax
    }
    if spec.block == "mla":
        assert spec.mla is not None
        sizes = {name: getattr(spec.mla, name) for name in spec.mla.__slots__}
        config = DeepseekV3Config(**values | sizes | {"head_dim": spec.mla.qk_rope_head_dim})
        return config, deepseek.DeepseekV3Attention, deepseek.DeepseekV3RotaryEmbedding(config)
    if spec.block == "qwen3":
        config = Qwen3Config(**values)
        return config, qwen3.Qwen3Attention, qwen3.Qwen3RotaryEmbedding(config)
    if spec.rope.partial_rotary_factor != 1.0:
        config = StableLmConfig(**values, use_qkv_bias=False)
        return config, stablelm.StableLmAttention, stablelm.StableLmRotaryEmbedding(config)
    config = LlamaConfig(**values)
    return config, llama.LlamaAttention, llama.LlamaRotaryEmbedding(config)


class Oracle:
    """One drafter, from transformers' modules."""

    def __init__(self, spec: DrafterSpec, weights: dict[str, Tensor]) -> None:
        self.spec, self.weights = spec, weights
        self.config, attention, self.rotary = parts(spec)
        self.attention = [
            self.fill(attention(self.config, layer_idx=i), f"layers.{i}.self_attn")
            for i in range(spec.num_layers)
        ]
        self.mlp = [
            self.fill(llama.LlamaMLP(self.mlp_config()), f"layers.{i}.mlp")
            for i in range(spec.num_layers)
        ]

    def mlp_config(self) -> LlamaConfig:
        return LlamaConfig(
            hidden_size=self.spec.hidden_size,
            intermediate_size=self.spec.intermediate_size,
            num_attention_heads=1,
            hidden_act=self.spec.hidden_act,
        )

    def fill(self, module: nn.Module, prefix: str) -> nn.Module:
        """Give a module our weights: layer 0 is wider than transformers', some have biases."""
        for name, child in list(module.named_children()):
            if f"{prefix}.{name}.weight" in self.weights:
                wide = isinstance(child, nn.Linear)
                setattr(module, name, (self.linear if wide else self.norm)(f"{prefix}.{name}"))
        return module

    def linear(self, name: str) -> nn.Linear:
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        module = nn.Linear(*weight.shape[::-1], bias=bias is not None, dtype=torch.float64)
        module.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
        return module

    def norm(self, name: str) -> nn.RMSNorm:
        weight = self.weights[f"{name}.weight"]
        module = nn.RMSNorm(len(weight), eps=self.spec.rms_norm_eps, dtype=torch.float64)
        module.load_state_dict({"weight": weight})
        return module

    def mask(self, window: int | None, rows: int) -> Tensor:
        each = torch.arange(rows)
        sees = sliding_window_causal_mask_function(window) if window else causal_mask_function
        return sees(0, 0, each[:, None], each[None, :])[None, None]

    def fuse(self, aux: Tensor) -> Tensor:
        spec = self.spec
        if spec.aux.rule == "last":
            return aux
        if spec.input_norm in ("concat", "both"):
            aux = self.norm("input_norm")(aux)
        if spec.input_norm in ("per_aux", "both"):
            states = aux.unflatten(-1, (spec.aux.count, spec.target_hidden_size)).unbind(-2)
            aux = torch.cat([self.norm(f"fc_norm.{i}")(s) for i, s in enumerate(states)], -1)
        return self.linear("fc")(aux)

    @torch.no_grad()
    def step(self, ids: Tensor, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and feedback; residual and layer flow as vLLM 0.32's drafter classes have them."""
        spec = self.spec
        embeds = self.weights["embed_tokens.weight"][ids]
        turns = self.rotary(hidden, positions[None])
        for i in range(spec.num_layers):
            x = self.norm(f"layers.{i}.input_layernorm")(embeds if i == 0 else hidden)
            if i == 0:
                known = f"layers.{i}.hidden_norm.weight" in self.weights
                normed = self.norm("layers.0.hidden_norm")(hidden) if known else hidden
                hidden = normed if spec.residual == "normed" else hidden
                x = torch.cat((x, normed), dim=-1)
            mask = self.mask(spec.window[i], len(ids))
            out = self.attention[i](x[None], position_embeddings=turns, attention_mask=mask)
            hidden = hidden + out[0][0]
            hidden = hidden + self.mlp[i](self.norm(f"layers.{i}.post_attention_layernorm")(hidden))
        last = self.norm("norm")(hidden)
        return self.linear("lm_head")(last), last if spec.feedback == "post_norm" else hidden
