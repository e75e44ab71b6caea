"""The proof: every invariant for every action, every page size and configuration, any number of sessions.

One-step induction over an arbitrary state of each machine. For each action: assume all invariants and the action's guards, deny
one conclusion (the invariant after the step, or a side condition of an effect), and ask for a model. None: proved. Together
with the base case and the lemmas of `model/pages.py` this covers all runs, because a ledger never reads another's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.model.explore import Reachable, Run, counterexample, reach
from kvproof.model.pages import EFFECTS, VERDICTS, Lemma, can_happen, prove_effects, refute_without, side_conditions
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import Action
from kvproof.spec.effects import Condition, apply_effects
from kvproof.spec.faults import Fault
from kvproof.spec.invariants import Invariant
from kvproof.spec.machine import MACHINES, Machine, every_invariant

TIMEOUT_MS = 20_000
# Page size 1 and the shortest row that holds two turns, in each kind of configuration: explored whole in every proof run.
WITNESS = (1, 3)
WITNESS_CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"overlap": True},
    {"speculation": 1},
    {"overlap": True, "speculation": 2},
    {"window": 1},
    {"tree": False},
)

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
    machine: str = "ledger"


@dataclass
class Proof:
    """Everything that one run of the prover found out."""

    fault: Fault | None
    obligations: list[Obligation] = field(default_factory=list)
    lemmas: list[Lemma] = field(default_factory=list)
    vacuous: list[str] = field(default_factory=list)
    reachable: list[Reachable] = field(default_factory=list)
    counterexample: Run | None = None
    seconds: float = 0.0

    @property
    def broken(self) -> tuple[str, ...]:
        """Invariants that some action does not keep, in the order of the domain page; auxiliary ones last."""
        cells = {o.invariant for o in self.obligations if o.verdict == "broken"}
        own = every_invariant()
        return (*(i for i in own if i in cells), *sorted(cells - set(own)))

    @property
    def verdict(self) -> str:
        """proved, broken or unknown. A vacuous part counts as broken: a proof that cannot fail proves nothing."""
        verdicts = {o.verdict for o in self.obligations} | {lemma.verdict for lemma in self.lemmas}
        if "broken" in verdicts or self.vacuous:
            return "broken"
        return "unknown" if "unknown" in verdicts or not self.obligations else "proved"


def prove(fault: Fault | None = None, progress: Progress = lambda _: None, timeout_ms: int = TIMEOUT_MS) -> Proof:
    """Prove everything, or, with a fault, show what its actions break and find the shortest run that does."""
    begin = time.perf_counter()
    proof = Proof(fault)
    for machine in MACHINES if fault is None else (fault.machine,):
        proof.obligations.extend(_base_case(machine, timeout_ms))
        for name, action in (machine.actions if fault is None else fault.deviations).items():
            progress(f"induction: {name}")
            proof.obligations.extend(induction_step(machine, action, timeout_ms, proof.vacuous))
    if fault is None:
        progress("page identity over unbounded rows")
        proof.lemmas.extend(prove_effects(timeout_ms))
        proof.vacuous.extend(_effects_that_cannot_fail())
        for config in WITNESS_CONFIGS:
            progress("all states of a small instance")
            proof.reachable.append(reach(*WITNESS, **config))
        proof.vacuous.extend(_what_never_happens(proof.reachable))
    elif proof.broken:
        progress("shortest run")
        proof.counterexample = counterexample(fault)
    proof.seconds = time.perf_counter() - begin
    return proof


def induction_step(machine: Machine, action: Action, timeout_ms: int, vacuous: list[str]) -> Iterator[Obligation]:
    """Assume the invariants, assume the step, deny each conclusion."""
    d = Symbols()
    before, params = d.arbitrary(machine.state), d.parameters(action.params)
    step = action.run(d, before, params)
    after, conditions = apply_effects(d, step.after, step.effects)
    solver = _solver(timeout_ms)
    solver.add(*d.domain_facts(before, params, action.params))
    solver.add(*(invariant.holds(d, before) for invariant in machine.all_invariants.values()))
    solver.add(action.applies(d, before), *(guard.holds for guard in step.guards))
    if str(solver.check()) != "sat":
        vacuous.append(f"{action.name}: its guards contradict the invariants")
    for invariant in machine.all_invariants.values():
        yield _obligation(solver, machine, action.name, invariant.id, _goals(d, invariant, after, conditions))


def _what_never_happens(found: list[Reachable]) -> Iterator[str]:
    """Actions that no explored instance takes, and turns that no run can end (I18)."""
    for name in found[0].taken:
        if not any(r.taken[name] for r in found):
            yield f"{name}: never happens"
    for r in found:
        if r.stuck:
            yield f"{r.stuck} states from which a turn cannot end, with {dict(r.config)}"


def _solver(timeout_ms: int) -> z3.Solver:
    solver = z3.Solver()
    solver.set("timeout", timeout_ms)
    solver.set("random_seed", 0)
    return solver


def _goals(d: Symbols, invariant: Invariant, after: Any, conditions: tuple[Condition, ...]) -> dict[str, Any]:
    """All that an action must establish for one invariant, each with its sentence."""
    goals = {c.sentence: c.holds for c in conditions if c.invariant == invariant.id}
    goals[invariant.statement] = invariant.holds(d, after)
    return goals


def _obligation(solver: z3.Solver, machine: Machine, action: str, invariant: str, goals: dict[str, Any]) -> Obligation:
    begin = time.perf_counter()
    worst, failed = "proved", ""
    for sentence, goal in goals.items():
        solver.push()
        solver.add(z3.Not(goal))
        verdict = VERDICTS[str(solver.check())]
        solver.pop()
        if verdict == "broken" or (verdict == "unknown" and worst == "proved"):
            worst, failed = verdict, failed or sentence
    return Obligation(action, invariant, worst, time.perf_counter() - begin, len(goals), failed, machine.name)


def _base_case(machine: Machine, timeout_ms: int) -> Iterator[Obligation]:
    """The initial state, in which nothing exists, satisfies every invariant."""
    d = Symbols()
    start = machine.start(d)
    solver = _solver(timeout_ms)
    solver.add(*d.domain_facts(start, SimpleNamespace(), {}))
    for invariant in machine.all_invariants.values():
        goals = {invariant.statement: invariant.holds(d, start)}
        yield _obligation(solver, machine, "(initial)", invariant.id, goals)


def _effects_that_cannot_fail() -> Iterator[str]:
    for effect in EFFECTS:
        if not can_happen(effect):
            yield f"{effect}: never happens"
        for condition in side_conditions(effect):
            if not refute_without(effect, condition):
                yield f"{effect}: holds even without '{condition}'"
