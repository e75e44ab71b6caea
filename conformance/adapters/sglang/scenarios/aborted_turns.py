"""Turns that end badly: refused, aborted in each part of their life, retracted as they are aborted."""

from __future__ import annotations

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.scenarios.scenario import (
    ScenarioTable,
    close_all,
    start_turn,
    turn,
    whole_turn,
)

SCENARIOS = ScenarioTable()


@SCENARIOS.add("too-long", "the second turn exceeds the context length and is refused; the third is good")
def too_long(h: Headless) -> None:
    h.open("s1")
    whole_turn(h, "s1", 1, 13)
    whole_turn(h, "s1", 2, h.settings.context_length + 10)
    whole_turn(h, "s1", 3)
    close_all(h, "s1")


@SCENARIOS.add("too-long-first", "the first turn of a session exceeds the context length; the second is good")
def too_long_first(h: Headless) -> None:
    h.open("s1")
    whole_turn(h, "s1", 1, h.settings.context_length + 10)
    whole_turn(h, "s1", 2, 13)
    whole_turn(h, "s1", 3)
    close_all(h, "s1")


@SCENARIOS.add("abort-first", "the first turn is aborted while it decodes; the next turn starts anew")
def abort_first(h: Headless) -> None:
    h.open("s1")
    start_turn(h, "s1", 1, 13)
    h.abort(turn("s1", 1))
    h.drain()
    whole_turn(h, "s1", 2)
    whole_turn(h, "s1", 3)
    close_all(h, "s1")


@SCENARIOS.add("abort-nth", "the third turn is aborted while it decodes; the next one builds on the second")
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


@SCENARIOS.add("abort-chunked", "a first and a later turn are aborted between two chunks of their prompt", chunk=16)
def abort_chunked(h: Headless) -> None:
    h.open("s1")
    for number in (1, 3):
        start_turn(h, "s1", number, 61, 4, steps=2)
        h.abort(turn("s1", number))
        h.drain()
        whole_turn(h, "s1", number + 1)
    close_all(h, "s1")


@SCENARIOS.add("abort-queued", "a turn is aborted before it ran; the session goes on and is closed")
def abort_queued(h: Headless) -> None:
    h.open("s1")
    whole_turn(h, "s1", 1, 13)
    h.send(turn("s1", 2), 7, 5, session="s1")
    h.abort(turn("s1", 2))
    h.drain()
    whole_turn(h, "s1", 3)
    whole_turn(h, "s1", 4)
    close_all(h, "s1")


@SCENARIOS.add("abort-queued-close", "a turn is aborted before it ran, and the session is closed then")
def abort_queued_close(h: Headless) -> None:
    h.open("s1")
    whole_turn(h, "s1", 1, 13)
    h.send(turn("s1", 2), 7, 5, session="s1")
    h.abort(turn("s1", 2))
    h.drain()
    close_all(h, "s1")
    h.drain()


@SCENARIOS.add("abort-retracted", "a turn is retracted, and aborted while it waits to run again; then a close")
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


@SCENARIOS.add("abort-then-retract", "a running turn is aborted and retracted in the same step; the session goes on")
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
