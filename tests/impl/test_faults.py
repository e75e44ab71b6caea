"""Each fault does what its pull request fixed, and nothing while it is off."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

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
from kvproof.impl.session import SessionController, StreamingSessionCache
from kvproof.impl.simulated_users import Stuck

PARTS = (StreamingSessionCache, SessionController, RadixCache, ChunkCache, Prefill, Decode, Results, RequestExit)


@cache
def record(name: str, fault: str | None = None) -> Recorded:
    recorded = Recorded()
    with suppress(Stuck if fault else ()):
        play(name, scenario_config(name, faults=(fault,) if fault else ()), recorded)
    return recorded


def first_difference(name: str, fault: str) -> tuple[Event, Event]:
    """The first event that differs, as it is without and with the fault."""
    pairs = zip(record(name).events, record(name, fault).events, strict=False)
    return next((right, wrong) for right, wrong in pairs if right != wrong)


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


FIRST_DIFFERENCE: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    # Hands on more than the tree owns.
    "F20070": ("basic", "match", {"cache_protected_len": 8}, {"cache_protected_len": 16, "prefix_len": 16}),
    # Empties the slot at the match.
    "F20476": ("chunked", "match", {"slot_held": True}, {"slot_held": False}),
    # Reuses nothing, and takes pages for the whole row.
    "F20557": ("logprob", "match", {"prefix_len": 15}, {"prefix_len": 0, "freed": 0}),
    # Frees at once what a turn runs on.
    "F21875a": ("close-running", "close", {"closing": True, "freed": 0}, {"slot_held": False, "freed": 2}),
    # Keeps the aborted lengths in the slot: more than the checkpoint.
    "F22790a": (
        *("abort-nth", "abort", {"slot_held": False, "freed": 4}),
        {"freed": 0, "slot_kv_committed_len": 24, "checkpoint_len": 16},
    ),
    # Returns nothing of a first turn.
    "F22790b": ("abort-first", "abort", {"freed": 2}, {"freed": 0}),
    # Leaves the turn attached.
    "F22790c": ("too-long", "match", {"attached": False}, {"attached": True, "inflight": True, "row": None}),
    # Moves the checkpoint at create.
    "F22790d": ("abort-nth", "create", {}, {"checkpoint_len": 11, "origin_len": 11}),
    # Overwrites without freeing.
    "F22862a": ("retract", "match", {"prefix_len": 20, "freed": 1}, {"prefix_len": 19, "freed": 0}),
    # Frees the page that kept tokens lie in: the prefix ends inside of it.
    "F22862b": ("retract", "match", {"prefix_len": 33, "freed": 0}, {"freed": 1}),
    # Lets the checkpoint run ahead.
    "S0511a": (
        "retract",
        "retract",
        {"inflight": True, "checkpoint_len": 13},
        {"inflight": False, "checkpoint_len": 21},
    ),
    # Frees the slot in flight beside the release.
    "F12224": ("in-flight", "finish", {"inserted": True, "freed": 0}, {"freed": 1}),
    # Lets go of the row between chunks.
    "F17850": ("chunked", "stash", {"row": 1}, {"row": None}),
    # Hands the reserve of a round to the slot.
    "F21875c": ("rounds", "finish", {"slot_kv_allocated_len": 6, "checkpoint_len": 6}, {"slot_kv_allocated_len": 13}),
    # Loses sight of the slot of a rejected turn.
    "F22753": ("chunked-check", "check", {"session_held": 2}, {"session_held": 0}),
    # Keeps KV of tokens that nobody kept.
    "F22897": ("rounds", "finish", {}, {"slot_kv_committed_len": 19, "checkpoint_len": 18}),
    # Leaves the page of the unaligned tail behind.
    "F994a": ("duplicates", "finish", {"freed": 3}, {"freed": 2}),
    # Frees what the release has freed or the slot holds.
    "F994c": ("forced-retracts", "result", {"freed": 0}, {"freed": 1}),
    # Appends a token in the middle of the input.
    "F994d": ("chunks-in-flight", "result", {"action": "decode"}, {"tokens": 1, "output_len": 1}),
}
"""Of each fault: a scenario, the first event that it changes, and what that event says without and with it."""


@pytest.mark.parametrize("fault", FIRST_DIFFERENCE)
def test_a_fault_does_what_its_pull_request_fixed(fault: str) -> None:
    name, action, *expected = FIRST_DIFFERENCE[fault]
    for event, fields in zip(first_difference(name, fault), expected, strict=True):
        said = {**event.params, **event.after, **(event.terms or {}), "row": event.row, "freed": len(event.free)}
        assert {"action": action, **fields}.items() <= {**said, "action": event.action}.items()


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


def test_F22790c_ends_by_an_abort_that_takes_the_slot() -> None:
    [abort] = record("too-long", "F22790c").of("abort", session="s")
    assert abort.free and not abort.after["slot_held"]


def test_F22790e_admits_two_turns_to_one_row() -> None:
    recorded = record("busy", "F22790e")
    assert all(event.params["admitted"] for event in recorded.of("create"))
    rows = {event.row for event in recorded.of("extend")}
    assert len({event.turn for event in recorded.of("extend")}) > len(rows) == 1


def test_S0511b_blocks_the_session_for_ever() -> None:
    recorded = record("abort-queued", "S0511b")
    assert not recorded.of("create", session="s")[-1].params["admitted"]


def test_F22651_hands_on_one_token_less() -> None:
    finished = [event.after for event in record("rounds", "F22651").of("finish", session="s")]
    assert any(after["slot_kv_committed_len"] == after["checkpoint_len"] - 1 for after in finished)


def test_F22735_takes_the_lock_from_another_node() -> None:
    recorded = Recorded()
    config = scenario_config("deeper-match", faults=("F22735",), settings={"census_every_step": True})
    with pytest.raises(CensusViolation, match="has lock_ref -1 and 0 holders"):
        play("deeper-match", config, recorded)


def test_F994e_never_comes_to_an_end_and_says_so() -> None:
    with pytest.raises(Stuck, match=r"no progress in 200 steps: .*go round in circles"):
        play("forced-retracts", scenario_config("forced-retracts", faults=("F994e",)), Recorded())
