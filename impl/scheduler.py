"""The scheduler: continuous batching, one forward a step, prefill before decode.

One step prepares and launches a forward, then takes results. Without overlap they are this forward's; with overlap those of
the step before, so that a step is prepared before the outcome of the last one is known. Users may come between any two
steps, and between the two halves of one.

Its parts share state.py: prefill.py admits, decode.py prepares rounds and frees pages for them, results.py processes results,
request_exit.py ends and retracts requests.
"""

from __future__ import annotations

from kvproof.impl.census import Census
from kvproof.impl.config import EngineConfig
from kvproof.impl.decode import Decode
from kvproof.impl.device_census import DeviceCensus
from kvproof.impl.faults import assemble
from kvproof.impl.observe import Observer
from kvproof.impl.prefill import Prefill
from kvproof.impl.request import TOO_LONG, Request, Session
from kvproof.impl.request_exit import RequestExit
from kvproof.impl.results import Results
from kvproof.impl.runner import HashRunner, Runner
from kvproof.impl.state import Batch, EngineState, Launched, MemoryTerms, Outcome
from kvproof.impl.window_eviction import evict_live_windows

FREE_LIST_LIMIT = 1024
"""A check lists every free page of a pool of up to this many pages."""

DOES_NOT_FIT = "does not fit beside what open sessions hold"


