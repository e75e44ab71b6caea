"""Schedules that bring the real scheduler into every corner of a session's life.

A scenario drives a `Headless` as clients would and says nothing about what should come out.
"""

from __future__ import annotations

import random
from typing import Any

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.scenario import ScenarioTable, Session, close_all

SCENARIOS = ScenarioTable()


# -- clients that behave, and a pool that is large enough --


@SCENARIOS.add("basic", "one session, four turns, closed when idle")
def basic(h: Headless, s1: Session) -> None:
    for new_tokens, output in ((21, 6), (7, 5), (1, 1), (13, 9)):
        s1.whole_turn(new_tokens, output)


@SCENARIOS.add("many-sessions", "four sessions and ordinary requests with a common prefix, interleaved", sessions=4)
def many_sessions(h: Headless, *sessions: Session) -> None:
    prefix = h.tokens(17)
    for number in range(1, 5):
        for place, session in enumerate(sessions):
            if number == 1:
                session.send_tokens(prefix + h.tokens(place + 2), 4 + place)
            else:
                session.send(3 + place, 4 + place)
            h.run(1)
        h.send_tokens(f"plain/{number}", prefix + h.tokens(number * 3), 5)
        h.drain()


@SCENARIOS.add(
    "chunked", "prompts longer than a chunk, in first and later turns, beside ordinary requests", sessions=2, chunk=16
)
def chunked(h: Headless, s1: Session, s2: Session) -> None:
    for number in (1, 2, 3):
        s1.send(37, 4)
        s2.send(21, 6)
        h.send(f"plain/{number}", 45, 3)
        h.drain()


@SCENARIOS.add("mixed-chunk", "chunks share their batch with running decodes", sessions=2, chunk=16, mixed_chunk=True)
def mixed_chunk(h: Headless, s1: Session, s2: Session) -> None:
    for number in (1, 2, 3):
        s1.start_turn(9, 14, steps=2)
        s2.send(41, 6)
        h.send(f"plain/{number}", 33, 3)
        h.drain()


@SCENARIOS.add("logprob", "turns that ask for input logprobs from position 0")
def logprob(h: Headless, s1: Session) -> None:
    for _ in range(3):
        s1.whole_turn(9, 4, logprob=True)


@SCENARIOS.add(
    "busy-check", "the memory is checked after every step, not only when idle", sessions=2, checks="every", chunk=16
)
def busy_check(h: Headless, s1: Session, s2: Session) -> None:
    for number in (1, 2, 3):
        s1.start_turn(23, 5, steps=2)
        s2.send(9, 7)
        h.send(f"plain/{number}", 11, 3)
        h.drain()


# -- a pool or a row table that is too small: retracts, evictions, requests that must wait --


@SCENARIOS.add(
    "retract", "in each of five turns one forced retract, one decode step later from turn to turn", sessions=2
)
def retract(h: Headless, s1: Session, s2: Session) -> None:
    # The last running request is never retracted, so there are two; of equal ones the longest goes: always s1. Its turns
    # add 20 tokens each and are retracted one step later each: the lengths pass through every remainder modulo 4.
    for number in range(1, 6):
        s1.send(9 if number == 1 else 8, 12)
        s2.start_turn(7, 12, steps=1 + number)
        h.retract()
        h.drain()


@SCENARIOS.add("retract-twice", "the same turn is retracted twice; then the session continues")
def retract_twice(h: Headless, s1: Session) -> None:
    s1.whole_turn(9)
    h.send("plain/1", 3, 40)
    s1.send(30, 12)
    for _ in range(2):
        h.run(3)
        h.retract()
    h.drain()
    s1.whole_turn()


@SCENARIOS.add(
    "pressure",
    "running requests outgrow the pool: the scheduler evicts and retracts by itself",
    sessions=2,
    pool_pages=100,
)
def pressure(h: Headless, *sessions: Session) -> None:
    page = h.settings.page_size
    # One after the other: for those that run already the scheduler reserves only a part of what they may still need.
    for number in (1, 2):
        for place in range(4):
            if place < len(sessions):
                sessions[place].send(4 + page, 6 * page)
            h.send(f"plain/{number}{place}", 4 + page, 24 * page)
            h.run(2)
        h.drain()


@SCENARIOS.add(
    "given-up",
    "two turns outgrow the pool, and the retract of a session's turn frees nothing",
    sessions=0,
    pool_pages=38,
)
def given_up(h: Headless) -> None:
    page, sessions = h.settings.page_size, list[Session]()
    for name in ("s1", "s2"):
        sessions.append(Session(h, name))
        sessions[-1].start_turn(page, 20 * page, steps=2)
    h.run(22 * page)
    for session in sessions:  # with the pages of the first free again, what still waits could run
        close_all(h, session)


