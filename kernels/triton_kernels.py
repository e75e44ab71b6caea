"""The Triton twins of `reference.py`, for CUDA devices; with TRITON_INTERPRET=1 they run on the CPU, for tests.

One program of the decode kernel serves all G query heads of one kv head of one request, so each key and value is loaded
once for the group, and runs over the whole length with an online softmax. Long rows at small batches would gain from
splitting the length over several programs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

LEAST_DOT_SIZE = 16
"""tl.dot needs every side of its operands to be at least this long."""


@triton.jit
def _kv_store_kernel(  # type: ignore[no-untyped-def]
    k_cache, v_cache, k, v, kv_indices, stride_cache, stride_k, stride_v, width, BLOCK: tl.constexpr
):
    """Program (t, w) copies block w of token t's keys and values, all kv heads in a line."""
    token = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    line = tl.load(kv_indices + token).to(tl.int64) * stride_cache
    tl.store(k_cache + line + column, tl.load(k + token * stride_k + column, mask=inside), mask=inside)
    tl.store(v_cache + line + column, tl.load(v + token * stride_v + column, mask=inside), mask=inside)


@triton.jit
def _decode_kernel(  # type: ignore[no-untyped-def]
    q, k_cache, v_cache, page_table, seq_lens, out,
    stride_q_batch, stride_q_head, stride_cache, stride_cache_head, stride_pages, stride_out_batch, stride_out_head,
    scale, page_size, group, head_dim,
    BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program (b, h) computes the attention of request b for the query heads of kv head h."""
    request = tl.program_id(0)
    kv_head = tl.program_id(1)
    query = tl.arange(0, BLOCK_G)
    lane = tl.arange(0, BLOCK_D)
    head = kv_head * group + query
    is_query = (query[:, None] < group) & (lane[None, :] < head_dim)
    queries = tl.load(
        q + request * stride_q_batch + head[:, None] * stride_q_head + lane[None, :], mask=is_query, other=0.0
    )

    length = tl.load(seq_lens + request)
    highest = tl.full([BLOCK_G], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_G], tl.float32)
    weighted = tl.zeros([BLOCK_G, BLOCK_D], tl.float32)
    for start in range(0, length, BLOCK_N):
        position = start + tl.arange(0, BLOCK_N)
        inside = position < length
        page = tl.load(page_table + request * stride_pages + position // page_size, mask=inside, other=0)
        line = (page.to(tl.int64) * page_size + position % page_size) * stride_cache + kv_head * stride_cache_head
        is_key = inside[:, None] & (lane[None, :] < head_dim)
        keys = tl.load(k_cache + line[:, None] + lane[None, :], mask=is_key, other=0.0)
        values = tl.load(v_cache + line[:, None] + lane[None, :], mask=is_key, other=0.0)

        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        # Every block holds at least one position inside, so `raised` is finite and its differences are no NaN.
        raised = tl.maximum(highest, tl.max(scores, 1))
        shrink = tl.exp(highest - raised)
        weights = tl.exp(scores - raised[:, None])
        total = total * shrink + tl.sum(weights, 1)
        weighted = weighted * shrink[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        highest = raised

    result = weighted / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(
        out + request * stride_out_batch + head[:, None] * stride_out_head + lane[None, :],
        result.to(out.dtype.element_ty),
        mask=is_query,
    )


def paged_kv_store(
    k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv_indices: torch.Tensor
) -> None:
    """See `reference.paged_kv_store`."""
    if not len(kv_indices):
        return
    width = k_cache.shape[1] * k_cache.shape[2]
    k, v = k.reshape(len(kv_indices), width).contiguous(), v.reshape(len(kv_indices), width).contiguous()
    block = min(triton.next_power_of_2(width), 1024)
    _kv_store_kernel[(len(kv_indices), triton.cdiv(width, block))](
        k_cache, v_cache, k, v, kv_indices, k_cache.stride(0), k.stride(0), v.stride(0), width, BLOCK=block
    )


def paged_decode_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    seq_lens: torch.Tensor,
    page_size: int,
    scale: float,
) -> torch.Tensor:
    """See `reference.paged_decode_attention`. The last dimension of every tensor must be contiguous."""
    batch, heads, head_dim = q.shape
    kv_heads = k_cache.shape[1]
    group = heads // kv_heads
    out = torch.empty_like(q)
    _decode_kernel[(batch, kv_heads)](
        q, k_cache, v_cache, page_table, seq_lens, out,
        q.stride(0), q.stride(1), k_cache.stride(0), k_cache.stride(1), page_table.stride(0), out.stride(0), out.stride(1),
        scale, page_size, group, head_dim,
        BLOCK_G=max(LEAST_DOT_SIZE, triton.next_power_of_2(group)),
        BLOCK_N=32,
        BLOCK_D=max(LEAST_DOT_SIZE, triton.next_power_of_2(head_dim)),
    )  # fmt: skip
    return out
