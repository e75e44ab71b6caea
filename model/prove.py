"""The proof: every invariant for every action, every page size, any number of sessions.

One-step induction over an arbitrary ledger. For each action: assume all invariants and the action's guards, deny one
conclusion (the invariant after the step, or a side condition of an effect), and ask for a model. None: proved. Together with the
base case and the lemmas of `model/pages.py` this covers all runs, because a ledger never reads another's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.model.explore import Reachable, Run, counterexample, reach
from kvproof.model.pages import Lemma, twin_questions
from kvproof.model.questions import (
    BROKEN,
    POSSIBLE,
    PROVED,
    UNKNOWN,
    Answers,
    Asker,
    Label,
    Posed,
    Question,
    checked,
    z3_solver,
)
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import Action
from kvproof.spec.effects import Condition, apply_effects
from kvproof.spec.faults import Fault, actions_with
from kvproof.spec.invariants import ALL_INVARIANTS, Invariant
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
    complete: bool = False

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
        return "unknown" if "unknown" in verdicts or not self.complete else "proved"


class Interrupted(KeyboardInterrupt):
    """Stopped by Ctrl-C; `proof` holds what was found out so far."""

    def __init__(self, proof: Proof) -> None:
        super().__init__()
        self.proof = proof


def prove(
    fault: Fault | None = None,
    progress: Progress = lambda _: None,
    timeout_ms: int = TIMEOUT_MS,
    asker: Asker | None = None,
) -> Proof:
    """Prove everything, or, with a fault, show what its action breaks and find the shortest run that does.

    `asker` answers the questions; left out, Z3 does, anew each time.
    """
    begin = time.perf_counter()
    proof = Proof(fault)
    try:
        _find_out(proof, progress, timeout_ms, asker or Asker())
    except KeyboardInterrupt as stop:
        raise Interrupted(proof) from stop
    finally:
        proof.seconds = time.perf_counter() - begin
    return proof


def _find_out(proof: Proof, progress: Progress, timeout_ms: int, asker: Asker) -> None:
    fault = proof.fault
    actions = actions_with(fault)
    chosen = actions if fault is None else {fault.action: actions[fault.action]}
    proof.obligations.extend(_obligations("(initial)", asker.answers(base_case(), timeout_ms)))
    for name, action in chosen.items():
        progress(f"induction: {name}")
        known_as = f"{name} with {fault.id}" if fault else name
        proof.obligations.extend(induction_step(action, timeout_ms, proof.vacuous, asker, known_as))
    if fault is None:
        progress("page identity over unbounded rows")
        proof.lemmas.extend(Lemma.all_of(asker, timeout_ms))
        proof.vacuous.extend(_effects_that_cannot_fail(asker, timeout_ms))
        progress("all states of a small instance")
        proof.reachable = Reachable(**asker.recall("reachable states", lambda: vars(reach(*WITNESS_INSTANCE))))
        proof.vacuous.extend(f"{name}: never happens" for name, taken in proof.reachable.taken.items() if not taken)
    elif proof.broken:
        progress("shortest run")
        proof.counterexample = counterexample(fault)
    proof.complete = True


def induction_step(
    action: Action, timeout_ms: int, vacuous: list[str], asker: Asker | None = None, known_as: str = ""
) -> Iterator[Obligation]:
    """Assume the invariants, assume the step, deny each conclusion."""
    answers = (asker or Asker()).answers(step_question(action, known_as), timeout_ms)
    if answers[POSSIBLE].verdict != PROVED:
        vacuous.append(f"{action.name}: its guards contradict the invariants")
    yield from _obligations(action.name, answers)


def step_question(action: Action, known_as: str = "") -> Question:
    """Whether one action keeps everything. `known_as` tells apart what the package's sources determine."""
    return Question(
        f"induction: {action.name}", lambda: _pose_step(action), known_as and f"induction: {known_as}", action
    )


