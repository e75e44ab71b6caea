"""Schedules from the prover: runs of the model, done by a scheduler's users as well as they can.

A run says what a scheduler does; a schedule only what its users do and when. So a seed is not the run, but a load under which a
scheduler that goes its own way is likely to come by it: the same settings, the same users' acts, a step wherever the run has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files

from kvproof.conformance.fuzz.schedule import Act, Do, Schedule, Setting
from kvproof.model.explore import Run, Taken, counterexample
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import LEDGER

STEPS = frozenset({"match", "extend", "decode", "verify", "result", "stash"})
"""Events of the rules that a scheduler brings about in a step of its own."""
USERS: dict[str, Do] = {"open": "open", "abort": "abort", "retract": "retract", "close": "close"}
MORE_OUTPUT = 3
"""Output tokens beyond those of the run: a turn that the run leaves open stays open."""
OF_THE_ENGINE = {"overlap": "overlap", "speculation": "speculation", "drafts": "drafts", "tree": "radix_cache"}


SEEDS = "seeds.jsonl"
"""Beside this file. Written by `make docs`, because to search for the runs takes seconds."""


@cache
def seeds() -> tuple[Schedule, ...]:
    """One for the shortest run of each fault of the ledger, as they were searched for last."""
    text = files("kvproof.conformance.fuzz").joinpath(SEEDS).read_text(encoding="utf-8")
    return tuple(map(Schedule.model_validate_json, text.splitlines()))


def searched() -> str:
    """The same, searched for now: a schedule on each line."""
    faults = (fault for fault in FAULTS.values() if fault.machine is LEDGER)
    runs = (run for fault in faults if (run := counterexample(fault)) is not None)
    return "".join(f"{line}\n" for line in dict.fromkeys(schedule_of(run).as_json() for run in runs))


def schedule_of(run: Run) -> Schedule:
    """The load of a run, for the reference implementation."""
    settings: dict[str, Setting] = {"page_size": run.page_size}
    settings |= {OF_THE_ENGINE[name]: value for name, value in run.config.items() if name in OF_THE_ENGINE}
    if run.config.get("window"):
        settings["window"] = 1
    if any(step.outcome.action.event == "stash" or step.params.get("last") is False for step in run.steps):
        settings["chunk"] = "page"
    return Schedule(target="reference", settings=settings, acts=tuple(_acts(run)))


def _acts(run: Run) -> Iterator[Act]:
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
        elif event in STEPS:
            yield Act(do="step")


def _output_len(steps: Iterable[Taken]) -> int:
    """Of the turn that begins there: what it is finished with, or more than it is seen to put out."""
    seen = 0
    for step in steps:
        if step.outcome.action.event == "finish":
            return max(1, int(step.params.get("finished_len", seen)))
        seen += int(step.params.get("tokens", 0))
    return seen + MORE_OUTPUT
