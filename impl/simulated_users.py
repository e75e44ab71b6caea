"""Users of a scheduler, step by step and from one seed: what scenarios and workloads drive it with."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kvproof.impl.config import EngineConfig
from kvproof.impl.observe import Observer
from kvproof.impl.ranks import Ranks
from kvproof.impl.runner import VOCAB_SIZE
from kvproof.impl.scheduler import Scheduler
from kvproof.impl.state import Outcome

MOST_STEPS = 20_000
"""No scenario needs nearly as many: a run that does has lost the way to its end."""

PATIENCE = 200
"""Steps without a new token or the end of a request after which a run is going round in circles."""


class Stuck(RuntimeError):
    """The requests of a scenario do not come to an end."""


Front = Scheduler | Ranks
"""Whom users talk to."""
AfterStep = Callable[[Any], None]


def front_of(config: EngineConfig, observers: Sequence[Observer]) -> Front:
    """A scheduler, or a rank for each observer."""
    if len(observers) == 1:
        return Scheduler(config, observers[0])
    return Ranks(config, len(observers), observers)


class SimulatedUsers:
    """The words that scenarios are written in. Token counts are given in pages and tokens, to mean the same at any size."""

    def __init__(self, scheduler: Front, random_: random.Random, after_step: AfterStep | None = None) -> None:
        self.scheduler = scheduler
        self.random = random_
        self.page_size = scheduler.config.page_size
        self._after_step = after_step
        self._steps = 0
        self._best = (0, 0)
        self._best_at = 0
        self._named = 0

    def length(self, pages: int, tokens: int = 0) -> int:
        return pages * self.page_size + tokens

    def tokens(self, count: int) -> list[int]:
        return [self.random.randrange(1, VOCAB_SIZE) for _ in range(count)]

    def open(self, *session_ids: str) -> None:
        for session_id in session_ids:
            self.scheduler.open_session(session_id)

    def send_turn(self, session_id: str, new: int | list[int], output: int, *, logprob: bool = False) -> str:
        """Send a turn and return its request id; whether the session takes it, is the session's matter."""
        rid = self._name(session_id)
        tokens = self.tokens(new) if isinstance(new, int) else new
        self.scheduler.submit_turn(session_id, rid, tokens, output, logprob=logprob)
        return rid

    def run_turn(self, session_id: str, new: int | list[int], output: int, *, logprob: bool = False) -> Outcome:
        rid = self.send_turn(session_id, new, output, logprob=logprob)
        self.drain()
        return self.scheduler.outcomes[rid]

    def send(self, new: int | list[int], output: int) -> str:
        """Send an ordinary request."""
        rid = self._name("plain")
        self.scheduler.submit(rid, self.tokens(new) if isinstance(new, int) else new, output)
        return rid

    def abort(self, rid: str) -> None:
        self.scheduler.abort(rid)

    def retract(self, rid: str) -> None:
        self.scheduler.retract(rid)

    def close(self, *session_ids: str) -> None:
        for session_id in session_ids:
            self.scheduler.close_session(session_id)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.scheduler.step()
            self._require_progress()
            if self._after_step is not None:
                self._after_step(self.scheduler)

    def step_until_output(self, rid: str, tokens: int) -> None:
        """Step until the request has this many output tokens, or is over."""
        while rid not in self.scheduler.outcomes and self._output_len(rid) < tokens:
            self.step()

    def drain(self) -> None:
        while not self.scheduler.is_idle:
            self.step()

    def _output_len(self, rid: str) -> int:
        return next((len(req.output_ids) for req in self.scheduler.running_requests() if req.rid == rid), 0)

    def _require_progress(self) -> None:
        self._steps += 1
        known = self.scheduler.known_requests()
        progress = len(self.scheduler.outcomes), sum(len(req.output_ids) + req.kv_committed_len for req in known)
        if progress > self._best:
            self._best, self._best_at = progress, self._steps
        if self._steps > MOST_STEPS:
            raise Stuck(f"not at the end after {MOST_STEPS} steps")
        if not self.scheduler.is_idle and self._steps - self._best_at > PATIENCE:
            raise Stuck(f"no progress in {PATIENCE} steps: {', '.join(req.rid for req in known)} go round in circles")

    def _name(self, prefix: str) -> str:
        self._named += 1
        return f"{prefix}-{self._named}"


@contextmanager
def to_its_end(scheduler: Front) -> Iterator[None]:
    """What is still on its way from a device when a run ends comes: the last verdict, and every event, also if it broke off."""
    try:
        yield
        scheduler.settle_census()
    finally:
        scheduler.settle()
