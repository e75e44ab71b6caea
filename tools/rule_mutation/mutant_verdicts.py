"""The verdict on one mutant: which check notices it, or that it is no mistake, or that nothing notices it.

Checks in the order in which they are asked; the first one that notices names the verdict:
the rules do not run; induction fails; a lemma on pages fails or a side condition is needed no more; a turn cannot end; an effect
is wrong about small rows; an action can no longer happen; an expectation is not met; a fault breaks other invariants than it
did; a replay of right runs disagrees; a small instance has another number of states.

Equivalent is shown by the solver, never guessed: all actions have the same step in every well-formed state, or in every
state that the invariants allow, and what effects and invariants demand is the same everywhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.model.expectations import EXPECTATIONS
from kvproof.model.expected_runs import unexpected
from kvproof.model.questions import ask_z3
from rule_mutation.effect_truth import untrue_effects
from rule_mutation.mutant_replay import INSTANCES, Runs
from rule_mutation.mutant_spec import NotANumber, SpecCopy, copy_of_spec
from rule_mutation.mutant_terms import (
    Meaning,
    effects_that_differ,
    invariants_that_differ,
    rules_that_differ,
    same,
)

KILLED, EQUIVALENT, SURVIVED = "killed", "equivalent", "survived"
NO_MUTANT, NOT_JUDGED = "no mutant", "not judged"
CRASH, INDUCTION, UNREACHABLE = "does not run", "induction", "unreachable action"
CONDITIONS, LIVENESS = "lemmas and conditions", "liveness"
SMALL_ROWS, EXPECTATION, KILL_MATRIX = "small rows", "expectation", "kill matrix"
CONFORMANCE, STATE_COUNT = "conformance", "state count"
# Checks that one run of `kvproof prove` makes by itself; the others need tests: of effects, all faults, replays, pinned numbers.
BY_PROOF = (CRASH, INDUCTION, CONDITIONS, LIVENESS, UNREACHABLE, EXPECTATION)
CHECKS = (*BY_PROOF, SMALL_ROWS, KILL_MATRIX, CONFORMANCE, STATE_COUNT)
# A mutant whose state space has no end is stopped here; the right rules have far fewer states.
MOST_STATES = 10_000


@dataclass(frozen=True)
class Verdict:
    """`by` names the check that killed it, `detail` what the check said."""

    outcome: str
    by: str = ""
    detail: str = ""


class Judge:
    """The right specification with everything about it that mutants are compared with, worked out once."""

    def __init__(self) -> None:
        self.right = copy_of_spec()
        self.meaning = Meaning(self.right)

    @cached_property
    def runs(self) -> list[Runs]:
        return [Runs(self.right, instance) for instance in INSTANCES]

    @cached_property
    def _breaks(self) -> dict[str, set[str]]:
        """What each fault breaks by induction. (What it is pinned to may count the end of its shortest run as well.)"""
        return {name: _broken_by(self.right, fault) for name, fault in self.right.faults.items()}

    def verdict(self, module: str, tree: ast.Module) -> Verdict:
        try:
            copy = copy_of_spec(module, tree)
            wrong = Meaning(copy)
            _ = wrong.rules, wrong.checks, wrong.invariants, wrong.start
            if not copy.reached:
                return Verdict(NOT_JUDGED, "", "no action, effect or invariant that is judged here runs it")
            return self._judged(copy, wrong)
        except NotANumber:
            return Verdict(NO_MUTANT)
        except (TypeError, ValueError, AttributeError, KeyError, IndexError, NameError, z3.Z3Exception) as error:
            return Verdict(KILLED, CRASH, f"{type(error).__name__}: {error}")

    def _judged(self, copy: SpecCopy, wrong: Meaning) -> Verdict:
        right = self.meaning
        changed = rules_that_differ(right, wrong)
        demands = effects_that_differ(right, wrong)
        invariants = invariants_that_differ(right, wrong)
        starts_elsewhere = not same(map(z3.simplify, right.start), map(z3.simplify, wrong.start))
        if not (changed or demands or invariants or starts_elsewhere):
            return Verdict(EQUIVALENT, "in every state")
        everything = bool(invariants or starts_elsewhere)
        if found := _broken_base(copy, wrong) if everything else "":
            return Verdict(KILLED, INDUCTION, found)
        for name in copy.actions if everything else changed:
            if verdict := _broken_induction(copy, copy.actions[name]):
                return verdict
        if found := next(_broken_conditions(copy), "") if demands else "":
            return Verdict(KILLED, CONDITIONS, found)
        if found := next(_stuck(copy, set(copy.actions) if everything else set(changed)), ""):
            return Verdict(KILLED, LIVENESS, found)
        if found := next(untrue_effects(copy.effects, demands), ""):
            return Verdict(KILLED, SMALL_ROWS, found)
        if found := next(unexpected(copy.machines, copy.oracle), ""):
            return Verdict(KILLED, EXPECTATION, found)
        differ = set(rules_that_differ(right, wrong, right.allowed))
        differ |= set(copy.actions) if starts_elsewhere else set()
        counts: list[int] = []
        if in_ledger := bool(differ & set(copy.ledger.actions)):
            verdict, counts = _explored(copy)
            if verdict:
                return verdict
        if verdict := self._walked(copy, differ):
            return verdict
        if found := next(self._other_kills(copy, wrong, bool(invariants)), ""):
            return Verdict(KILLED, KILL_MATRIX, found)
        if in_ledger and (found := next((f for runs in self.runs if (f := runs.noticed(copy))), "")):
            return Verdict(KILLED, CONFORMANCE, found)
        if in_ledger and counts != (pinned := [len(runs.events) for runs in self.runs]):
            return Verdict(KILLED, STATE_COUNT, f"{counts} states, not {pinned}")
        if differ:
            return Verdict(SURVIVED, "", f"another step of {', '.join(sorted(differ))}")
        if demands or invariants:
            return Verdict(SURVIVED, "", f"demands less or more, by {', '.join((*demands, *invariants))}")
        return Verdict(EQUIVALENT, "in every state that the invariants allow")

    @cached_property
    def _walks(self) -> dict[str, int]:
        """States of the small machines within some steps, by the right rules; tests pin them."""
        return {m.name: self.right.explore.walk(m).states for m in self.right.machines[1:]}

    def _walked(self, copy: SpecCopy, differ: set[str]) -> Verdict | None:
        """The first states of the small machines whose rules differ: actions that never happen, and counts."""
        for machine in (m for m in copy.machines[1:] if differ & set(m.actions)):
            found = copy.explore.walk(machine)
            if idle := [name for name, times in found.taken.items() if not times]:
                return Verdict(KILLED, UNREACHABLE, f"{idle[0]} never happens")
            if found.states != self._walks[machine.name]:
                return Verdict(KILLED, STATE_COUNT, f"{found.states} states, not {self._walks[machine.name]}")
        return None

    def _other_kills(self, copy: SpecCopy, wrong: Meaning, all_of_them: bool) -> Iterator[str]:
        """Faults that no longer break what they broke."""
        for name, deviations in wrong.faults.items():
            known = self.meaning.faults[name]
            if not all_of_them and all(same(known[a].parts(), terms.parts()) for a, terms in deviations.items()):
                continue
            if (broken := _broken_by(copy, copy.faults[name])) != self._breaks[name]:
                yield f"{name} breaks {_names(broken)}, not {_names(self._breaks[name])}"


def _broken_by(copy: SpecCopy, fault: Any) -> set[str]:
    """Invariants that the fault's actions do not keep, the auxiliary ones left out."""
    return {i for action in fault.deviations.values() for i in _broken(copy, action, [])} & set(
        fault.machine.invariants
    )


