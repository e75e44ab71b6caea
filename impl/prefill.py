"""Prefill: who is admitted, how much of a prompt one step takes, and what is kept between two chunks.

First come first served. A turn that waits is matched each time it is considered, also when it is then rejected for lack of
budget or pages.
"""

from __future__ import annotations

from kvproof.impl.decode import Decode
from kvproof.impl.request import Request
from kvproof.impl.request_exit import RequestExit
from kvproof.impl.state import Chunk, EngineState


class Prefill:
    def __init__(self, state: EngineState, exits: RequestExit, decode: Decode) -> None:
        self.state = state
        self.exits = exits
        self.decode = decode

    def batch(self) -> list[Chunk]:
        """The prefill of this step: the next chunk of the chunked request, then waiting requests while they fit."""
        state = self.state
        batch: list[Chunk] = []
        budget = self._budget()
        if state.chunked_req is not None:
            seq_len = self._fitting_seq_len(state.chunked_req, budget, batch)
            if seq_len is None:
                return []  # others would take the pages that it waits for
            batch.append(self.extend(state.chunked_req, seq_len))
        while state.waiting and len(state.running) + len(batch) < state.config.max_batch:
            req = state.waiting[0]
            if self._awaits_late_result(req):
                break
            self.match(req)
            lock = None if req.lent else req.last_node
            state.prefixes.lock(lock)
            spent = sum(chunk.seq_len - chunk.prefix_len for chunk in batch)
            seq_len = self._fitting_seq_len(req, budget - spent, batch)
            if seq_len is None:
                state.prefixes.unlock(lock)
                break
            state.waiting.popleft()
            batch.append(self.extend(req, seq_len))
        return batch

    def match(self, req: Request) -> None:
        reporter = self.state.reporter
        left = self.state.cache.match_prefix(req)
        if left is not None:
            reporter.detached(left, req)
            reporter.arrive(req)
        reporter.match(req)
        if left is not None:
            self.exits.close_if_due(left)

    def extend(self, req: Request, seq_len: int) -> Chunk:
        """Take a row if there is none, write the matched prefix and the new KV indices into it."""
        state = self.state
        was_kept = req.req_pool_idx is not None and (req.lent or req is state.chunked_req)
        if req.req_pool_idx is None:
            req.req_pool_idx = state.rows.alloc()
        if not was_kept:
            state.rows.write(req.req_pool_idx, 0, req.prefix_indices)
        state.back(req.req_pool_idx, req.prefix_len, seq_len)
        is_matched = not (req.lent or was_kept)
        shared = state.leading_pages(req.req_pool_idx, req.cache_protected_len) if is_matched else None
        req.kv_committed_len = req.kv_allocated_len = seq_len
        req.is_live = True
        if seq_len < len(req.fill_ids):
            state.chunked_req = req
        elif req is state.chunked_req:
            state.chunked_req = None
        state.reporter.extend(req, seq_len=seq_len, shared=shared)
        return Chunk(req, req.prefix_len, seq_len)

    def count_chunk(self, req: Request) -> None:
        """A chunk in the middle of the input was launched: its result will give no token (sglang-jax #994)."""
        req.is_chunked += 1

    def keep_chunk(self) -> None:
        """Between two chunks: what the last one wrote becomes the prefix of the next one."""
        req = self.state.chunked_req
        if req is not None and req.prefix_len < req.kv_committed_len:
            self.keep(req)

    def keep(self, req: Request) -> None:
        """A session's turn keeps its row, an ordinary request shares its pages through the tree."""
        if req.session is not None:
            self.state.cache.stash_chunk(req)
            self.state.reporter.stash(req)
        else:
            self.insert(req)

    def insert(self, req: Request) -> None:
        """Hand what was prefilled to the tree, if there is one."""
        inserted = self.state.prefixes.cache_unfinished_req(req)
        if inserted is not None:
            assert req.req_pool_idx is not None  # what is inserted has run
            shared = self.state.leading_pages(req.req_pool_idx, req.cache_protected_len)
            self.state.reporter.insert(req, inserted, shared=shared)
        elif req is self.state.chunked_req:
            self.state.reporter.stash(req)

    def _awaits_late_result(self, req: Request) -> bool:
        """Its row is not handed on while a step in flight reads or writes it: that of the turn before, or, of a request that
        was retracted a moment ago, its own."""
        return req.results_due > 0 or (req.session is not None and req.session.awaits_late_result())

    def _budget(self) -> int:
        """Prefill tokens of this step. In a mixed step every request that decodes takes one of a chunk's."""
        config = self.state.config
        if config.chunked_prefill_size is None:
            return config.max_prefill_tokens
        riders = len(self.state.running) if config.mixed_chunk else 0
        return max(config.chunked_prefill_size - riders, config.page_size)

    def _fitting_seq_len(self, req: Request, budget: int, batch: list[Chunk]) -> int | None:
        """Where this step's part of the prompt ends; None if nothing of it fits into rows, budget and pages."""
        state = self.state
        if req.req_pool_idx is None and not state.rows.available_rows:
            return None
        missing = len(req.fill_ids) - req.prefix_len
        take = missing
        if missing > budget:
            if state.config.chunked_prefill_size is None:
                take = 0 if batch else missing
            elif state.chunked_req not in (None, req):
                take = 0  # one chunked request at a time
            else:
                take = budget - budget % state.config.page_size
        if take <= 0:
            return None
        seq_len = req.prefix_len + take
        others = [*state.running, *(chunk.req for chunk in batch)]
        return seq_len if self.charge(req, seq_len, others) <= state.obtainable_pages() else None

    def charge(self, req: Request, seq_len: int, others: list[Request]) -> int:
        """Pages that an admission is charged: what the allocator takes for it, and the next round of every request.

        So each admission is followed by a round of all, and retracts cannot go on for ever. What is charged beyond the next
        round, for output that is expected, is waived where nobody else could give pages back.
        """
        pages_for = self.state.allocator.pages_for
        estimate = self.state.config.new_token_estimate if others else 0
        is_last = seq_len == len(req.fill_ids)
        own = pages_for(req.prefix_len, seq_len + (self._expected(req, estimate) if is_last else 0))
        return own + sum(-(-self._expected(other, estimate) // self.state.config.page_size) for other in others)

    def _expected(self, req: Request, estimate: int) -> int:
        return max(self.decode.round_len, min(estimate, req.max_new_tokens - len(req.output_ids)))
