"""Each fault does what its pull request fixed, and nothing while it is off."""

from __future__ import annotations

import pytest
from page_census import Recorded

from kvproof.impl.config import ConfigError
from kvproof.impl.faults import FAULTS, assemble
from kvproof.impl.observe import Event
from kvproof.impl.scenarios import SCENARIOS
from kvproof.impl.script import play, scenario_config
from kvproof.impl.session import SessionController, StreamingSessionCache

EXPOSED = [(name, fault) for name, scenario in SCENARIOS.items() for fault in scenario.exposes]


def record(name: str, fault: str | None = None, page_size: int = 4) -> Recorded:
    recorded = Recorded()
    play(name, scenario_config(name, page_size=page_size, faults=(fault,) if fault else ()), recorded)
    return recorded


def first_difference(name: str, fault: str, page_size: int = 4) -> tuple[Event, Event]:
    """The first event that differs, as it is without and with the fault."""
    pairs = zip(record(name).events, record(name, fault).events, strict=False)
    return next((right, wrong) for right, wrong in pairs if right != wrong)


def test_every_fault_is_exposed_by_a_scenario() -> None:
    assert {fault for _, fault in EXPOSED} == set(FAULTS)


@pytest.mark.parametrize(("name", "fault"), EXPOSED)
def test_a_scenario_runs_otherwise_with_a_fault_that_it_exposes(name: str, fault: str) -> None:
    assert record(name, fault).events != record(name).events


@pytest.mark.parametrize("page_size", [1, 4])
def test_F22213_is_exposed_at_every_page_size(page_size: int) -> None:
    assert record("busy-check", "F22213", page_size).events != record("busy-check", None, page_size).events


def test_every_fault_says_in_words_what_it_does() -> None:
    assert all(len(fault.description) > 40 for fault in FAULTS.values())


def test_without_faults_the_plain_classes_are_used() -> None:
    assert assemble(()) == (StreamingSessionCache, SessionController)


def test_faults_of_both_classes_can_be_on_together() -> None:
    cache, controller = assemble(("F22790d", "F22862b", "F22790a"))
    assert {kind.__name__ for kind in cache.__mro__} >= {"TailFreeUnaligned", "AbortSavesPartialLengths"}
    assert issubclass(controller, FAULTS["F22790d"].deviation)


def test_an_unknown_fault_is_answered_with_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match="unknown fault 'F1'; valid: F20070, "):
        assemble(("F1",))


def test_F20070_hands_on_more_than_the_tree_owns() -> None:
    right, wrong = first_difference("basic", "F20070")
    assert (right.action, right.after["cache_protected_len"]) == ("match", 8)
    assert wrong.after["cache_protected_len"] == wrong.after["prefix_len"] == 16


def test_F20476_empties_the_slot_at_the_match() -> None:
    right, wrong = first_difference("chunked", "F20476")
    assert right.action == "match" and right.after["slot_held"]
    assert not wrong.after["slot_held"]


def test_F20557_reuses_nothing_and_takes_pages_for_the_whole_row() -> None:
    right, wrong = first_difference("logprob", "F20557")
    assert (right.action, right.after["prefix_len"], wrong.after["prefix_len"]) == ("match", 15, 0)
    assert wrong.free == ()


def test_F21875a_frees_at_once_what_a_turn_runs_on() -> None:
    right, wrong = first_difference("close-running", "F21875a")
    assert right.action == wrong.action == "close"
    assert right.after["closing"] and right.free == ()
    assert wrong.free and not wrong.after["slot_held"]


def test_F21875b_saves_one_token_over_a_long_slot() -> None:
    saved = [event.after["slot_kv_committed_len"] for event in record("too-long", "F21875b").of("finish", session="s")]
    assert saved[1] == 1


def test_F22213_counts_a_lent_slot_twice_and_that_of_a_turn_that_just_ended() -> None:
    pairs = zip(record("busy-check").of("check"), record("busy-check", "F22213").of("check"), strict=True)
    terms = [(right.terms, wrong.terms) for right, wrong in pairs if right != wrong]
    lent = [wrong for right, wrong in terms if right and wrong and right["session_held"] == 0]
    ended = [(right, wrong) for right, wrong in terms if right and wrong and right["session_held"] > 0]
    assert lent and all(wrong["session_held"] > 0 and wrong["uncached"] > 0 for wrong in lent)
    assert ended and all(right["uncached"] == 0 and wrong["uncached"] > 0 for right, wrong in ended)


def test_F22790a_keeps_the_aborted_lengths_in_the_slot() -> None:
    right, wrong = first_difference("abort-nth", "F22790a")
    assert right.action == "abort" and right.free and not right.after["slot_held"]
    assert wrong.free == () and wrong.after["slot_kv_committed_len"] > wrong.after["checkpoint_len"]


def test_F22790b_returns_nothing_of_a_first_turn() -> None:
    right, wrong = first_difference("abort-first", "F22790b")
    assert right.action == wrong.action == "abort" and right.free and not wrong.free


def test_F22790c_leaves_the_turn_attached_and_its_abort_takes_the_slot() -> None:
    right, wrong = first_difference("too-long", "F22790c")
    assert right.action == "match" and not right.after["attached"]
    assert wrong.after["attached"] and wrong.after["inflight"] and wrong.row is None
    [abort] = record("too-long", "F22790c").of("abort", session="s")
    assert abort.free and not abort.after["slot_held"]


def test_F22790d_moves_the_checkpoint_at_create() -> None:
    _, wrong = first_difference("abort-nth", "F22790d")
    assert wrong.action == "create" and wrong.after["checkpoint_len"] == wrong.params["origin_len"]


def test_F22790e_admits_two_turns_to_one_row() -> None:
    recorded = record("busy", "F22790e")
    assert all(event.params["admitted"] for event in recorded.of("create"))
    rows = {event.row for event in recorded.of("extend")}
    assert len({event.turn for event in recorded.of("extend")}) > len(rows) == 1


def test_F22862a_overwrites_without_freeing() -> None:
    right, wrong = first_difference("retract", "F22862a")
    assert right.action == "match" and wrong.after["prefix_len"] == right.after["prefix_len"] - 1
    assert right.free and not wrong.free


def test_F22862b_frees_the_page_that_kept_tokens_lie_in() -> None:
    right, wrong = first_difference("retract", "F22862b")
    assert right.action == "match" and right.after["prefix_len"] % 4
    assert right.free == () and len(wrong.free) == 1


def test_S0511a_lets_the_checkpoint_run_ahead() -> None:
    right, wrong = first_difference("retract", "S0511a")
    assert right.action == "retract" and right.after["inflight"]
    assert not wrong.after["inflight"] and wrong.after["checkpoint_len"] > right.after["checkpoint_len"]


def test_S0511b_blocks_the_session_for_ever() -> None:
    recorded = record("abort-queued", "S0511b")
    assert not recorded.of("create", session="s")[-1].params["admitted"]
