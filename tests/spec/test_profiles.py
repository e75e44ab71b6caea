"""What releases do by rules of their own: which of it keeps every invariant, and what refutes a profile."""

from __future__ import annotations

import dataclasses

import pytest

from kvproof.model.mutants import rule_modules
from kvproof.model.prove import induction_step
from kvproof.model.variant import Variant, prove_variant
from kvproof.spec.actions import ACTIONS
from kvproof.spec.faults import FAULTS
from kvproof.spec.profiles import PROFILES

DESIGNS = [(name, rule) for name, profile in PROFILES.items() for rule in profile.rules]


@pytest.mark.parametrize(("profile", "rule"), DESIGNS)
def test_another_design_keeps_every_invariant(profile: str, rule: str) -> None:
    contradictions: list[str] = []
    cells = list(induction_step(PROFILES[profile].rules[rule], 20_000, contradictions))
    assert {cell.verdict for cell in cells} == {"proved"} and not contradictions


def test_the_designs_of_a_release_go_together_and_all_of_them_happen() -> None:
    comparison = prove_variant(Variant("designs", PROFILES["sglang-0.5.23"].rules))
    assert comparison.proof.verdict == "proved" and not comparison.changes


@pytest.mark.parametrize(
    ("profile", "refuted"),
    [
        ("sglang-0.5.11", {("retract", "I14"), ("retract", "I15"), ("retract", "X2"), ("abort_queued", "I15")}),
        ("sglang-0.5.23", {("retract", "I14"), ("retract", "I15"), ("retract", "X2")}),
    ],
)
def test_what_refutes_a_profile_are_its_known_deviations(profile: str, refuted: set[tuple[str, str]]) -> None:
    """A profile of which nothing can fail would say nothing: this one fails where the release was seen to."""
    rules = PROFILES[profile].replaced
    cells = [cell for name in rules for cell in induction_step(rules[name], 20_000, [])]
    assert {(cell.action, cell.invariant) for cell in cells if cell.verdict == "broken"} == refuted
    assert {action for action, _ in refuted} == {FAULTS[fault].action for fault in PROFILES[profile].deviations}


def test_a_wrong_rule_of_a_release_would_be_refuted() -> None:
    """The abort of 0.5.23 that forgets its slot, as a seed bug of an earlier abort did."""
    rule = PROFILES["sglang-0.5.23"].rules["abort_nth"]

    keeps_the_slot = dataclasses.replace(rule, run=ACTIONS["finish_plain"].run)
    cells = induction_step(keeps_the_slot, 20_000, [])
    assert "broken" in {cell.verdict for cell in cells}


def test_profiles_are_judged_not_mutated() -> None:
    assert "profiles" not in {name.rpartition(".")[2] for name in rule_modules()}
