"""A pool or a row table that is too small: retracts, evictions, requests that must wait."""

from __future__ import annotations

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.scenarios.scenario import ScenarioTable, close_all, turn, whole_turn

SCENARIOS = ScenarioTable()


@SCENARIOS.add("retract", "in each of five turns one forced retract, one decode step later from turn to turn")
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


@SCENARIOS.add("retract-twice", "the same turn is retracted twice; then the session goes on")
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


@SCENARIOS.add(
    "pressure", "running requests outgrow the pool: the scheduler evicts and retracts by itself", pool_pages=100
)
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


@SCENARIOS.add(
    "given-up", "two turns outgrow the pool, and the retract of a session's turn frees nothing", pool_pages=38
)
def given_up(h: Headless) -> None:
    page = h.settings.page_size
    for session in ("s1", "s2"):
        h.open(session)
        h.send(turn(session, 1), page, 20 * page, session=session)
        h.run(2)
    h.run(22 * page)
    close_all(h, "s1")  # with its pages free again, what still waits could run
    close_all(h, "s2")


@SCENARIOS.add(
    "full-of-sessions", "idle sessions hold the pool when a request comes; then they are closed", pool_pages=40
)
def full_of_sessions(h: Headless) -> None:
    page = h.settings.page_size
    for session in ("s1", "s2"):
        h.open(session)
        whole_turn(h, session, 1, 14 * page, 2)
    h.send("plain/1", 14 * page, 2)
    h.run(3)
    close_all(h, "s1", "s2")


@SCENARIOS.add("full-of-rows", "as many idle sessions as there are rows, when a request comes")
def full_of_rows(h: Headless) -> None:
    sessions = [f"s{number}" for number in range(1, h.rows.size + 1)]
    for session in sessions:
        h.open(session)
        whole_turn(h, session, 1)
    h.send("plain/1", 5, 3)
    h.run(3)  # it may wait until a session is closed
    close_all(h, *sessions)


@SCENARIOS.add(
    "ignore-eos", "on a chunk cache: a session whose turns ignore the end token", disable_radix_cache=True, chunk=16
)
def ignore_eos(h: Headless) -> None:
    h.open("s1")
    for number in (1, 2):
        h.send(turn("s1", number), 37, 4, session="s1", ignore_eos=True)
        h.drain()
    close_all(h, "s1")
