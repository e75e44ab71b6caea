"""The tables of the specification are whole: names, references and documentation."""

from __future__ import annotations

import typing

from kvproof.spec.actions import ACTIONS
from kvproof.spec.effects import Effect
from kvproof.spec.faults import FAULTS
from kvproof.spec.invariants import ALL_INVARIANTS, AUXILIARY, INVARIANTS
from kvproof.spec.state import FIELDS
from kvproof.spec.trace import EventName, Observed

SLICE_FAULTS = [
    "F20070",
    "F20476",
    "F20557",
    "F22862a",
    "F22862b",
    "F21875a",
    "F21875b",
    "F22790a",
    "F22790b",
    "F22790c",
    "F22790d",
    "F22790e",
    "F22213",
]
SLICE_INVARIANTS = [f"I{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17)]


def test_the_slice_has_its_invariants_and_faults() -> None:
    assert list(INVARIANTS) == SLICE_INVARIANTS
    assert [f.id for f in FAULTS.values() if f.kind == "fault"] == sorted(SLICE_FAULTS, key=list(FAULTS).index)
    assert set(SLICE_FAULTS) <= set(FAULTS)


def test_each_action_is_the_rule_of_an_event_of_the_trace_schema() -> None:
    events = set(typing.get_args(EventName))
    assert {a.event for a in ACTIONS.values()} == events - {"evict"}
    assert all(a.summary for a in ACTIONS.values())


def test_each_fault_deviates_from_a_known_action_and_breaks_known_invariants() -> None:
    for fault in FAULTS.values():
        assert fault.action in ACTIONS
        assert fault.breaks
        assert set(fault.breaks) <= set(INVARIANTS)
        assert fault.kind in ("fault", "release", "mutation")


def test_each_invariant_says_what_why_and_whence() -> None:
    for invariant in INVARIANTS.values():
        assert invariant.statement
        assert invariant.source
        assert invariant.explanation
    for auxiliary in AUXILIARY.values():
        assert auxiliary.explanation
    assert list(ALL_INVARIANTS) == [*INVARIANTS, *AUXILIARY]


def test_observed_fields_are_fields_of_the_ledger() -> None:
    assert set(Observed.model_fields) - {f.name for f in FIELDS} == {"attached"}


def test_no_effect_writes_more_than_ghosts() -> None:
    assert len(typing.get_args(Effect)) == 12