def _pose_step(action: Action) -> Posed:
    d, before, invariants = _assumed(tuple(ALL_INVARIANTS.values()))
    params = d.parameters(action.params)
    step = action.run(d, before, params)
    after, conditions = apply_effects(d, step.after, step.effects)
    facts = d.domain_facts(before, params, action.params)
    taken = (action.applies(d, before), *(guard.holds for guard in step.guards))
    goals: dict[Label, Any] = {}
    for invariant in ALL_INVARIANTS:
        goals.update({(invariant, text): goal for text, goal in _goals(d, invariant, after, conditions).items()})
    return Posed((*facts, *invariants, *taken), goals)


@cache
def _assumed(invariants: tuple[Invariant, ...]) -> tuple[Symbols, Ledger, tuple[Any, ...]]:
    """The invariants of an arbitrary ledger: the same terms for every action, so they are built once."""
    d = Symbols()
    before = d.ledger()
    return d, before, tuple(invariant.holds(d, before) for invariant in invariants)


def falsify(action: Action, invariant: str, timeout_ms: int = TIMEOUT_MS) -> Mapping[str, Any] | None:
    """A step from an arbitrary state (perhaps not reachable) after which the invariant fails, as a Z3 model; or None."""
    d = Symbols()
    before, params = d.ledger(), d.parameters(action.params)
    step = action.run(d, before, params)
    after, conditions = apply_effects(d, step.after, step.effects)
    solver = z3_solver(timeout_ms)
    solver.add(*d.domain_facts(before, params, action.params), action.applies(d, before))
    solver.add(*(i.holds(d, before) for i in ALL_INVARIANTS.values()), *(guard.holds for guard in step.guards))
    solver.add(z3.Not(z3.And(*_goals(d, invariant, after, conditions).values())))
    return {str(v): solver.model()[v] for v in solver.model().decls()} if checked(solver) == "sat" else None


def _goals(d: Symbols, invariant: str, after: Ledger, conditions: tuple[Condition, ...]) -> dict[str, Any]:
    """All that an action must establish for one invariant, each with its sentence."""
    goals: dict[str, Any] = {}
    for c in (c for c in conditions if c.invariant == invariant):
        # An action may have an effect twice (two frees), and so the same sentence: both must hold.
        goals[c.sentence] = z3.And(goals[c.sentence], c.holds) if c.sentence in goals else c.holds
    goals[ALL_INVARIANTS[invariant].statement] = ALL_INVARIANTS[invariant].holds(d, after)
    return goals


def _obligations(action: str, answers: Answers) -> Iterator[Obligation]:
    """One cell for each invariant: as bad as its worst goal, and named after the first that is as bad."""
    for invariant in ALL_INVARIANTS:
        cell = {sentence: answer for (about, sentence), answer in answers.items() if about == invariant}
        verdicts = {answer.verdict for answer in cell.values()}
        worst = next(v for v in (BROKEN, UNKNOWN, PROVED) if v in verdicts)
        failed = "" if worst == PROVED else next(text for text, answer in cell.items() if answer.verdict == worst)
        yield Obligation(action, invariant, worst, sum(a.seconds for a in cell.values()), len(cell), failed)


def base_case() -> Question:
    """The initial ledger, in which nothing exists, satisfies every invariant."""
    return Question("(initial)", _pose_initial, "(initial)")


def _pose_initial() -> Posed:
    d = Symbols()
    start = pristine(d)
    goals = {(i.id, i.statement): i.holds(d, start) for i in ALL_INVARIANTS.values()}
    return Posed(d.domain_facts(start, SimpleNamespace(), {}), goals)


def _effects_that_cannot_fail(asker: Asker, timeout_ms: int) -> Iterator[str]:
    """Each finite twin must have a model: of the effect as it is, and of a broken J once a side condition is dropped."""
    for what, question in twin_questions():
        if asker.answers(question, timeout_ms)[POSSIBLE].verdict != PROVED:
            yield what
