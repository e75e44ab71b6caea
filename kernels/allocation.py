"""Paged allocation and page-table writes over a batch: Triton on CUDA, torch elsewhere.

On the device nothing can be refused, so the caller checks first that there is room, from the lengths that the host
knows. What does not fit all the same does no harm: KV indices beyond the free list are those of page 0, the padding,
and positions beyond a row are not written. The torch reference refuses both.
"""

from __future__ import annotations

import torch

from kvproof.kernels import checks
from kvproof.kernels.implementation import implementation_of
from kvproof.kernels.reference_allocation import Allocation, ExtendBatch


def alloc_extend(
    free_pages: torch.Tensor,
    prefix_lens: torch.Tensor,
    seq_lens: torch.Tensor,
    last_loc: torch.Tensor,
    page_size: int,
    num_tokens: int,
) -> Allocation:
    """KV indices for positions [prefix_lens[b], seq_lens[b]) of every request.

    Position i lies in page p at KV index p * page_size + i % page_size. The page that position prefix_len - 1 lies in is
    filled up first: last_loc[b] is the KV index of that position, and is not looked at where prefix_len is a multiple of
    page_size. Then pages are taken from the front of free_pages [f], request after request, ceil(seq_len) -
    ceil(prefix_len) in pages. `ExtendBatch` says dtypes and units of each argument; ValueError tells what does not fit.
    """
    return _alloc(ExtendBatch(free_pages, prefix_lens, seq_lens, last_loc, page_size, num_tokens))


def alloc_decode(
    free_pages: torch.Tensor, seq_lens: torch.Tensor, last_loc: torch.Tensor, page_size: int, tokens_each: int = 1
) -> Allocation:
    """KV indices for the last tokens_each positions of every request: [seq_lens[b] - tokens_each, seq_lens[b]).

    last_loc[b] is the KV index of the position before them. ValueError tells what does not fit.
    """
    checks.at_least("tokens_each", tokens_each, 1)
    num_tokens = len(seq_lens) * tokens_each
    return _alloc(ExtendBatch(free_pages, None, seq_lens, last_loc, page_size, num_tokens, tokens_each))


def write_req_to_token(
    req_to_token: torch.Tensor, rows: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, kv_indices: torch.Tensor
) -> None:
    """Write KV indices, request after request, to positions [starts[b], ends[b]) of rows[b] of the page table.

    req_to_token is int32 [rows + 1, row width], kv_indices [sum of ends - starts]. No row may occur twice with
    positions that overlap. ValueError tells what does not fit.
    """
    checks.one_device(req_to_token=req_to_token, rows=rows, starts=starts, ends=ends, kv_indices=kv_indices)
    checks.dimensions("req_to_token", req_to_token, "rows", "positions")
    checks.dtype_of("req_to_token", req_to_token, (torch.int32,))
    checks.contiguous_last("req_to_token", req_to_token)
    checks.index_vectors(len(rows), "the number of requests", rows=rows, starts=starts, ends=ends)
    checks.index_vectors(len(kv_indices), "the number of tokens", kv_indices=kv_indices)
    implementation_of("allocation", req_to_token).write_req_to_token(req_to_token, rows, starts, ends, kv_indices)


def _alloc(batch: ExtendBatch) -> Allocation:
    lengths = {"seq_lens": batch.seq_lens, "last_loc": batch.last_loc}
    if batch.prefix_lens is not None:
        lengths["prefix_lens"] = batch.prefix_lens
    checks.one_device(free_pages=batch.free_pages, **lengths)
    checks.at_least("page_size", batch.page_size, 1)
    checks.at_least("num_tokens", batch.num_tokens, 0)
    checks.index_vectors(len(batch.free_pages), "the number of free pages", free_pages=batch.free_pages)
    checks.index_vectors(len(batch.seq_lens), "the number of requests", **lengths)
    allocation: Allocation = implementation_of("allocation", batch.free_pages).alloc(batch)
    return allocation
