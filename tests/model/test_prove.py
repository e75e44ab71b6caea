"""The proof holds, each fault breaks exactly what is pinned, and no part of the proof is vacuous."""

from __future__ import annotations

import dataclasses

import pytest

from kvproof.model.explore import counterexample, reach
from kvproof.model.oracle import Oracle
from kvproof.model.prove import Proof, induction_step, prove
from kvproof.spec.actions import ACTIONS
from kvproof.spec.faults import FAULTS, actions_with
from kvproof.spec.invariants import ALL_INVARIANTS, AUXILIARY, INVARIANTS

# Pinned: a change of the specification shows here.
GOALS = 518
CELLS = 442
STATES = {(1, 3): 1024, (1, 4): 2834, (2, 4): 1941}


@pytest.fixture(scope="module")
def proof() -> Proof:
    return prove()


def test_every_invariant_is_proved_for_every_action(proof: Proof) -> None:
    assert proof.verdict == "proved"
    assert [o for o in proof.obligations if o.verdict != "proved"] == []
    assert len(proof.obligations) == CELLS == (len(ACTIONS) + 1) * len(ALL_INVARIANTS)
    assert sum(o.goals for o in proof.obligations) == GOALS


def test_no_part_of_the_proof_is_vacuous(proof: Proof) -> None:
    assert proof.vacuous == []
    assert proof.reachable is not None
    assert set(proof.reachable.taken) == set(ACTIONS)
    assert min(proof.reachable.taken.values()) > 0


@pytest.mark.parametrize("fault_id", FAULTS)
def test_each_fault_breaks_the_invariants_that_it_is_pinned_to(fault_id: str) -> None:
    fault = FAULTS[fault_id]
    proof = prove(fault)
    assert proof.verdict == "broken"
    assert {i for i in proof.broken if i in INVARIANTS} == set(fault.breaks)


@pytest.mark.parametrize("fault_id", FAULTS)
def test_each_fault_has_a_reachable_counterexample_that_the_right_rules_do_not_have(fault_id: str) -> None:
    fault = FAULTS[fault_id]
    run = counterexample(fault)
    assert run is not None
    assert fault.breaks[0] in run.broken
    assert run.steps[-1].outcome.action.name == fault.action
    before = run.steps[-1].outcome.before
    right = Oracle.of(run.page_size, run.row_width)
    outcome = right.step(ACTIONS[fault.action], before, run.steps[-1].params)
    assert outcome.broken(right.d) == {}


def test_the_counterexample_is_the_same_every_time() -> None:
    assert counterexample(FAULTS["F22862b"]) == counterexample(FAULTS["F22862b"])


def test_faults_that_need_pages_need_a_page_size_above_one() -> None:
    run = counterexample(FAULTS["F22862b"])
    assert run is not None
    assert run.page_size == 2


def test_every_invariant_is_broken_by_a_fault_or_a_named_mutation() -> None:
    killed = {i for fault in FAULTS.values() for i in fault.breaks}
    assert killed == set(INVARIANTS)


def test_a_fault_replaces_one_action_only() -> None:
    for fault in FAULTS.values():
        changed = {name for name, action in actions_with(fault).items() if action != ACTIONS[name]}
        assert changed == {fault.action}


@pytest.mark.parametrize("instance", STATES)
def test_the_reachable_states_of_small_instances_are_pinned(instance: tuple[int, int]) -> None:
    assert reach(*instance).states == STATES[instance]


@pytest.mark.parametrize("auxiliary", AUXILIARY)
def test_each_auxiliary_invariant_is_needed(auxiliary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the induction fails somewhere: nothing is assumed that is not used."""
    weaker = dataclasses.replace(AUXILIARY[auxiliary], holds=lambda d, s: d.every())
    monkeypatch.setitem(ALL_INVARIANTS, auxiliary, weaker)
    verdicts = {o.verdict for action in ACTIONS.values() for o in induction_step(action, 20_000, [])}
    assert "broken" in verdicts
