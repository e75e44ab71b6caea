"""Pages that draw every action, invariant and fault, made from the specification while the site is built.

An action is drawn in the first state of a small instance in which it moves something. A fault is drawn at the last step of its
shortest counterexample, beside what the right rule does there. An invariant is drawn where the first fault that breaks it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from pictures import drawing

from kvproof.conformance.replay.ledger_words import changes
from kvproof.conformance.report.explain.runs import shortest_run_of_fault
from kvproof.conformance.report.show_effects import all_in_words
from kvproof.conformance.report.show_proof import instance_in_words
from kvproof.model.explore import Run, Taken, shortest_run, successors
from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle
from kvproof.spec.faults import FAULTS, Fault
from kvproof.spec.machine import LEDGER, MACHINES, Machine
from kvproof.spec.state import PHASE_NAMES

CONFIGS: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (2, 4, {}),
    (1, 3, {"overlap": True}),
    (1, 3, {"speculation": 1}),
    (1, 3, {"overlap": True, "speculation": 2}),
    (1, 3, {"window": 1}),
    (1, 3, {"tree": False}),
)
"""Small instances (page size, row width, configuration), in the order in which an action is looked for."""
WALK_STEPS = 5


@dataclass(frozen=True)
class Shown:
    """A step that shows an action."""

    d: Integers
    taken: Taken


def drawn() -> dict[str, str]:
    """Every page: its place in the site, and its text."""
    return {
        "pictures/actions.md": "\n".join(_actions_page()),
        "pictures/invariants.md": "\n".join(_invariants_page()),
        "pictures/faults.md": "\n".join(_faults_page()),
    }


def _actions_page() -> Iterator[str]:
    yield from ("# Actions, drawn", "")
    yield (
        "Generated from `spec/`. Each action is drawn in the first state of a small instance in which it moves pages: the row "
        "before and after, the owners of its pages, and the lengths (letters: [the domain](../domain.md)). "
        "The rules in words: [rules](../rules.md)."
    )
    yield from ("", "## From phase to phase", "", *_phases(), "")
    for machine in MACHINES:
        yield from (f"## {machine.name.capitalize()}: {machine.summary}", "")
        for name, action in machine.actions.items():
            yield from (f"### {name} {{ #{name} }}", "", f"{action.summary}. {_sourced(action.source)}".strip(), "")
            shown = _examples(machine.name).get(name)
            if shown is None:
                yield from ("It happens in no instance that is small enough for a picture.", "")
                continue
            yield from _step(name, shown.taken, shown.d)


def _phases() -> Iterator[str]:
    """The state diagram of a turn as a table: from the phase of the line to that of the column, by these actions."""
    ways: dict[tuple[int, int], dict[str, None]] = {}
    for _, taken in _walked(LEDGER.name):
        way = (taken.outcome.before.phase, taken.outcome.after.phase)
        ways.setdefault(way, {})[taken.outcome.action.name] = None
    phases = range(len(PHASE_NAMES))
    yield "Actions that take a turn from the phase of the row to the phase of the column, in the small instances:"
    yield ""
    yield f"| from \\ to | {' | '.join(PHASE_NAMES)} |"
    yield "| --- " * (len(PHASE_NAMES) + 1) + "|"
    for before in phases:
        cells = [" ".join(f"[{name}](#{name})" for name in ways.get((before, after), ())) for after in phases]
        yield f"| **{PHASE_NAMES[before]}** | {' | '.join(cells)} |"


def _invariants_page() -> Iterator[str]:
    yield from ("# Invariants, drawn", "")
    yield (
        "Generated from `spec/`. Each invariant is drawn where the first fault of the catalogue breaks it, in the shortest run. "
        "Where no fault is of its machine, a test shows that it breaks without any one guard of the rules."
    )
    yield ""
    for machine in MACHINES:
        for invariant in machine.invariants.values():
            yield from (f"## {invariant.id} {{ #{invariant.id.lower()} }}", "", f"**{invariant.statement}.**", "")
            yield from (f"{invariant.explanation}. {_sourced(invariant.source)}", "")
            if machine not in (fault.machine for fault in FAULTS.values()):
                continue
            fault, run = _breaker(invariant.id, machine)
            yield from (
                f"Broken by [{fault.id}](faults.md#{fault.id.lower()}) ({fault.summary}): {run.broken[invariant.id]}.",
                "",
            )
            last = run.steps[-1].outcome
            yield from (
                _drawn(f"{invariant.id} broken", {"before": last.before, f"{last.action.name}": last.after}, run),
                "",
                *_said(last, _integers(run)),
                "",
            )


def _faults_page() -> Iterator[str]:
    yield from ("# Faults, drawn", "")
    yield (
        "Generated from `spec/`. Each fault is drawn at the last step of its shortest counterexample: the state before, the "
        "state after the right rule, and the state after the faulty one. `kvproof prove --fault ID` shows the run. "
        "The table: [faults](../faults.md)."
    )
    yield ""
    for fault in FAULTS.values():
        yield from (f"## {fault.id} {{ #{fault.id.lower()} }}", "", f"{fault.summary}. {_sourced(fault.source)}", "")
        run = _run_of(fault.id)
        last = run.steps[-1]
        right_rule = fault.machine.actions[last.outcome.action.name]
        right = Oracle(_integers(run), fault.machine.actions).step(right_rule, last.outcome.before, last.params)
        steps = " → ".join(step.outcome.action.name for step in run.steps)
        yield from (f"The shortest run ({instance_in_words(run)}): {steps}.", "")
        states = {"before": last.outcome.before, "by the rule": right.after, f"by {fault.id}": last.outcome.after}
        yield from (_drawn(f"{fault.id} and the right rule", states, run), "")
        yield from (
            f"- {name}: {what}"
            for name, what in (("the rule", right), (fault.id, last.outcome))
            for what in [_effects(what, run)]
        )
        broken = "; ".join(f"[{i}](invariants.md#{i.lower()}) {sentence}" for i, sentence in run.broken.items())
        yield from (f"- breaks {broken}" if broken else "- breaks the order of events", "")


def _step(name: str, taken: Taken, d: Integers) -> Iterator[str]:
    given = ", ".join(f"{key} {int(number)}" for key, number in taken.params.items())
    yield from (drawing(name, {"before": taken.outcome.before, "after": taken.outcome.after}, d), "")
    yield f"Page size {d.page_size}, row of {d.row_width} tokens{_config(d)}{f'; given: {given}' if given else ''}."
    yield from ("", *_said(taken.outcome, d), "")


def _said(outcome: Any, d: Integers) -> Iterator[str]:
    if words := all_in_words(outcome.effects, d):
        yield f"- effects: {words}"
    yield from (f"- {line}" for line in changes(outcome.before, outcome.after))


def _effects(outcome: Any, run: Run) -> str:
    words = all_in_words(outcome.effects, _integers(run))
    if outcome.failed_guards:
        return f"does not allow it: {'; '.join(guard.sentence for guard in outcome.failed_guards)}"
    return words or "; ".join(changes(outcome.before, outcome.after)) or "changes nothing"


def _drawn(title: str, states: dict[str, Any], run: Run) -> str:
    return drawing(title, states, _integers(run))


def _integers(run: Run) -> Integers:
    return Integers(run.page_size, run.row_width, **run.config)


def _config(d: Integers) -> str:
    said = SimpleNamespace(**{name: getattr(d, name) for name in ("overlap", "speculation", "window", "tree")})
    parts = [
        "overlap" if said.overlap else "",
        f"speculation v{said.speculation}" if said.speculation else "",
        f"window of {said.window}" if said.window else "",
        "" if said.tree else "chunk cache",
    ]
    return "".join(f", {part}" for part in parts if part)


def _sourced(source: str) -> str:
    return f"Source: {source}." if source else ""


@cache
def _run_of(fault_id: str) -> Run:
    run = shortest_run_of_fault(FAULTS[fault_id])
    assert run is not None, fault_id  # pinned by a test of the model
    return run


def _breaker(invariant: str, machine: Machine) -> tuple[Fault, Run]:
    """The first fault whose shortest run breaks the invariant; else one of which some run does."""
    faults = [fault for fault in FAULTS.values() if fault.machine is machine]
    for fault in sorted(faults, key=lambda fault: invariant not in fault.breaks):
        if invariant in _run_of(fault.id).broken:
            return fault, _run_of(fault.id)
    for fault in faults:
        run = shortest_run(fault, *fault.smallest, invariant)
        if run is not None:
            return fault, run
    raise AssertionError(f"no fault breaks {invariant}: a test of the model pins that one does")


@cache
def _examples(machine_name: str) -> dict[str, Shown]:
    """For each action the first step that moves pages, else the first that there is."""
    first: dict[str, Shown] = {}
    moving: dict[str, Shown] = {}
    for d, taken in _walked(machine_name):
        name = taken.outcome.action.name
        first.setdefault(name, Shown(d, taken))
        if name not in moving and all_in_words(taken.outcome.effects, d):
            moving[name] = Shown(d, taken)
    return {**first, **moving}


@cache
def _walked(machine_name: str) -> list[tuple[Integers, Taken]]:
    """Steps of small instances, those near the start first."""
    machine = next(machine for machine in MACHINES if machine.name == machine_name)
    found = []
    for page_size, row_width, config in CONFIGS if machine is LEDGER else CONFIGS[:1]:
        oracle = Oracle.of(page_size, row_width, machine.actions, **config)
        seen, frontier = {machine.start(oracle.d)}, [machine.start(oracle.d)]
        depth = 0
        while frontier and (machine is LEDGER or depth < WALK_STEPS):
            reached = []
            for state in frontier:
                for taken in successors(oracle, state):
                    found.append((oracle.d, taken))
                    if taken.outcome.after not in seen:
                        seen.add(taken.outcome.after)
                        reached.append(taken.outcome.after)
            frontier, depth = reached, depth + 1
    return found