class Scheduler:
    def __init__(self, config: EngineConfig, observer: Observer | None = None, runner: Runner | None = None) -> None:
        parts = assemble(config.faults)
        self.config = config
        self.state = EngineState(config, parts, observer)
        self.exits = parts.of(RequestExit)(self.state)
        self.decoding = parts.of(Decode)(self.state, self.exits)
        self.prefilling = parts.of(Prefill)(self.state, self.exits, self.decoding)
        self.results = parts.of(Results)(self.state, self.exits, self.prefilling)
        self.runner = runner if runner is not None else self._build_runner()
        self.census = Census(self.state) if self.state.device is None else DeviceCensus(self.state, self.state.device)
        self._drafts = config.drafts if config.speculation else 0
        self._has_results_to_take = False
        """Between the two halves of a step."""

    # -- what users ask for --

    def open_session(self, session_id: str) -> None:
        self.state.reporter.open(self.state.controller.open(session_id))

    def submit_turn(
        self,
        session_id: str,
        rid: str,
        new_tokens: list[int],
        max_new_tokens: int,
        *,
        logprob: bool = False,
        priority: int = 0,
    ) -> bool:
        """A turn of a session, whose input is the session's checkpoint and `new_tokens`; False if the session refuses it."""
        session = self.state.controller.get(session_id)
        req = self._new_request(rid, new_tokens, max_new_tokens, priority)
        req.logprob_start_len = 0 if logprob else None
        admitted = self.state.controller.create_req(session, req)
        self.state.reporter.create(session, req, admitted=admitted)
        if admitted:
            self._limit_output(req)
            self.state.waiting.append(req)
        else:
            self.state.outcomes[rid] = Outcome(False, (), f"session {session_id} is busy")
        return admitted

    def submit(self, rid: str, token_ids: list[int], max_new_tokens: int, *, priority: int = 0) -> None:
        """An ordinary request."""
        req = self._new_request(rid, token_ids, max_new_tokens, priority)
        if len(token_ids) > self.config.max_input_len:
            req.abort_before_running(TOO_LONG)
        self._limit_output(req)
        self.state.reporter.arrive(req)
        self.state.waiting.append(req)

    def abort(self, rid: str, reason: str = "aborted") -> None:
        """End a request without success, wherever it is. One that already ended, or never came, is no matter.

        If its result lies ready, between the two halves of a step, the request ends with that.
        """
        for req in self.known_requests():
            if req.rid != rid:
                continue
            if req.is_live and req.results_due and self._has_results_to_take:
                req.to_finish = req.to_finish or reason
            else:
                self.exits.abort(req, reason)
            return

    def close_session(self, session_id: str) -> None:
        session = self.state.controller.get(session_id)
        row = self.state.slot_row(session)
        self.state.controller.close(session)
        self.state.reporter.close(session, row)

    def retract(self, rid: str) -> None:
        """Force a running request back to the queue, as pool pressure would.

        Results that lie ready are taken before; and who has no token to show yet, is given the time.
        """
        for req in [req for req in self.state.running if req.rid == rid]:
            if self._has_results_to_take:
                self.take_results()
            if req.is_live and not req.output_ids:
                self._launched_now = False
                self.take_results()
            if req.is_live:
                self.decoding.retract(req)

    def session(self, session_id: str) -> Session:
        return self.state.controller.get(session_id)

    def running_requests(self) -> list[Request]:
        return self.state.running

    def known_requests(self) -> list[Request]:
        """All that are not over."""
        return [*self.state.waiting, *self.state.live_requests()]

    @property
    def outcomes(self) -> dict[str, Outcome]:
        return self.state.outcomes

    @property
    def is_idle(self) -> bool:
        return self.state.is_idle

    # -- one step --

    def step(self) -> None:
        self.launch_step()
        self.take_results()
        terms = self.check() if self.config.check_every_step else None
        if self.config.census_every_step:
            self.census.take(terms)

    def settle_census(self) -> None:
        """At the end of a run: the verdict of its last step is waited for."""
        self.census.settle()

    def settle(self) -> None:
        """At the end of a run, also of one that broke off: no event stays on its way from a device."""
        if self.state.device is not None:
            self.state.device.settle()

    def launch_step(self) -> None:
        """The first half: prepare the next forward, and start it."""
        self.begin_step()
        self.prefilling.keep_chunk()
        evict_live_windows(self.state)
        batch = self._next_batch()
        if batch:
            self._launch(batch)
        self._has_results_to_take = bool(self.state.launched)

    def take_results(self) -> None:
        """The second half. With overlap the forward that was just launched stays in flight until the next step."""
        launched = self.state.launched
        stays = 1 if self.config.overlap and self._launched_now else 0
        while len(launched) > stays:
            self.results.process(launched.popleft())
        self._has_results_to_take = False

    def begin_step(self) -> None:
        if self.state.device is not None:
            self.state.device.catch_up()
        self.state.reporter.step += 1
        self.state.ended_in_step = []
        self._launched_now = False

    def check(self) -> MemoryTerms:
        """Report the terms of the memory check."""
        state = self.state
        terms = state.all_memory_terms()
        is_cheap = self.config.pool_pages <= FREE_LIST_LIMIT
        state.reporter.check(
            busy=not state.is_idle,
            terms=terms.full,
            free_list=state.free_list() if is_cheap else None,
            window_terms=terms.window,
            window_free_list=state.window_free_list() if is_cheap else None,
        )
        return terms

    def _next_batch(self) -> Batch:
        """Prefill goes first; a mixed step carries the decode of those that run already; else all of them decode."""
        state = self.state
        chunks = self.prefilling.batch()
        if chunks:
            riders = self.decoding.prepare(list(state.running)) if self.config.mixed_chunk else Batch()
            state.running += [chunk.req for chunk in chunks if chunk.is_last]
            return Batch(chunks, riders.decodes, riders.draft_pages)
        if state.running:
            return self.decoding.batch()
        if not state.launched and not state.is_idle:
            self._abort_what_cannot_fit()
        return Batch()

    def _launch(self, batch: Batch) -> None:
        for chunk in batch.chunks:
            chunk.req.results_due += 1
            if not chunk.is_last:
                self.prefilling.count_chunk(chunk.req)
        for req in batch.decodes:
            req.results_due += 1
        if self.state.device is not None:
            self.state.device.catch_up()
        launch = self.runner.launch(
            [chunk.forward_input() for chunk in batch.chunks],
            [req.req_pool_idx or 0 for req in batch.decodes],
            self._drafts,
        )
        self.state.launched.append(Launched(launch, batch.chunks, batch.decodes, batch.draft_pages))
        self._launched_now = True

    def _abort_what_cannot_fit(self) -> None:
        """Nothing runs, so nothing will ever free what the next request waits for: slots hold it until they are closed."""
        self.exits.abort(self.state.chunked_req or self.state.waiting[0], DOES_NOT_FIT)

    # -- requests --

    def _limit_output(self, req: Request) -> None:
        """The row must hold the input, every output token, and what a round overshoots."""
        room = self.config.max_total_len - self.config.overshoot - len(req.origin_input_ids)
        req.max_new_tokens = min(req.max_new_tokens, room)

    def _new_request(self, rid: str, token_ids: list[int], max_new_tokens: int, priority: int) -> Request:
        if not token_ids or max_new_tokens < 1:
            raise ValueError(f"request {rid}: needs at least one input token and one output token")
        return Request(rid, list(token_ids), max_new_tokens, priority=priority)

    def _build_runner(self) -> Runner:
        if self.config.forward == "none":
            return HashRunner(self.config.seed, self.config.draft_accuracy)
        from kvproof.impl.transformer_runner import TransformerRunner

        state = self.state
        if state.device is not None:
            pools = state.device.pools
            return TransformerRunner(self.config, pools, pools.full_to_window, state.device.stream)
        window_map = state.window_pool.full_to_window if state.window_pool is not None else None
        return TransformerRunner(self.config, state.rows, window_map)
