"""A changed rule, proved or refuted beside the built-in one: what it keeps, what it breaks, and by which run.

The other actions are as they were, so their obligations are the built-in ones; the induction of the replaced actions is done
anew, over the same invariants. REFUTED needs a run that shows it: where the induction fails and no run is found, nothing is
proved and nothing refuted, because the state that it fails from may never be reached.

A rule that does nothing keeps every invariant. So a variant is asked, too, what the built-in table is asked: every action
happens wherever it happens by the built-in rules, every turn and every session can end, and no situation is met that no
design may have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import z3
from pydantic import TypeAdapter

from kvproof.model.accepted_events import EVENTS, prove_accepted_events
from kvproof.model.certify import numbers
from kvproof.model.expectations import EXPECTATIONS, EXPLORED, Expectation, explored, said, situations_of, unmet
from kvproof.model.explore import (
    INSTANCES,
    MOST_STATES,
    MOST_STEPS,
    Reachable,
    Taken,
    TooManyStatesError,
    not_taken,
    reach,
    shortest_run_of,
)
from kvproof.model.integers import Integers
from kvproof.model.liveness import LIVENESS, prove_liveness
from kvproof.model.prove import (
    WITNESS,
    WITNESS_CONFIGS,
    Obligation,
    Progress,
    Proof,
    induction_step,
    interruptible,
    prove,
    step_question,
    steps_of,
)
from kvproof.model.questions import BROKEN, POSSIBLE, PROVED, UNKNOWN, Asker, Posed, Question, checked, z3_solver
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.machine import LEDGER


@dataclass(frozen=True)
class Instance:
    """A page size, a row width and a configuration."""

    page_size: int
    row_width: int
    config: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"P={self.page_size} row width {self.row_width}, {said(self.config)}"


WHOLE = (*(Instance(*WITNESS, config) for config in WITNESS_CONFIGS), Instance(2, 4))
"""Explored whole: those of the built-in proof, and the smallest with positions inside a page."""
FIRING = tuple(Instance(*size, config) for size in ((2, 3), (3, 4), (4, 5)) for config in WITNESS_CONFIGS)
"""Searched until every action that the built-in rules take has been taken."""
LARGE_PAGE = 2**20
"""Above any page size that is searched the solver is asked whether a replaced action can happen."""
REFUTING = (
    *(Instance(size, width, config) for size, width in ((1, 3), (2, 4)) for config in WITNESS_CONFIGS),
    *(Instance(size, width) for size, width in INSTANCES),
)
"""Where a run is looked for that a changed rule breaks. More than these cost seconds and hold little that is new."""
STATES = TypeAdapter(Reachable)
NAMES = TypeAdapter(list[str])


@dataclass(frozen=True)
class Variant:
    """Actions that replace the built-in ones of the same names."""

    name: str
    replaced: Mapping[str, Action]
    summary: str = ""

    @property
    def actions(self) -> dict[str, Action]:
        return {**ACTIONS, **self.replaced}


@dataclass(frozen=True)
class Change:
    """A cell of the table whose verdict is not the built-in rule's."""

    action: str
    invariant: str
    built_in: str
    variant: str
    sentence: str


@dataclass(frozen=True)
class InductiveState:
    """A step that breaks an invariant, from a state in which all hold. Nobody knows whether a run leads there."""

    invariant: str
    sentence: str
    d: Integers
    taken: Taken


@dataclass
class ProofOfVariant(Proof):
    """`searched`: where no run was found that shows what the induction does not prove; `states`: where the induction fails."""

    searched: str = ""
    states: list[InductiveState] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """Broken only where a run shows it."""
        if self.counterexample is not None:
            return BROKEN
        return PROVED if super().verdict == PROVED else UNKNOWN


@dataclass
class Comparison:
    """`proof` is the variant's, over all actions; `built_in` that of the rules as they were."""

    variant: Variant
    built_in: Proof
    proof: ProofOfVariant
    changes: list[Change] = field(default_factory=list)


