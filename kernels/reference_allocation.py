"""Paged allocation and page-table writes in plain torch: request by request, meant to be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch


@dataclass(frozen=True)
class ExtendBatch:
    """Requests that get longer and the pages that they may take, all on one device. Nothing is checked here.

    Vectors are int32 or int64, and all but the first have one entry per request.
    """

    free_pages: torch.Tensor
    """Page ids, taken from the front. Page 0, the padding, is never one of them."""
    prefix_lens: torch.Tensor | None
    """Tokens of each request that have KV indices already; None where tokens_each tells."""
    seq_lens: torch.Tensor
    """Tokens of each request, the new ones among them."""
    last_loc: torch.Tensor
    """KV index of the last token that has one. Not looked at where the prefix is a multiple of page_size."""
    page_size: int
    """Positions per page."""
    num_tokens: int
    """New tokens of all requests: known to the host, which would wait for the device if it asked."""
    tokens_each: int = 0
    """In a decode, which has no prefix_lens: new tokens of every request."""


class Allocation(NamedTuple):
    kv_indices: torch.Tensor
    """int64 [tokens], request after request, each in the order of its positions."""
    pages_taken: torch.Tensor
    """int32, no dimension: that many pages from the front of the free list are used."""


def alloc(batch: ExtendBatch) -> Allocation:
    """See `allocation.alloc_extend`; ValueError where pages are too few or num_tokens is another sum."""
    free_pages, page_size, seq_lens = batch.free_pages, batch.page_size, batch.seq_lens
    prefix_lens = seq_lens - batch.tokens_each if batch.prefix_lens is None else batch.prefix_lens
    taken = 0
    kv_indices = [torch.empty(0, dtype=torch.int64, device=free_pages.device)]
    for prefix_len, seq_len, last in zip(prefix_lens.tolist(), seq_lens.tolist(), batch.last_loc.tolist(), strict=True):
        position = torch.arange(prefix_len, seq_len, device=free_pages.device)
        held_pages, needed_pages = -(-prefix_len // page_size), -(-seq_len // page_size)
        new_pages = free_pages[taken : taken + needed_pages - held_pages].long()
        if len(new_pages) < needed_pages - held_pages:
            raise ValueError(f"{taken + needed_pages - held_pages} pages are needed, but {len(free_pages)} are free")
        taken += len(new_pages)
        # The page that position prefix_len - 1 lies in is filled up first.
        continued = position[position < held_pages * page_size] - prefix_len + last + 1
        fresh = position[position >= held_pages * page_size]
        kv_indices += [continued, new_pages[fresh // page_size - held_pages] * page_size + fresh % page_size]
    result = torch.cat(kv_indices)
    if len(result) != batch.num_tokens:
        raise ValueError(f"the requests extend by {len(result)} tokens, but num_tokens is {batch.num_tokens}")
    return Allocation(result, torch.tensor(taken, dtype=torch.int32, device=free_pages.device))


def write_req_to_token(
    req_to_token: torch.Tensor, rows: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, kv_indices: torch.Tensor
) -> None:
    """See `allocation.write_req_to_token`."""
    written = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        if end > req_to_token.shape[1]:
            raise ValueError(f"positions up to {end} are written, but a row is {req_to_token.shape[1]} wide")
        req_to_token[row, start:end] = kv_indices[written : written + end - start].to(req_to_token.dtype)
        written += end - start
    if written != len(kv_indices):
        raise ValueError(f"the rows take {written} KV indices, but {len(kv_indices)} are given")
