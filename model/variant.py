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
from dataclasses import dataclass, field, replace

import z3

from kvproof.model.accepted_events import EVENTS, prove_accepted_events
from kvproof.model.arbitrary_step import arbitrary_step
from kvproof.model.certify import numbers
from kvproof.model.compiled.machine_code import is_installed
from kvproof.model.composed import SHARED_PREFIX, prove_shared_prefix
from kvproof.model.expectations import unmet_in
from kvproof.model.explore import (
    INSTANCES,
    MOST_STEPS,
    Reachable,
    Taken,
    explored_whole,
    shortest_run_of,
    the_search,
)
from kvproof.model.integers import Integers
from kvproof.model.liveness import LIVENESS, prove_liveness
from kvproof.model.prove import (
    Obligation,
    Progress,
    Proof,
    Searches,
    all_states_of,
    induction_step,
    initial_state,
    interruptible,
    prove,
    searched_beside,
    searches_of,
    step_question,
    steps_of,
)
from kvproof.model.questions import BROKEN, POSSIBLE, PROVED, UNKNOWN, Asker, Posed, Question, checked, z3_solver
from kvproof.model.small_instances import CONFIGS, EVERY_CONFIG, MIDDLE, SMALL, Instance, Instances, said
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.faults import FAULTS
from kvproof.spec.invariants import Invariant
from kvproof.spec.machine import LEDGER, Machine

LARGE_PAGE = 2**20
"""Above any page size that is searched the solver is asked whether a replaced action can happen."""
NEW = "new"
"""The verdict of a helper by the built-in rules: they do not have it."""
OF_FAULTS = [Instance(*fault.smallest, fault.config) for fault in FAULTS.values() if fault.machine is LEDGER]
WIDE = [Instance(*size, config) for size in ((1, 6), (2, 6), (3, 9)) for config in EVERY_CONFIG]
REFUTING: Instances = (
    *SMALL,
    *(Instance(2, 4, config) for config in CONFIGS[1:]),
    *(Instance(*size) for size in INSTANCES),
    *(at for at in OF_FAULTS if at.config not in CONFIGS),
    *(WIDE if is_installed() else ()),
)
"""Where a run is looked for that a changed rule breaks: also where each known fault shows, and in more by compiled rules."""


@dataclass(frozen=True)
class Variant:
    """Actions that replace the built-in ones of the same names, and helpers that replace or join the auxiliary invariants."""

    name: str
    replaced: Mapping[str, Action]
    summary: str = ""
    helpers: Mapping[str, Invariant] = field(default_factory=dict)
    """Auxiliary invariants by id: new ones, and others in place of built-in ones."""

    @property
    def actions(self) -> dict[str, Action]:
        return {**ACTIONS, **self.replaced}

    @property
    def machine(self) -> Machine:
        return replace(LEDGER, actions=self.actions, auxiliary={**LEDGER.auxiliary, **self.helpers})

    @property
    def asked_anew(self) -> Mapping[str, Action]:
        """The actions whose cells are not those of the built-in table: with other helpers, all."""
        return self.actions if self.helpers else self.replaced


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
    proof, machine = ProofOfVariant(None), variant.machine
    with interruptible(proof, progress) as show:
        if variant.helpers:
            proof.obligations.extend(initial_state(machine, asker))
        for name, action in variant.asked_anew.items():
            show(f"induction: {name} of {variant.name}")
            contradictions: list[str] = []
            proof.obligations.extend(induction_step(action, contradictions, asker, machine))
            if contradictions:
                raise NeverFires(name, "its guards contradict the invariants")
        is_kept = all(o.verdict == PROVED for o in proof.obligations)
        with searched_beside(explored_whole((SMALL, MIDDLE)) if is_kept else (), asker, variant.actions) as begun:
            built_in = prove(progress=show, asker=asker)
            changes = _changes(built_in, proof)
            anew = {(o.machine, o.action) for o in proof.obligations}
            kept = [o for o in built_in.obligations if (o.machine, o.action) not in anew]
            proof.obligations = [*kept, *proof.obligations]
            proof.lemmas = [of for of in built_in.lemmas if of.effect not in (LIVENESS, EVENTS, SHARED_PREFIX)]
            proof.lemmas += prove_liveness(asker, machine)
            proof.lemmas += prove_accepted_events(asker, variant.replaced, machine)
            proof.lemmas += prove_shared_prefix(asker, machine)
            if all(o.verdict == PROVED for o in proof.obligations):
                proof.vacuous.extend(_what_is_missing(variant, built_in, proof, begun, show, asker))
            else:
                _look_for_a_run(variant, proof, show)
        proof.complete = True
    return Comparison(variant, built_in, proof, changes)


def steps_of_variant(variant: Variant) -> int:
    """How often a proof of it says what it does next, if nothing goes wrong."""
    return steps_of() + len(variant.asked_anew) + len(explored_whole((SMALL, MIDDLE)))


