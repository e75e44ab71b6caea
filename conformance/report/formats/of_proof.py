"""A proof's cells, lemmas and counterexample as events of a run."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from kvproof.conformance.replay.ledger_words import value
from kvproof.conformance.report.formats.run_events import Cell, Counterexample, LemmaSaid, Proved, Step, Vacuous
from kvproof.model.explore import Run
from kvproof.model.prove import Proof
from kvproof.model.written_rule import WrittenRule
from kvproof.spec.actions import Action
from kvproof.spec.machine import MACHINES


def events_of_proof(
    proof: Proof, of: str = "the model's own rules", verdict: str | None = None, actions: Mapping[str, Action] = {}
) -> Iterator[Any]:
    """`actions`: those that are not the built-in ones. `verdict`: unless it is the proof's own."""
    table = {name: action for machine in MACHINES for name, action in machine.actions.items()}
    table.update(proof.fault.deviations if proof.fault is not None else {})
    table.update(actions)
    for o in proof.obligations:
        path, line = place_of(table[o.action]) if o.action in table else (None, None)
        yield Cell.about(o, part=o.sentence, path=path, line=line)
    yield from (LemmaSaid.about(m, lemma=m.goal) for m in proof.lemmas)
    yield from (Vacuous(what=what) for what in proof.vacuous)
    if proof.counterexample is not None:
        yield _counterexample(proof.counterexample)
    yield Proved.about(proof, of=of, verdict=verdict or proof.verdict, cells=len(proof.obligations))


def place_of(action: Action) -> tuple[str | None, int | None]:
    """File and line of the function that is the rule, also where it stands in a variant's file."""
    if isinstance(action.run, WrittenRule):
        path, line = Path(action.run.path), action.run.line
    elif (code := getattr(inspect.unwrap(action.run), "__code__", None)) is not None:
        path, line = Path(code.co_filename), code.co_firstlineno
    else:
        return None, None
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path), line


def _counterexample(run: Run) -> Counterexample:
    steps = tuple(
        Step(action=t.outcome.action.name, params=dict(t.params), after=_changed(t.outcome.before, t.outcome.after))
        for t in run.steps
    )
    return Counterexample.about(run, config=dict(run.config), steps=steps)


def _changed(before: Any, after: Any) -> dict[str, Any]:
    changed = [f.name for f in fields(after) if getattr(before, f.name) != getattr(after, f.name)]
    return {name: value(name, getattr(after, name)) if name == "phase" else getattr(after, name) for name in changed}
