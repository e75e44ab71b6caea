"""Named scenarios: short scripts, the same for every page size, each with the faults that it brings to light.

This module imports no torch, so that the table can be listed anywhere; `scenario_player.py` plays it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvproof.impl.simulated_users import SimulatedUsers


@dataclass(frozen=True)
class Scenario:
    summary: str
    run: Callable[[SimulatedUsers], None]
    exposes: tuple[str, ...] = ()
    """Faults whose deviation happens in this scenario at page size 4."""
    in_pages: Mapping[str, int] = field(default_factory=dict)
    """Settings in tokens, given in pages."""
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def settings(self, page_size: int) -> dict[str, Any]:
        scaled = {name: pages * page_size for name, pages in self.in_pages.items()}
        return {"row_width": 16 * page_size + 64, **self.fixed, **scaled}


def basic(s: SimulatedUsers) -> None:
    s.open("s")
    s.run_turn("s", s.length(2, 3), 6)
    s.run_turn("s", 5, 6)
    s.run_turn("s", 1, 1)
    s.close("s")


def busy_check(s: SimulatedUsers) -> None:
    s.open("s")
    s.run_turn("s", s.length(2, 3), 6)
    s.scheduler.check()
    s.run_turn("s", s.length(1, 1), 6)
    s.close("s")


def many_sessions(s: SimulatedUsers) -> None:
    """Three conversations and ordinary requests that begin with the same tokens, all at once."""
    sessions = ("a", "b", "c")
    shared = s.tokens(s.length(2))
    s.open(*sessions)
    for turn in range(3):
        for session in sessions:
            s.send_turn(session, [*shared, *s.tokens(3)] if turn == 0 else s.length(turn, turn), 4)
            s.send([*shared, *s.tokens(turn + 1)], 5)
            s.step()
        s.drain()
    s.close(*sessions)


def chunked(s: SimulatedUsers) -> None:
    """The chunks of a long prompt use up the budget, so a session's turn is matched and rejected until they are through."""
    s.open("s", "t")
    s.run_turn("s", s.length(5, 3), 5)
    s.send_turn("t", s.length(7, 1), 5)
    s.step()
    s.send_turn("s", s.length(1, 2), 5)
    s.drain()
    s.send(s.length(7, 2), 3)
    s.step()
    s.send_turn("s", s.length(4, 1), 5)
    s.send_turn("t", 3, 5)
    s.drain()
    s.close("s", "t")


