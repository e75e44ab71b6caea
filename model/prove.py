"""The proof: every invariant for every action, every page size and configuration, any number of sessions.

One-step induction over an arbitrary state of each machine. For each action: assume all invariants and the action's guards,
deny one conclusion (the invariant after the step, or a side condition of an effect), and ask for a model. None: proved.
Together with the base case and the lemmas of `model/page_lemmas.py` this covers all runs, because a ledger never reads another's.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from pydantic import TypeAdapter

from kvproof.model.accepted_events import prove_accepted_events
from kvproof.model.arbitrary_step import arbitrary_step
from kvproof.model.compiled.machine_code import is_installed
from kvproof.model.composed import prove_shared_prefix, questions_that_fail
from kvproof.model.condition_twins import conditions_without_a_twin, twin_questions_of_conditions
from kvproof.model.ctrl_c import heed, kept_ctrl_c
from kvproof.model.expectations import EXPLORED, Explored, explored, unmet_in
from kvproof.model.expected_runs import unexpected
from kvproof.model.explore import Reachable, Run, Walk, counterexample, explored_whole, walk
from kvproof.model.liveness import prove_liveness
from kvproof.model.page_lemmas import Lemma, prove_effects, twin_questions
from kvproof.model.page_situations import impossible_situations
from kvproof.model.questions import BROKEN, POSSIBLE, PROVED, UNKNOWN, Answers, Asker, Label, Posed, Question, together
from kvproof.model.small_instances import Instances
from kvproof.model.small_rows import prove_small_rows
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.effects import Condition
from kvproof.spec.faults import Fault
from kvproof.spec.invariants import Invariant
from kvproof.spec.machine import LEDGER, MACHINES, Machine, every_invariant, machine_of

Progress = Callable[[str], None]

INITIAL = "(initial)"
"""The row of the table for the state in which nothing exists."""

# What searches find, as it is kept.
WALK, SENTENCES = TypeAdapter(Walk), TypeAdapter(list[str])


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
    complete: bool = False

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
        return "unknown" if "unknown" in verdicts or not self.complete else "proved"


class Interrupted(KeyboardInterrupt):
    """Stopped by Ctrl-C; `proof` holds what was found out so far."""

    def __init__(self, proof: Proof) -> None:
        super().__init__()
        self.proof = proof


def prove(
    fault: Fault | None = None,
    progress: Progress = lambda _: None,
    asker: Asker | None = None,
) -> Proof:
    """Prove everything, or, with a fault, show what its action breaks and find the shortest run that does.

    `asker` answers the questions; left out, Z3 does, anew each time.
    """
    proof = Proof(fault)
    with interruptible(proof, progress) as show:
        _find_out(proof, show, asker or Asker())
    return proof


def prove_action(name: str, progress: Progress = lambda _: None, asker: Asker | None = None) -> Proof:
    """Whether one action keeps every invariant of its machine: a part, from which nothing follows for the rules as a whole."""
    proof, machine = Proof(None), machine_of(name)
    with interruptible(proof, progress) as show:
        show(f"induction: {name}")
        proof.obligations.extend(induction_step(machine.actions[name], proof.vacuous, asker, machine))
        proof.complete = True
    return proof


@contextmanager
def interruptible(proof: Proof, progress: Progress) -> Iterator[Progress]:
    """Times a proof; raises Interrupted with its part on Ctrl-C. Gives the progress to show, which heeds one that was lost."""
    begin = time.perf_counter()

    def show(what: str) -> None:
        heed()
        progress(what)

    try:
        with kept_ctrl_c(), _collector_paused():
            yield show
    except Interrupted:
        raise
    except KeyboardInterrupt as stop:
        raise Interrupted(proof) from stop
    finally:
        proof.seconds = time.perf_counter() - begin


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Z3 is not made for two threads, and Python's collector frees in any thread what is in cycles: with an exception that was
    kept also terms. A proof leaves little to collect."""
    if not gc.isenabled():
        yield
        return
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _find_out(proof: Proof, progress: Progress, asker: Asker) -> None:
    if proof.fault is not None:
        _find_out_what_breaks(proof, proof.fault, progress, asker)
    else:
        with searched_beside(explored_whole(), asker) as begun:
            _prove_the_rules(proof, begun, progress, asker)


