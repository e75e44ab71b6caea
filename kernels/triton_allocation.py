"""The Triton twins of `reference_allocation.py`, for CUDA devices; with TRITON_INTERPRET=1 on the CPU, for tests.

One launch each. A program needs to know what the requests before its own take. It adds that up by itself from the
lengths of the batch, a few kilobytes that all programs share in the cache: a scan would be a launch of its own.

As in all kernels here, numbers that differ from step to step are not specialised on: Triton would compile a kernel anew
when a count first happens to be a multiple of 16, and the server would stall for a second. Nor is the free list, which begins
where the last step ended, at any page.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kvproof.kernels.reference_allocation import Allocation, ExtendBatch

BLOCK = 512
PROGRAMS = 1024
"""A request's tokens are split over several programs until there are about this many."""


@triton.jit(do_not_specialize=["free_pages", "requests", "frees", "num_tokens", "splits"])
def _alloc_kernel(  # type: ignore[no-untyped-def]
    free_pages, prefix_lens, seq_lens, last_loc, kv_indices, pages_taken, requests, frees, num_tokens, splits,
    TOKENS_EACH: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (b, s) writes part s of request b's KV indices. TOKENS_EACH is 0 where prefix_lens tells the new tokens."""
    request = tl.program_id(0)
    split = tl.program_id(1)
    each = tl.arange(0, BLOCK_B)
    is_request = each < requests
    seq_len = tl.load(seq_lens + each, mask=is_request, other=0).to(tl.int32)
    if TOKENS_EACH:
        prefix_len = seq_len - tl.where(is_request, TOKENS_EACH, 0)
    else:
        prefix_len = tl.load(prefix_lens + each, mask=is_request, other=0).to(tl.int32)
    new_pages = tl.cdiv(seq_len, PAGE_SIZE) - tl.cdiv(prefix_len, PAGE_SIZE)
    first_token = tl.sum(tl.where(each < request, seq_len - prefix_len, 0), 0)
    first_page = tl.sum(tl.where(each < request, new_pages, 0), 0)
    start = tl.sum(tl.where(each == request, prefix_len, 0), 0)
    end = tl.sum(tl.where(each == request, seq_len, 0), 0)
    if (request == 0) & (split == 0):
        tl.store(pages_taken, tl.sum(new_pages, 0))

    held_pages = tl.cdiv(start, PAGE_SIZE)
    last = tl.load(last_loc + request).to(tl.int64)
    for block in range(start + split * BLOCK, end, splits * BLOCK):
        position = block + tl.arange(0, BLOCK)
        token = first_token + position - start
        is_token = (position < end) & (token < num_tokens)
        is_fresh = is_token & (position >= held_pages * PAGE_SIZE)
        nth = first_page + position // PAGE_SIZE - held_pages
        page = tl.load(free_pages + nth, mask=is_fresh & (nth < frees), other=0).to(tl.int64)
        kv_index = tl.where(is_fresh, page * PAGE_SIZE + position % PAGE_SIZE, last + 1 + position - start)
        tl.store(kv_indices + token, kv_index, mask=is_token)


@triton.jit(do_not_specialize=["requests", "num_tokens", "splits"])
def _write_kernel(  # type: ignore[no-untyped-def]
    req_to_token, rows, starts, ends, kv_indices, stride_row, width, requests, num_tokens, splits,
    BLOCK_B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (b, s) writes part s of request b's KV indices into its row."""
    request = tl.program_id(0)
    split = tl.program_id(1)
    each = tl.arange(0, BLOCK_B)
    is_before = each < request
    of_each = tl.load(ends + each, mask=is_before, other=0) - tl.load(starts + each, mask=is_before, other=0)
    first_token = tl.sum(of_each, 0).to(tl.int32)
    start = tl.load(starts + request).to(tl.int32)
    end = tl.load(ends + request).to(tl.int32)
    row = req_to_token + tl.load(rows + request).to(tl.int64) * stride_row
    for block in range(start + split * BLOCK, end, splits * BLOCK):
        position = block + tl.arange(0, BLOCK)
        token = first_token + position - start
        is_token = (position < end) & (position < width) & (token < num_tokens)
        kv_index = tl.load(kv_indices + token, mask=is_token, other=0)
        tl.store(row + position, kv_index.to(tl.int32), mask=is_token)


def alloc(batch: ExtendBatch) -> Allocation:
    """See `allocation.alloc_extend`."""
    requests, free_pages, num_tokens = len(batch.seq_lens), batch.free_pages, batch.num_tokens
    kv_indices = torch.empty(num_tokens, dtype=torch.int64, device=free_pages.device)
    if not requests:
        return Allocation(kv_indices, torch.zeros((), dtype=torch.int32, device=free_pages.device))
    pages_taken = torch.empty((), dtype=torch.int32, device=free_pages.device)
    # The kernel works the prefix lengths of a decode out from tokens_each: seq_lens stands in for them.
    prefix_lens = batch.seq_lens if batch.prefix_lens is None else batch.prefix_lens
    splits = _splits(requests, num_tokens)
    _alloc_kernel[(requests, splits)](
        free_pages=free_pages, prefix_lens=prefix_lens, seq_lens=batch.seq_lens, last_loc=batch.last_loc,
        kv_indices=kv_indices, pages_taken=pages_taken, requests=requests, frees=len(free_pages), num_tokens=num_tokens,
        splits=splits, TOKENS_EACH=batch.tokens_each, PAGE_SIZE=batch.page_size,
        BLOCK_B=triton.next_power_of_2(requests), BLOCK=BLOCK,
    )  # fmt: skip
    return Allocation(kv_indices, pages_taken)


def write_req_to_token(
    req_to_token: torch.Tensor, rows: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, kv_indices: torch.Tensor
) -> None:
    """See `allocation.write_req_to_token`."""
    requests = len(rows)
    if not requests:
        return
    splits = _splits(requests, len(kv_indices))
    _write_kernel[(requests, splits)](
        req_to_token=req_to_token, rows=rows, starts=starts, ends=ends, kv_indices=kv_indices,
        stride_row=req_to_token.stride(0), width=req_to_token.shape[1], requests=requests, num_tokens=len(kv_indices),
        splits=splits, BLOCK_B=triton.next_power_of_2(requests), BLOCK=BLOCK,
    )  # fmt: skip


def _splits(requests: int, num_tokens: int) -> int:
    """Programs per request: no more than its blocks could be, and about PROGRAMS in all."""
    return max(1, min(triton.cdiv(num_tokens, BLOCK), PROGRAMS // requests))
