"""Clients that behave, and a pool that is large enough."""

from __future__ import annotations

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.scenarios.scenario import ScenarioTable, close_all, turn, whole_turn

SCENARIOS = ScenarioTable()


@SCENARIOS.add("basic", "one session, four turns, closed when idle")
def basic(h: Headless) -> None:
    h.open("s1")
    for number, (new_tokens, output) in enumerate([(21, 6), (7, 5), (1, 1), (13, 9)], start=1):
        whole_turn(h, "s1", number, new_tokens, output)
    close_all(h, "s1")


@SCENARIOS.add("many-sessions", "four sessions and ordinary requests with a common prefix, interleaved")
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


@SCENARIOS.add("chunked", "prompts longer than a chunk, in first and later turns, beside ordinary requests", chunk=16)
def chunked(h: Headless) -> None:
    h.open("s1")
    h.open("s2")
    for number in (1, 2, 3):
        h.send(turn("s1", number), 37, 4, session="s1")
        h.send(turn("s2", number), 21, 6, session="s2")
        h.send(f"plain/{number}", 45, 3)
        h.drain()
    close_all(h, "s1", "s2")


@SCENARIOS.add("mixed-chunk", "chunks share their batch with running decodes", chunk=16, mixed_chunk=True)
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


@SCENARIOS.add("logprob", "turns that ask for input logprobs from position 0")
def logprob(h: Headless) -> None:
    h.open("s1")
    for number in (1, 2, 3):
        h.send(turn("s1", number), 9, 4, session="s1", logprob=True)
        h.drain()
    close_all(h, "s1")


@SCENARIOS.add("busy-check", "the memory is checked after every step, not only when idle", checks="every", chunk=16)
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