class NeverFires(Exception):
    """A replaced action that can never happen: whatever it does, nothing follows from it."""

    def __init__(self, action: str, why: str) -> None:
        super().__init__(f"{action} can never happen: {why}")
        self.action, self.why = action, why


def prove_variant(
    variant: Variant,
    progress: Progress = lambda _: None,
    asker: Asker | None = None,
) -> Comparison:
    """Prove or refute the changed rules; raises NeverFires, and Interrupted with the part that is done."""
    asker = asker or Asker()
    proof = ProofOfVariant(None)
    with interruptible(proof, progress) as show:
        for name, action in variant.replaced.items():
            show(f"induction: {name} of {variant.name}")
            contradictions: list[str] = []
            proof.obligations.extend(induction_step(action, contradictions, asker))
            if contradictions:
                raise NeverFires(name, "its guards contradict the invariants")
        built_in = prove(progress=show, asker=asker)
        changes = _changes(built_in, proof)
        kept = [o for o in built_in.obligations if o.action not in variant.replaced]
        proof.obligations = [*kept, *proof.obligations]
        proof.lemmas = [lemma for lemma in built_in.lemmas if lemma.effect not in (LIVENESS, EVENTS)]
        proof.lemmas += prove_liveness(asker, variant.actions)
        proof.lemmas += prove_accepted_events(asker, variant.replaced)
        if all(o.verdict == PROVED for o in proof.obligations):
            proof.vacuous.extend(_what_is_missing(variant, built_in, proof, show, asker))
        else:
            _look_for_a_run(variant, proof, show)
        proof.complete = True
    return Comparison(variant, built_in, proof, changes)


def steps_of_variant(variant: Variant) -> int:
    """How often a proof of it says what it does next, if nothing goes wrong."""
    return steps_of() + len(variant.replaced) + len(WHOLE) + len(FIRING)


def _changes(built_in: Proof, proof: Proof) -> list[Change]:
    before: dict[tuple[str, str], Obligation] = {(o.action, o.invariant): o for o in built_in.obligations}
    pairs = [(before[o.action, o.invariant], o) for o in proof.obligations]
    return [
        Change(now.action, now.invariant, then.verdict, now.verdict, now.sentence or then.sentence)
        for then, now in pairs
        if then.verdict != now.verdict
    ]


# --- where the induction fails --------------------------------------------------------------------------------------


def _look_for_a_run(variant: Variant, proof: ProofOfVariant, progress: Progress) -> None:
    """The shortest run that breaks an invariant; without one, the states that the induction fails from."""
    progress("shortest run")
    for at in REFUTING:
        proof.counterexample = shortest_run_of(variant.actions, at.page_size, at.row_width, **at.config)
        if proof.counterexample is not None:
            return
    proof.searched = f"runs of at most {MOST_STEPS} steps and {MOST_STATES:,} states in {_sizes(REFUTING)}"
    for action in variant.replaced.values():
        proof.states.extend(_inductive_states(action, [o for o in proof.obligations if o.action == action.name]))


def _inductive_states(action: Action, cells: list[Obligation]) -> Iterator[InductiveState]:
    """For each broken cell a state from which the step breaks it, with small numbers where there is one."""
    posed = step_question(action).pose()
    d = Symbols()
    small = z3.And(d.page_size <= 2, d.row_width.pages <= 3)
    for cell in (cell for cell in cells if cell.verdict == BROKEN):
        solver = z3_solver()
        solver.add(*posed.assumptions, z3.Not(posed.goals[cell.invariant, cell.sentence]))
        if checked(solver, small) == "sat" or checked(solver) == "sat":
            oracle, before, params = numbers(LEDGER, action, solver.model())
            taken = Taken(params, oracle.asked_step(action, before, params))
            yield InductiveState(cell.invariant, cell.sentence, oracle.d, taken)


# --- what must still happen -----------------------------------------------------------------------------------------


