"""Turns that end badly: refused, aborted in each part of their life, retracted as they are aborted."""

from __future__ import annotations

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.scenarios.scenario import ScenarioTable, Session

SCENARIOS = ScenarioTable()


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


@SCENARIOS.add("abort-queued", "a turn is aborted before it ran; the session goes on and is closed")
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


@SCENARIOS.add("abort-then-retract", "a running turn is aborted and retracted in the same step; the session goes on")
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
