"""Clients that behave, and a pool that is large enough."""

from __future__ import annotations

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.scenarios.scenario import ScenarioTable, Session

SCENARIOS = ScenarioTable()


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
