"""Speculation without a draft: each round of decode reserves slots as SGLang's speculation v2 does, and every draft is rejected.

EAGLE and its verification need draft weights and kernels that a CPU has not. What a cache sees of them is that rows are backed
ahead of what is committed. So here a round reserves to C + 2 * (drafts + 1), as `EagleDraftInput.prepare_for_decode` of 0.5.11
does, with the release's own allocation; the next round writes into what was reserved; and the rest is left to the release:
trim, retract, abort. No draft is accepted, so no round overshoots what was asked for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from kvproof.conformance.errors import UserError

from .releases import Release

_REPLACED = "alloc_for_decode"
# By the way in which a release keeps its lengths: those that this function raises; the batch raises the others when it returns.
_RAISED: dict[str, frozenset[str]] = {
    "its own": frozenset(),
    "allocated length in its kv record": frozenset({"kv_allocated_len"}),
    "all in its kv record": frozenset({"kv_allocated_len", "kv_committed_len"}),
}
# What `release_kv_cache` asks whether speculation is on: only then it frees what is over-allocated, else it refuses.
_ASKED = ("get_spec", "get_global_server_args")


class NoRoom(Exception):
    """A round found no room for what it reserves. A scheduler that knows of its drafts would have retracted before: here the
    emulation ends, and nothing is said of the release."""


class _WithSpeculation:
    """A configuration in which speculation is on; all else of it is as it was."""

    speculative_algorithm = "EAGLE"

    def __init__(self, configuration: Any) -> None:
        self._configuration = configuration

    def __getattr__(self, name: str) -> Any:
        return getattr(self._configuration, name)


class Reserving:
    """`taken`: of each request of the batch that was prepared last, the row positions [start, end) that were reserved for it."""

    def __init__(self, release: Release, scheduler: Any, drafts: int) -> None:
        if not scheduler.enable_overlap:
            raise UserError("drafts: speculation v2 overlaps: --set overlap=true")
        self.taken: dict[str, tuple[int, int]] = {}
        self._release = release
        self._drafts = drafts
        self._raised = _RAISED[str(release.ways["lengths"])]
        self._batches: Any = importlib.import_module("sglang.srt.managers.schedule_batch")
        self._original: Callable[..., Any] = getattr(self._batches, _REPLACED)
        self._allocation: Any = sys.modules[self._original.__module__]
        self._release_room: Any = importlib.import_module("sglang.srt.mem_cache.common")
        self._asked = next(name for name in _ASKED if hasattr(self._release_room, name))
        self._answer: Callable[[], Any] = getattr(self._release_room, self._asked)

    def start(self) -> None:
        setattr(self._batches, _REPLACED, self._alloc_for_decode)
        setattr(self._release_room, self._asked, lambda: _WithSpeculation(self._answer()))

    def stop(self) -> None:
        setattr(self._batches, _REPLACED, self._original)
        setattr(self._release_room, self._asked, self._answer)

    def _alloc_for_decode(self, batch: Any, token_per_req: int) -> Any:
        """In place of `alloc_for_decode`: the slots of the positions that the round begins with."""
        import torch

        batch.maybe_evict_swa()
        self.taken = {}
        table = batch.req_to_token_pool.req_to_token
        for req, seq_len in zip(batch.reqs, batch.seq_lens_cpu.tolist(), strict=True):
            reserved = self._release.lengths_of(req)[1]
            wanted = min(seq_len + 2 * (self._drafts + 1), table.shape[1])
            if reserved < wanted:
                self._reserve(batch, self._release.row(req), reserved, wanted)
                self.taken[req.rid] = (reserved, wanted)
            self._claim(req, max(reserved, wanted), token_per_req)
        return table[batch.req_pool_indices, batch.seq_lens].to(torch.int64)

    def _claim(self, req: Any, allocated: int, tokens: int) -> None:
        """C rises by what the round begins with, A to what is reserved, once the batch has done its part."""
        record = req.kv if self._raised else req
        record.kv_allocated_len = allocated - (0 if "kv_allocated_len" in self._raised else tokens)
        if "kv_committed_len" in self._raised:
            record.kv_committed_len += tokens

    def _reserve(self, batch: Any, row: int, start: int, end: int) -> None:
        try:
            self._take(batch, row, start, end)
        except RuntimeError as error:
            raise NoRoom(f"no room for positions {start} to {end} of a row") from error

    def _take(self, batch: Any, row: int, start: int, end: int) -> None:
        import torch

        pool, device = batch.req_to_token_pool, batch.device
        if batch.tree_cache.page_size == 1:
            slots = self._allocation.alloc_token_slots(batch.tree_cache, end - start)
        else:
            first, last = torch.tensor([start]), torch.tensor([end])
            slots = self._allocation.alloc_paged_token_slots_extend(
                batch.tree_cache,
                first.to(device),
                first,
                last.to(device),
                last,
                pool.req_to_token[row, start - 1].view(1).to(torch.int64),
                end - start,
            )
        pool.write((row, slice(start, end)), slots.to(torch.int32))