def retract(s: SimulatedUsers) -> None:
    """Turns are sent back to the queue with one prepared step: once on a page boundary, where the prepared position opened a
    page, and once inside a page, where it shares the page with kept tokens."""
    s.open("s", "t")
    s.run_turn("s", s.length(2, 3), 2)
    for past_boundary in (0, 1):
        held = len(s.scheduler.session("s").checkpoint_ids)
        turn = s.send_turn("s", s.length(held // s.page_size + 2, past_boundary) - held, 6)
        s.step()
        s.retract(turn)
        s.drain()
    first = s.send_turn("t", s.length(2, 2), 6)
    s.step_until_output(first, 3)
    s.retract(first)
    s.step_until_output(first, 5)
    s.retract(first)
    s.drain()
    s.run_turn("t", 3, 4)
    ordinary = s.send(s.length(2, 1), 5)
    s.step_until_output(ordinary, 2)
    s.retract(ordinary)
    s.drain()
    s.close("s", "t")


def pressure(s: SimulatedUsers) -> None:
    """More work than the pool holds: the tree evicts, requests are retracted, and what cannot fit is given up."""
    sessions = ("a", "b")
    s.open(*sessions)
    for _ in range(3):
        for session in sessions:
            s.send_turn(session, s.length(1, 1), s.length(1, 2))
        for _ in range(3):
            s.send(s.length(2, 1), s.length(2, 1))
        s.drain()
    s.close(*sessions)


def abort_first(s: SimulatedUsers) -> None:
    s.open("s", "t")
    decoding = s.send_turn("s", s.length(2, 3), 8)
    s.step_until_output(decoding, 3)
    s.abort(decoding)
    s.run_turn("s", s.length(2, 1), 4)
    between_chunks = s.send_turn("t", s.length(7, 1), 4)
    s.step()
    s.abort(between_chunks)
    s.run_turn("t", s.length(1, 1), 4)
    s.run_turn("t", s.length(3), 4)
    s.close("s", "t")


def abort_nth(s: SimulatedUsers) -> None:
    """Turn 2 is aborted while it decodes, turn 3 between chunks; each time the next turn starts from the last success."""
    s.open("s")
    s.run_turn("s", s.length(2, 3), 5)
    decoding = s.send_turn("s", s.length(1, 2), 8)
    s.step_until_output(decoding, 3)
    s.abort(decoding)
    s.run_turn("s", s.length(1, 1), 5)
    between_chunks = s.send_turn("s", s.length(7, 1), 8)
    s.step()
    s.abort(between_chunks)
    s.run_turn("s", 3, 4)
    s.run_turn("s", s.length(3), 4)
    s.close("s")


def abort_queued(s: SimulatedUsers) -> None:
    """A turn is aborted before it ran: once before it was matched, once after it was matched and rejected."""
    s.open("s", "t")
    s.abort(s.send_turn("t", 3, 4))
    s.run_turn("s", s.length(2, 3), 5)
    s.abort(s.send_turn("s", 3, 4))
    s.run_turn("s", 2, 4)
    s.send(s.length(7, 1), 3)
    s.step()
    rejected = s.send_turn("s", s.length(1, 1), 4)
    s.step()
    s.abort(rejected)
    s.drain()
    s.run_turn("s", 3, 4)
    s.abort(s.send(3, 3))
    s.close("s", "t")


def abort_retracted(s: SimulatedUsers) -> None:
    """A turn that ran, was retracted and is aborted in the queue: its own KV lies in the slot."""
    s.open("s")
    first = s.send_turn("s", s.length(2, 3), 8)
    s.step_until_output(first, 3)
    s.retract(first)
    s.abort(first)
    s.run_turn("s", s.length(2, 1), 4)
    later = s.send_turn("s", s.length(1, 2), 8)
    s.step_until_output(later, 3)
    s.retract(later)
    s.abort(later)
    s.run_turn("s", 3, 4)
    s.close("s")


def too_long(s: SimulatedUsers) -> None:
    """Turns whose input exceeds the row: on a session with a slot, and as the first turn of one without."""
    s.open("s", "t")
    s.run_turn("s", s.length(2, 3), 5)
    s.run_turn("s", s.scheduler.config.row_width, 4)
    s.run_turn("s", s.length(3, 3), 4)
    s.run_turn("t", s.scheduler.config.row_width, 4)
    s.run_turn("t", s.length(1, 1), 4)
    s.send(s.scheduler.config.row_width, 3)
    s.drain()
    s.close("s", "t")


def busy(s: SimulatedUsers) -> None:
    """A turn is refused while another one of its session waits, and while it decodes."""
    s.open("s")
    s.run_turn("s", s.length(2, 3), 5)
    running = s.send_turn("s", 3, 8)
    s.send_turn("s", 2, 4)
    s.step_until_output(running, 3)
    s.send_turn("s", 4, 4)
    s.drain()
    s.run_turn("s", 3, 4)
    s.close("s")


def close_running(s: SimulatedUsers) -> None:
    """Closed while turn 2 decodes, while a first turn decodes, while a turn waits, and while none runs."""
    s.open("s", "t", "u", "v")
    s.run_turn("s", s.length(2, 3), 5)
    s.run_turn("u", s.length(1, 3), 5)
    running = s.send_turn("s", s.length(3, 3), 8)
    first = s.send_turn("t", s.length(1, 1), 8)
    s.step_until_output(running, 3)
    s.step_until_output(first, 3)
    s.close("s", "t")
    s.send(s.length(2, 1), 8)
    s.drain()
    s.send_turn("u", 3, 4)
    s.close("u")
    s.drain()
    s.close("v")


def logprob(s: SimulatedUsers) -> None:
    s.open("s")
    s.run_turn("s", s.length(2, 3), 5, logprob=True)
    s.run_turn("s", 3, 5, logprob=True)
    s.run_turn("s", 2, 4)
    s.close("s")


def storm(s: SimulatedUsers) -> None:
    """Everything at once, by chance: turns, ordinary requests, aborts, retracts, closes, on a small pool with chunks."""
    sessions = [f"s{n}" for n in range(4)]
    s.open(*sessions)
    alive = list(sessions)
    sent: list[str] = []
    for _ in range(150):
        chance = s.random.random()
        if chance < 0.35:
            session = s.random.choice(alive)
            new = s.random.choice((1, 3, s.length(1, 1), s.length(2), s.length(5, 2), s.scheduler.config.row_width))
            sent.append(s.send_turn(session, new, s.random.randint(1, 7), logprob=s.random.random() < 0.2))
        elif chance < 0.5:
            sent.append(s.send(s.random.choice((2, s.length(1, 3), s.length(3))), s.random.randint(1, 7)))
        elif chance < 0.6 and sent:
            s.abort(s.random.choice(sent[-4:]))
        elif chance < 0.7 and s.scheduler.running_requests():
            s.retract(s.random.choice(s.scheduler.running_requests()).rid)
        elif chance < 0.73:
            session = s.random.choice(alive)
            s.close(session)
            alive.remove(session)
            alive.append(f"s{len(sessions)}")
            sessions.append(alive[-1])
            s.open(alive[-1])
        else:
            s.step(s.random.randint(1, 3))
    s.drain()
    s.close(*alive)


def inherit(s: SimulatedUsers) -> None:
    """What one turn leaves, the next one takes over: inputs and outputs that end before, on and behind a page boundary."""
    s.open("s")
    for pages, tokens, output in ((1, -1, 1), (0, 1, 2), (1, 1, 5), (0, 2, 3), (3, 0, 1), (0, 1, 7)):
        s.run_turn("s", max(s.length(pages, tokens), 1), output)
    s.close("s")


def concurrent_logprobs(s: SimulatedUsers) -> None:
    """Sessions side by side, all with input logprobs, turn after turn."""
    sessions = ("a", "b", "c", "d")
    s.open(*sessions)
    for turn in range(4):
        for number, session in enumerate(sessions):
            s.send_turn(session, s.length(2 * (turn % 2), number + 1), 2 + number, logprob=True)
            s.step(number % 2)
        s.drain()
    s.close(*sessions)


def abort_storm(s: SimulatedUsers) -> None:
    """Long prompts that are aborted after each number of chunks, in sessions and outside; each time the next one recovers."""
    s.open("s", "t")
    s.run_turn("s", s.length(1, 2), 3)
    for steps in range(1, 5):
        for session in ("s", "t"):
            rid = s.send_turn(session, s.length(7, 1), 4)
            s.step(steps)
            s.abort(rid)
        ordinary = s.send(s.length(7, 2), 4)
        s.step(steps)
        s.abort(ordinary)
    s.run_turn("s", 3, 4)
    s.run_turn("t", s.length(1, 1), 4)
    s.run_turn("t", s.length(3), 4)
    s.close("s", "t")


def steps_in_flight(s: SimulatedUsers) -> None:
    """Ends of every kind, each with a step in flight: finish, abort, retract and close; then sessions continue."""
    s.open("s", "t", "u")
    s.run_turn("s", s.length(2, 3), 6)
    ordinary = s.send(s.length(1, 2), 8)
    ends_before = s.send(s.length(1, 1), 3)
    running = s.send_turn("t", s.length(1, 1), 8)
    s.step_until_output(running, 3)
    s.abort(running)
    s.step_until_output(ordinary, 4)
    s.retract(ordinary)
    s.send_turn("s", 3, 5)
    closed = s.send_turn("u", s.length(1), 5)
    s.step_until_output(closed, 2)
    s.close("u")
    s.drain()
    s.abort(ends_before)
    s.run_turn("t", 2, 4)
    s.run_turn("s", 1, 1)
    s.close("s", "t")


def rounds(s: SimulatedUsers) -> None:
    """Turns of every output length, so that a last round brings too much for one of them."""
    s.open("s", "t")
    for output in range(1, 9):
        s.send_turn("t", output, 9 - output)
        s.send(s.length(1, output), output)
        s.run_turn("s", s.length(1, 1) if output == 1 else 2, output)
    s.close("s", "t")


def duplicates(s: SimulatedUsers) -> None:
    """Two turns side by side with one prompt and one output: what the second one brings, the tree has already."""
    prompt = s.tokens(s.length(3, 2))
    for _ in range(2):
        for _ in range(3):
            s.send(prompt, s.length(2, 1))
        s.drain()
        prompt = [*prompt, *s.tokens(s.length(1, 1))]


def deeper_match(s: SimulatedUsers) -> None:
    """A request ends when the tree has its tokens further than it locked them. Then a turn builds on that which does not fit
    beside another session: it is given up, unless the pages that it builds on are taken from under it.
    """
    s.open("s", "t")
    s.run_turn("t", s.length(2, 1), 2)
    said = s.tokens(s.length(2))
    rid = s.send(said, s.length(3))
    s.drain()
    s.run_turn("s", [*said, *s.scheduler.outcomes[rid].output_ids, *s.tokens(s.length(4))], 1)
    s.close("s", "t")


def forced_retracts(s: SimulatedUsers) -> None:
    """Requests are sent back to the queue although all fit, again and again; all come to their end."""
    sessions = ("a", "b")
    s.open(*sessions)
    for turn in range(2):
        for session in sessions:
            s.send_turn(session, s.length(1, turn + 1), 6)
            s.send(s.length(1, turn), 6)
        s.drain()
    s.close(*sessions)


def window(s: SimulatedUsers) -> None:
    """Turns and requests outgrow their window; prompts come again when their window pages are gone, and bring new ones."""
    prompt = s.tokens(s.length(5, 1))
    s.open("s")
    for turn in range(3):
        s.send_turn("s", s.length(3, turn + 1), s.length(1, 2 + turn))
        s.send(prompt, s.length(2, 1 + turn))
        s.step(2)
        s.send([*prompt[: s.length(3)], *s.tokens(s.length(2))], s.length(1, turn))
        s.send(prompt[: s.length(4, turn)], 2 + turn)
        s.drain()
    retracted = s.send_turn("s", s.length(2), s.length(1, 2))
    s.step_until_output(retracted, 3)
    s.retract(retracted)
    s.drain()
    s.close("s")


def window_rounds(s: SimulatedUsers) -> None:
    """The last round of a turn brings much more than was asked for, and more than a window; the next turn continues there."""
    s.open("s")
    for turn in range(3):
        s.run_turn("s", s.length(1, turn + 1), 2 + turn)
        s.send(s.length(1, turn), 3)
    s.drain()
    s.close("s")


EVERY_STEP = {"check_every_step": True}
CHUNKS = {"chunked_prefill_size": 2}
WINDOW = {"chunked_prefill_size": 2, "window": 1, "row_width": 32}

SCENARIOS: dict[str, Scenario] = {
    "basic": Scenario("three turns of one session, then its close", basic, ("F20070",)),
    "busy-check": Scenario(
        "two turns with the memory check read after every step", busy_check, ("F20070", "F22213"), fixed=EVERY_STEP
    ),
    "many-sessions": Scenario(
        "three sessions and ordinary requests with a common prefix, side by side", many_sessions, ("F20070",)
    ),
    "chunked": Scenario(
        "long prompts in chunks; turns that are matched, rejected and matched again",
        chunked,
        ("F17850", "F20070", "F20476"),
        in_pages=CHUNKS,
    ),
    "chunked-check": Scenario(
        "the same with the memory check read after every step",
        chunked,
        ("F20070", "F20476", "F22213", "F22753"),
        in_pages=CHUNKS,
        fixed=EVERY_STEP,
    ),
    "retract": Scenario(
        "forced retracts of first and later turns with one step prepared, and their retries",
        retract,
        ("F22862a", "F22862b", "S0511a"),
        fixed={"retract_after_prepare": True},
    ),
    "pressure": Scenario(
        "a pool too small for its load: evictions, retracts, and one that is given up",
        pressure,
        ("F20070", "F22213"),
        fixed={"pool_pages": 14, "retract_after_prepare": True, **EVERY_STEP},
    ),
    "abort-first": Scenario(
        "a first turn is aborted while it decodes, and between chunks", abort_first, ("F22790b",), in_pages=CHUNKS
    ),
    "abort-nth": Scenario(
        "a later turn is aborted while it decodes, and between chunks",
        abort_nth,
        ("F22790a", "F22790d"),
        in_pages=CHUNKS,
    ),
    "abort-queued": Scenario(
        "turns are aborted in the queue before they ran", abort_queued, ("F22790d", "S0511b"), in_pages=CHUNKS
    ),
    "abort-retracted": Scenario(
        "turns are aborted in the queue after they ran and were retracted", abort_retracted, ("F22790d", "S0511a")
    ),
    "too-long": Scenario(
        "a turn that is too long for its row, and the recovery from it",
        too_long,
        ("F21875b", "F22790b", "F22790c", "F22790d"),
    ),
    "busy": Scenario("a second turn while one waits or runs", busy, ("F22790e",)),
    "close-running": Scenario("sessions closed in the middle of a turn", close_running, ("F21875a",)),
    "logprob": Scenario("later turns that ask for input logprobs", logprob, ("F20557",)),
    "storm": Scenario(
        "everything at once, by chance",
        storm,
        ("F20070", "F20476", "F20557", "F21875a", "F22213", "F22790b", "F22790e", "F22862a", "F22862b", "S0511a"),
        in_pages=CHUNKS,
        fixed={"pool_pages": 40, "rows": 7, "retract_after_prepare": True, **EVERY_STEP},
    ),
    "inherit": Scenario("many turns that end before, on and behind a page boundary", inherit, ("F20070",)),
    "concurrent-logprobs": Scenario(
        "sessions with input logprobs side by side", concurrent_logprobs, ("F20070", "F20557")
    ),
    "abort-storm": Scenario(
        "prompts are aborted after each number of chunks", abort_storm, ("F22790b", "F22790d"), in_pages=CHUNKS
    ),
    "in-flight": Scenario(
        "finish, abort, retract and close with a step in flight",
        steps_in_flight,
        ("F12224",),
        fixed={"overlap": True},
    ),
    "chunks-in-flight": Scenario(
        "long prompts in chunks, whose results are taken a step later",
        chunked,
        ("F17850", "F20070", "F994d"),
        in_pages=CHUNKS,
        fixed={"overlap": True},
    ),
    "rounds": Scenario(
        "speculative rounds that overshoot, in flight",
        rounds,
        ("F21875c", "F22651", "F22897"),
        fixed={"overlap": True, "speculation": 2, "drafts": 3},
    ),
    "duplicates": Scenario("requests that say the same", duplicates, ("F994a",), fixed={"pool_pages": 96}),
    "deeper-match": Scenario(
        "a request ends when the tree holds its tokens further than it locked them",
        deeper_match,
        ("F22735",),
        in_pages=CHUNKS,
        fixed={"pool_pages": 11, **EVERY_STEP},
    ),
    "window": Scenario(
        "a sliding window: cursors, tombstones in the tree, and pages that heal them",
        window,
        in_pages=WINDOW,
        fixed={"pool_pages": 60, "window_pages": 14, **EVERY_STEP},
    ),
    "window-in-flight": Scenario(
        "the same with speculative rounds in flight",
        window,
        ("F994b",),
        in_pages=WINDOW,
        fixed={"pool_pages": 60, "window_pages": 14, "overlap": True, "speculation": 2, "drafts": 2, **EVERY_STEP},
    ),
    "window-rounds": Scenario(
        "speculative rounds that overshoot further than a sliding window",
        window_rounds,
        ("F22900",),
        in_pages={"drafts": 6, "row_width": 40},
        fixed={"overlap": True, "speculation": 2, "draft_accuracy": 1.0, "window": 1, "forward": "none", **EVERY_STEP},
    ),
    "forced-retracts": Scenario(
        "a retract is forced at an interval",
        forced_retracts,
        ("F994c", "F994e"),
        fixed={"overlap": True, "retract_interval": 3},
    ),
}
