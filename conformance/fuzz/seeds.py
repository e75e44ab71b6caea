"""Schedules from the prover: runs of the model, done by a scheduler's users as well as they can.

A run says what a scheduler does; a schedule only what its users do and when. So a seed is not the run, but a load under which a
scheduler that goes its own way is likely to come by it: the same settings, the same users' acts, and steps between them. How many
steps of the run are one of the scheduler's is the scheduler's affair, so each run gives two seeds: a step wherever a batch is
launched, and a step wherever anything happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files

from kvproof.conformance.fuzz.schedule import Act, Do, Schedule, Setting
from kvproof.model.explore import Run, Taken, counterexample
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import LEDGER

LAUNCHES = frozenset({"extend", "decode", "verify"})
"""Events of the rules that are a batch of the scheduler's."""
STEPS = LAUNCHES | {"match", "result", "stash"}
"""Events of the rules that a scheduler brings about in a step of its own, if it is a slow one."""
USERS: dict[str, Do] = {"open": "open", "abort": "abort", "retract": "retract", "close": "close"}
MORE_OUTPUT = 3
"""Output tokens beyond those of the run: a turn that the run leaves open stays open."""
ANOTHER_OUTPUT = 20
"""Output tokens of a request that is only to be there."""
MOST_DRAFTS = 4
"""A scheduler finishes a turn a token later than the shortest run does: then it takes a draft more to overshoot as far."""
OF_THE_ENGINE = {"overlap": "overlap", "speculation": "speculation", "drafts": "drafts", "tree": "radix_cache"}


SEEDS = "seeds.jsonl"
"""Beside this file. Written by `make docs`, because to search for the runs takes seconds."""


@cache
def seeds() -> tuple[Schedule, ...]:
    """Those for the shortest run of each fault of the ledger, as they were searched for last."""
    text = files("kvproof.conformance.fuzz").joinpath(SEEDS).read_text(encoding="utf-8")
    return tuple(map(Schedule.model_validate_json, text.splitlines()))


def searched() -> str:
    """The same, searched for now: a schedule on each line."""
    faults = (fault for fault in FAULTS.values() if fault.machine is LEDGER)
    runs = (run for fault in faults if (run := counterexample(fault)) is not None)
    found = (schedule_of(run, steps).as_json() for run in runs for steps in (LAUNCHES, STEPS))
    return "".join(f"{line}\n" for line in dict.fromkeys(found))


def schedule_of(run: Run, steps: frozenset[str] = STEPS) -> Schedule:
    """The load of a run, for the reference implementation; `steps`: events of the run that are a step of the scheduler."""
    settings: dict[str, Setting] = {"page_size": run.page_size}
    settings |= {OF_THE_ENGINE[name]: value for name, value in run.config.items() if name in OF_THE_ENGINE}
    if run.config.get("window"):
        settings["window"] = 1
    if any(step.outcome.action.event == "stash" or step.params.get("last") is False for step in run.steps):
        settings["chunk"] = "page"
    if run.config.get("speculation"):
        settings["drafts"] = MOST_DRAFTS
    acts = tuple(_acts(run, steps))
    if any(_is_retracted_in_flight(run.steps[place:]) for place in range(len(run.steps))):
        # A scheduler takes the results before it heeds a user's retract; its own retracts come in the middle of a step,
        # and leave the last request alone: so there is another.
        settings |= {"overlap": True, "retract_after_prepare": True, "retract_interval": 2}
        acts = (Act(do="send", max_new_tokens=ANOTHER_OUTPUT), *acts)
    return Schedule(target="reference", settings=settings, acts=acts)


def _acts(run: Run, steps: frozenset[str]) -> Iterator[Act]:
    for place, step in enumerate(run.steps):
        event = step.outcome.action.event
        if event in ("create", "arrive"):
            before = step.outcome.before
            yield Act(
                do="turn" if event == "create" else "send",
                new_tokens=max(1, int(step.params.get("origin_len", 1)) - int(before.checkpoint_len)),
                max_new_tokens=_output_len(run.steps[place:]),
                logprob=bool(step.params.get("logprob", False)),
            )
        elif event in USERS:
            yield Act(do=USERS[event])
        elif event in steps:
            yield Act(do="step")


def _is_retracted_in_flight(steps: Sequence[Taken]) -> bool:
    """Whether the run begins with a launch whose request is retracted before its result is there."""
    events = [step.outcome.action.event for step in steps[:2]]
    return events[0] in LAUNCHES and events[1:] == ["retract"]


def _output_len(steps: Iterable[Taken]) -> int:
    """Of the turn that begins there: what it is finished with, or more than it is seen to put out.

    A scheduler finishes a turn as soon as it may. So what the run has after that, it has only if there is a token more.
    """
    seen = before_the_last = 0
    for step in steps:
        if step.outcome.action.event == "finish":
            return max(before_the_last + 1, int(step.params.get("finished_len", seen)))
        if "tokens" in step.params:
            before_the_last, seen = seen, seen + int(step.params["tokens"])
    return seen + MORE_OUTPUT
