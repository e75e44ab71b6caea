"""Paged allocation and page-table writes over a batch: Triton on CUDA, torch elsewhere.

On the device nothing can be refused, so the caller checks first that there is room, from the lengths that the host
knows. What does not fit all the same does no harm: KV indices beyond the free list are those of page 0, the padding,
and positions beyond a row are not written. The torch reference refuses both.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from kvproof.kernels import checks, reference_allocation


class Allocation(NamedTuple):
    kv_indices: torch.Tensor
    """int64 [tokens], request after request, each in the order of its positions."""
    pages_taken: torch.Tensor
    """int32, no dimension: that many pages from the front of the free list are used."""


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
    ceil(prefix_len) in pages. Page 0 is never in the free list, so it is never handed out. num_tokens is the sum of
    seq_lens - prefix_lens, which the host knows: asking the device would make it wait.
    """
    _check(free_pages, page_size, prefix_lens=prefix_lens, seq_lens=seq_lens, last_loc=last_loc)
    checks.at_least("num_tokens", num_tokens, 0)
    if not free_pages.is_cuda:
        return Allocation(
            *reference_allocation.alloc_extend(free_pages, prefix_lens, seq_lens, last_loc, page_size, num_tokens)
        )
    from kvproof.kernels import triton_allocation

    return Allocation(
        *triton_allocation.alloc_extend(free_pages, prefix_lens, seq_lens, last_loc, page_size, num_tokens)
    )


def alloc_decode(
    free_pages: torch.Tensor, seq_lens: torch.Tensor, last_loc: torch.Tensor, page_size: int, tokens_each: int = 1
) -> Allocation:
    """KV indices for the last tokens_each positions of every request: [seq_lens[b] - tokens_each, seq_lens[b]).

    seq_lens are the lengths with the new tokens; last_loc[b] is the KV index of the position before them.
    """
    _check(free_pages, page_size, seq_lens=seq_lens, last_loc=last_loc)
    checks.at_least("tokens_each", tokens_each, 1)
    if not free_pages.is_cuda:
        return Allocation(*reference_allocation.alloc_decode(free_pages, seq_lens, last_loc, page_size, tokens_each))
    from kvproof.kernels import triton_allocation

    return Allocation(*triton_allocation.alloc_decode(free_pages, seq_lens, last_loc, page_size, tokens_each))


def write_req_to_token(
    req_to_token: torch.Tensor, rows: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, kv_indices: torch.Tensor
) -> None:
    """Write KV indices, request after request, to positions [starts[b], ends[b]) of rows[b] of the page table.

    req_to_token is int32 [rows + 1, row width], kv_indices [sum of ends - starts]. No row may occur twice with
    positions that overlap.
    """
    checks.one_device(req_to_token=req_to_token, rows=rows, starts=starts, ends=ends, kv_indices=kv_indices)
    checks.dimensions("req_to_token", req_to_token, "rows", "positions")
    checks.dtype_of("req_to_token", req_to_token, (torch.int32,))
    checks.contiguous_last("req_to_token", req_to_token)
    checks.index_vectors(len(rows), "the number of requests", rows=rows, starts=starts, ends=ends)
    checks.index_vectors(len(kv_indices), "the number of tokens", kv_indices=kv_indices)
    if not req_to_token.is_cuda:
        return reference_allocation.write_req_to_token(req_to_token, rows, starts, ends, kv_indices)
    from kvproof.kernels import triton_allocation

    return triton_allocation.write_req_to_token(req_to_token, rows, starts, ends, kv_indices)


def _check(free_pages: torch.Tensor, page_size: int, **lengths: torch.Tensor) -> None:
    checks.one_device(free_pages=free_pages, **lengths)
    checks.at_least("page_size", page_size, 1)
    checks.index_vectors(len(free_pages), "the number of free pages", free_pages=free_pages)
    checks.index_vectors(len(lengths["seq_lens"]), "the number of requests", **lengths)
