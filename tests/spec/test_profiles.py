"""What releases do by rules of their own: which of it keeps every invariant, and what refutes a profile."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from rule_mutation.mutants import rule_modules

from kvproof.model.integers import Integers
from kvproof.model.prove import induction_step
from kvproof.model.variant import Variant, prove_variant
from kvproof.spec.actions import ACTIONS, Action, Step
from kvproof.spec.domain import Domain, minus
from kvproof.spec.faults import FAULTS
from kvproof.spec.profiles import PROFILES, _evict_window_up_to, profile_of
from kvproof.spec.state import RUNNING, Ledger, pristine

Run = Callable[[Domain, Ledger, SimpleNamespace], Step]
DESIGNS = [(name, rule) for name, profile in PROFILES.items() for rule in profile.rules]


def broken_by(rule: Action, run: Run) -> set[str]:
    """The invariants that a rule does not keep if it does this."""
    cells = induction_step(dataclasses.replace(rule, run=run), [])
    return {cell.invariant for cell in cells if cell.verdict == "broken"}


@pytest.mark.parametrize(("profile", "rule"), DESIGNS)
def test_another_design_keeps_every_invariant(profile: str, rule: str) -> None:
    contradictions: list[str] = []
    cells = list(induction_step(PROFILES[profile].rules[rule], contradictions))
    assert {cell.verdict for cell in cells} == {"proved"} and not contradictions


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_the_designs_of_a_release_go_together_and_all_of_them_happen(profile: str) -> None:
    comparison = prove_variant(Variant("designs", PROFILES[profile].rules))
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
    cells = [cell for name in rules for cell in induction_step(rules[name], [])]
    assert {(cell.action, cell.invariant) for cell in cells if cell.verdict == "broken"} == refuted
    assert {action for action, _ in refuted} == {FAULTS[fault].action for fault in PROFILES[profile].deviations}


def test_a_wrong_rule_of_a_release_would_be_refuted() -> None:
    """The abort of 0.5.23 that forgets its slot, as a seed bug of an earlier abort did."""
    assert broken_by(PROFILES["sglang-0.5.23"].rules["abort_nth"], ACTIONS["finish_plain"].run)


def test_a_window_that_a_waiting_turn_evicts_must_be_its_own_by_then() -> None:
    """The model's rule, applied to a turn that still waits: the slot would count window pages that are gone."""
    for rule in (profile.rules["evict_window"] for profile in PROFILES.values() if "evict_window" in profile.rules):
        assert broken_by(rule, ACTIONS["evict_window"].run) >= {"I10", "X3"}


