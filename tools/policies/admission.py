"""Who is prefilled in a step, and how much: first come first served, whole prompts while the budget lasts, whole pages of the
one that it ends in, and nobody whose next round, with that of all others, could not be paid."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from policies.broken import require, tap
from policies.page_counts import PageCounts
from policies.steps import requests_of

if TYPE_CHECKING:
    from kvproof.impl.request import Request
    from kvproof.impl.scheduler import Scheduler
    from kvproof.impl.state import Chunk


class Admission:
    def __init__(self, scheduler: Scheduler) -> None:
        self._state, self._config, self._page_counts = scheduler.state, scheduler.config, PageCounts(scheduler)
        tap(scheduler.prefilling, "batch", self._batch)
        tap(scheduler.prefilling, "_fitting_seq_len", self._fitting_seq_len)
        tap(scheduler.prefilling, "extend", self._extend)

    def _batch(self, inner: Callable[[], list[Chunk]]) -> list[Chunk]:
        state = self._state
        queue, chunked = list(state.waiting), state.chunked_req
        chunks = inner()
        admitted = [chunk.req for chunk in chunks if chunk.req is not chunked]
        in_turn = len(admitted) <= len(queue) and all(a is b for a, b in zip(admitted, queue, strict=False))
        require(in_turn, "who came first is not served first")
        at_once = len(state.running) + len(chunks)
        require(
            not admitted or at_once <= self._config.max_batch, f"{at_once} requests run of {self._config.max_batch}"
        )
        return chunks

    def _fitting_seq_len(
        self, inner: Callable[..., int | None], req: Request, budget: int, batch: list[Chunk]
    ) -> int | None:
        right = self._end_of_part(req, batch)
        seq_len = inner(req, budget, batch)
        told = f"{req.rid} is prefilled to {seq_len}" if seq_len is not None else f"{req.rid} waits"
        require(seq_len == right, f"{told}; its policy: {'to wait' if right is None else f'to {right}'}")
        return seq_len

    def _extend(self, inner: Callable[..., Chunk], req: Request, seq_len: int) -> Chunk:
        """No row is handed on while a step in flight reads or writes it."""
        for launched in self._state.launched:
            for other in requests_of(launched):
                is_old_life = other is req and not req.is_live
                is_turn_before = other is not req and req.session is not None and other.session is req.session
                require(
                    not (is_old_life or is_turn_before),
                    f"{req.rid} takes a row that the step in flight of {other.rid} uses",
                )
        return inner(req, seq_len)

    def _end_of_part(self, req: Request, batch: list[Chunk]) -> int | None:
        state, config = self._state, self._config
        if req.req_pool_idx is None and state.rows.available_rows == 0:
            return None
        chunk_size = config.chunked_prefill_size
        if chunk_size is None:
            budget = config.max_prefill_tokens
        else:
            decoding_too = len(state.running) if config.mixed_chunk else 0
            budget = max(chunk_size - decoding_too, config.page_size)
        budget -= sum(chunk.seq_len - chunk.prefix_len for chunk in batch)
        end = len(req.fill_ids)
        if end - req.prefix_len > budget:
            if chunk_size is None:
                end = req.prefix_len if batch else end
            elif state.chunked_req is None or state.chunked_req is req:
                end = req.prefix_len + max(budget // config.page_size * config.page_size, 0)
            else:
                end = req.prefix_len  # another one is between two chunks
        if end <= req.prefix_len:
            return None
        return end if self._charge(req, end, batch) <= self._page_counts.obtainable else None

    def _charge(self, req: Request, end: int, batch: list[Chunk]) -> int:
        """Pages: its own, and those of the next round of everybody else."""
        others = [*self._state.running, *(chunk.req for chunk in batch)]
        estimate = self._config.new_token_estimate if others else 0

        def next_tokens(one: Request) -> int:
            return max(self._page_counts.round_len, min(estimate, one.max_new_tokens - len(one.output_ids)))

        end_with_round = end + next_tokens(req) if end == len(req.fill_ids) else end
        own = self._page_counts.pages(end_with_round) - self._page_counts.pages(req.prefix_len)
        return own + sum(self._page_counts.pages(next_tokens(other)) for other in others)