def _changes(built_in: Proof, proof: Proof) -> list[Change]:
    before: dict[tuple[str, str], Obligation] = {(o.action, o.invariant): o for o in built_in.obligations}
    changes = []
    for now in proof.obligations:
        then = before.get((now.action, now.invariant))
        if now.verdict != (then.verdict if then else PROVED):
            was, sentence = (then.verdict, then.sentence) if then else (NEW, "")
            changes.append(Change(now.action, now.invariant, was, now.verdict, now.sentence or sentence))
    return changes


# --- where the induction fails --------------------------------------------------------------------------------------


def _look_for_a_run(variant: Variant, proof: ProofOfVariant, progress: Progress) -> None:
    """The shortest run that breaks an invariant; without one, the states that the induction fails from."""
    progress("shortest run")
    for at in REFUTING:
        proof.counterexample = shortest_run_of(variant.actions, at.page_size, at.row_width, **at.config)
        if proof.counterexample is not None:
            return
    proof.searched = f"runs of at most {MOST_STEPS} steps and {the_search().most_states:,} states in {_sizes(REFUTING)}"
    for action in variant.asked_anew.values():
        cells = [o for o in proof.obligations if o.action == action.name and o.verdict == BROKEN]
        if cells:
            proof.states.extend(_inductive_states(action, variant.machine, cells))


def _inductive_states(action: Action, machine: Machine, cells: list[Obligation]) -> Iterator[InductiveState]:
    """For each broken cell a state from which the step breaks it, with small numbers where there is one."""
    posed = step_question(action, machine).pose()
    d = Symbols()
    small = z3.And(d.page_size <= 2, d.row_width.pages <= 3)
    for cell in cells:
        solver = z3_solver()
        solver.add(*posed.assumptions, z3.Not(posed.goals[cell.invariant, cell.sentence]))
        if checked(solver, small) == "sat" or checked(solver) == "sat":
            oracle, before, params = numbers(machine, action, solver.model())
            taken = Taken(params, oracle.asked_step(action, before, params))
            yield InductiveState(cell.invariant, cell.sentence, oracle.d, taken)


# --- what must still happen -----------------------------------------------------------------------------------------


def _what_is_missing(
    variant: Variant, built_in: Proof, proof: Proof, begun: Searches, show: Progress, asker: Asker
) -> Iterator[str]:
    """What happens by the built-in rules and not by these, what no design may do, what has no end; as sentences.

    `begun`: the searches by these rules.
    """
    right = {str(_instance(found)): found.taken for found in built_in.reachable}
    others, _ = all_states_of(searches_of((group for group, _ in begun if str(group[0]) not in right), asker), show)
    right |= {str(_instance(found)): found.taken for found, _ in others}
    states, not_whole = all_states_of(begun, show)
    yield from not_whole
    proof.reachable += (found for found, _ in states)
    missing: dict[str, list[Instance]] = {}
    for found in proof.reachable:
        at = _instance(found)
        for name in (name for name, times in right[str(at)].items() if times and not found.taken[name]):
            missing.setdefault(name, []).append(at)
    if stuck := [f"{found.stuck} in {_instance(found)}" for found in proof.reachable if found.stuck]:
        yield f"a turn cannot end or a session cannot be closed from some states: {'; '.join(stuck)}"
    yield from unmet_in(states, of_every_design=True)
    for name, instances in missing.items():
        if name in variant.replaced and not any(found.taken[name] for found in proof.reachable):
            raise NeverFires(name, f"not in any state of the instances {_sizes(instances)}, in any configuration")
        yield f"{name}: never happens any more in {_places(instances)}"
    for name, action in variant.replaced.items():
        built_in_can = _with_large_pages(ACTIONS[name], LEDGER, asker) == PROVED
        if built_in_can and _with_large_pages(action, variant.machine, asker) != PROVED:
            yield f"{name}: never happens any more with pages of more than {LARGE_PAGE:,} tokens"


def _instance(found: Reachable) -> Instance:
    return Instance(found.page_size, found.row_width, found.config)


def _with_large_pages(action: Action, machine: Machine, asker: Asker) -> str:
    """Whether the invariants allow the action in some state with large pages."""

    def pose() -> Posed:
        return Posed((*arbitrary_step(action, machine).assumptions, Symbols().page_size > LARGE_PAGE), {})

    return asker.answers(Question(f"large pages: {action.name}", pose, action))[POSSIBLE].verdict


def _places(instances: Iterable[Instance]) -> str:
    """By size the configurations, where it is not all of them."""
    by_size: dict[str, list[str]] = {}
    for at in instances:
        by_size.setdefault(at.size, []).append(said(at.config))
    every = Counter(at.size for group in explored_whole((SMALL, MIDDLE)) for at in group)
    places = (
        f"{size} ({'; '.join(of) if len(of) < every[size] else 'any configuration'})" for size, of in by_size.items()
    )
    return ", ".join(places)


def _sizes(instances: Iterable[Instance]) -> str:
    return ", ".join(dict.fromkeys(at.size for at in instances))