def _find_out_what_breaks(proof: Proof, fault: Fault, progress: Progress, asker: Asker) -> None:
    _prove_cells(proof, fault.machine, fault.deviations, progress, asker)
    if proof.broken:
        progress("shortest run")
        proof.counterexample = counterexample(fault)
    proof.complete = True


def _prove_cells(
    proof: Proof, machine: Machine, actions: Mapping[str, Action], progress: Progress, asker: Asker
) -> None:
    proof.obligations.extend(initial_state(machine, asker))
    for name, action in actions.items():
        progress(f"induction: {name}")
        proof.obligations.extend(induction_step(action, proof.vacuous, asker))


def _prove_the_rules(proof: Proof, begun: Searches, progress: Progress, asker: Asker) -> None:
    for machine in MACHINES:
        _prove_cells(proof, machine, machine.actions, progress, asker)
    if proof.broken:
        return  # a rule of this checkout is broken: its cells say which; exploring would only meet the same again
    progress("page identity over unbounded rows")
    proof.lemmas.extend(prove_effects(asker))
    proof.lemmas.extend(prove_small_rows(asker))
    proof.vacuous.extend([*_effects_that_cannot_fail(asker), *impossible_situations(asker)])
    progress("liveness")
    proof.lemmas.extend(prove_liveness(asker))
    proof.lemmas.extend(prove_accepted_events(asker, ()))
    progress("what rows share with the tree")
    proof.lemmas.extend(prove_shared_prefix(asker))
    progress("expected runs")
    failures = asker.recall("expected runs", _unexpected_runs, SENTENCES)
    proof.vacuous.extend(failures)
    for machine in (m for m in MACHINES if m is not LEDGER):
        taken = asker.recall(f"walk of {machine.name}", partial(walk, machine), WALK).taken
        proof.vacuous.extend(f"{name}: never happens" for name, times in taken.items() if not times)
    states, not_whole = all_states_of(begun, progress)
    proof.reachable.extend(found for found, _ in states)
    proof.vacuous.extend([*not_whole, *unmet_in(states)])
    proof.vacuous.extend(_what_never_happens(proof.reachable))
    proof.complete = True


Searches = list[tuple[Instances, Callable[[], list[Explored | str]]]]
"""Groups of instances, and what gives all their states."""


def searches_of(groups: Iterable[Instances], asker: Asker, actions: Mapping[str, Action] = ACTIONS) -> Searches:
    """A search of each group, not begun."""
    return [
        (
            group,
            partial(asker.recall, f"all of {'; '.join(map(str, group))}", partial(explored, group, actions), EXPLORED),
        )
        for group in groups
    ]


@contextmanager
def searched_beside(
    groups: Iterable[Instances], asker: Asker, actions: Mapping[str, Action] = ACTIONS
) -> Iterator[Searches]:
    """The searches, begun in a thread: compiled rules and Z3 both run without Python's lock, so each has a processor."""
    searches = searches_of(groups, asker, actions)
    if not (is_installed() and asker.recalls_beside):
        yield searches
        return
    beside = ThreadPoolExecutor(1)
    try:
        yield [(group, beside.submit(search).result) for group, search in searches]
    finally:
        beside.shutdown(cancel_futures=True)


def all_states_of(searches: Searches, show: Progress) -> tuple[list[Explored], list[str]]:
    """What each instance of each group holds, and sentences about those that were not explored whole."""
    found: list[Explored | str] = []
    for instances, search in searches:
        show(f"all states of small instances from {instances[0].size} on")
        found.extend(search())
    return [of for of in found if not isinstance(of, str)], [said for said in found if isinstance(said, str)]


def _unexpected_runs() -> list[str]:
    return [*unexpected()]


