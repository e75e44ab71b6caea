"""Each fault does what its pull request fixed, and nothing while it is off."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

import pytest
from engine import Recorded

from kvproof.impl.census import CensusViolation
from kvproof.impl.chunk_cache import ChunkCache
from kvproof.impl.config import ConfigError
from kvproof.impl.decode import Decode
from kvproof.impl.faults import FAULTS, assemble
from kvproof.impl.observe import Event
from kvproof.impl.prefill import Prefill
from kvproof.impl.radix_cache import RadixCache
from kvproof.impl.request_exit import RequestExit
from kvproof.impl.results import Results
from kvproof.impl.scenario_player import play, scenario_config
from kvproof.impl.scenarios import SCENARIOS
from kvproof.impl.session import SessionController, StreamingSessionCache
from kvproof.impl.simulated_users import Stuck

PARTS = (StreamingSessionCache, SessionController, RadixCache, ChunkCache, Prefill, Decode, Results, RequestExit)
EXPOSED = [(name, fault) for name, scenario in SCENARIOS.items() for fault in scenario.exposes]


@cache
def record(name: str, fault: str | None = None, page_size: int = 4) -> Recorded:
    recorded = Recorded()
    with suppress(Stuck if fault else ()):
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
    parts = assemble(())
    assert [parts.of(part) for part in PARTS] == list(PARTS)


def test_faults_of_several_classes_can_be_on_together() -> None:
    parts = assemble(("F22790d", "F22862b", "F22790a", "F994d"))
    cache = parts.of(StreamingSessionCache)
    assert {kind.__name__ for kind in cache.__mro__} >= {"TailFreeUnaligned", "AbortSavesPartialLengths"}
    assert parts.of(SessionController).__mro__[1] in FAULTS["F22790d"].deviations
    assert parts.of(Prefill).__mro__[1] in FAULTS["F994d"].deviations
    assert parts.of(Decode) is Decode


def test_a_fault_without_the_tree_leaves_the_chunk_cache_as_it_is() -> None:
    assert assemble(("F12224",)).of(ChunkCache) is ChunkCache


def test_an_unknown_fault_is_answered_with_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match="unknown fault 'F1'; valid: F12224, "):
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


def test_F12224_frees_the_slot_in_flight_beside_the_release() -> None:
    right, wrong = first_difference("in-flight", "F12224")
    assert right.action == "finish" and right.params["inserted"]
    assert len(wrong.free) == len(right.free) + 1


def test_F17850_lets_go_of_the_row_between_chunks() -> None:
    right, wrong = first_difference("chunked", "F17850")
    assert right.action == "stash" and right.row is not None and wrong.row is None


def test_F21875c_hands_the_reserve_of_a_round_to_the_slot() -> None:
    right, wrong = first_difference("rounds", "F21875c")
    assert right.action == "finish" and right.after["slot_kv_allocated_len"] == right.after["checkpoint_len"]
    assert wrong.after["slot_kv_allocated_len"] > right.after["slot_kv_allocated_len"]


def test_F22651_hands_on_one_token_less() -> None:
    finished = [event.after for event in record("rounds", "F22651").of("finish", session="s")]
    assert any(after["slot_kv_committed_len"] == after["checkpoint_len"] - 1 for after in finished)


def test_F22735_takes_the_lock_from_another_node() -> None:
    recorded = Recorded()
    config = scenario_config("deeper-match", faults=("F22735",), settings={"census_every_step": True})
    with pytest.raises(CensusViolation, match="has lock_ref -1 and 0 holders"):
        play("deeper-match", config, recorded)


def test_F22753_loses_sight_of_the_slot_of_a_rejected_turn() -> None:
    right, wrong = first_difference("chunked-check", "F22753")
    assert right.action == "check" and right.terms and wrong.terms
    assert right.terms["session_held"] > wrong.terms["session_held"] == 0


def test_F22897_keeps_kv_of_tokens_that_nobody_kept() -> None:
    right, wrong = first_difference("rounds", "F22897")
    assert right.action == "finish" and wrong.after["slot_kv_committed_len"] > wrong.after["checkpoint_len"]


def test_F994a_leaves_the_page_of_the_unaligned_tail_behind() -> None:
    right, wrong = first_difference("duplicates", "F994a")
    assert right.action == "finish" and len(right.free) == len(wrong.free) + 1


def test_F994c_frees_what_the_release_has_freed_or_the_slot_holds() -> None:
    right, wrong = first_difference("forced-retracts", "F994c")
    assert right.action == "result" and right.free == () and len(wrong.free) == 1


def test_F994d_appends_a_token_in_the_middle_of_the_input() -> None:
    _, wrong = first_difference("chunks-in-flight", "F994d")
    assert wrong.action == "result" and wrong.params["tokens"] == 1
    assert wrong.after["output_len"] == 1


def test_F994e_never_comes_to_an_end_and_says_so() -> None:
    with pytest.raises(Stuck, match=r"no progress in 200 steps: .*go round in circles"):
        play("forced-retracts", scenario_config("forced-retracts", faults=("F994e",)), Recorded())
