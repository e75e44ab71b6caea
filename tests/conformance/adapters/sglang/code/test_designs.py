"""What the designs of later releases keep of the model's invariants, by the proof of one step."""

from __future__ import annotations

import dataclasses

import pytest

from kvproof.conformance.adapters.sglang.code.designs import CLAIMS_LAST, CUT, DESIGNS, ENDS_TURN
from kvproof.model.prove import induction_step
from kvproof.model.questions import PROVED
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.domain import Domain, Flag, is_aligned
from kvproof.spec.invariants import AUXILIARY
from kvproof.spec.machine import LEDGER
from kvproof.spec.profiles import PROFILES
from kvproof.spec.state import Ledger


def cursor_is_on_a_page_boundary(d: Domain, s: Ledger) -> Flag:
    return d.every(is_aligned(d, s.swa_evicted_seqlen), is_aligned(d, s.slot_swa_evicted_seqlen))


BOUNDARY = dataclasses.replace(AUXILIARY["X2"], id="boundary", holds=cursor_is_on_a_page_boundary)
WITH_BOUNDARY = dataclasses.replace(LEDGER, auxiliary={**AUXILIARY, "boundary": BOUNDARY})


def broken_by(action: Action) -> set[str]:
    vacuous: list[str] = []
    found = {o.invariant for o in induction_step(action, vacuous, machine=WITH_BOUNDARY) if o.verdict != PROVED}
    assert not vacuous
    return found


@pytest.mark.parametrize(
    ("label", "name", "broken"),
    [
        (f"{CLAIMS_LAST}, {CUT}", "finish", {"I8"}),
        (ENDS_TURN, "retract", {"I14", "I15", "X2"}),
    ],
)
def test_a_design_breaks_these_invariants_and_no_others(label: str, name: str, broken: set[str]) -> None:
    assert broken_by(DESIGNS[label][name]) == broken


@pytest.mark.parametrize("name", ["match_slot", "finish"])
def test_the_model_s_own_cut_leaves_the_cursor_within_a_page(name: str) -> None:
    assert broken_by(ACTIONS[name]) == {"boundary"}


@pytest.mark.parametrize("profile", ["sglang-0.5.19", "sglang-0.5.23"])
def test_all_rules_of_the_releases_that_rely_on_it_keep_the_cursor_on_a_page_boundary(profile: str) -> None:
    rules = PROFILES[profile].actions

    assert len(rules) > 20
    assert {name for name, action in rules.items() if "boundary" in broken_by(action)} == set()
