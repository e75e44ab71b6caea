"""A pool or a row table that is too small: retracts, evictions, requests that must wait."""

from __future__ import annotations

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.scenarios.scenario import ScenarioTable, Session, close_all

SCENARIOS = ScenarioTable()


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


@SCENARIOS.add("retract-twice", "the same turn is retracted twice; then the session goes on")
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
