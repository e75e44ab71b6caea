"""What the store and attention kernels compute, in plain torch: slow, and meant to be read.

Shapes: B requests, H query heads, G = H / kv heads queries share one kv head, D head size, M pages of the longest row.
A KV cache is [(pages + 1) * page_size, kv heads, D]; page 0 is padding. The KV index of position i is
page_table[b, i // page_size] * page_size + i % page_size.

Sliding window: the query at position i sees position j when i - window <= j <= i, so `window` tokens and itself;
window = 0 stands for no window.
"""

from __future__ import annotations

import torch


def paged_kv_store(
    k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv_indices: torch.Tensor
) -> None:
    """Write keys and values [tokens, kv heads, D] to their KV indices [tokens]. No index may occur twice."""
    paged_latent_store(k_cache, k, kv_indices)
    paged_latent_store(v_cache, v, kv_indices)


def paged_latent_store(latent_cache: torch.Tensor, latent: torch.Tensor, kv_indices: torch.Tensor) -> None:
    """Write one line per token [tokens, ...] to its KV index: multi-head latent attention keeps keys and values as one."""
    latent_cache[kv_indices] = latent.reshape(len(kv_indices), *latent_cache.shape[1:]).to(latent_cache.dtype)


def paged_decode_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    seq_lens: torch.Tensor,
    page_size: int,
    scale: float,
    window: int = 0,
) -> torch.Tensor:
    """Attention of one query per request, q [B, H, D], at position seq_lens[b] - 1 over [0, seq_lens[b]); [B, H, D].

    A request of length 0 attends to nothing and gets zeros.
    """
    batch, heads, _ = q.shape
    group = heads // k_cache.shape[1]
    _rows_fit(page_table, seq_lens, page_size)
    offsets = torch.arange(page_size, device=q.device)
    kv_indices = (page_table.long()[:, :, None] * page_size + offsets).reshape(batch, page_table.shape[1] * page_size)
    keys = k_cache[kv_indices].float().repeat_interleave(group, dim=2)
    values = v_cache[kv_indices].float().repeat_interleave(group, dim=2)

    key_positions = torch.arange(kv_indices.shape[1], device=q.device)
    hidden = ~visible(seq_lens[:, None] - 1, key_positions[None, :], window)
    scores = torch.einsum("bhd,blhd->bhl", q.float(), keys) * scale
    weights = torch.softmax(scores.masked_fill(hidden[:, None, :], float("-inf")), dim=-1).nan_to_num(0.0)
    return torch.einsum("bhl,blhd->bhd", weights, values).to(q.dtype)


def paged_extend_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    prefix_lens: torch.Tensor,
    seq_lens: torch.Tensor,
    page_size: int,
    scale: float,
    window: int = 0,
) -> torch.Tensor:
    """Attention of the queries of positions [prefix_lens[b], seq_lens[b]) of every request, one request after another.

    q is [total new tokens, H, D], and so is the result. The KV of the new tokens is already in the cache.
    """
    group = q.shape[1] // k_cache.shape[1]
    _rows_fit(page_table, seq_lens, page_size)
    out = torch.empty_like(q)
    begin = 0
    for pages, prefix_len, seq_len in zip(page_table.long(), prefix_lens.tolist(), seq_lens.tolist(), strict=True):
        end = begin + seq_len - prefix_len
        positions = torch.arange(seq_len, device=q.device)
        kv_indices = pages[positions // page_size] * page_size + positions % page_size
        keys = k_cache[kv_indices].float().repeat_interleave(group, dim=1)
        values = v_cache[kv_indices].float().repeat_interleave(group, dim=1)

        hidden = ~visible(positions[prefix_len:, None], positions[None, :], window)
        scores = torch.einsum("nhd,lhd->hnl", q[begin:end].float(), keys) * scale
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
        out[begin:end] = torch.einsum("hnl,lhd->nhd", weights, values).to(q.dtype)
        begin = end
    if begin != len(q):
        raise ValueError(f"q holds {len(q)} tokens, but the requests extend by {begin}")
    return out


def visible(query_positions: torch.Tensor, key_positions: torch.Tensor, window: int) -> torch.Tensor:
    """Whether the query at position i sees the key at position j: j <= i, and j >= i - window where there is a window."""
    causal = key_positions <= query_positions
    return causal & (key_positions >= query_positions - window) if window else causal


def _rows_fit(page_table: torch.Tensor, seq_lens: torch.Tensor, page_size: int) -> None:
    room = page_table.shape[1] * page_size
    if len(seq_lens) and (longest := int(seq_lens.max())) > room:
        raise ValueError(f"a request is {longest} tokens long, but its row of the page table holds {room}")
