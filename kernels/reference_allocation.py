"""Paged allocation and page-table writes in plain torch: request by request, meant to be read."""

from __future__ import annotations

import torch


def alloc_extend(
    free_pages: torch.Tensor,
    prefix_lens: torch.Tensor,
    seq_lens: torch.Tensor,
    last_loc: torch.Tensor,
    page_size: int,
    num_tokens: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `allocation.alloc_extend`."""
    taken = 0
    kv_indices = [torch.empty(0, dtype=torch.int64, device=free_pages.device)]
    for prefix_len, seq_len, last in zip(prefix_lens.tolist(), seq_lens.tolist(), last_loc.tolist(), strict=True):
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
    if len(result) != num_tokens:
        raise ValueError(f"the requests extend by {len(result)} tokens, but num_tokens is {num_tokens}")
    return result, torch.tensor(taken, dtype=torch.int32, device=free_pages.device)


def alloc_decode(
    free_pages: torch.Tensor, seq_lens: torch.Tensor, last_loc: torch.Tensor, page_size: int, tokens_each: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `allocation.alloc_decode`: an extend of the same number of tokens for every request."""
    num_tokens = len(seq_lens) * tokens_each
    return alloc_extend(free_pages, seq_lens - tokens_each, seq_lens, last_loc, page_size, num_tokens)


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
