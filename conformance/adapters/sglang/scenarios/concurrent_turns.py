"""Clients that do not wait: turns on a busy session, closes in the middle of one, a storm of aborts."""

from __future__ import annotations

import random

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.scenarios.scenario import ScenarioTable, Session

SCENARIOS = ScenarioTable()


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
