"""What the store and attention kernels compute, in plain torch: slow, and meant to be read.

Shapes: B requests, H query heads, G = H / kv heads queries share one kv head, D head size, M pages of the longest row.

Sliding window: the query at position i sees position j when i - window <= j <= i, so `window` tokens and itself;
window = 0 stands for no window.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class PagedKV:
    """What attention reads: two caches, and the rows of B requests in them, all on one device.

    The KV index of position i of request b is page_table[b, i // page_size] * page_size + i % page_size. Nothing is
    checked here: the entries in `paged` do that.
    """

    k_cache: torch.Tensor
    """[(pages + 1) * page_size, kv heads, D]; page 0 is padding. Neighbours in a head are neighbours in memory."""
    v_cache: torch.Tensor
    """Shape and dtype of `k_cache`."""
    page_table: torch.Tensor
    """int32 or int64 [B, M]: page ids, not KV indices."""
    seq_lens: torch.Tensor
    """int32 or int64 [B]: tokens of each request, those of its queries among them."""
    page_size: int
    """Positions per page."""


def paged_kv_store(
    k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv_indices: torch.Tensor
) -> None:
    """Write keys and values [tokens, kv heads, D] to their KV indices [tokens]. No index may occur twice."""
    paged_latent_store(k_cache, k, kv_indices)
    paged_latent_store(v_cache, v, kv_indices)


def paged_latent_store(latent_cache: torch.Tensor, latent: torch.Tensor, kv_indices: torch.Tensor) -> None:
    """Write one line per token [tokens, ...] to its KV index: multi-head latent attention keeps keys and values as one."""
    latent_cache[kv_indices] = latent.reshape(len(kv_indices), *latent_cache.shape[1:]).to(latent_cache.dtype)


def paged_decode_attention(q: torch.Tensor, kv: PagedKV, scale: float, window: int = 0) -> torch.Tensor:
    """Attention of one query per request, q [B, H, D], at position seq_lens[b] - 1 over [0, seq_lens[b]); [B, H, D].

    A request of length 0 attends to nothing and gets zeros.
    """
    _rows_fit(kv)
    positions = torch.arange(kv.page_table.shape[1] * kv.page_size, device=q.device)
    kv_indices = kv.page_table.long()[:, positions // kv.page_size] * kv.page_size + positions % kv.page_size
    keys, values = (_read(cache, kv_indices, q) for cache in (kv.k_cache, kv.v_cache))

    hidden = ~visible(kv.seq_lens[:, None] - 1, positions[None, :], window)
    scores = torch.einsum("bhd,blhd->bhl", q.float(), keys) * scale
    weights = torch.softmax(scores.masked_fill(hidden[:, None, :], float("-inf")), dim=-1).nan_to_num(0.0)
    return torch.einsum("bhl,blhd->bhd", weights, values).to(q.dtype)


def paged_extend_attention(
    q: torch.Tensor, kv: PagedKV, prefix_lens: torch.Tensor, scale: float, window: int = 0
) -> torch.Tensor:
    """Attention of the queries of positions [prefix_lens[b], seq_lens[b]) of every request, one request after another.

    q is [total new tokens, H, D], and so is the result. The KV of the new tokens is already in the cache.
    """
    _rows_fit(kv)
    out = torch.empty_like(q)
    begin = 0
    for pages, prefix_len, seq_len in zip(
        kv.page_table.long(), prefix_lens.tolist(), kv.seq_lens.tolist(), strict=True
    ):
        end = begin + seq_len - prefix_len
        positions = torch.arange(seq_len, device=q.device)
        kv_indices = pages[positions // kv.page_size] * kv.page_size + positions % kv.page_size
        keys, values = (_read(cache, kv_indices, q) for cache in (kv.k_cache, kv.v_cache))

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


def _read(cache: torch.Tensor, kv_indices: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """What a cache holds at the KV indices [...], once for each head of q: [..., H, D]."""
    return cache[kv_indices].float().repeat_interleave(q.shape[1] // cache.shape[1], dim=-2)


def _rows_fit(kv: PagedKV) -> None:
    room = kv.page_table.shape[1] * kv.page_size
    if len(kv.seq_lens) and (longest := int(kv.seq_lens.max())) > room:
        raise ValueError(f"a request is {longest} tokens long, but its row of the page table holds {room}")
