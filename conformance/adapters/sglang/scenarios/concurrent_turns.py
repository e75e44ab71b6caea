"""Clients that do not wait: turns on a busy session, closes in the middle of one, a storm of aborts."""

from __future__ import annotations

import random

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.scenarios.scenario import (
    ScenarioTable,
    close_all,
    start_turn,
    turn,
    whole_turn,
)

SCENARIOS = ScenarioTable()


@SCENARIOS.add("busy", "a second turn while one runs, in the first and in a later turn")
def busy(h: Headless) -> None:
    h.open("s1")
    for number in (1, 3):
        start_turn(h, "s1", number)
        h.send(turn("s1", number + 1), 5, 4, session="s1")
        h.drain()
    whole_turn(h, "s1", 5)
    close_all(h, "s1")


@SCENARIOS.add("busy-twice", "while a later turn runs two more come, one after the other")
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


@SCENARIOS.add("busy-at-once", "two turns of a new session arrive together; the first one needs a single token")
def busy_at_once(h: Headless) -> None:
    h.open("s1")
    h.send(turn("s1", 1), 13, 1, session="s1")
    h.send(turn("s1", 2), 5, 4, session="s1")
    h.drain()
    whole_turn(h, "s1", 3)
    close_all(h, "s1")


@SCENARIOS.add("close-running", "sessions are closed in the middle of a first and of a second turn")
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


@SCENARIOS.add(
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
