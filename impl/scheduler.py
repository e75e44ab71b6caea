"""The scheduler: continuous batching, one forward a step, prefill before decode, first come first served.

One step is: keep the last chunk, admit what fits, run it; or else decode one token of every running request. Steps do not
overlap, so nothing is in flight between two of them: an abort or a close that comes there may act at once.

A turn that waits is matched each time it is considered, also when it is then rejected for lack of budget or pages.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kvproof.impl.config import EngineConfig
from kvproof.impl.faults import assemble
from kvproof.impl.observe import Observer, Reporter
from kvproof.impl.pools import KVAllocator, RowPool
from kvproof.impl.radix_cache import RadixCache
from kvproof.impl.request import TOO_LONG, Request
from kvproof.impl.runner import ForwardInput, HashRunner, Runner
from kvproof.impl.session import Session

FREE_LIST_LIMIT = 1024
"""A check lists every free page of a pool of up to this many pages."""


@dataclass(frozen=True)
class Outcome:
    """How a request ended, and with which output."""

    finished: bool
    output_ids: tuple[int, ...]
    reason: str | None = None


@dataclass(frozen=True)
class Chunk:
    """A request's share of one prefill step: positions [prefix_len, seq_len)."""

    req: Request
    seq_len: int

    @property
    def is_last(self) -> bool:
        return self.seq_len == len(self.req.fill_ids)

    def forward_input(self) -> ForwardInput:
        req = self.req
        assert req.req_pool_idx is not None  # a chunk is made after its row was allocated
        return ForwardInput(req.req_pool_idx, req.prefix_len, req.fill_ids[req.prefix_len : self.seq_len])


