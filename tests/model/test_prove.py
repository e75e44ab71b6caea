"""The proof holds, each fault breaks exactly what is pinned, and no part of the proof is vacuous."""

from __future__ import annotations

import dataclasses
import gc
import threading
from functools import cache
from unittest.mock import Mock

import pytest

pytest.importorskip("cvc5")

from kvproof.model.cache import Remembering, Store
from kvproof.model.cache_folder import cache_folder
from kvproof.model.certify import Certifying
from kvproof.model.compiled.machine_code import is_installed
from kvproof.model.explore import INSTANCES, counterexample, explored_whole, reach, walk
from kvproof.model.oracle import Oracle
from kvproof.model.page_lemmas import twin_questions
from kvproof.model.prove import Proof, induction_step, prove
from kvproof.model.small_instances import LARGE, SMALL
from kvproof.spec.actions.action import Step
from kvproof.spec.faults import FAULTS, actions_with
from kvproof.spec.machine import LEDGER, MACHINES, Machine, every_invariant

# Pinned: a change of the specification shows here.
CELLS, GOALS = 722, 1125
STATES = [1494, 2029, 1286, 1807, 3178, 760, 4771, 2633]
STATES_OF_LARGE_INSTANCES = [227881, 265978, 1358578, 4843367]
STATES_OF_SMALL_MACHINES = {"tree": 207, "pool": 797, "batch": 21, "admission": 9, "deferred": 12, "progress": 8}
STATES_OF_LARGER_INSTANCES = {(1, 4): 3942, (2, 4): 2633}


@pytest.fixture(scope="module")
def proof() -> Proof:
    """The one whole proof of these tests. What others asked is not asked again."""
    return prove(asker=Remembering(Store(cache_folder())))


@cache
def proof_with(fault_id: str) -> Proof:
    return prove(FAULTS[fault_id])


def test_every_invariant_is_proved_for_every_action(proof: Proof) -> None:
    assert proof.verdict == "proved"
    assert [o for o in proof.obligations if o.verdict != "proved"] == []
    assert len(proof.obligations) == CELLS == sum((len(m.actions) + 1) * len(m.all_invariants) for m in MACHINES)
    assert sum(o.goals for o in proof.obligations) == GOALS


@pytest.mark.slow
def test_the_second_solver_agrees_with_every_answer() -> None:
    """Also with each finite twin, which has a model: a text that loses a denied goal or an assumption shows there."""
    asker = Certifying()
    proof, certificate = prove(asker=asker), asker.certificate
    assert certificate.verdict == "agree"
    assert certificate.disputed == certificate.errors == []
    assert len(certificate.opinions) >= GOALS + len(proof.lemmas) + len(LEDGER.actions)
    assert {question.name for _, question in twin_questions()} <= {opinion.question for opinion in certificate.opinions}


def test_no_part_of_the_proof_is_vacuous(proof: Proof) -> None:
    assert proof.vacuous == []
    assert len(proof.reachable) == sum(map(len, explored_whole()))
    for action in LEDGER.actions:
        assert any(r.taken[action] for r in proof.reachable)


def test_every_turn_can_still_end_and_the_states_are_pinned(proof: Proof) -> None:
    assert [r.stuck for r in proof.reachable] == [0] * len(proof.reachable)
    states = [r.states for r in proof.reachable]
    assert states[: len(SMALL)] == STATES
    if is_installed():
        of_sizes = [sum(states[len(SMALL) + n * len(group) :][: len(group)]) for n, group in enumerate(LARGE)]
        assert of_sizes == STATES_OF_LARGE_INSTANCES


def test_no_thread_of_a_proof_frees_terms_that_an_earlier_exception_holds() -> None:
    """Z3 works in another thread meanwhile, and would crash."""

    class Freed:
        """In a cycle, as an exception is that its own frame keeps."""

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            by.append(threading.current_thread())

    by: list[threading.Thread] = []
    Freed()

    def make_garbage(what: str) -> None:
        if what.startswith("induction"):
            Freed()

    prove(progress=make_garbage, asker=Remembering(Store(cache_folder())))
    assert gc.isenabled()
    gc.collect()
    assert len(by) > len(LEDGER.actions)
    assert set(by) == {threading.current_thread()}


