"""The shortest run that a fault allows, as a picture: step by step what the row looks like, and what the rule would have done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, TypeAdapter
from rich.text import Text

from kvproof.conformance.replay.ledger_words import changes, value
from kvproof.conformance.report.explain.picture import pictures
from kvproof.conformance.report.explain.story import Lengths
from kvproof.conformance.report.show_effects import all_in_words
from kvproof.conformance.report.show_proof import call_in_words, instance_in_words
from kvproof.model.cache import Remembering, Store
from kvproof.model.cache_folder import cache_folder
from kvproof.model.explore import Run, Taken, counterexample
from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle, Outcome
from kvproof.spec.faults import Fault, actions_with
from kvproof.spec.machine import LEDGER
from kvproof.spec.state import GHOSTS

BY_THE_RULE = "   by the rule"
NOTHING = "does nothing to pages"


def shortest_run_of_fault(fault: Fault) -> Run | None:
    """The run that `kvproof prove --fault` shows. Searched once for each version of the rules, then remembered as its steps."""
    as_steps = Annotated[Run | None, PlainValidator(partial(_taken_again, fault)), PlainSerializer(_steps_of)]
    asker = Remembering(Store(cache_folder()))
    return asker.recall(f"shortest run of {fault.id}", partial(counterexample, fault), TypeAdapter(as_steps))


def _steps_of(run: Run | None) -> dict[str, Any] | None:
    if run is None:
        return None
    taken = [[step.outcome.action.name, step.params] for step in run.steps]
    return {"page_size": run.page_size, "row_width": run.row_width, "config": dict(run.config), "steps": taken}


def _taken_again(fault: Fault, kept: dict[str, Any] | None) -> Run | None:
    """The run whose steps are known, by the rules as they are."""
    if kept is None:
        return None
    oracle = Oracle.of(kept["page_size"], kept["row_width"], actions_with(fault, fault.machine), **kept["config"])
    state, steps = fault.machine.start(oracle.d), []
    for name, params in kept["steps"]:
        outcome = oracle.step(oracle.actions[name], state, params)
        steps.append(Taken(params, outcome))
        state = outcome.after
    broken = steps[-1].outcome.broken(oracle.d, fault.machine.invariants)
    return Run(kept["page_size"], kept["row_width"], tuple(steps), broken, kept["config"])


def pictured_run(fault: Fault, run: Run) -> Iterator[Text]:
    """A line for each step; where the faulty rule deviates, what the right one would have left; and what the two do otherwise."""
    oracle = Oracle.of(run.page_size, run.row_width, fault.machine.actions, **run.config)
    steps = [(step.outcome, _by_the_rule(oracle, fault, step)) for step in run.steps]
    yield Text(f"the shortest run: {instance_in_words(run)}", "dim")
    calls = [f"{number:>2} {call_in_words(step)}" for number, step in enumerate(run.steps, start=1)]
    yield from _rows(oracle.d, run, calls, steps) if fault.machine is LEDGER else _changes(calls, steps)
    for wrong, right in steps:
        if right is not None:
            yield from _otherwise(oracle.d, wrong, right)
    for invariant, sentence in run.broken.items():
        yield Text(f"✗ {invariant} ", "bold red") + Text(sentence, "not bold not red")


TakenAndDue = tuple[Outcome, "Outcome | None"]
"""A step as it was taken, and by the right rule where that is another."""


def _by_the_rule(oracle: Oracle, fault: Fault, step: Taken) -> Outcome | None:
    name = step.outcome.action.name
    return oracle.step(oracle.actions[name], step.outcome.before, step.params) if name in fault.deviations else None


def _rows(d: Integers, run: Run, calls: Sequence[str], steps: Sequence[TakenAndDue]) -> Iterator[Text]:
    """The row after each step, and under a step that leaves something else than the rule would the row by the rule."""
    rows: list[tuple[str, Lengths]] = []
    for call, (taken, right) in zip(calls, steps, strict=True):
        rows.append((call, Lengths.of(d, taken.after)))
        if right is not None and right.after != taken.after:
            rows.append((BY_THE_RULE, Lengths.of(d, right.after)))
    drawn = pictures(rows, run.page_size) or [Text(name) for name, _ in rows]
    last = max(number for number, (name, _) in enumerate(rows) if name != BY_THE_RULE)
    for number, line in enumerate(drawn):
        yield Text.assemble(line, (" ✗", "bold red")) if number == last else line


def _changes(calls: Sequence[str], steps: Sequence[TakenAndDue]) -> Iterator[Text]:
    """Of a small machine, which has no row: what changed."""
    for call, (taken, _) in zip(calls, steps, strict=True):
        yield Text(f"{call}  ") + Text("; ".join(changes(taken.before, taken.after)), "dim")


def _otherwise(d: Integers, wrong: Outcome, right: Outcome) -> Iterator[Text]:
    """What a faulty step leaves and does, beside what the rule does."""
    name = wrong.action.name
    for guard in right.failed_guards:
        yield Text(f"{name}: the rule forbids it here; it needs: {guard.sentence}")
    done, due = all_in_words(wrong.effects, d), all_in_words(right.effects, d)
    if done != due:
        yield Text(f"{name} {done or NOTHING}; the rule {due or NOTHING}")
    for field in vars(wrong.after):
        has, ought = getattr(wrong.after, field), getattr(right.after, field)
        if has != ought:
            truth = "in truth, " if field in GHOSTS else ""
            yield Text(f"{name}: {truth}{field} is {value(field, has)} after it; the rule says {value(field, ought)}")