def steps_of(fault: Fault | None = None) -> int:
    """How often a proof says what it does next, if nothing goes wrong."""
    if fault is not None:
        return len(fault.deviations) + 1
    return sum(len(machine.actions) for machine in MACHINES) + len(explored_whole()) + 4


def _what_never_happens(found: list[Reachable]) -> Iterator[str]:
    """Actions that no explored instance takes, and turns that no run can end (I18)."""
    for name in found[0].taken:
        if not any(r.taken[name] for r in found):
            yield f"{name}: never happens"
    for r in found:
        if r.stuck:
            yield f"{r.stuck} states from which a turn cannot end or a session cannot be closed, with {dict(r.config)}"


def induction_step(
    action: Action,
    vacuous: list[str],
    asker: Asker | None = None,
    machine: Machine | None = None,
) -> Iterator[Obligation]:
    """Assume the invariants, assume the step, deny each conclusion. `machine`: another than the action's own."""
    chosen = machine or machine_of(action.name)
    answers = (asker or Asker()).answers(step_question(action, chosen))
    if answers[POSSIBLE].verdict != PROVED:
        vacuous.append(f"{action.name}: its guards contradict the invariants")
    yield from _obligations(chosen, action.name, answers)


def step_question(action: Action, machine: Machine | None = None) -> Question:
    """Whether one action keeps everything."""
    chosen = machine or machine_of(action.name)
    return Question(f"induction: {action.name}", partial(_pose_step, chosen, action), action, chosen)


def _pose_step(machine: Machine, action: Action) -> Posed:
    step = arbitrary_step(action, machine)
    goals: dict[Label, Any] = {}
    for invariant in machine.all_invariants.values():
        of_invariant = _goals(step.d, invariant, step.after, step.conditions)
        goals.update({(invariant.id, text): goal for text, goal in of_invariant.items()})
    return Posed(step.assumptions, goals)


def _goals(d: Symbols, invariant: Invariant, after: Any, conditions: tuple[Condition, ...]) -> dict[str, Any]:
    """All that an action must establish for one invariant, each with its sentence."""
    goals = together((c.sentence, c.holds) for c in conditions if c.invariant == invariant.id)
    goals[invariant.statement] = invariant.holds(d, after)
    return goals


def _obligations(machine: Machine, action: str, answers: Answers) -> Iterator[Obligation]:
    """One cell for each invariant: as bad as its worst goal, and named after the first that is as bad."""
    for invariant in machine.all_invariants:
        cell = {sentence: answer for (about, sentence), answer in answers.items() if about == invariant}
        verdicts = {answer.verdict for answer in cell.values()}
        worst = next(v for v in (BROKEN, UNKNOWN, PROVED) if v in verdicts)
        failed = "" if worst == PROVED else next(text for text, answer in cell.items() if answer.verdict == worst)
        seconds = sum(a.seconds for a in cell.values())
        yield Obligation(action, invariant, worst, seconds, len(cell), failed, machine.name)


def initial_state(machine: Machine, asker: Asker) -> Iterator[Obligation]:
    """Whether it keeps each invariant."""
    return _obligations(machine, INITIAL, asker.answers(base_case(machine)))


def base_case(machine: Machine = LEDGER) -> Question:
    """The initial state, in which nothing exists, satisfies every invariant."""
    return Question(f"(initial) of {machine.name}", partial(_pose_initial, machine))


def _pose_initial(machine: Machine) -> Posed:
    d = Symbols()
    start = machine.start(d)
    goals = {(i.id, i.statement): i.holds(d, start) for i in machine.all_invariants.values()}
    return Posed(d.domain_facts(start, SimpleNamespace(), {}), goals)


def _effects_that_cannot_fail(asker: Asker) -> Iterator[str]:
    """Each twin must have a model: an effect as it is, a broken J once a side condition is dropped, and each wrong rule."""
    yield from conditions_without_a_twin()
    for what, question in (*twin_questions(), *twin_questions_of_conditions(), *questions_that_fail()):
        if asker.answers(question)[POSSIBLE].verdict != PROVED:
            yield what