@SCENARIOS.add(
    "full-of-sessions",
    "idle sessions hold the pool when a request comes; then they are closed",
    sessions=0,
    pool_pages=40,
)
def full_of_sessions(h: Headless) -> None:
    long = 14 * h.settings.page_size, 2
    _request_beside_idle_sessions(h, 2, long, long)


@SCENARIOS.add("full-of-rows", "as many idle sessions as there are rows, when a request comes", sessions=0)
def full_of_rows(h: Headless) -> None:
    _request_beside_idle_sessions(h, h.rows.size, (7, 5), (5, 3))


def _request_beside_idle_sessions(h: Headless, count: int, turn: tuple[int, int], request: tuple[int, int]) -> None:
    """`turn` and `request`: their new tokens, and those of their outputs."""
    sessions = []
    for number in range(1, count + 1):
        sessions.append(Session(h, f"s{number}"))
        sessions[-1].whole_turn(*turn)
    h.send("plain/1", *request)
    h.run(3)  # it may wait until a session is closed
    close_all(h, *sessions)


@SCENARIOS.add(
    "ignore-eos",
    "on a chunk cache: a session whose turns ignore the end token",
    disable_radix_cache=True,
    chunk=16,
)
def ignore_eos(h: Headless, s1: Session) -> None:
    for _ in range(2):
        s1.whole_turn(37, 4, ignore_eos=True)


# -- the same behaviours on every kind of cache, pool and scheduler --


def _every_behaviour(h: Headless, s1: Session, s2: Session, s3: Session) -> None:
    """Sessions with chunked prompts beside ordinary requests; a retract, a too-long turn, aborts in a first and a later turn."""
    for number in (1, 2):
        s1.send(37, 6)
        s2.send(13, 9, logprob=True)
        h.send(f"plain/{number}", 29, 5)
        h.drain()
    s1.send(8, 12)
    s2.start_turn(7, 12, steps=3)
    h.retract()
    h.drain()
    s1.whole_turn(h.settings.context_length + 10, 3)
    s3.start_turn(21)
    s3.abort()
    s3.whole_turn(11)
    s3.start_turn()
    s3.abort()
    s3.whole_turn()
    s2.start_turn()
    s2.close()
    h.drain()


_ROUNDS = {"overlap": True, "drafts": 2}
_ROUNDS_OF_VERSION_1 = {"drafts": 2}
_MATRIX: dict[str, dict[str, Any]] = {
    "full": {},
    "overlap": {"overlap": True},
    "window": {"window": 16},
    "window-overlap": {"window": 16, "overlap": True},
    "chunk-cache": {"disable_radix_cache": True},
    "chunk-cache-overlap": {"disable_radix_cache": True, "overlap": True},
    "chunk-cache-window": {"disable_radix_cache": True, "window": 16},
    "mixed-overlap": {"mixed_chunk": True, "overlap": True},
    "checked": {"checks": "every"},
    "speculation": _ROUNDS,
    "speculation-window": {**_ROUNDS, "window": 16},
    "speculation-chunk-cache": {**_ROUNDS, "disable_radix_cache": True},
    "speculation-v1": _ROUNDS_OF_VERSION_1,
    "speculation-v1-window": {**_ROUNDS_OF_VERSION_1, "window": 16},
    "speculation-v1-chunk-cache": {**_ROUNDS_OF_VERSION_1, "disable_radix_cache": True},
}
for _name, _needs in _MATRIX.items():
    SCENARIOS.add(
        f"matrix-{_name}",
        f"every behaviour of a session, one after the other: {_name}",
        sessions=3,
        chunk=16,
        **_needs,
    )(_every_behaviour)


# -- turns that end badly: refused, aborted in each part of their life, retracted as they are aborted --


@SCENARIOS.add("too-long", "the second turn exceeds the context length and is refused; the third is good")
def too_long(h: Headless, s1: Session) -> None:
    s1.whole_turn(13)
    s1.whole_turn(h.settings.context_length + 10)
    s1.whole_turn()


@SCENARIOS.add("too-long-first", "the first turn of a session exceeds the context length; the second is good")
def too_long_first(h: Headless, s1: Session) -> None:
    s1.whole_turn(h.settings.context_length + 10)
    s1.whole_turn(13)
    s1.whole_turn()


