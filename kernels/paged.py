"""The paged KV operations, each on the implementation for the tensor's device: Triton on CUDA, torch elsewhere.

Triton is imported with the first CUDA tensor: a machine without it can use everything else.
"""

from __future__ import annotations

from types import ModuleType

import torch

from kvproof.kernels import reference


def paged_kv_store(
    k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv_indices: torch.Tensor
) -> None:
    """See `reference.paged_kv_store`."""
    _for_device(k_cache).paged_kv_store(k_cache, v_cache, k, v, kv_indices)


def paged_decode_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    seq_lens: torch.Tensor,
    page_size: int,
    scale: float,
) -> torch.Tensor:
    """See `reference.paged_decode_attention`."""
    attention = _for_device(q).paged_decode_attention
    result: torch.Tensor = attention(q, k_cache, v_cache, page_table, seq_lens, page_size, scale)
    return result


def _for_device(tensor: torch.Tensor) -> ModuleType:
    if not tensor.is_cuda:
        return reference
    from kvproof.kernels import triton_kernels

    return triton_kernels
