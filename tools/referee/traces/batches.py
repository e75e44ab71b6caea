"""Rows and pages that a step in flight uses, given to the batch behind it, which is right, or to a launch of its own batch."""

from __future__ import annotations

from collections.abc import Callable

from kvproof.spec.batch import LAUNCHES
from referee.cases import Edits
from referee.traces.trace import Event, Trace

BATCHES = Edits("what a step in flight uses")
LEAVES = ("finish", "abort", "retract")


def _next_launch(t: Trace, takes: Callable[[Event, Event, Event], bool]) -> tuple[Event, Event]:
    """The last launch of a turn that leaves while its batch runs, and the first of the next batch, which takes what it used."""
    for leave in t.all(*LEAVES):
        before = [e for e in t.events[: t.place(leave)] if e["action"] in LAUNCHES]
        behind = [e for e in t.after(leave) if e["action"] in LAUNCHES]
        own = [e for e in before if e["turn"] == leave["turn"]]
        if own and behind and own[-1]["step"] == before[-1]["step"] and takes(own[-1], leave, behind[0]):
            return own[-1], behind[0]
    raise LookupError("no batch takes what the one before it used")


def _takes_a_page(own: Event, leave: Event, launch: Event) -> bool:
    return bool({*leave.get("free", ())} & {*launch.get("alloc", ())})


def _takes_the_row(own: Event, leave: Event, launch: Event) -> bool:
    return launch["row"] == own["row"]


def _join(t: Trace, own: Event, launch: Event) -> None:
    """The launch is of the same batch."""
    for event in t.after(own)[: t.place(launch) - t.place(own)]:
        event["step"] = own["step"]


@BATCHES.wrong("storm in flight", must="I6: no page of its own batch")
def page_taken_in_the_batch_that_uses_it(t: Trace) -> None:
    """A request ends after its step was prepared, and one that joins the same batch takes its page: both write into it."""
    _join(t, *_next_launch(t, _takes_a_page))


@BATCHES.wrong("sglang 0.5.11 window", must="I6: no page of its own batch")
def real_page_taken_in_the_batch_that_uses_it(t: Trace) -> None:
    """A real server's page of a step in flight, taken by a request that joins the same batch."""
    _join(t, *_next_launch(t, _takes_a_page))


@BATCHES.wrong("storm in flight", must="I5: no row of its own batch")
def row_taken_in_the_batch_that_uses_it(t: Trace) -> None:
    """A request ends after its step was prepared, and one that joins the same batch takes its row: one page table for both."""
    _join(t, *_next_launch(t, _takes_the_row))


@BATCHES.right("storm in flight")
def steps_in_tens(t: Trace) -> None:
    """The batch behind takes pages of a step in flight, as with SGLang's overlap: it writes later. Steps are written in tens."""
    for event in t.events:
        event["step"] *= 10


@BATCHES.right("storm in flight")
def page_taken_by_a_launch_without_a_step(t: Trace) -> None:
    """The launch that takes a page of a step in flight tells no step: it may be of the batch behind, and it was."""
    _next_launch(t, _takes_a_page)[1].pop("step")