@SCENARIOS.add("abort-first", "the first turn is aborted while it decodes; the next turn starts anew")
def abort_first(h: Headless, s1: Session) -> None:
    s1.start_turn(13)
    s1.abort()
    s1.whole_turn()
    s1.whole_turn()


@SCENARIOS.add("abort-nth", "the third turn is aborted while it decodes; the next one builds on the second")
def abort_nth(h: Headless, s1: Session) -> None:
    s1.whole_turn(13)
    s1.whole_turn()
    s1.start_turn()
    s1.abort()
    s1.whole_turn()
    s1.whole_turn()


@SCENARIOS.add("abort-chunked", "a first and a later turn are aborted between two chunks of their prompt", chunk=16)
def abort_chunked(h: Headless, s1: Session) -> None:
    for _ in range(2):
        s1.start_turn(61, 4, steps=2)
        s1.abort()
        s1.whole_turn()


@SCENARIOS.add("abort-queued", "a turn is aborted before it ran; the session continues and is closed")
def abort_queued(h: Headless, s1: Session) -> None:
    s1.whole_turn(13)
    s1.send()
    s1.abort()
    s1.whole_turn()
    s1.whole_turn()


@SCENARIOS.add("abort-queued-close", "a turn is aborted before it ran, and the session is closed then")
def abort_queued_close(h: Headless, s1: Session) -> None:
    s1.whole_turn(13)
    s1.send()
    s1.abort()
    s1.close()
    h.drain()


@SCENARIOS.add("abort-retracted", "a turn is retracted, and aborted while it waits to run again; then a close")
def abort_retracted(h: Headless, s1: Session) -> None:
    _second_turn_beside_a_request(h, s1)
    h.retract()
    s1.abort()
    s1.close()
    h.drain()


@SCENARIOS.add("abort-then-retract", "a running turn is aborted and retracted in the same step; the session continues")
def abort_then_retract(h: Headless, s1: Session) -> None:
    _second_turn_beside_a_request(h, s1)
    s1.ask_to_abort()
    h.retract()
    h.drain()
    s1.whole_turn()


def _second_turn_beside_a_request(h: Headless, session: Session) -> None:
    """Of the two it is the turn that a retract chooses: it is the longer one."""
    session.whole_turn(9)
    h.send("plain/1", 3, 40)
    session.start_turn(30, 12)


# -- clients that do not wait: turns on a busy session, closes in the middle of one, a storm of aborts --


@SCENARIOS.add("busy", "a second turn while one runs, in the first and in a later turn")
def busy(h: Headless, s1: Session) -> None:
    for _ in range(2):
        s1.start_turn()
        s1.whole_turn(5, 4)
    s1.whole_turn()


@SCENARIOS.add("busy-twice", "while a later turn runs two more come, one after the other")
def busy_twice(h: Headless, s1: Session) -> None:
    s1.whole_turn(13)
    s1.start_turn(output=20, steps=3)
    for _ in range(2):
        s1.start_turn(5, 4, steps=2)
    h.drain()
    s1.whole_turn()


@SCENARIOS.add("busy-at-once", "two turns of a new session arrive together; the first one needs a single token")
def busy_at_once(h: Headless, s1: Session) -> None:
    s1.send(13, 1)
    s1.whole_turn(5, 4)
    s1.whole_turn()


@SCENARIOS.add("close-running", "sessions are closed in the middle of a first and of a second turn", sessions=2)
def close_running(h: Headless, s1: Session, s2: Session) -> None:
    s2.whole_turn(13)
    s1.start_turn(11)
    s1.close()
    h.drain()
    s2.start_turn()
    s2.close()
    h.drain()


@SCENARIOS.add(
    "storm",
    "many sessions with chunked prompts; turns are aborted at random points and sessions closed",
    sessions=4,
    chunk=16,
    pool_pages=1024,
    rows=16,
)
def storm(h: Headless, *sessions: Session) -> None:
    """Each client waits for its own turn to end, as the protocol asks; aborts hit turns that have begun to run."""
    dice = random.Random(h.settings.seed + 1)
    for round_ in range(120):
        for session in sessions:
            if h.request(session.turn) is not None:
                if session.turn in h.running() and dice.random() < 0.08:
                    session.ask_to_abort()
            elif session.turns < 8 and dice.random() < 0.4:
                session.send(dice.randrange(1, 30), dice.randrange(1, 9))
        if dice.random() < 0.1:
            h.send(f"plain/{round_:03}", dice.randrange(1, 40), dice.randrange(1, 6))
        h.step()
    h.drain()
