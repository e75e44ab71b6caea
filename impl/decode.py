"""Decode: the next round of every running request is prepared, and room is made for it.

A round of plain decoding is one token: C += 1 and A += 1 at prepare. Speculation v1 takes draft pages and commits nothing
before the round is verified. Speculation v2 claims the bonus token at prepare (C += 1) and reserves for the round in flight
and this one; what was accepted is added when the result is there (results.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from kvproof.impl.page_moves import Moved
from kvproof.impl.request import Request
from kvproof.impl.request_exit import RequestExit
from kvproof.impl.state import Batch, EngineState

OUT_OF_MEMORY = "out of memory, and no other request is left to retract"


class Decode:
    def __init__(self, state: EngineState, exits: RequestExit) -> None:
        config = state.config
        self.state = state
        self.exits = exits
        self.round_len = {0: 1, 1: config.drafts + 1, 2: 2 * (config.drafts + 1)}[config.speculation]
        """Positions behind C that must be backed when a round is launched."""
        self.round_pages = -(-self.round_len // config.page_size)
        """The most pages that the next round of one request can take."""
        self._steps = 0

    def batch(self) -> Batch:
        """The next round of all running requests that fit; empty if results in flight have to be awaited first."""
        if not self.make_room():
            return Batch()
        self.retract_at_interval()
        return self.prepare(list(self.state.running))

    def prepare(self, requests: list[Request]) -> Batch:
        """Back the positions that the round of each request writes."""
        if self.state.config.speculation == 1:
            return Batch(decodes=requests, draft_pages=[self._take_draft_pages(req) for req in requests])
        for req in requests:
            self.prepare_round(req)
        return Batch(decodes=requests)

    def prepare_round(self, req: Request) -> None:
        self._back(req)
        self.claim(req)
        self.state.reporter.decode(req)

    def claim(self, req: Request) -> None:
        """The token that every round adds is committed when the round is prepared (#22651)."""
        req.kv_committed_len += 1

    def retract(self, req: Request) -> None:
        """Send a running request back to the queue."""
        config = self.state.config
        if config.retract_after_prepare and not config.overlap and not config.speculation and self._fits([req]):
            self.prepare_round(req)
        self.exits.retract(req)

    def make_room(self) -> bool:
        """Send requests back to the queue until the round of each other one fits.

        The last one is given up only when nothing is in flight any more: its result may end it or others. A request between
        two chunks goes first, as it has the least to lose.
        """
        state = self.state
        while not self._fits(state.running):
            victims = self.victims()
            if victims and len(state.live_requests()) > 1:
                self.retract(_least(victims))
            elif state.launched:
                return False
            else:
                self.exits.abort(state.chunked_req or state.running[0], OUT_OF_MEMORY)
        return bool(state.running)

    def victims(self) -> list[Request]:
        """Who may be retracted: whoever has a token to show for its prefill. So no prefill is in vain, and retracts end."""
        return [req for req in self.state.running if req.output_ids]

    def retract_at_interval(self) -> None:
        """The test switch: one request goes back to the queue although all fit.

        Only now and then, and only while others go on: each request decodes between two retracts (sglang-jax #994).
        """
        self._steps += 1
        interval, victims = self.state.config.retract_interval, self.victims()
        if interval is not None and self._steps % interval == 0 and victims and len(self.state.running) > 1:
            self.retract(_least(victims))

    def _fits(self, requests: Sequence[Request]) -> bool:
        state = self.state
        if len(requests) * self.round_pages <= state.allocator.takeable_pages:
            return True
        return sum(map(self._pages_to_prepare, requests)) <= state.obtainable_pages()

    def _pages_to_prepare(self, req: Request) -> int:
        return self.state.allocator.pages_for(req.kv_allocated_len, self._backed_len(req))

    def _backed_len(self, req: Request) -> int:
        return max(req.kv_allocated_len, req.kv_committed_len + self.round_len)

    def _take_draft_pages(self, req: Request) -> Moved:
        self._back(req)
        return self.state.reporter.take_draft_pages()

    def _back(self, req: Request) -> None:
        """Take the pages that the round needs, and write them into the row."""
        start, end = req.kv_allocated_len, self._backed_len(req)
        if start == end:
            return
        assert req.req_pool_idx is not None  # only requests that run are prepared
        self.state.back(req.req_pool_idx, start, end, is_decode=True)
        req.kv_allocated_len = end


def _least(victims: list[Request]) -> Request:
    """The least priority first; then the least output is lost, and then the longest input gives back the most."""
    return min(victims, key=lambda req: (req.priority, len(req.output_ids), -len(req.origin_input_ids)))