def _what_is_missing(variant: Variant, built_in: Proof, proof: Proof, show: Progress, asker: Asker) -> Iterator[str]:
    """What happens by the built-in rules and not by these, what no design may do, what has no end; as sentences."""
    right = [
        *built_in.reachable,
        *(asker.recall(f"states of {at}", partial(_states, at, ACTIONS), STATES) for at in WHOLE[-1:]),
    ]
    usual = {str(r.config): [name for name, times in r.taken.items() if times] for r in reversed(right)}
    missing: dict[str, list[Instance]] = {}
    met: dict[str, Counter[str]] = {}
    stuck: list[str] = []
    for at, by_right_rules in zip(WHOLE, right, strict=True):
        show(f"all states of {at}")
        try:
            search = partial(explored, _asked_of(at.config), at.page_size, at.row_width, variant.actions, **at.config)
            found, situations = asker.recall(f"all of {at}", search, EXPLORED)
        except TooManyStatesError as error:
            yield f"not explored whole: {at} has {error}"
            continue
        proof.reachable.append(found)
        met.setdefault(str(at.config), Counter()).update(situations)
        stuck += [f"{found.stuck} in {at}"] * bool(found.stuck)
        for name in (name for name, times in by_right_rules.taken.items() if times and not found.taken[name]):
            missing.setdefault(name, []).append(at)
    if stuck:
        yield f"a turn cannot end or a session cannot be closed from some states: {'; '.join(stuck)}"
    for config in (config for config in WITNESS_CONFIGS if str(config) in met):
        yield from (f"{what}, {said(config)}" for what in unmet(_asked_of(config), met[str(config)]))
    for at in FIRING:
        show(f"whether every action happens in {at}")
        try:
            lost = _not_taken(at, variant.actions, usual[str(at.config)], asker)
            never = _not_taken(at, ACTIONS, lost, asker) if lost else []
            for name in (name for name in lost if name not in never):
                missing.setdefault(name, []).append(at)
        except TooManyStatesError as error:
            yield f"not searched whole: {at} has {error}"
    for name, instances in missing.items():
        if name in variant.replaced and not any(found.taken[name] for found in proof.reachable):
            raise NeverFires(name, f"not in any state of the instances {_sizes(instances)}, in any configuration")
        yield f"{name}: never happens any more in {_places(instances)}"
    for name, action in variant.replaced.items():
        if _with_large_pages(ACTIONS[name], asker) == PROVED != _with_large_pages(action, asker):
            yield f"{name}: never happens any more with pages of more than {LARGE_PAGE:,} tokens"


def _states(at: Instance, actions: Mapping[str, Action]) -> Reachable:
    return reach(at.page_size, at.row_width, actions, **at.config)


def _asked_of(config: Mapping[str, Any]) -> list[Expectation]:
    """What every design must meet in this configuration."""
    return [e for e in situations_of(config) or EXPECTATIONS * (not config) if e.of_every_design]


def _not_taken(at: Instance, actions: Mapping[str, Action], wanted: list[str], asker: Asker) -> list[str]:
    search = partial(not_taken, at.page_size, at.row_width, actions, wanted, **at.config)
    return asker.recall(f"not taken in {at}", search, NAMES)


def _with_large_pages(action: Action, asker: Asker) -> str:
    """Whether the invariants allow the action in some state with large pages."""

    def pose() -> Posed:
        return Posed((*step_question(action).pose().assumptions, Symbols().page_size > LARGE_PAGE), {})

    return asker.answers(Question(f"large pages: {action.name}", pose, action))[POSSIBLE].verdict


def _places(instances: Iterable[Instance]) -> str:
    """By size the configurations, where it is not all of them."""
    by_size: dict[str, list[str]] = {}
    for at in instances:
        by_size.setdefault(_sizes([at]), []).append(said(at.config))
    every = len(WITNESS_CONFIGS)
    places = (f"{size} ({'; '.join(of) if len(of) < every else 'any configuration'})" for size, of in by_size.items())
    return ", ".join(places)


def _sizes(instances: Iterable[Instance]) -> str:
    return ", ".join(dict.fromkeys(f"P={at.page_size} row width {at.row_width}" for at in instances))
