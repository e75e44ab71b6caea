"""The tables of the specification are whole: names, references and documentation."""

from __future__ import annotations

import typing

from kvproof.spec.effects import Effect
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import LEDGER, MACHINES, every_invariant
from kvproof.spec.state import FIELDS
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
    assert {a.event for a in LEDGER.actions.values()} == events - {"evict"}
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


def test_no_effect_writes_more_than_ghosts() -> None:
    assert len(typing.get_args(Effect)) == 14
