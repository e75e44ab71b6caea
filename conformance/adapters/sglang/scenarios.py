"""Schedules that bring the real scheduler into every corner of a session's life.

A scenario drives a `Headless` as clients would and says nothing about what should come out. Names are shared with the
reference implementation where the meaning is the same. Lengths are tokens; they are chosen small and odd, so that pages end
inside turns.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .headless import Checks, Headless


@dataclass(frozen=True)
class Scenario:
    summary: str
    run: Callable[[Headless], None]
    checks: Checks = "idle"
    """Memory checks are read when idle only, so that a known false alarm of the busy check hides nothing else."""
    chunk: int | None = None
    """tokens of one prefill chunk, at least; it is rounded up to whole pages"""
    pool_pages: int | None = None
    rows: int | None = None
    mixed_chunk: bool = False
    overlap: bool = False
    window: int = 0
    disable_radix_cache: bool = False


SCENARIOS: dict[str, Scenario] = {}


def _scenario(
    name: str, summary: str, **needs: Any
) -> Callable[[Callable[[Headless], None]], Callable[[Headless], None]]:
    def enter(run: Callable[[Headless], None]) -> Callable[[Headless], None]:
        SCENARIOS[name] = Scenario(summary, run, **needs)
        return run

    return enter


def turn(session: str, number: int) -> str:
    """A request id that is no prefix of another one: SGLang aborts by prefix."""
    return f"{session}/{number:02}"


def whole_turn(h: Headless, session: str, number: int, new_tokens: int = 7, output: int = 5) -> None:
    h.send(turn(session, number), new_tokens, output, session=session)
    h.drain()


def start_turn(h: Headless, session: str, number: int, new_tokens: int = 7, output: int = 12, steps: int = 4) -> None:
    """Send a turn and stop in the middle of its decode."""
    h.send(turn(session, number), new_tokens, output, session=session)
    h.run(steps)


def close_all(h: Headless, *sessions: str) -> None:
    for session in sessions:
        h.close(session)
    h.drain()


# -- no trouble --


@_scenario("basic", "one session, four turns, closed when idle")
def basic(h: Headless) -> None:
    h.open("s1")
    for number, (new_tokens, output) in enumerate([(21, 6), (7, 5), (1, 1), (13, 9)], start=1):
        whole_turn(h, "s1", number, new_tokens, output)
    close_all(h, "s1")


@_scenario("many-sessions", "four sessions and ordinary requests with a common prefix, interleaved")
def many_sessions(h: Headless) -> None:
    sessions, prefix = ["s1", "s2", "s3", "s4"], h.tokens(17)
    for session in sessions:
        h.open(session)
    for number in range(1, 5):
        for place, session in enumerate(sessions):
            if number == 1:
                h.send_tokens(turn(session, 1), prefix + h.tokens(place + 2), 4 + place, session=session)
            else:
                h.send(turn(session, number), 3 + place, 4 + place, session=session)
            h.run(1)
        h.send_tokens(f"plain/{number}", prefix + h.tokens(number * 3), 5)
        h.drain()
    close_all(h, *sessions)


@_scenario("chunked", "prompts longer than a chunk, in first and later turns, beside ordinary requests", chunk=16)
def chunked(h: Headless) -> None:
    h.open("s1")
    h.open("s2")
    for number in (1, 2, 3):
        h.send(turn("s1", number), 37, 4, session="s1")
        h.send(turn("s2", number), 21, 6, session="s2")
        h.send(f"plain/{number}", 45, 3)
        h.drain()
    close_all(h, "s1", "s2")


@_scenario("mixed-chunk", "chunks share their batch with running decodes", chunk=16, mixed_chunk=True)
def mixed_chunk(h: Headless) -> None:
    h.open("s1")
    h.open("s2")
    for number in (1, 2, 3):
        h.send(turn("s1", number), 9, 14, session="s1")
        h.run(2)
        h.send(turn("s2", number), 41, 6, session="s2")
        h.send(f"plain/{number}", 33, 3)
        h.drain()
    close_all(h, "s1", "s2")


@_scenario("logprob", "turns that ask for input logprobs from position 0")
def logprob(h: Headless) -> None:
    h.open("s1")
    for number in (1, 2, 3):
        h.send(turn("s1", number), 9, 4, session="s1", logprob=True)
        h.drain()
    close_all(h, "s1")


@_scenario("busy-check", "the memory is checked after every step, not only when idle", checks="every", chunk=16)
def busy_check(h: Headless) -> None:
    h.open("s1")
    h.open("s2")
    for number in (1, 2, 3):
        h.send(turn("s1", number), 23, 5, session="s1")
        h.run(2)
        h.send(turn("s2", number), 9, 7, session="s2")
        h.send(f"plain/{number}", 11, 3)
        h.drain()
    close_all(h, "s1", "s2")


# -- pool pressure --


@_scenario("retract", "in each of five turns one forced retract, one decode step later from turn to turn")
def retract(h: Headless) -> None:
    # The last running request is never retracted, so there are two; of equal ones the longest goes: always s1. Its turns
    # add 20 tokens each and are retracted one step later each: the lengths pass through every remainder modulo 4.
    h.open("s1")
    h.open("s2")
    for number in range(1, 6):
        h.send(turn("s1", number), 9 if number == 1 else 8, 12, session="s1")
        h.send(turn("s2", number), 7, 12, session="s2")
        h.run(1 + number)
        with h.force_retract():
            h.step()
        h.drain()
    close_all(h, "s1", "s2")


@_scenario("retract-twice", "the same turn is retracted twice; then the session goes on")
def retract_twice(h: Headless) -> None:
    h.open("s1")
    whole_turn(h, "s1", 1, 9)
    h.send("plain/1", 3, 40)
    h.send(turn("s1", 2), 30, 12, session="s1")
    for _ in range(2):
        h.run(3)
        with h.force_retract():
            h.step()
    h.drain()
    whole_turn(h, "s1", 3)
    close_all(h, "s1")


@_scenario("pressure", "running requests outgrow the pool: the scheduler evicts and retracts by itself", pool_pages=100)
def pressure(h: Headless) -> None:
    page = h.settings.page_size
    sessions = ["s1", "s2"]
    for session in sessions:
        h.open(session)
    # One after the other: for those that run already the scheduler reserves only a part of what they may still need.
    for number in (1, 2):
        for place in range(4):
            if place < len(sessions):
                h.send(turn(sessions[place], number), 4 + page, 6 * page, session=sessions[place])
            h.send(f"plain/{number}{place}", 4 + page, 24 * page)
            h.run(2)
        h.drain()
    close_all(h, *sessions)


@_scenario("given-up", "two turns outgrow the pool, and the retract of a session's turn frees nothing", pool_pages=38)
def given_up(h: Headless) -> None:
    page = h.settings.page_size
    for session in ("s1", "s2"):
        h.open(session)
        h.send(turn(session, 1), page, 20 * page, session=session)
        h.run(2)
    h.run(22 * page)
    close_all(h, "s1")  # with its pages free again, what still waits could run
    close_all(h, "s2")


@_scenario("full-of-sessions", "idle sessions hold the pool when a request comes; then they are closed", pool_pages=40)
def full_of_sessions(h: Headless) -> None:
    page = h.settings.page_size
    for session in ("s1", "s2"):
        h.open(session)
        whole_turn(h, session, 1, 14 * page, 2)
    h.send("plain/1", 14 * page, 2)
    h.run(3)
    close_all(h, "s1", "s2")


@_scenario("full-of-rows", "as many idle sessions as there are rows, when a request comes")
def full_of_rows(h: Headless) -> None:
    sessions = [f"s{number}" for number in range(1, h.rows.size + 1)]
    for session in sessions:
        h.open(session)
        whole_turn(h, session, 1)
    h.send("plain/1", 5, 3)
    h.run(3)  # it may wait until a session is closed
    close_all(h, *sessions)


@_scenario(
    "ignore-eos", "on a chunk cache: a session whose turns ignore the end token", disable_radix_cache=True, chunk=16
)
def ignore_eos(h: Headless) -> None:
    h.open("s1")
    for number in (1, 2):
        h.send(turn("s1", number), 37, 4, session="s1", ignore_eos=True)
        h.drain()
    close_all(h, "s1")


# -- the matrix: the same behaviours on every kind of cache, pool and scheduler --


def _every_behaviour(h: Headless) -> None:
    """Sessions with chunked prompts beside ordinary requests; a retract, a too-long turn, aborts in a first and a later turn."""
    for session in ("s1", "s2", "s3"):
        h.open(session)
    for number in (1, 2):
        h.send(turn("s1", number), 37, 6, session="s1")
        h.send(turn("s2", number), 13, 9, session="s2", logprob=True)
        h.send(f"plain/{number}", 29, 5)
        h.drain()
    h.send(turn("s1", 3), 8, 12, session="s1")
    h.send(turn("s2", 3), 7, 12, session="s2")
    h.run(3)
    with h.force_retract():
        h.step()
    h.drain()
    h.send(turn("s1", 4), h.settings.context_length + 10, 3, session="s1")
    h.drain()
    start_turn(h, "s3", 1, 21)
    h.abort(turn("s3", 1))
    h.drain()
    whole_turn(h, "s3", 2, 11)
    start_turn(h, "s3", 3)
    h.abort(turn("s3", 3))
    h.drain()
    whole_turn(h, "s3", 4)
    start_turn(h, "s2", 4)
    h.close("s2")
    h.drain()
    close_all(h, "s1", "s3")


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
}
for _name, _needs in _MATRIX.items():
    _scenario(f"matrix-{_name}", f"every behaviour of a session, one after the other: {_name}", chunk=16, **_needs)(
        _every_behaviour
    )


# -- turns that end badly --


@_scenario("too-long", "the second turn exceeds the context length and is refused; the third is good")
def too_long(h: Headless) -> None:
    h.open("s1")
    whole_turn(h, "s1", 1, 13)
    whole_turn(h, "s1", 2, h.settings.context_length + 10)
    whole_turn(h, "s1", 3)
    close_all(h, "s1")


@_scenario("too-long-first", "the first turn of a session exceeds the context length; the second is good")
def too_long_first(h: Headless) -> None:
    h.open("s1")
    whole_turn(h, "s1", 1, h.settings.context_length + 10)
    whole_turn(h, "s1", 2, 13)
    whole_turn(h, "s1", 3)
    close_all(h, "s1")


@_scenario("abort-first", "the first turn is aborted while it decodes; the next turn starts anew")
def abort_first(h: Headless) -> None:
    h.open("s1")
    start_turn(h, "s1", 1, 13)
    h.abort(turn("s1", 1))
    h.drain()
    whole_turn(h, "s1", 2)
    whole_turn(h, "s1", 3)
    close_all(h, "s1")


@_scenario("abort-nth", "the third turn is aborted while it decodes; the next one builds on the second")
def abort_nth(h: Headless) -> None:
    h.open("s1")
    whole_turn(h, "s1", 1, 13)
    whole_turn(h, "s1", 2)
    start_turn(h, "s1", 3)
    h.abort(turn("s1", 3))
    h.drain()
    whole_turn(h, "s1", 4)
    whole_turn(h, "s1", 5)
    close_all(h, "s1")


@_scenario("abort-chunked", "a first and a later turn are aborted between two chunks of their prompt", chunk=16)
def abort_chunked(h: Headless) -> None:
    h.open("s1")
    for number in (1, 3):
        start_turn(h, "s1", number, 61, 4, steps=2)
        h.abort(turn("s1", number))
        h.drain()
        whole_turn(h, "s1", number + 1)
    close_all(h, "s1")


@_scenario("abort-queued", "a turn is aborted before it ran; the session goes on and is closed")
def abort_queued(h: Headless) -> None:
    h.open("s1")
    whole_turn(h, "s1", 1, 13)
    h.send(turn("s1", 2), 7, 5, session="s1")
    h.abort(turn("s1", 2))
    h.drain()
    whole_turn(h, "s1", 3)
    whole_turn(h, "s1", 4)
    close_all(h, "s1")


@_scenario("abort-queued-close", "a turn is aborted before it ran, and the session is closed then")
def abort_queued_close(h: Headless) -> None:
    h.open("s1")
    whole_turn(h, "s1", 1, 13)
    h.send(turn("s1", 2), 7, 5, session="s1")
    h.abort(turn("s1", 2))
    h.drain()
    close_all(h, "s1")
    h.drain()


@_scenario("abort-retracted", "a turn is retracted, and aborted while it waits to run again; then a close")
def abort_retracted(h: Headless) -> None:
    h.open("s1")
    whole_turn(h, "s1", 1, 9)
    h.send("plain/1", 3, 40)
    h.send(turn("s1", 2), 30, 12, session="s1")
    h.run(4)
    with h.force_retract():
        h.step()
    h.abort(turn("s1", 2))
    h.drain()
    close_all(h, "s1")
    h.drain()


@_scenario("abort-then-retract", "a running turn is aborted and retracted in the same step; the session goes on")
def abort_then_retract(h: Headless) -> None:
    h.open("s1")
    whole_turn(h, "s1", 1, 9)
    h.send("plain/1", 3, 40)
    h.send(turn("s1", 2), 30, 12, session="s1")
    h.run(4)
    h.abort(turn("s1", 2))
    with h.force_retract():
        h.step()
    h.drain()
    whole_turn(h, "s1", 3)
    close_all(h, "s1")


# -- clients that do not wait --


@_scenario("busy", "a second turn while one runs, in the first and in a later turn")
def busy(h: Headless) -> None:
    h.open("s1")
    for number in (1, 3):
        start_turn(h, "s1", number)
        h.send(turn("s1", number + 1), 5, 4, session="s1")
        h.drain()
    whole_turn(h, "s1", 5)
    close_all(h, "s1")


@_scenario("busy-twice", "while a later turn runs two more come, one after the other")
def busy_twice(h: Headless) -> None:
    h.open("s1")
    whole_turn(h, "s1", 1, 13)
    start_turn(h, "s1", 2, output=20, steps=3)
    for number in (3, 4):
        h.send(turn("s1", number), 5, 4, session="s1")
        h.run(2)
    h.drain()
    whole_turn(h, "s1", 5)
    close_all(h, "s1")


@_scenario("busy-at-once", "two turns of a new session arrive together; the first one needs a single token")
def busy_at_once(h: Headless) -> None:
    h.open("s1")
    h.send(turn("s1", 1), 13, 1, session="s1")
    h.send(turn("s1", 2), 5, 4, session="s1")
    h.drain()
    whole_turn(h, "s1", 3)
    close_all(h, "s1")


@_scenario("close-running", "sessions are closed in the middle of a first and of a second turn")
def close_running(h: Headless) -> None:
    h.open("s1")
    h.open("s2")
    whole_turn(h, "s2", 1, 13)
    start_turn(h, "s1", 1, 11)
    h.close("s1")
    h.drain()
    start_turn(h, "s2", 2)
    h.close("s2")
    h.drain()
    h.drain()


@_scenario(
    "storm",
    "many sessions with chunked prompts; turns are aborted at random points and sessions closed",
    chunk=16,
    pool_pages=1024,
    rows=16,
)
def storm(h: Headless) -> None:
    """Each client waits for its own turn to end, as the protocol asks; aborts hit turns that have begun to run."""
    dice = random.Random(h.settings.seed + 1)
    sessions = [f"s{number}" for number in range(1, 5)]
    number = dict.fromkeys(sessions, 0)
    for session in sessions:
        h.open(session)
    for round_ in range(120):
        for session in sessions:
            current = turn(session, number[session])
            if h.request(current) is not None:
                if current in h.running() and dice.random() < 0.08:
                    h.abort(current)
            elif number[session] < 8 and dice.random() < 0.4:
                number[session] += 1
                h.send(turn(session, number[session]), dice.randrange(1, 30), dice.randrange(1, 9), session=session)
        if dice.random() < 0.1:
            h.send(f"plain/{round_:03}", dice.randrange(1, 40), dice.randrange(1, 6))
        h.step()
    h.drain()
    close_all(h, *sessions)
