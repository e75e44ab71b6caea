"""The tables of the specification are whole: names, references and documentation."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from kvproof.model.symbolic import Symbols
from kvproof.spec.domain import Domain
from kvproof.spec.effects import Applied, Effect, Lock, Report
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import LEDGER, MACHINES, every_invariant
from kvproof.spec.state import FIELD_NAMES, FIELDS, GHOSTS, Ledger
from kvproof.spec.trace import EventName, Observed

FAULTS_OF_THE_DOMAIN_PAGE = [
    *("F12224", "F17850", "F20070", "F20476", "F20557", "F22213", "F22753", "F21875a", "F21875b", "F21875c", "F22735"),
    *("F22790a", "F22790b", "F22790c", "F22790d", "F22790e", "F22862a", "F22862b", "F22897", "F22900", "F22651"),
    *("F994a", "F994b", "F994c", "F994d", "F994e"),
]
ALL_OF_THE_DOMAIN_PAGE = [f"I{n}" for n in (*range(1, 20), 22, 24)]


def test_the_invariants_and_faults_of_the_domain_page_are_all_there() -> None:
    assert list(every_invariant()) == ALL_OF_THE_DOMAIN_PAGE
    assert sorted(f.id for f in FAULTS.values() if f.kind == "fault") == sorted(FAULTS_OF_THE_DOMAIN_PAGE)


def test_each_action_is_the_rule_of_an_event_of_the_trace_schema() -> None:
    events = set(typing.get_args(EventName))
    assert {a.event for a in LEDGER.actions.values()} == events - {"evict", "ask_abort"}
    assert all(a.summary for m in MACHINES for a in m.actions.values())


def test_each_fault_deviates_from_a_known_action_and_breaks_known_invariants() -> None:
    for fault in FAULTS.values():
        assert set(fault.deviations) <= set(fault.machine.actions)
        assert fault.breaks
        assert set(fault.breaks) <= set(every_invariant())
        assert fault.kind in ("fault", "release", "mutation")


def test_each_invariant_says_what_why_and_whence() -> None:
    for invariant in every_invariant().values():
        assert invariant.statement
        assert invariant.source
        assert invariant.explanation
    for auxiliary in LEDGER.auxiliary.values():
        assert auxiliary.explanation


def test_names_of_actions_are_unique_over_all_machines() -> None:
    names = [name for m in MACHINES for name in m.actions]
    assert len(names) == len(set(names))


def test_observed_fields_are_fields_of_the_ledger() -> None:
    assert set(Observed.model_fields) - {f.name for f in FIELDS} == {"attached"}


def written(effect: type) -> set[str]:
    """The fields that an effect changes in an arbitrary ledger, its arguments arbitrary too."""
    d = Symbols()
    sorts = {f.name: str(f.type).lower() for f in dataclasses.fields(effect)}
    given = {name: d.variable(sort, f"@{name}") for name, sort in sorts.items()}
    before = d.arbitrary(Ledger)
    after, _ = effect(**given).apply(d, before, d.arbitrary(Ledger, "'"))
    return {name for name in FIELD_NAMES if getattr(after, name) is not getattr(before, name)}


@pytest.mark.parametrize("effect", typing.get_args(Effect), ids=lambda effect: effect.__name__)
def test_no_effect_writes_more_than_ghosts(effect: type) -> None:
    assert written(effect) <= GHOSTS
    assert bool(written(effect)) == (effect is not Report)


def test_an_effect_that_writes_a_length_is_noticed() -> None:
    class LockAndCommit(Lock):
        def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
            locked, conditions = super().apply(d, s, after)
            return locked.but(kv_committed_len=s.kv_committed_len + d.one), conditions

    assert written(LockAndCommit) == {"locks", "kv_committed_len"}
