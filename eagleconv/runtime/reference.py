"""The reference drafter: what one draft step computes, for every drafter of the house.

Plain torch, to be read from top to bottom and compared with engines' numbers. Symbols: T tokens of
one sequence, h hidden size, H target hidden size, A number of aux states, V target vocabulary,
D draft vocabulary, n query heads, m key/value heads, d head size.

    aux [T, A H] --fuse--> hidden [T, h] --+
                                           +--step--> logits [T, D], feedback [T, h]
    ids [T] (one token ahead of hidden) ---+

The first step of a draft takes `fuse` of the target's states; the next one takes the feedback.

Where engines differ, this is vLLM 0.32's order: with both input norms `input_norm` comes first,
and layers after the first use `input_layernorm`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from eagleconv.drafter.facts import DrafterSpec, Mla
from eagleconv.errors import ConversionError, UsageError
from eagleconv.runtime.rotary import Angles, Rotary, turn_halves, turn_pairs

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "swish": F.silu,
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What a step leaves behind.

    Attributes:
        logits: [T, D], over the draft vocabulary; of the rows they were asked for.
        feedback: [T, h], the state that the next step takes in.
    """

    logits: Tensor
    feedback: Tensor


class DraftCache:
    """Keys and values of the rows that a drafter has seen of one sequence, for each layer."""

    def __init__(self) -> None:
        """Start with no row."""
        self._layers: list[tuple[Tensor, Tensor]] = []

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._layers[0][0]) if self._layers else 0

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append rows of one layer and return all of its rows: [S, m, d] and [S, m, v]."""
        if layer == len(self._layers):
            self._layers.append((key, value))
        else:
            old_key, old_value = self._layers[layer]
            self._layers[layer] = (torch.cat([old_key, key]), torch.cat([old_value, value]))
        return self._layers[layer]

    def crop(self, rows: int) -> None:
        """Forget all rows but the first `rows`."""
        self._layers = [(key[:rows], value[:rows]) for key, value in self._layers]


class ReferenceDrafter:
    """One drafter, ready to step."""

    def __init__(self, spec: DrafterSpec, weights: Mapping[str, Tensor]) -> None:
        """Take the facts and the tensors of `load_weights`.

        Raises:
            ConversionError: The activation or the rope scaling is not known here.
            MissingExtraError: A rope scaling needs transformers, which is not installed.
        """
        if spec.hidden_act not in _ACTIVATIONS:
            raise ConversionError(
                f"activation {spec.hidden_act!r} is not supported by the reference",
                f"it knows {', '.join(_ACTIVATIONS)}",
            )
        self.spec, self.weights = spec, weights
        self.dtype = weights["norm.weight"].dtype
        self.activation = _ACTIVATIONS[spec.hidden_act]
        width = spec.mla.qk_rope_head_dim if spec.mla else spec.head_dim
        self.rotary = Rotary(spec.rope, width, spec.max_position_embeddings)

    def fuse(self, aux: Tensor) -> Tensor:
        """Return the state of the first step, [T, h].

        Args:
            aux: [T, A H], the tapped states side by side, lowest layer first; [T, h], the last
                state, for a head that is fed by it alone.
        """
        spec, x = self.spec, aux.to(self.dtype)
        if spec.aux.rule == "last":
            return x
        if spec.input_norm in ("concat", "both"):
            x = self._norm("input_norm", x)  # one norm over all A H
        if spec.input_norm in ("per_aux", "both"):
            states = x.chunk(spec.aux.count, dim=-1)  # A times [T, H]
            x = torch.cat([self._norm(f"fc_norm.{i}", s) for i, s in enumerate(states)], dim=-1)
        return self._linear("fc", x)  # [T, h]

    def mask_inputs(self, count: int) -> tuple[Tensor, Tensor]:
        """Return ids [count] and states [count, h] of P-EAGLE's masked rows.

        A parallel drafter drafts K tokens in one step: K - 1 such rows follow the sequence.

        Raises:
            UsageError: The drafter drafts in a chain.
        """
        if self.spec.drafting != "parallel" or self.spec.mask_token_id is None:
            raise UsageError("a drafter that drafts in a chain has no masked rows")
        state = self.fuse(self.weights["mask_hidden"].reshape(1, -1))  # [1, h]
        return torch.full((count,), self.spec.mask_token_id), state.expand(count, -1)

    def step(
        self,
        ids: Tensor,
        hidden: Tensor,
        positions: Tensor,
        cache: DraftCache | None = None,
        last: int | None = None,
    ) -> StepOutput:
        """Run one sequence; row t sees the rows of the cache and rows 0..t.

        Args:
            ids: [T], target ids; row t holds the token after the one whose state `hidden[t]` is.
            hidden: [T, h], from `fuse` or from the step before.
            positions: [T], ascending by one, from where the cache ends.
            cache: Rows of the same sequence before these; these are appended.
            last: For how many of the last rows logits are wanted; all where None.
        """
        embedded = F.embedding(ids, self.weights["embed_tokens.weight"])  # [T, h]
        angles = self.rotary.table(positions)  # [T, r / 2] each
        stream = hidden.to(self.dtype)  # [T, h]
        for layer in range(self.spec.num_layers):
            here = f"layers.{layer}."
            if layer == 0:
                # A head fed by one state alone may have no norm for it.
                named = f"{here}hidden_norm"
                normed = self._norm(named, stream) if f"{named}.weight" in self.weights else stream
                if self.spec.residual == "normed":
                    stream = normed
                x = torch.cat([self._norm(f"{here}input_layernorm", embedded), normed], dim=-1)
            else:
                x = self._norm(f"{here}input_layernorm", stream)
            attention = self._latent_attention if self.spec.mla else self._attention
            stream = stream + attention(layer, x, angles, cache)  # x is [T, 2 h], then [T, h]
            stream = stream + self._mlp(here, self._norm(f"{here}post_attention_layernorm", stream))
        normed = self._norm("norm", stream)  # [T, h]
        feedback = normed if self.spec.feedback == "post_norm" else stream
        wanted = normed if last is None else normed[len(normed) - last :]
        return StepOutput(self._linear("lm_head", wanted), feedback)

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """Return the target's ids of draft ids, of any shape."""
        if self.spec.vocabulary == "full":
            return draft_ids
        return draft_ids + self.weights["d2t"][draft_ids]

    def _keys(
        self,
        layer: int,
        key: Tensor,
        value: Tensor,
        angles: Angles,
        cache: DraftCache | None,
        turn: Callable[[Tensor, Angles], Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Turn keys [T, m, d] and return keys and values of all rows, [S, m, d] and [S, m, v]."""
        if cache is None:
            return turn(key, angles), value
        if self.rotary.fixed:
            return cache.extend(layer, turn(key, angles), value)
        # Old rows turn anew as the sequence grows: they are kept as they are.
        key, value = cache.extend(layer, key, value)
        return turn(key, self.rotary.table(torch.arange(len(key), device=key.device))), value

    def _attention(self, layer: int, x: Tensor, angles: Angles, cache: DraftCache | None) -> Tensor:
        """Grouped-query attention of Llama and Qwen3: x [T, 2 h or h] -> [T, h]."""
        here, d = f"layers.{layer}.self_attn.", self.spec.head_dim
        query = self._linear(f"{here}q_proj", x).view(len(x), -1, d)  # [T, n, d]
        key = self._linear(f"{here}k_proj", x).view(len(x), -1, d)  # [T, m, d]
        value = self._linear(f"{here}v_proj", x).view(len(x), -1, d)  # [T, m, d]
        if self.spec.block == "qwen3":
            query = self._norm(f"{here}q_norm", query)  # each head by itself
            key = self._norm(f"{here}k_norm", key)
        query = turn_halves(query, *angles)
        key, value = self._keys(layer, key, value, angles, cache, lambda k, at: turn_halves(k, *at))
        mixed = attend(query, key, value, d**-0.5, self.spec.window[layer])  # [T, n d]
        return self._linear(f"{here}o_proj", mixed)

    def _latent_attention(
        self, layer: int, x: Tensor, angles: Angles, cache: DraftCache | None
    ) -> Tensor:
        """DeepSeek's attention through a low-rank latent: x [T, 2 h or h] -> [T, h]."""
        here, n = f"layers.{layer}.self_attn.", self.spec.num_attention_heads
        mla = self.spec.mla
        assert mla is not None
        plain, turned = mla.qk_nope_head_dim, mla.qk_rope_head_dim
        if mla.q_lora_rank is None:
            query = self._linear(f"{here}q_proj", x)
        else:
            low = self._norm(f"{here}q_a_layernorm", self._linear(f"{here}q_a_proj", x))
            query = self._linear(f"{here}q_b_proj", low)
        query = query.view(len(x), n, plain + turned)

        def turn(heads: Tensor, at: Angles) -> Tensor:  # [T, n, plain + turned]
            return torch.cat([heads[..., :plain], turn_pairs(heads[..., plain:], *at)], dim=-1)

        down = self._linear(f"{here}kv_a_proj_with_mqa", x)  # [T, kv_lora_rank + turned]
        latent, key_turned = down[:, : mla.kv_lora_rank], down[:, mla.kv_lora_rank :]
        up = self._linear(f"{here}kv_b_proj", self._norm(f"{here}kv_a_layernorm", latent))
        up = up.view(len(x), n, plain + mla.v_head_dim)
        key_plain, value = up[..., :plain], up[..., plain:]
        # One rotating key for all heads.
        key = torch.cat([key_plain, key_turned[:, None].expand(-1, n, -1)], dim=-1)
        query = turn(query, angles)
        key, value = self._keys(layer, key, value, angles, cache, turn)
        scale = self._latent_scale(mla)
        mixed = attend(query, key, value, scale, self.spec.window[layer])  # [T, n v_head_dim]
        return self._linear(f"{here}o_proj", mixed)

    def _latent_scale(self, mla: Mla) -> float:
        """Return the factor on q k; DeepSeek's YaRN raises it with the context length."""
        scale = float((mla.qk_nope_head_dim + mla.qk_rope_head_dim) ** -0.5)
        scaling = self.spec.rope.scaling or {}
        weight = scaling.get("mscale_all_dim")
        if self.rotary.kind == "yarn" and weight and scaling["factor"] > 1:
            scale *= (0.1 * weight * math.log(scaling["factor"]) + 1.0) ** 2
        return scale

    def _mlp(self, here: str, x: Tensor) -> Tensor:
        """Gated MLP: [T, h] -> [T, h]."""
        gate = self.activation(self._linear(f"{here}mlp.gate_proj", x))
        return self._linear(f"{here}mlp.down_proj", gate * self._linear(f"{here}mlp.up_proj", x))

    def _linear(self, module: str, x: Tensor) -> Tensor:
        """Apply a matrix, and its bias where it has one."""
        return F.linear(x, self.weights[f"{module}.weight"], self.weights.get(f"{module}.bias"))

    def _norm(self, module: str, x: Tensor) -> Tensor:
        """RMS norm over the last dimension, in float32 at least, as engines compute it."""
        wide = x if x.dtype == torch.float64 else x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.spec.rms_norm_eps)
        return (wide * scale).to(x.dtype) * self.weights[f"{module}.weight"]


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None) -> Tensor:
    """Causal attention; the queries are the last T of S rows.

    Args:
        query: [T, n, d].
        key: [S, m, d], n a multiple of m.
        value: [S, m, v].
        scale: Factor on q k.
        window: How many rows a row sees, itself included; None for all before it.

    Returns:
        [T, n v], heads side by side.
    """
    rows, total, group = len(query), len(key), query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    scores = torch.einsum("tnd,snd->nts", query, key) * scale
    each = torch.arange(total, device=query.device)
    distance = each[total - rows :, None] - each[None, :]  # [T, S]
    hidden = distance < 0
    if window is not None:
        hidden = hidden | (distance >= window)
    scores = scores.masked_fill(hidden, -math.inf)
    wide = scores if scores.dtype == torch.float64 else scores.float()
    shares = wide.softmax(dim=-1).to(value.dtype)  # [n, T, S]
    return torch.einsum("nts,snv->tnv", shares, value).flatten(1)