@pytest.mark.parametrize("fault_id", FAULTS)
def test_each_fault_breaks_the_invariants_that_it_is_pinned_to(fault_id: str) -> None:
    """By induction, or in the last step of the shortest run."""
    proof = proof_with(fault_id)
    assert proof.verdict == "broken"
    broken = {i for i in proof.broken if i in every_invariant()} | set(proof.counterexample.broken)
    assert broken == set(FAULTS[fault_id].breaks)


@pytest.mark.parametrize("fault_id", FAULTS)
def test_each_fault_has_a_reachable_counterexample_that_the_right_rules_do_not_have(fault_id: str) -> None:
    fault, run = FAULTS[fault_id], proof_with(fault_id).counterexample
    assert fault.breaks[0] in run.broken
    last = run.steps[-1].outcome
    if last.action.name in fault.deviations:
        right = Oracle.of(run.page_size, run.row_width, fault.machine.actions, **run.config)
        outcome = right.step(fault.machine.actions[last.action.name], last.before, run.steps[-1].params)
        assert outcome.failed_guards or fault.breaks[0] not in outcome.broken(right.d, fault.machine.invariants)
    else:
        assert any(step.outcome.action.name in fault.deviations for step in run.steps)


@pytest.mark.slow
@pytest.mark.parametrize("fault_id", [f.id for f in FAULTS.values() if f.smallest != INSTANCES[0]])
def test_no_smaller_instance_shows_it(fault_id: str) -> None:
    fault = FAULTS[fault_id]
    assert counterexample(fault, INSTANCES[: INSTANCES.index(fault.smallest)]) is None


def test_every_invariant_is_broken_by_a_fault_or_a_named_mutation() -> None:
    assert {i for fault in FAULTS.values() for i in fault.breaks} == set(every_invariant())


def test_a_fault_replaces_its_actions_only() -> None:
    for fault in FAULTS.values():
        for machine in MACHINES:
            actions = actions_with(fault, machine)
            changed = {name for name in actions if actions[name] != machine.actions[name]}
            shown = set(fault.in_traces) if machine is LEDGER else set()
            assert changed == (set(fault.deviations) if machine is fault.machine else shown)


@pytest.mark.parametrize("instance", STATES_OF_LARGER_INSTANCES)
def test_the_reachable_states_of_larger_instances_are_pinned(instance: tuple[int, int]) -> None:
    assert reach(*instance).states == STATES_OF_LARGER_INSTANCES[instance]


def test_the_small_machines_take_every_action_and_their_states_are_pinned() -> None:
    walks = {m.name: walk(m) for m in MACHINES if m is not LEDGER}
    assert {name: found.states for name, found in walks.items()} == STATES_OF_SMALL_MACHINES
    assert all(times > 0 for found in walks.values() for times in found.taken.values())


def test_a_broken_rule_of_this_checkout_is_told_and_not_explored(monkeypatch: pytest.MonkeyPatch) -> None:
    eager = dataclasses.replace(
        LEDGER.actions["evict_window"], run=lambda d, s, p: Step(s.but(swa_evicted_seqlen=s.kv_committed_len + d.one))
    )
    monkeypatch.setitem(LEDGER.actions, "evict_window", eager)  # type: ignore[misc]
    found = prove()
    assert found.verdict == "broken"
    assert found.broken == ("I2", "I9", "I10")
    assert found.reachable == []


def test_a_search_beside_the_solver_that_fails_fails_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.model.prove.MACHINES", ())  # nothing to ask: what is searched is awaited soon
    monkeypatch.setattr(
        "kvproof.model.prove.explored", Mock(side_effect=AssertionError("machine code and rules disagree"))
    )
    with pytest.raises(AssertionError, match="disagree"):
        prove()


@pytest.mark.parametrize("auxiliary", [name for name in LEDGER.auxiliary if name != "X4"])
def test_each_auxiliary_invariant_is_needed(auxiliary: str) -> None:
    """Without it the induction fails somewhere: nothing is assumed that is not used. X4 assumes nothing; it has a twin."""
    weaker: Machine = dataclasses.replace(
        LEDGER, auxiliary={name: i for name, i in LEDGER.auxiliary.items() if name != auxiliary}
    )
    steps = (induction_step(action, [], machine=weaker) for action in weaker.actions.values())
    verdicts = {o.verdict for cells in steps for o in cells}
    assert "broken" in verdicts
