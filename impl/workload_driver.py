"""Drives the scheduler, or the schedulers of several ranks, with a production workload: who asks for how much, in which order.

A conversation's turns are sent one after the other, each when the one before has ended, and its session is closed after
the last. As many conversations go on side by side as there are rows; the next one starts when one is through. Arrival
times give the order only: what is recorded is what happens to pages, not when.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kvproof.impl.config import EngineConfig
from kvproof.impl.observe import Observer
from kvproof.impl.runner import VOCAB_SIZE
from kvproof.impl.simulated_users import Front, front_of, to_its_end


class WorkloadRequest(Protocol):
    """One request as a server sees it arrive; lengths in tokens."""

    @property
    def arrival_ms(self) -> float: ...
    @property
    def session(self) -> str | None: ...
    @property
    def new_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def prefix_group(self) -> str | None: ...


class Progress(Protocol):
    def __call__(self, done: int, total: int) -> None: ...


@dataclass
class Conversation:
    """Requests that follow one another; without a session it is one ordinary request."""

    session: str | None
    turns: deque[tuple[str, WorkloadRequest]]


def run_workload(
    requests: Iterable[WorkloadRequest],
    config: EngineConfig,
    observers: Sequence[Observer],
    progress: Progress | None = None,
) -> Front:
    """Drive the requests to their end, on a rank for each observer.

    `progress` gets the number of requests that ended, and of all.
    """
    scheduler, side_by_side = front_of(config, observers), len(observers) * config.max_batch
    conversations = _conversations(requests)
    total = sum(len(conversation.turns) for conversation in conversations)
    waiting = deque(conversations)
    active: dict[str, Conversation] = {}
    """The conversations whose turn is under way, by its request id."""

    with to_its_end(scheduler):
        while waiting or active:
            while waiting and len(active) < side_by_side:
                _start(waiting.popleft(), scheduler, active)
            scheduler.step()
            outcomes = scheduler.outcomes
            for rid in [rid for rid in active if rid in outcomes]:
                _go_on(active.pop(rid), scheduler, active)
            if progress is not None:
                progress(len(outcomes), total)
        scheduler.check()
    return scheduler


def _conversations(requests: Iterable[WorkloadRequest]) -> list[Conversation]:
    """In the order in which their first requests arrive."""
    by_session: dict[str, Conversation] = {}
    conversations: list[Conversation] = []
    for number, request in enumerate(sorted(requests, key=lambda request: request.arrival_ms)):
        found = by_session.get(request.session) if request.session is not None else None
        if found is None:
            found = Conversation(request.session, deque())
            conversations.append(found)
            if request.session is not None:
                by_session[request.session] = found
        found.turns.append((f"r{number}", request))
    return conversations


def _start(conversation: Conversation, scheduler: Front, active: dict[str, Conversation]) -> None:
    if conversation.session is not None:
        scheduler.open_session(conversation.session)
    _go_on(conversation, scheduler, active)


def _go_on(conversation: Conversation, scheduler: Front, active: dict[str, Conversation]) -> None:
    """Send the next turn, or close the session after the last one."""
    if not conversation.turns:
        if conversation.session is not None:
            scheduler.close_session(conversation.session)
        return
    rid, request = conversation.turns.popleft()
    tokens = list(_tokens(rid, request, scheduler.config.seed))
    if conversation.session is None:
        scheduler.submit(rid, tokens, request.output_tokens)
    else:
        scheduler.submit_turn(conversation.session, rid, tokens, request.output_tokens)
    active[rid] = conversation


def _tokens(rid: str, request: WorkloadRequest, seed: int) -> Iterator[int]:
    """The workload has no contents, so they are made up: half of the tokens as everyone's in the prefix group begins.

    How much a group really shares is not recorded; half is enough for the tree to share, split and evict.
    """
    shared = request.new_tokens // 2 if request.prefix_group is not None else 0
    yield from _made_up(f"{seed}/group/{request.prefix_group}", shared)
    yield from _made_up(f"{seed}/request/{rid}", request.new_tokens - shared)


def _made_up(seed: str, count: int) -> list[int]:
    return random.Random(seed).choices(range(1, VOCAB_SIZE), k=count)
