"""Loads: runs of the model, done by a scheduler's users as well as they can.

A run says what a scheduler does; a schedule only what its users do and when. So a load is not the run, but one under which a
scheduler that goes its own way is likely to come by it: the same settings, the same users' acts, and steps between them. How
many steps of the run are one of the scheduler's is the scheduler's affair, so each run gives two loads: a step wherever a batch
is launched, and a step wherever anything happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kvproof.conformance.fuzz.schedule import Act, Do, Schedule, Setting
from kvproof.conformance.fuzz.settings_words import longest_row
from kvproof.model.explore import Run, Taken

LAUNCHES = frozenset({"extend", "decode", "verify"})
"""Events of the rules that are a batch of the scheduler's."""
STEPS = LAUNCHES | {"match", "result", "stash"}
"""Events of the rules that a scheduler brings about in a step of its own, if it is a slow one."""
USERS: dict[str, Do] = {"open": "open", "abort": "abort", "retract": "retract", "close": "close"}
MORE_OUTPUT = 3
"""Output tokens beyond those of the run: a turn that the run leaves open stays open."""
ANOTHER_OUTPUT = 20
"""Output tokens of a request that is only to be there, and beyond those of a turn that is retracted (at intervals)."""
MOST_DRAFTS = 4
"""A scheduler finishes a turn a token later than the shortest run does: then it takes a draft more to overshoot as far."""
OF_THE_ENGINE = {"overlap": "overlap", "speculation": "speculation", "drafts": "drafts", "tree": "radix_cache"}


def loads_of(run: Run) -> Iterator[Schedule]:
    """All loads of a run, for the reference implementation."""
    for steps in (LAUNCHES, STEPS):
        yield from _with_steps(run, steps)


def _with_steps(run: Run, steps: frozenset[str]) -> Iterator[Schedule]:
    """`steps`: events of the run that are a step of the scheduler."""
    settings: dict[str, Setting] = {"page_size": run.page_size}
    settings |= {OF_THE_ENGINE[name]: value for name, value in run.config.items() if name in OF_THE_ENGINE}
    if run.config.get("window"):
        settings["window"] = 1
    if any(step.outcome.action.event == "stash" or step.params.get("last") is False for step in run.steps):
        settings["chunk"] = "page"
    if run.config.get("speculation"):
        settings["drafts"] = MOST_DRAFTS
        if all(step.params.get("tokens", 1) == 1 for step in run.steps):
            settings["draft_accuracy"] = 0.0
    if any(_is_full(run, step) for step in run.steps):
        settings["overlap"] = True  # the last position of a row is written only by a launch too many
    acts = (*_found_in_the_tree(run), *_acts(run, steps))
    if any(_is_retracted_in_flight(run.steps[place:]) for place in range(len(run.steps))):
        # A scheduler takes the results before it heeds a user's retract; its own retracts come in the middle of a step,
        # and leave the last request alone: so there is another.
        acts = (Act(do="send", max_new_tokens=ANOTHER_OUTPUT), *acts)
        settings |= {"retract_after_prepare": True, "retract_interval": 2}
        yield Schedule(target="reference", settings={**settings, "overlap": True}, acts=acts)
    yield Schedule(target="reference", settings=settings, acts=acts)


def _found_in_the_tree(run: Run) -> Iterator[Act]:
    """Before the run: a request that leaves in the tree what the run finds there."""
    matched = max(int(step.params.get("matched_len", 0)) for step in run.steps)
    if matched:
        yield Act(do="send", new_tokens=matched, shared=matched)
        yield Act(do="step", times=2)


def _acts(run: Run, steps: frozenset[str]) -> Iterator[Act]:
    for place, step in enumerate(run.steps):
        event = step.outcome.action.event
        if event in ("create", "arrive"):
            yield Act(
                do="turn" if event == "create" else "send",
                new_tokens=_new_tokens(run, step),
                shared=max(int(step.params.get("matched_len", 0)) for step in run.steps[place:]),
                max_new_tokens=_output_len(run.steps[place:]),
                logprob=bool(step.params.get("logprob", False)),
            )
        elif event in USERS:
            yield Act(do=USERS[event])
        elif event == "result" and run.config.get("overlap") and _is_last_in_flight(run.steps[: place + 1]):
            yield Act(do="send")  # a scheduler that overlaps has launched something else by then
            if event in steps:
                yield Act(do="step")
        elif event in steps:
            yield Act(do="step")


def _new_tokens(run: Run, step: Taken) -> int:
    """A request that fills its row in the run, or is too long for it, does so in the target's rows, which are longer."""
    if step.params.get("too_long"):
        return longest_row(run.page_size)
    before = int(step.outcome.before.checkpoint_len)
    if any(_is_full(run, other) for other in run.steps):
        return longest_row(run.page_size) - MORE_OUTPUT - before
    return max(1, int(step.params.get("origin_len", 1)) - before)


def _is_full(run: Run, step: Taken) -> bool:
    """Whether a row is in use to its end. (In a run whose rows hold two turns, that is rarely what it is about.)"""
    return step is run.steps[-1] and bool(step.outcome.after.kv_allocated_len == run.row_width)


def _is_last_in_flight(steps: Sequence[Taken]) -> bool:
    """Whether the run, which ends with a result, has launched nothing whose result is still to come."""
    events = [step.outcome.action.event for step in steps]
    return sum(event in LAUNCHES for event in events) == events.count("result")


def _is_retracted_in_flight(steps: Sequence[Taken]) -> bool:
    """Whether the run begins with a launch whose request is retracted before its result is there."""
    events = [step.outcome.action.event for step in steps[:2]]
    return events[0] in LAUNCHES and events[1:] == ["retract"]


def _output_len(steps: Iterable[Taken]) -> int:
    """Of the turn that begins there: what it is finished with, or more than it is seen to put out.

    A scheduler finishes a turn as soon as it may. So what the run has after that, it has only if there is a token more.
    """
    seen = before_the_last = 0
    steps = tuple(steps)
    for step in steps:
        if step.outcome.action.event == "insert":
            before_the_last = seen  # what is to go on is inserted
        if step.outcome.action.event == "finish":
            return max(before_the_last + 1, int(step.params.get("finished_len", seen)))
        if "tokens" in step.params:
            before_the_last, seen = seen, seen + int(step.params["tokens"])
    is_retracted = any(step.outcome.action.event == "retract" for step in steps)
    return seen + (ANOTHER_OUTPUT if is_retracted else MORE_OUTPUT)