class Scheduler:
    def __init__(self, config: EngineConfig, observer: Observer, runner: Runner | None = None) -> None:
        cache_class, controller_class = assemble(config.faults)
        self.config = config
        self.allocator = KVAllocator(config.pool_pages, config.page_size)
        self.rows = RowPool(config.rows, config.row_width, config.row_order)
        self.inner = RadixCache(self.allocator, self.rows)
        self.tree = self.inner.tree
        self.cache = cache_class(self.inner)
        self.controller = controller_class(self.cache, config.max_input_len)
        self.runner = runner if runner is not None else self._build_runner()
        self.tell = Reporter(observer, self.cache, self.allocator.moves)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.chunked_req: Request | None = None
        """The one request whose prompt is partly prefilled."""
        self._decode_steps = 0
        self._ended_in_step: list[Request] = []
        """They still stand in the batch that this step's memory check looks at."""
        self.outcomes: dict[str, Outcome] = {}
        self._chunk_is_kept = False

    # -- what users ask for --

    def open_session(self, session_id: str) -> None:
        self.tell.open(self.controller.open(session_id))

    def submit_turn(
        self, session_id: str, rid: str, new_tokens: list[int], max_new_tokens: int, *, logprob: bool = False
    ) -> bool:
        """A turn of a session, whose input is the session's checkpoint and `new_tokens`; False if the session refuses it."""
        session = self.controller.get(session_id)
        req = self._new_request(rid, new_tokens, max_new_tokens)
        req.logprob_start_len = 0 if logprob else None
        admitted = self.controller.create_req(session, req)
        self.tell.create(session, req, admitted=admitted)
        if admitted:
            self._limit_output(req)
            self.waiting.append(req)
        else:
            self.outcomes[rid] = Outcome(False, (), f"session {session_id} is busy")
        return admitted

    def submit(self, rid: str, token_ids: list[int], max_new_tokens: int) -> None:
        """An ordinary request."""
        req = self._new_request(rid, token_ids, max_new_tokens)
        if len(token_ids) > self.config.max_input_len:
            req.abort_before_running(TOO_LONG)
        self._limit_output(req)
        self.tell.arrive(req)
        self.waiting.append(req)

    def abort(self, rid: str, reason: str = "aborted") -> None:
        """End a request without success, wherever it is. One that already ended, or never came, is no matter."""
        queued = next((req for req in self.waiting if req.rid == rid), None)
        if queued is not None:
            queued.to_finish = reason
            self._abort_queued(queued)
            return
        live = next((req for req in self._live_requests() if req.rid == rid), None)
        if live is not None:
            live.to_finish = reason
            self._end(live)

    def close_session(self, session_id: str) -> None:
        session = self.controller.get(session_id)
        row = self._slot_row(session)
        self.controller.close(session)
        self.tell.close(session, row)

    def retract(self, rid: str) -> None:
        """Force a running request back to the queue, as pool pressure would."""
        for req in [req for req in self.running if req.rid == rid]:
            self._retract(req)

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.running and self.chunked_req is None

    # -- one step --

    def step(self) -> None:
        self._begin_step()
        self._keep_chunk()
        batch = self._admit()
        if batch:
            self._run_prefill(batch)
        elif self.running:
            self._run_decode()
        elif not self.is_idle:
            self._abort_what_cannot_fit()
        if self.config.check_every_step:
            self.check()

    def _begin_step(self) -> None:
        self.tell.step += 1
        self._ended_in_step = []

    def check(self) -> None:
        """Report the terms of the memory check, in pages, from the running counters of pool, tree and slots."""
        page_size = self.config.page_size
        live = self._live_requests()
        terms = {
            "available": self.allocator.available_pages,
            "evictable": self.tree.evictable_size // page_size,
            "protected": self.tree.protected_size // page_size,
            "session_held": self.cache.session_held_pages({req.req_pool_idx for req in live}),
            "uncached": self.cache.uncached_pages(live, self._ended_in_step),
            "total": self.config.pool_pages,
        }
        free_list = self.allocator.free_list() if self.config.pool_pages <= FREE_LIST_LIMIT else None
        self.tell.check(busy=not self.is_idle, terms=terms, free_list=free_list)

    # -- prefill --

    def _keep_chunk(self) -> None:
        """Between two chunks: a session's turn keeps its row, an ordinary request shares its pages through the tree."""
        req = self.chunked_req
        if req is None or self._chunk_is_kept:
            return
        if req.session is not None:
            self.cache.stash_chunk(req)
            self.tell.stash(req)
        else:
            self._insert(req)
        self._chunk_is_kept = True

    def _admit(self) -> list[Chunk]:
        """The prefill of this step: the next chunk of the chunked request, then waiting requests while they fit."""
        batch: list[Chunk] = []
        budget = self._prefill_budget()
        if self.chunked_req is not None:
            seq_len = self._fitting_seq_len(self.chunked_req, budget, batch)
            if seq_len is None:
                return []  # others would take the pages that it waits for
            batch.append(self._extend(self.chunked_req, seq_len, shared=None))
        while self.waiting and len(self.running) + len(batch) < self.config.max_batch:
            req = self.waiting[0]
            self._match(req)
            lock = None if req.lent else req.last_node
            if lock is not None:
                self.tree.inc_lock_ref(lock)
            spent = sum(chunk.seq_len - chunk.req.prefix_len for chunk in batch)
            seq_len = self._fitting_seq_len(req, budget - spent, batch)
            if seq_len is None:
                if lock is not None:
                    self.tree.dec_lock_ref(lock)
                break
            self.waiting.popleft()
            batch.append(self._extend(req, seq_len, shared=None if req.lent else self._pages_of(req.prefix_len, req)))
        return batch

    def _match(self, req: Request) -> None:
        left = self.cache.match_prefix(req)
        if left is not None:
            self.tell.detached(left, req)
            self.tell.arrive(req)
        self.tell.match(req)
        if left is not None:
            self._close_if_due(left)

    def _prefill_budget(self) -> int:
        size = self.config.chunked_prefill_size
        return self.config.max_prefill_tokens if size is None else size

    def _fitting_seq_len(self, req: Request, budget: int, batch: list[Chunk]) -> int | None:
        """Where this step's part of the prompt ends; None if nothing of it fits into rows, budget and pages.

        Beside its own pages it leaves one for every request that decodes: so each admission is followed by progress, and
        retracts cannot go on for ever.
        """
        if req.req_pool_idx is None and not self.rows.available_rows:
            return None
        missing = len(req.fill_ids) - req.prefix_len
        take = missing
        if missing > budget:
            if self.config.chunked_prefill_size is None:
                take = 0 if batch else missing
            elif self.chunked_req not in (None, req):
                take = 0  # one chunked request at a time
            else:
                take = budget - budget % self.config.page_size
        if take <= 0:
            return None
        seq_len = req.prefix_len + take
        others = len(self.running) + len(batch)
        headroom = others + 1 if others else 0
        if self.allocator.pages_for(req.prefix_len, seq_len) + headroom > self._obtainable_pages():
            return None
        return seq_len

    def _extend(self, req: Request, seq_len: int, shared: tuple[int, ...] | None) -> Chunk:
        """Take a row if there is none, write the matched prefix and the new KV indices into it."""
        self._make_available(self.allocator.pages_for(req.prefix_len, seq_len))
        if req.req_pool_idx is None:
            req.req_pool_idx = self.rows.alloc()
        self.rows.write(req.req_pool_idx, 0, req.prefix_indices)
        last_loc = int(req.prefix_indices[-1]) if req.prefix_len else -1
        kv_indices = self.allocator.alloc_extend(req.prefix_len, seq_len, last_loc)
        self.rows.write(req.req_pool_idx, req.prefix_len, kv_indices)
        req.kv_committed_len = req.kv_allocated_len = seq_len
        if seq_len < len(req.fill_ids):
            self.chunked_req, self._chunk_is_kept = req, False
        elif req is self.chunked_req:
            self.chunked_req = None
        self.tell.extend(req, seq_len=seq_len, shared=shared)
        return Chunk(req, seq_len)

    def _run_prefill(self, batch: list[Chunk]) -> None:
        tokens = self.runner.extend([chunk.forward_input() for chunk in batch])
        for chunk, token in zip(batch, tokens, strict=True):
            if not chunk.is_last:
                continue  # the token that a part of a prompt predicts is the prompt's own next one
            self.running.append(chunk.req)
            self._take_result(chunk.req, token)
            if chunk.req in self.running and self.cache.inserts_prompt(chunk.req):
                self._insert(chunk.req)

    def _insert(self, req: Request) -> None:
        dup_len = self.inner.cache_unfinished_req(req)
        self.tell.insert(req, dup_len=dup_len, shared=self._pages_of(req.cache_protected_len, req))

    # -- decode --

    def _run_decode(self) -> None:
        self._retract_until_decode_fits()
        self._retract_at_interval()
        batch = list(self.running)
        if not batch:
            return
        for req in batch:
            self._prepare_decode(req)
        inputs = [ForwardInput(req.req_pool_idx or 0, req.kv_committed_len - 1, req.output_ids[-1:]) for req in batch]
        for req, token in zip(batch, self.runner.decode(inputs), strict=True):
            self._take_result(req, token)

    def _prepare_decode(self, req: Request) -> None:
        """Claim the position of the last sampled token: C += 1 and A += 1."""
        assert req.req_pool_idx is not None  # a running request has a row
        self._make_available(self._pages_to_decode(req))
        last_loc = int(self.rows.req_to_token[req.req_pool_idx, req.kv_committed_len - 1])
        loc = self.allocator.alloc_decode(req.kv_committed_len + 1, last_loc)
        self.rows.req_to_token[req.req_pool_idx, req.kv_committed_len] = loc
        req.kv_committed_len += 1
        req.kv_allocated_len += 1
        self.tell.decode(req)

    def _retract_until_decode_fits(self) -> None:
        """Send requests back to the queue until one more token of each other one fits; give up the last one if need be."""
        while sum(map(self._pages_to_decode, self.running)) > self._obtainable_pages():
            if len(self.running) == 1:
                self.abort(self.running[0].rid, "out of memory, and no other request is left to retract")
                return
            self._retract(self._victim())

    def _retract_at_interval(self) -> None:
        """The test switch: one request goes back to the queue now and then, although all fit."""
        self._decode_steps += 1
        interval = self.config.retract_interval
        if interval is not None and self._decode_steps % interval == 0 and len(self.running) > 1:
            self._retract(self._victim())

    def _victim(self) -> Request:
        """The least output is lost first, and of equal ones the longest input gives back the most."""
        return min(self.running, key=lambda req: (len(req.output_ids), -len(req.origin_input_ids)))

    def _pages_to_decode(self, req: Request) -> int:
        return self.allocator.pages_for(req.kv_committed_len, req.kv_committed_len + 1)

    def _retract(self, req: Request) -> None:
        if self.config.retract_after_prepare and self._pages_to_decode(req) <= self._obtainable_pages():
            self._prepare_decode(req)
        self.running.remove(req)
        if req.session is not None:
            self.cache.retract_turn(req.session, req)
        else:
            self.inner.cache_finished_req(req, is_insert=False)
            req.reset_for_retract()
        self.tell.retract(req)
        self.waiting.append(req)

    # -- the end of a request --

    def _take_result(self, req: Request, token: int) -> None:
        self._note_result(req, token)
        if req.is_done():
            self._end(req)

    def _note_result(self, req: Request, token: int) -> None:
        req.output_ids.append(token)
        self.tell.result(req)

    def _end(self, req: Request) -> None:
        """The one way out for a request that has run."""
        if req is self.chunked_req:
            self.chunked_req = None
        else:
            self.running.remove(req)
        self._ended_in_step.append(req)
        session = req.session
        if session is None:
            dup_len = self.inner.cache_finished_req(req, is_insert=True)
            self.tell.finish_ordinary(req, dup_len=dup_len)
        elif self.cache.ends_by_abort(req):
            self.cache.abort_turn(session, req)
            self.tell.abort(session, req)
        else:
            self.cache.finish_turn(session, req)
            self.tell.finish_turn(session, req)
        self._record_outcome(req)
        if session is not None:
            self._close_if_due(session)

    def _abort_queued(self, req: Request) -> None:
        self.waiting.remove(req)
        session = req.session
        if session is not None:
            self.cache.abort_queued_turn(session)
        self.tell.abort(session, req)
        self._record_outcome(req)
        if session is not None:
            self._close_if_due(session)

    def _abort_what_cannot_fit(self) -> None:
        """Nothing runs, so nothing will ever free what the next request waits for: slots hold it until they are closed."""
        stuck = self.chunked_req or self.waiting[0]
        self.abort(stuck.rid, "does not fit beside what open sessions hold")

    def _close_if_due(self, session: Session) -> None:
        if self.controller.must_close_now(session):
            row = self._slot_row(session)
            self.controller.release(session)
            self.tell.close(session, row)

    def _record_outcome(self, req: Request) -> None:
        self.outcomes[req.rid] = Outcome(req.to_finish is None, tuple(req.output_ids), req.to_finish)

    # -- small facts --

    def _live_requests(self) -> list[Request]:
        """The requests of the live batch: running, or between two chunks. Their rows count as theirs, not as the slots'."""
        return self.running if self.chunked_req is None else [*self.running, self.chunked_req]

    def _obtainable_pages(self) -> int:
        return self.allocator.available_pages + self.tree.evictable_size // self.config.page_size

    def _make_available(self, pages: int) -> None:
        missing = pages - self.allocator.available_pages
        if missing > 0:
            self.tree.evict(missing * self.config.page_size)
            self.tell.evict()

    def _pages_of(self, length: int, req: Request) -> tuple[int, ...]:
        """The pages behind the leading `length` tokens of a request's row, in order; `length` is whole pages."""
        return tuple((req.prefix_indices[: length : self.config.page_size] // self.config.page_size).tolist())

    def _slot_row(self, session: Session) -> int | None:
        slot = self.cache.slots.get(session.session_id)
        return slot.req_pool_idx if slot is not None else None

    def _limit_output(self, req: Request) -> None:
        """The row must hold the input and every output token."""
        req.max_new_tokens = min(req.max_new_tokens, self.config.row_width - len(req.origin_input_ids))

    def _new_request(self, rid: str, token_ids: list[int], max_new_tokens: int) -> Request:
        if not token_ids or max_new_tokens < 1:
            raise ValueError(f"request {rid}: needs at least one input token and one output token")
        return Request(rid, list(token_ids), max_new_tokens)

    def _build_runner(self) -> Runner:
        if self.config.forward == "none":
            return HashRunner(self.config.seed)
        from kvproof.impl.model import TransformerRunner

        return TransformerRunner(self.config, self.rows)
