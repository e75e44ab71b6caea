"""The Triton twins of the stores in `reference.py`.

For CUDA devices; with TRITON_INTERPRET=1 they run on the CPU, for tests.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

LARGEST_BLOCK = 1024


@triton.jit
def _copy_block(cache, lines, token, kv_index, stride_cache, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Copy a block of token's line, block program_id(1), to its KV index."""
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    block = tl.load(lines + token * width + column, mask=inside)
    tl.store(cache + kv_index * stride_cache + column, block, mask=inside)


@triton.jit
def _kv_store_kernel(  # type: ignore[no-untyped-def]
    k_cache, v_cache, k, v, kv_indices, stride_k_cache, stride_v_cache, width_k, width_v, BLOCK: tl.constexpr
):
    """Program (t, w) copies block w of token t's key line and value line, all kv heads in a line."""
    token = tl.program_id(0).to(tl.int64)
    kv_index = tl.load(kv_indices + token).to(tl.int64)
    _copy_block(k_cache, k, token, kv_index, stride_k_cache, width_k, BLOCK)
    _copy_block(v_cache, v, token, kv_index, stride_v_cache, width_v, BLOCK)


@triton.jit
def _latent_store_kernel(  # type: ignore[no-untyped-def]
    latent_cache, latent, kv_indices, stride_cache, width, BLOCK: tl.constexpr
):
    """Program (t, w) copies block w of token t's line."""
    token = tl.program_id(0).to(tl.int64)
    kv_index = tl.load(kv_indices + token).to(tl.int64)
    _copy_block(latent_cache, latent, token, kv_index, stride_cache, width, BLOCK)


def paged_kv_store(
    k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv_indices: torch.Tensor
) -> None:
    """See `paged.paged_kv_store`."""
    tokens = len(kv_indices)
    if not tokens:
        return
    k, v = k.reshape(tokens, -1).contiguous(), v.reshape(tokens, -1).contiguous()
    widest = max(k.shape[1], v.shape[1])
    block = min(triton.next_power_of_2(widest), LARGEST_BLOCK)
    _kv_store_kernel[(tokens, triton.cdiv(widest, block))](
        k_cache=k_cache, v_cache=v_cache, k=k, v=v, kv_indices=kv_indices, stride_k_cache=k_cache.stride(0),
        stride_v_cache=v_cache.stride(0), width_k=k.shape[1], width_v=v.shape[1], BLOCK=block,
    )  # fmt: skip


def paged_latent_store(latent_cache: torch.Tensor, latent: torch.Tensor, kv_indices: torch.Tensor) -> None:
    """See `paged.paged_latent_store`."""
    tokens = len(kv_indices)
    if not tokens:
        return
    latent = latent.reshape(tokens, -1).contiguous()
    width = latent.shape[1]
    block = min(triton.next_power_of_2(width), LARGEST_BLOCK)
    _latent_store_kernel[(tokens, triton.cdiv(width, block))](
        latent_cache, latent, kv_indices, latent_cache.stride(0), width, BLOCK=block
    )