def _broken(copy: SpecCopy, action: Any, vacuous: list[str]) -> dict[str, str]:
    cells = copy.prove.induction_step(action, vacuous)
    return {cell.invariant: cell.verdict for cell in cells if cell.verdict != "proved"}


def _broken_induction(copy: SpecCopy, action: Any) -> Verdict | None:
    vacuous: list[str] = []
    if broken := _broken(copy, action, vacuous):
        return Verdict(KILLED, INDUCTION, f"{action.name} breaks {', '.join(broken)}")
    return Verdict(KILLED, UNREACHABLE, vacuous[0]) if vacuous else None


class Briefly:
    """Asks Z3 for little: a lemma on pages that is false has no answer, and one that is true has it soon."""

    def answers(self, question: Any) -> Any:
        return ask_z3(question.pose(), LITTLE)


LITTLE = 300_000
"""Resource units."""


def _broken_conditions(copy: SpecCopy) -> Iterator[str]:
    """Lemmas on pages that fail, and side conditions that nothing needs any more."""
    yield from (f"{m.effect} / {m.goal}" for m in copy.prove.prove_effects(Briefly()) if m.verdict != "proved")
    yield from copy.prove._effects_that_cannot_fail(Briefly())


def _stuck(copy: SpecCopy, changed: set[str]) -> Iterator[str]:
    """Stages of a turn that no rule leads on from; `changed`: the rules whose stages are asked."""
    stages = [stage for stage in copy.liveness.STAGES if changed & stage.ways.keys()]
    lemmas = copy.liveness.prove_liveness(Briefly(), copy.ledger.actions, stages)
    yield from (m.goal for m in lemmas if m.verdict != "proved")


def _broken_base(copy: SpecCopy, wrong: Meaning) -> str:
    """The invariant that the initial ledger does not satisfy."""
    for machine in copy.machines:
        start = machine.start(wrong.d)
        facts = wrong.d.domain_facts(start, SimpleNamespace(), {})
        for invariant in machine.all_invariants.values():
            solver = z3.Solver()
            solver.add(*facts, z3.Not(z3.And(invariant.holds(wrong.d, start))))
            if solver.check() != z3.unsat:
                return f"(initial) of {machine.name} breaks {invariant.id}"
    return ""


def _explored(copy: SpecCopy) -> tuple[Verdict | None, list[int]]:
    """All states of the small instances under the mutated rules: actions that never happen, expectations, counts."""
    counts = []
    met = {e.name: 0 for e in EXPECTATIONS}
    taken = dict.fromkeys(copy.ledger.actions, 0)
    for page_size, row_width, config in INSTANCES:
        oracle = copy.oracle.Oracle.of(page_size, row_width, **config)
        seen = {copy.state.pristine(oracle.d): None}
        for state in (rest := list(seen)):
            for step in copy.explore.successors(oracle, state) if len(seen) < MOST_STATES else ():
                taken[step.outcome.action.name] += 1
                if step.outcome.after not in seen:
                    seen[step.outcome.after] = None
                    rest.append(step.outcome.after)
        counts.append(len(seen))
        for expectation in EXPECTATIONS if not config else ():
            met[expectation.name] += sum(1 for state in seen if expectation.holds(oracle.d, state))
    if idle := [name for name, times in taken.items() if not times]:
        return Verdict(KILLED, UNREACHABLE, f"{idle[0]} never happens"), counts
    for expectation in EXPECTATIONS:
        if bool(met[expectation.name]) != expectation.reachable:
            said = "never happens" if expectation.reachable else "happens"
            return Verdict(KILLED, EXPECTATION, f"{expectation.name}: {said}"), counts
    return None, counts


def _names(invariants: set[str]) -> str:
    return ", ".join(sorted(invariants)) or "nothing"
