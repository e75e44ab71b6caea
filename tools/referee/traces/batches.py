"""Rows and pages that a step in flight uses, given to the batch behind it, which is right, or to a launch of its own batch."""

from __future__ import annotations

from collections.abc import Callable

from kvproof.spec.batch import LAUNCHES
from referee.cases import Change, Edit, Edits
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


@BATCHES.wrong("storm in flight", must="incomplete: which batch it is of was not told")
def page_taken_by_a_launch_without_a_step(t: Trace) -> None:
    """The launch that takes a page of a step in flight tells no step: it may be of the batch that uses the page."""
    _next_launch(t, _takes_a_page)[1].pop("step")


def _each_launch_alone(t: Trace) -> None:
    for step, event in enumerate(t.all(*LAUNCHES)):
        event["step"] = step


def _all_launches_in_one(t: Trace) -> None:
    for event in t.all(*LAUNCHES):
        event["step"] = 1


def _no_launch_has_one(t: Trace) -> None:
    for event in t.all(*LAUNCHES):
        event.pop("step")


def _goes_back(t: Trace) -> None:
    launches = t.all(*LAUNCHES)
    launches[len(launches) // 2]["step"] = launches[0]["step"] - 1


STEPS: dict[str, tuple[Change, str, str]] = {
    "each_launch_in_a_step_of_its_own": (
        _each_launch_alone,
        "Batches are split, so that what is used twice within one is not asked about: steps begin before results are in.",
        "the results of the step before are in",
    ),
    "all_launches_in_one_step": (
        _all_launches_in_one,
        "No launch begins a new batch, so no pass is counted, and nothing is seen to stand still: turns run twice in one step.",
        "a turn runs once in a step",
    ),
    "step_that_goes_back": (
        _goes_back,
        "Events of two runs are mixed: a step is launched behind a later one.",
        "steps go up",
    ),
    "no_launch_with_a_step": (
        _no_launch_has_one,
        "No launch tells its step: which launches run at once is not known, and nothing within a batch is checked.",
        "incomplete: no step was recorded",
    ),
}
ON: dict[str, str] = {
    "": "storm in flight",
    "_without_overlap": "storm",
    "_of_a_real_server": "sglang 0.5.11 window",
}
for _name, (_change, _why, _must) in STEPS.items():
    for _suffix, _base in ON.items():
        BATCHES[_name + _suffix] = Edit(_name + _suffix, BATCHES.topic, _why, _must, _base, _change)


@BATCHES.wrong("storm in flight", must="a cause is a launch of the turn in flight")
def cause_of_another_turn(t: Trace) -> None:
    """A late result is said to be that of another turn's step: whose step ran last is not what the trace says."""
    event = t.all("result")[9]
    event["cause"] = next(e for e in t.events if e["action"] in LAUNCHES and e["turn"] != event["turn"])["seq"]


@BATCHES.wrong("storm in flight", must="a cause is a launch of the turn in flight")
def cause_whose_result_is_known(t: Trace) -> None:
    """A late result is said to be that of a step whose result came long before: one step has two results."""
    event = t.all("result", where=lambda e: e.get("after", {}).get("output_len", 0) > 3)[0]
    event["cause"] = t.first("extend", where=lambda e: e["turn"] == event["turn"])["seq"]


@BATCHES.wrong("storm in flight", must="only results have a cause")
def cause_of_a_decode(t: Trace) -> None:
    """A launch is said to be the late result of an event: no rule reads it there."""
    t.all("decode")[9]["cause"] = 0


@BATCHES.wrong("sglang 0.5.11 window", must="I6: no window page of its own batch")
def window_page_taken_in_the_batch_that_uses_it(t: Trace) -> None:
    """A real server's window page of a step in flight, taken by a request that joins the same batch; its other page is not."""
    own, launch = _next_launch(t, _takes_a_page)
    _join(t, own, launch)
    freed = t.next_of_turn(own, *LEAVES)["free"]
    never = {*range(1, t.config["pool_pages"] + 1)} - {page for e in t.events for page in e.get("alloc", ())}
    t.rename_pages(dict(zip(freed, sorted(never), strict=False)), t.events[t.place(launch) :])