def test_a_window_that_is_evicted_into_what_it_reaches_is_refuted() -> None:
    def one_token_more(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
        return _evict_window_up_to(d, s, p, minus(d, d.window, d.one))

    assert broken_by(PROFILES["sglang-0.5.23"].rules["evict_window"], one_token_more) == {"I9"}


@pytest.mark.parametrize("profile", ["sglang-0.5.10", "sglang-0.5.23"])
def test_of_pairs_the_tree_must_not_own_the_last_token(profile: str) -> None:
    rule = PROFILES[profile].rules["insert"]

    def counts_all(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
        right = rule.run(d, s, p)
        owned = d.where(d.spec_v2, d.tokens(d.floor_pages(p.key_len + d.one)), right.after.cache_protected_len)
        return dataclasses.replace(right, after=right.after.but(cache_protected_len=owned))

    assert broken_by(rule, counts_all) & {"I11", "I12"}


@pytest.mark.parametrize(
    ("speculation", "key_len", "prefix_len"),
    [(2, 8, 8), (2, 7, 8), (2, 6, 6), (1, 8, 8), (1, 7, 8), (1, 6, 6), (0, 7, 7)],
)
def test_with_rounds_a_key_may_be_one_less_than_what_is_kept(speculation: int, key_len: int, prefix_len: int) -> None:
    d = Integers(page_size=1, row_width=32, overlap=True, speculation=speculation)
    prompt = pristine(d).but(
        plain=True, phase=RUNNING, origin_len=8, output_len=1, kv_committed_len=8, kv_allocated_len=8, kv_valid=8
    )
    step = PROFILES["sglang-0.5.10"].rules["insert"].run(d, prompt, SimpleNamespace(dup_len=0, key_len=key_len))
    assert all(guard.holds for guard in step.guards)
    assert (step.after.prefix_len, step.after.cache_protected_len) == (prefix_len, key_len)


@pytest.mark.parametrize(
    ("speculation", "page_size", "key_len", "is_enough"),
    [
        (2, 4, 0, True),
        (2, 1, 2, True),
        (2, 1, 1, True),
        (2, 1, 0, False),
        (1, 4, 0, True),
        (1, 1, 2, True),
        (1, 1, 1, False),
    ],
)
def test_what_a_round_leaves_out_is_counted_in_pages(
    speculation: int, page_size: int, key_len: int, is_enough: bool
) -> None:
    """One token asked for two and got three of a round: the tree takes no page of 4, or all but the last token and, in version 2,
    the draft. Version 1 keeps none past the end."""
    overlap = speculation == 2
    d = Integers(page_size=page_size, row_width=32, overlap=overlap, speculation=speculation, drafts=1)
    request = pristine(d).but(
        plain=True, phase=RUNNING, origin_len=1, output_len=3, kv_committed_len=3, kv_allocated_len=6, kv_valid=3
    )
    asked = SimpleNamespace(dup_len=0, inserted=True, key_len=key_len)
    step = PROFILES["sglang-0.5.10"].rules["finish_plain"].run(d, request, asked)
    assert all(guard.holds for guard in step.guards) == is_enough


@pytest.mark.parametrize("action", ["insert", "finish_plain"])
def test_of_a_prompt_that_parts_the_tree_must_not_own_more_than_it_took(action: str) -> None:
    """The key ends where it parts; a rule that still counts the whole prompt as the tree's is refuted."""
    rule = PROFILES["sglang-0.5.17"].rules[action]

    def counts_all(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
        right = rule.run(d, s, p)
        if action == "insert":
            owned = d.tokens(d.floor_pages(s.kv_committed_len))
            return Step(right.after.but(cache_protected_len=owned), right.guards, right.effects)
        _, *released = ACTIONS["finish_plain"].run(d, s, p).effects
        return Step(right.after, right.guards, (right.effects[0], *released))

    assert broken_by(rule, counts_all)


def test_a_rule_takes_what_the_rule_that_it_replaces_takes() -> None:
    """What an event must hold to be judged by it is then in every trace of the format."""
    for profile in PROFILES.values():
        for name, rule in profile.rules.items():
            assert rule.name == name and rule.event == ACTIONS[name].event
            assert rule.params.items() >= ACTIONS[name].params.items()


OF_A_TARGET = {
    "sglang-0.5.10": ("sglang 0.5.10.post1",),
    "sglang-0.5.11": ("sglang 0.5.11", "sglang 0.5.12.post1", "sglang 0.5.13.post1"),
    "sglang-0.5.14": ("sglang 0.5.14",),
    "sglang-0.5.17": ("sglang 0.5.15", "sglang 0.5.17", "sglang 0.5.18.post1"),
    "sglang-0.5.19": ("sglang 0.5.19", "sglang 0.5.20.post2"),
    "sglang-0.5.23": ("sglang 0.5.22", "sglang 0.5.23"),
    None: (
        *("sglang 0.5.9", "sglang 0.5.21", "sglang 0.5.24", "sglang 0.6", "sglang unknown"),
        *("sglang", "sglang-jax 0.5.23", "model"),
    ),
}


@pytest.mark.parametrize("profile", OF_A_TARGET)
def test_a_profile_is_of_the_releases_from_its_first_to_its_last(profile: str | None) -> None:
    found = [profile_of(target) for target in OF_A_TARGET[profile]]
    assert {name and name.name for name in found} == {profile}


def test_profiles_are_judged_not_mutated() -> None:
    assert "profiles" not in {name.rpartition(".")[2] for name in rule_modules()}
