"""KV store and attention over pages, each on the implementation for the tensor's device: Triton on CUDA, torch elsewhere."""

from __future__ import annotations

import torch

from kvproof.kernels import checks
from kvproof.kernels.implementation import implementation_of
from kvproof.kernels.reference import PagedKV

LARGEST_HEAD_DIM = 1024
"""A query tile and its accumulator stay in registers for the whole row; beyond this they would spill."""


def paged_kv_store(
    k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv_indices: torch.Tensor
) -> None:
    """Write keys and values [tokens, kv heads, D] to their KV indices [tokens]. No index may occur twice.

    The caches are [(pages + 1) * page_size, kv heads, D]; keys and values are cast to their dtype. ValueError tells what
    does not fit.
    """
    checks.one_device(k_cache=k_cache, v_cache=v_cache, k=k, v=v, kv_indices=kv_indices)
    _check_lines("k", k, "k_cache", k_cache, kv_indices)
    _check_lines("v", v, "v_cache", v_cache, kv_indices)
    implementation_of("store", k_cache).paged_kv_store(k_cache, v_cache, k, v, kv_indices)


def paged_latent_store(latent_cache: torch.Tensor, latent: torch.Tensor, kv_indices: torch.Tensor) -> None:
    """Write one line per token to its KV index [tokens]: the one cache of multi-head latent attention.

    latent is [tokens, D] or [tokens, 1, D], latent_cache [(pages + 1) * page_size, D] or [..., 1, D].
    ValueError tells what does not fit.
    """
    checks.one_device(latent_cache=latent_cache, latent=latent, kv_indices=kv_indices)
    _check_lines("latent", latent, "latent_cache", latent_cache, kv_indices)
    implementation_of("store", latent_cache).paged_latent_store(latent_cache, latent, kv_indices)


def paged_decode_attention(q: torch.Tensor, kv: PagedKV, scale: float, window: int = 0) -> torch.Tensor:
    """Attention of one query per request, q [B, H, D], over the first seq_lens[b] positions of its row; [B, H, D].

    The query stands at position i = seq_lens[b] - 1 and sees position j when j <= i and, with a window, j >= i - window:
    exactly `window` tokens and itself. A request of length 0 gets zeros. H is a multiple of the kv heads.
    ValueError tells what does not fit.
    """
    _check_attention(q, kv, window)
    checks.length_of("q", q, len(kv.seq_lens), "the number of requests is")
    result: torch.Tensor = implementation_of("attention", q).paged_decode_attention(q, kv, scale, window)
    return result


def paged_extend_attention(
    q: torch.Tensor, kv: PagedKV, prefix_lens: torch.Tensor, scale: float, window: int = 0
) -> torch.Tensor:
    """Attention of the queries of positions [prefix_lens[b], seq_lens[b]) of every request, one request after another.

    q is [total new tokens, H, D], and so is the result; each query sees what a decode query at its position would see.
    prefix_lens is int32 or int64 [B]. The KV of the new tokens is already in the cache. ValueError tells what does not fit.
    """
    _check_attention(q, kv, window)
    checks.one_device(q=q, prefix_lens=prefix_lens)
    checks.index_vectors(len(kv.seq_lens), "the number of requests", prefix_lens=prefix_lens)
    result: torch.Tensor = implementation_of("attention", q).paged_extend_attention(q, kv, prefix_lens, scale, window)
    return result


def _check_lines(
    name: str, lines: torch.Tensor, cache_name: str, cache: torch.Tensor, kv_indices: torch.Tensor
) -> None:
    checks.index_vectors(len(lines), f"the number of lines in {name}", kv_indices=kv_indices)
    width, line = cache[0].numel(), lines[0].numel() if len(lines) else cache[0].numel()
    if line != width:
        raise ValueError(f"{name} has {line} values a token, but {cache_name} holds {width}")
    if not cache[0].is_contiguous():
        raise ValueError(f"{cache_name} has strides {cache.stride()}, but a token's line must be contiguous")


def _check_attention(q: torch.Tensor, kv: PagedKV, window: int) -> None:
    k_cache, v_cache, page_table, seq_lens = kv.k_cache, kv.v_cache, kv.page_table, kv.seq_lens
    checks.one_device(q=q, k_cache=k_cache, v_cache=v_cache, page_table=page_table, seq_lens=seq_lens)
    checks.at_least("page_size", kv.page_size, 1)
    checks.at_least("window", window, 0)
    checks.dimensions("q", q, "tokens", "heads", "head size")
    checks.dtype_of("q", q, checks.FLOAT_DTYPES)
    checks.same_dtype(q=q, k_cache=k_cache, v_cache=v_cache)
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        checks.dimensions(name, cache, "KV indices", "kv heads", "head size")
        checks.contiguous_last(name, cache)
    if k_cache.shape != v_cache.shape:
        raise ValueError(f"k_cache is {tuple(k_cache.shape)}, but v_cache is {tuple(v_cache.shape)}")
    _, heads, head_dim = q.shape
    _, kv_heads, cache_head_dim = k_cache.shape
    if head_dim != cache_head_dim:
        raise ValueError(f"q has head size {head_dim}, but the cache has {cache_head_dim}")
    if head_dim > LARGEST_HEAD_DIM:
        raise ValueError(f"head size is {head_dim}, but the kernels hold at most {LARGEST_HEAD_DIM}")
    if heads % kv_heads:
        raise ValueError(f"{heads} query heads cannot share {kv_heads} kv heads evenly")
    checks.contiguous_last("q", q)
    checks.dimensions("page_table", page_table, "requests", "pages")
    checks.dtype_of("page_table", page_table, checks.INDEX_DTYPES)
    checks.contiguous_last("page_table", page_table)
    checks.index_vectors(len(page_table), "the number of rows of page_table", seq_lens=seq_lens)
