"""What EAGLE's kernels do, in torch, for chains of drafts (no tree). They take the place of those that a CPU has not.

Up to 0.5.14 most of them are Triton's, which has an interpreter; from 0.5.17 on a CPU has its own, in a package that is stood in
for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvproof.conformance.adapters.sglang.fresh_schedulers import put_everywhere
from kvproof.conformance.adapters.stand_ins import stand_for


def take_their_places() -> None:
    """In every module of SGLang that has imported one of them."""
    for name, ours in ALWAYS.items():
        put_everywhere(name, ours)
    if stand_for("sgl_kernel"):
        for name, ours in STOOD_IN_FOR.items():
            put_everywhere(name, ours)


def chain_of_drafts(
    last_tokens: Any,
    parents: Any,
    scores: Any,
    drafts: Any,
    seq_lens: Any,
    seq_lens_sum: int,
    topk: int,
    steps: int,
    width: int,
    *args: Any,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """(mask, positions, index, next token, next sibling, tokens): each draft stands behind the last. `width`: tokens of a
    chain, of which the first is known."""
    import torch

    requests, places = len(seq_lens), torch.arange(width)
    tokens = torch.cat((last_tokens.unsqueeze(1).to(torch.int64), drafts.to(torch.int64)), dim=1).flatten()
    behind = torch.where(places + 1 < width, places + 1, -1).repeat(requests, 1)
    return (
        torch.ones(width * requests * width, dtype=torch.bool),
        (seq_lens.view(-1, 1) + places).flatten().to(torch.int64),
        torch.arange(requests * width).view(requests, width),
        behind,
        torch.full((requests, width), -1),
        tokens,
    )


def accept_greedily(
    *, predicts: Any, accept_index: Any, accept_token_num: Any, candidates: Any, target_predict: Any, **kwargs: Any
) -> tuple[Any, Any, Any]:
    """Drafts are accepted up to the first that is not what the target says; that is said in its place."""
    width = candidates.shape[1]
    for place, (chain, said) in enumerate(zip(candidates.tolist(), target_predict.tolist(), strict=True)):
        agreed = [draft == token for draft, token in zip(chain[1:], said, strict=False)]
        accepted = [*agreed, False].index(False)
        for step in range(accepted + 1):
            accept_index[place, step] = place * width + step
            predicts[place * width + step] = said[step]
        accept_token_num[place] = accepted
    return predicts, accept_index, accept_token_num


def write_rows(rows: Any, req_to_token: Any, starts: Any, ends: Any, slots: Any, width: int) -> None:
    """The slots, one request after the other, into the positions [start, end) of each row."""
    taken = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        req_to_token[row, start:end] = slots[taken : taken + end - start].to(req_to_token.dtype)
        taken += end - start


def read_rows(rows: Any, req_to_token: Any, starts: Any, ends: Any, slots: Any, width: int) -> None:
    """The other way."""
    taken = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        slots[taken : taken + end - start] = req_to_token[row, start:end].to(slots.dtype)
        taken += end - start


def slots_of_chains(
    *, req_pool_indices: Any, req_to_token: Any, start_offset: Any, draft_token_num: int, **_: Any
) -> Any:
    """The slots that the target writes as it verifies: of each request so many from its start on."""
    import torch

    places = start_offset.view(-1, 1) + torch.arange(draft_token_num)
    return req_to_token[req_pool_indices.view(-1, 1), places].flatten().to(torch.int64)


def read_rows_for_drafts(
    rows: Any, req_to_token: Any, seq_lens: Any, slots: Any, width: int, topk: int, steps: int
) -> None:
    """The slots behind each sequence, one for each step of a chain."""
    read_rows(rows, req_to_token, seq_lens, seq_lens + steps, slots, width)


def last_accepted(tokens: Any, accept_lens: Any, last: Any, stride: int) -> None:
    """Of each request the token behind its accepted drafts; `stride`: places of a request in `tokens`."""
    flat = tokens.flatten()
    for place, length in enumerate(accept_lens.tolist()):
        last[place] = flat[place * stride + length - 1]


ALWAYS: dict[str, Callable[..., Any]] = {
    "build_tree_kernel_efficient": chain_of_drafts,
    "verify_tree_greedy_func": accept_greedily,
    "assign_extend_cache_locs_func": slots_of_chains,
}
STOOD_IN_FOR: dict[str, Callable[..., Any]] = {
    "assign_req_to_token_pool_cpu": write_rows,
    "assign_extend_cache_locs_cpu": read_rows,
    "assign_draft_cache_locs_contiguous_cpu": read_rows_for_drafts,
    "fill_bonus_tokens_cpu": last_accepted,
}
