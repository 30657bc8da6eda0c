"""Attention in plain torch for layer shapes that vLLM's CPU kernels do not have.

The CPU kernels know head sizes 32, 64, 80, ... and a single MLA shape (512 + 64), and an MLA
drafter cannot stand next to a target with ordinary attention. Tiny fixtures need neither limit.
Only softmax(q k) v over vLLM's own slots and block tables is replaced; projections, rotary
embedding, norms and everything outside the layer stay vLLM's. `test_plain_attention` holds this
against the real kernel where both exist. Of the rotary embedding, latent attention gets vLLM's torch
code instead of its CPU kernel, which takes its strided heads for contiguous ones and turns other
numbers than it should.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def installed(everywhere: bool = False) -> Iterator[None]:
    """Use plain attention in unsupported layers, or in every layer, of engines started inside."""
    import torch
    from vllm.model_executor.layers.attention import attention, mla_attention
    from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    supported = CPUAttentionBackend.get_supported_head_sizes()

    def replaced(layer: Any) -> bool:
        return everywhere or hasattr(layer, "kv_lora_rank") or layer.head_size not in supported

    def get_kv_cache_spec(layer: Any, vllm_config: Any) -> Any:
        if not replaced(layer):
            return original_spec(layer, vllm_config)
        # Pages of a shape the kernels have: vLLM hands out slots, the values are kept here.
        return FullAttentionSpec(
            block_size=vllm_config.cache_config.block_size,
            num_kv_heads=2,
            head_size=32,
            dtype=torch.float32,
        )

    def forward(layer: Any, query: Any, key: Any, value: Any, *rest: Any, **others: Any) -> Any:
        if not replaced(layer):
            return original_forward(layer, query, key, value, *rest, **others)
        query = query.view(-1, layer.num_heads, layer.head_size)
        key = key.view(-1, layer.num_kv_heads, layer.head_size)
        value = value.view(-1, layer.num_kv_heads, layer.head_size)
        return attend(layer, query, key, value, layer.impl.scale, layer.impl.sliding_window)

    def mla_forward(layer: Any, q: Any, kv_c_normed: Any, k_pe: Any, **_: Any) -> Any:
        expanded = layer.kv_b_proj(kv_c_normed)[0].view(len(q), layer.num_heads, -1)
        key, value = expanded.split([layer.qk_nope_head_dim, layer.v_head_dim], dim=-1)
        key = torch.cat([key, k_pe.expand(-1, layer.num_heads, -1)], dim=-1)
        return attend(layer, q, key, value, layer.scale, -1)

    def rotate(rotary: Any, positions: Any, query: Any, key: Any = None) -> Any:
        if query.dim() == 2:  # heads side by side, as everywhere but in latent attention
            return original_rotation(rotary, positions, query, key)
        return rotary.forward_native(positions, query, key)

    original_rotation = RotaryEmbedding.forward_cpu
    original_spec = attention.Attention.get_kv_cache_spec
    original_forward = attention.Attention.forward
    changes = [
        (attention.Attention, "get_kv_cache_spec", get_kv_cache_spec),
        (attention.Attention, "forward", forward),
        (mla_attention.MLAAttention, "get_kv_cache_spec", get_kv_cache_spec),
        (mla_attention.MLAAttention, "get_attn_backend", lambda _: CPUAttentionBackend),
        (mla_attention.MLAAttention, "forward", mla_forward),
        (RotaryEmbedding, "forward_cpu", rotate),
    ]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in originals:
            setattr(owner, name, value)


def attend(layer: Any, query: Any, key: Any, value: Any, scale: float, window: int) -> Any:
    """Causal attention of one batch over the layer's slots; `window` -1 is no window."""
    import torch
    from vllm.model_executor.layers.attention.attention import get_attention_context

    metadata, _, pages, slots = get_attention_context(layer.layer_name)
    output = query.new_zeros(len(query), query.shape[1], value.shape[-1])
    if metadata is None:  # vLLM's dry run before there are pages
        return output.flatten(1)
    blocks, _, block_size, _ = pages.shape
    store = vars(layer).setdefault("plain_slots", {})
    for name, rows in (("key", key), ("value", value)):
        kept = store.setdefault(name, rows.new_zeros(blocks * block_size, *rows.shape[1:]))
        written = slots[: len(rows)] >= 0
        kept[slots[: len(rows)][written]] = rows[: len(written)][written]

    starts = metadata.query_start_loc.tolist()
    for request, length in enumerate(metadata.seq_lens.tolist()):
        rows = slice(starts[request], starts[request + 1])
        count = rows.stop - rows.start
        if count <= 0 or length <= 0:
            continue
        context = torch.arange(length)
        where = metadata.block_table[request, context // block_size] * block_size
        where = where + context % block_size
        repeat = query.shape[1] // key.shape[1]
        keys = store["key"][where].repeat_interleave(repeat, dim=1)
        values = store["value"][where].repeat_interleave(repeat, dim=1)
        scores = torch.einsum("qhd,khd->hqk", query[rows], keys) * scale
        distance = (torch.arange(length - count, length)[:, None] - context[None, :])[None]
        hidden = distance < 0
        if window > 0:
            hidden = hidden | (distance >= window)
        scores = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        output[rows] = torch.einsum("hqk,khd->qhd", scores, values)
    return output.flatten(1)
