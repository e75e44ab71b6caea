"""What the kernels compute, in plain torch: slow, and meant to be read.

Shapes: B requests, H query heads, G = H / kv heads queries share one kv head, D head size, M pages of the longest row.
A KV cache is [(pages + 1) * page_size, kv heads, D]; page 0 is padding. The KV index of position i is
page_table[b, i // page_size] * page_size + i % page_size.
"""

from __future__ import annotations

import torch


def paged_kv_store(
    k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv_indices: torch.Tensor
) -> None:
    """Write keys and values [tokens, kv heads, D] to their KV indices [tokens]. No index may occur twice."""
    k_cache[kv_indices] = k.to(k_cache.dtype)
    v_cache[kv_indices] = v.to(v_cache.dtype)


def paged_decode_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    seq_lens: torch.Tensor,
    page_size: int,
    scale: float,
) -> torch.Tensor:
    """Attention of one query per request, q [B, H, D], over its first seq_lens[b] positions; [B, H, D].

    A request of length 0 attends to nothing and gets zeros.
    """
    batch, heads, _ = q.shape
    group = heads // k_cache.shape[1]
    offsets = torch.arange(page_size, device=q.device)
    kv_indices = (page_table.long()[:, :, None] * page_size + offsets).reshape(batch, -1)
    keys = k_cache[kv_indices].float().repeat_interleave(group, dim=2)
    values = v_cache[kv_indices].float().repeat_interleave(group, dim=2)

    positions = torch.arange(kv_indices.shape[1], device=q.device)
    outside = positions[None, :] >= seq_lens[:, None]
    scores = torch.einsum("bhd,blhd->bhl", q.float(), keys) * scale
    weights = torch.softmax(scores.masked_fill(outside[:, None, :], float("-inf")), dim=-1).nan_to_num(0.0)
    return torch.einsum("bhl,blhd->bhd", weights, values).to(q.dtype)
