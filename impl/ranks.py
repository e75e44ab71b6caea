"""Data-parallel ranks: independent schedulers behind one front.

Each rank has pools, a tree, a runner and an observer of its own; no page or row is ever another rank's. A session stays on
the rank that it was opened on, where its slot is; an ordinary request goes to the rank with the least to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvproof.impl.config import ConfigError, EngineConfig
from kvproof.impl.observe import Observer
from kvproof.impl.request import Request, Session
from kvproof.impl.scheduler import Scheduler
from kvproof.impl.session import UnknownSession
from kvproof.impl.state import Outcome


class Ranks:
    def __init__(self, config: EngineConfig, ranks: int, observers: Sequence[Observer | None] | None = None) -> None:
        if ranks < 1:
            raise ConfigError(f"ranks {ranks}: must be 1 or more")
        if observers is not None and len(observers) != ranks:
            raise ConfigError(f"{len(observers)} observers for {ranks} ranks: each rank has its own")
        self.config = config
        """Of each rank."""
        self.schedulers = [Scheduler(config, observer) for observer in observers or [None] * ranks]
        self._rank_of_session: dict[str, int] = {}
        self._rank_of_request: dict[str, int] = {}

    # -- what users ask for --

    def open_session(self, session_id: str) -> int:
        """Open a session on the rank with the fewest sessions; return the rank."""
        if session_id in self._rank_of_session and self._has_session(session_id):
            raise ValueError(f"session {session_id!r} is already open")
        rank = min(range(len(self.schedulers)), key=lambda rank: (self._sessions(rank), self.load(rank)))
        self.schedulers[rank].open_session(session_id)
        self._rank_of_session[session_id] = rank
        return rank

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
        """A turn, on the rank of its session; False if the session refuses it."""
        rank = self._rank_of(session_id)
        admitted = self.schedulers[rank].submit_turn(
            session_id, rid, new_tokens, max_new_tokens, logprob=logprob, priority=priority
        )
        self._rank_of_request[rid] = rank
        return admitted

    def submit(self, rid: str, token_ids: list[int], max_new_tokens: int, *, priority: int = 0) -> int:
        """An ordinary request, on the rank with the least to do; return the rank."""
        rank = min(range(len(self.schedulers)), key=self.load)
        self.schedulers[rank].submit(rid, token_ids, max_new_tokens, priority=priority)
        self._rank_of_request[rid] = rank
        return rank

    def abort(self, rid: str, reason: str = "aborted") -> None:
        """End a request without success, wherever it is. One that already ended, or never came, is no matter."""
        if rid in self._rank_of_request:
            self.schedulers[self._rank_of_request[rid]].abort(rid, reason)

    def retract(self, rid: str) -> None:
        """Force a running request back to the queue of its rank."""
        if rid in self._rank_of_request:
            self.schedulers[self._rank_of_request[rid]].retract(rid)

    def close_session(self, session_id: str) -> None:
        self.schedulers[self._rank_of(session_id)].close_session(session_id)

    def step(self) -> None:
        """One step of every rank that has something to do; they do not wait for each other's requests."""
        for scheduler in self.schedulers:
            if not scheduler.is_idle:
                scheduler.step()

    def check(self) -> None:
        for scheduler in self.schedulers:
            scheduler.check()

    def settle_census(self) -> None:
        for scheduler in self.schedulers:
            scheduler.settle_census()

    def settle(self) -> None:
        for scheduler in self.schedulers:
            scheduler.settle()

    # -- what there is to know --

    def session(self, session_id: str) -> Session:
        return self.schedulers[self._rank_of(session_id)].session(session_id)

    def running_requests(self) -> list[Request]:
        return [req for scheduler in self.schedulers for req in scheduler.running_requests()]

    def known_requests(self) -> list[Request]:
        return [req for scheduler in self.schedulers for req in scheduler.known_requests()]

    @property
    def is_idle(self) -> bool:
        return all(scheduler.is_idle for scheduler in self.schedulers)

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        return {rid: outcome for scheduler in self.schedulers for rid, outcome in scheduler.outcomes.items()}

    def load(self, rank: int) -> int:
        """Tokens that the rank has still to compute, if every request takes all the output that it asked for."""
        return sum(
            len(req.origin_input_ids) + req.max_new_tokens - req.kv_committed_len
            for req in self.schedulers[rank].known_requests()
        )

    def _rank_of(self, session_id: str) -> int:
        if session_id not in self._rank_of_session:
            raise UnknownSession(session_id)
        return self._rank_of_session[session_id]

    def _sessions(self, rank: int) -> int:
        return len(self.schedulers[rank].state.controller.sessions)

    def _has_session(self, session_id: str) -> bool:
        scheduler = self.schedulers[self._rank_of_session[session_id]]
        return session_id in scheduler.state.controller.sessions
