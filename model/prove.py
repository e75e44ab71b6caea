"""The proof: every invariant for every action, every page size, any number of sessions.

One-step induction over an arbitrary ledger. For each action: assume all invariants and the action's guards, deny one
conclusion (the invariant after the step, or a side condition of an effect), and ask for a model. None: proved. Together with the
base case and the lemmas of `model/pages.py` this covers all runs, because a ledger never reads another's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.model.explore import Reachable, Run, counterexample, reach
from kvproof.model.pages import EFFECTS, VERDICTS, Lemma, can_happen, prove_effects, refute_without, side_conditions
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import Action
from kvproof.spec.effects import Condition, apply_effects
from kvproof.spec.faults import Fault, actions_with
from kvproof.spec.invariants import ALL_INVARIANTS
from kvproof.spec.state import Ledger, pristine

TIMEOUT_MS = 20_000
# The instance that every proof run explores whole: smallest page size at which nothing is special, shortest row for two turns.
WITNESS_INSTANCE = (1, 3)

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Obligation:
    """One cell of the table: an action keeps an invariant. `sentence` names the part that was not shown."""

    action: str
    invariant: str
    verdict: str
    seconds: float
    goals: int
    sentence: str = ""


@dataclass
class Proof:
    """Everything that one run of the prover found out."""

    fault: Fault | None
    obligations: list[Obligation] = field(default_factory=list)
    lemmas: list[Lemma] = field(default_factory=list)
    vacuous: list[str] = field(default_factory=list)
    reachable: Reachable | None = None
    counterexample: Run | None = None
    seconds: float = 0.0

    @property
    def broken(self) -> tuple[str, ...]:
        """Invariants that some action does not keep, in the order of the domain page."""
        cells = {o.invariant for o in self.obligations if o.verdict == "broken"}
        return tuple(i for i in ALL_INVARIANTS if i in cells)

    @property
    def verdict(self) -> str:
        """proved, broken or unknown. A vacuous part counts as broken: a proof that cannot fail proves nothing."""
        verdicts = {o.verdict for o in self.obligations} | {lemma.verdict for lemma in self.lemmas}
        if "broken" in verdicts or self.vacuous:
            return "broken"
        return "unknown" if "unknown" in verdicts or not self.obligations else "proved"


def prove(fault: Fault | None = None, progress: Progress = lambda _: None, timeout_ms: int = TIMEOUT_MS) -> Proof:
    """Prove everything, or, with a fault, show what its action breaks and find the shortest run that does."""
    begin = time.perf_counter()
    proof = Proof(fault)
    actions = actions_with(fault)
    chosen = actions if fault is None else {fault.action: actions[fault.action]}
    proof.obligations.extend(_base_case(timeout_ms))
    for name, action in chosen.items():
        progress(f"induction: {name}")
        proof.obligations.extend(induction_step(action, timeout_ms, proof.vacuous))
    if fault is None:
        progress("page identity over unbounded rows")
        proof.lemmas.extend(prove_effects(timeout_ms))
        proof.vacuous.extend(_effects_that_cannot_fail())
        progress("all states of a small instance")
        proof.reachable = reach(*WITNESS_INSTANCE)
        proof.vacuous.extend(f"{name}: never happens" for name, taken in proof.reachable.taken.items() if not taken)
    elif proof.broken:
        progress("shortest run")
        proof.counterexample = counterexample(fault)
    proof.seconds = time.perf_counter() - begin
    return proof


def induction_step(action: Action, timeout_ms: int, vacuous: list[str]) -> Iterator[Obligation]:
    """Assume the invariants, assume the step, deny each conclusion."""
    d = Symbols()
    before, params = d.ledger(), d.parameters(action.params)
    step = action.run(d, before, params)
    after, conditions = apply_effects(d, step.after, step.effects)
    solver = _solver(timeout_ms)
    solver.add(*d.domain_facts(before, params, action.params))
    solver.add(*(invariant.holds(d, before) for invariant in ALL_INVARIANTS.values()))
    solver.add(action.applies(d, before), *(guard.holds for guard in step.guards))
    if str(solver.check()) != "sat":
        vacuous.append(f"{action.name}: its guards contradict the invariants")
    for invariant in ALL_INVARIANTS.values():
        yield _obligation(solver, action.name, invariant.id, _goals(d, invariant.id, after, conditions))


def falsify(action: Action, invariant: str, timeout_ms: int = TIMEOUT_MS) -> Mapping[str, Any] | None:
    """A step from an arbitrary state (perhaps not reachable) after which the invariant fails, as a Z3 model; or None."""
    d = Symbols()
    before, params = d.ledger(), d.parameters(action.params)
    step = action.run(d, before, params)
    after, conditions = apply_effects(d, step.after, step.effects)
    solver = _solver(timeout_ms)
    solver.add(*d.domain_facts(before, params, action.params), action.applies(d, before))
    solver.add(*(i.holds(d, before) for i in ALL_INVARIANTS.values()), *(guard.holds for guard in step.guards))
    solver.add(z3.Not(z3.And(*_goals(d, invariant, after, conditions).values())))
    return {str(v): solver.model()[v] for v in solver.model().decls()} if str(solver.check()) == "sat" else None


def _solver(timeout_ms: int) -> z3.Solver:
    solver = z3.Solver()
    solver.set("timeout", timeout_ms)
    solver.set("random_seed", 0)
    return solver


def _goals(d: Symbols, invariant: str, after: Ledger, conditions: tuple[Condition, ...]) -> dict[str, Any]:
    """All that an action must establish for one invariant, each with its sentence."""
    goals = {c.sentence: c.holds for c in conditions if c.invariant == invariant}
    goals[ALL_INVARIANTS[invariant].statement] = ALL_INVARIANTS[invariant].holds(d, after)
    return goals


def _obligation(solver: z3.Solver, action: str, invariant: str, goals: dict[str, Any]) -> Obligation:
    begin = time.perf_counter()
    worst, failed = "proved", ""
    for sentence, goal in goals.items():
        solver.push()
        solver.add(z3.Not(goal))
        verdict = VERDICTS[str(solver.check())]
        solver.pop()
        if verdict == "broken" or (verdict == "unknown" and worst == "proved"):
            worst, failed = verdict, failed or sentence
    return Obligation(action, invariant, worst, time.perf_counter() - begin, len(goals), failed)


def _base_case(timeout_ms: int) -> Iterator[Obligation]:
    """The initial ledger, in which nothing exists, satisfies every invariant."""
    d = Symbols()
    start = pristine(d)
    solver = _solver(timeout_ms)
    solver.add(*d.domain_facts(start, SimpleNamespace(), {}))
    for invariant in ALL_INVARIANTS.values():
        yield _obligation(solver, "(initial)", invariant.id, {invariant.statement: invariant.holds(d, start)})


def _effects_that_cannot_fail() -> Iterator[str]:
    for effect in EFFECTS:
        if not can_happen(effect):
            yield f"{effect}: never happens"
        for condition in side_conditions(effect):
            if not refute_without(effect, condition):
                yield f"{effect}: holds even without '{condition}'"
