"""What the scheduler does with budgets, pages and the protocol of sessions, seen through its events."""

from __future__ import annotations

from typing import Any

import pytest
from engine import Engine, engine_with_a_turn

from kvproof.impl.session import UnknownSession


def engine_with_a_slot(**settings: Any) -> Engine:
    """Session s after one turn of 10 input and 4 output tokens: 13 positions with KV."""
    return engine_with_a_turn(4, **settings)


def engine_in_turn_2(steps: int, **settings: Any) -> Engine:
    """The next turn of that session, of 5 input and 6 output tokens, after so many steps."""
    engine = engine_with_a_slot(**settings)
    engine.turn("2", 5, 6)
    engine.step(steps)
    return engine


def test_a_first_turn_shares_its_prompt_through_the_tree() -> None:
    engine = engine_with_a_slot()
    assert engine.actions("1")[:5] == ["create", "match", "extend", "result", "insert"]
    inserted = engine.last("insert", "1")
    assert inserted.after["cache_protected_len"] == 8 and inserted.shared == (1, 2)


def test_a_turn_that_ends_with_its_first_token_inserts_nothing() -> None:
    engine = engine_with_a_turn(1)
    assert engine.actions("1") == ["create", "match", "extend", "result", "finish"]
    assert engine.last("finish", "1").after["slot_cache_protected_len"] == 0


def test_a_finished_turn_leaves_all_but_its_last_token_in_the_slot() -> None:
    finish = engine_with_a_slot().last("finish", "1")
    assert finish.after["slot_kv_committed_len"] == finish.after["slot_kv_allocated_len"] == 13
    assert (finish.after["checkpoint_len"], finish.after["inflight"]) == (14, False)


def test_a_later_turn_runs_on_the_slots_row_and_inserts_nothing() -> None:
    engine = engine_with_a_slot()
    engine.turn("2", 5, 3)
    engine.drain()
    match = engine.last("match", "2")
    assert (match.row, match.after["lent"], match.after["prefix_len"]) == (1, True, 13)
    assert engine.last("extend", "2").shared is None
    assert "insert" not in engine.actions("2")


def test_a_second_turn_is_refused_while_one_is_under_way_and_changes_nothing() -> None:
    engine = engine_with_a_slot()
    assert engine.turn("2", 5, 3)
    before = engine.last("create", "2").after
    assert not engine.turn("3", 5, 3)
    refused = engine.last("create", "3")
    assert refused.params["admitted"] is False
    assert {**refused.after, "attached": True} == before
    engine.drain()
    assert engine.actions("3") == ["create"]


def test_a_retract_keeps_marker_and_checkpoint_and_loses_no_token() -> None:
    engine = engine_in_turn_2(3)
    engine.scheduler.retract("2")
    retract = engine.last("retract", "2")
    assert (retract.after["inflight"], retract.after["checkpoint_len"]) == (True, 14)
    assert (retract.after["kv_committed_len"], retract.after["kv_allocated_len"]) == (0, 0)
    assert retract.after["slot_kv_committed_len"] == 19 + 3 - 1
    engine.drain()
    assert engine.last("extend", "2").params == {"seq_len": 22, "last": True}
    assert len(engine.scheduler.outcomes["2"].output_ids) == 6


@pytest.mark.parametrize(("page_size", "freed"), [(1, 1), (4, 0), (3, 1)])
def test_a_retry_after_a_prepared_step_frees_the_tail_from_the_next_page_on(page_size: int, freed: int) -> None:
    """21 positions are kept of 22: a page is freed only if position 21 was the first one of its page."""
    engine = engine_in_turn_2(3, page_size=page_size, retract_after_prepare=True)
    engine.scheduler.retract("2")
    assert engine.last("retract", "2").after["slot_kv_allocated_len"] == 22
    engine.drain()
    match = engine.last("match", "2")
    assert match.after["prefix_len"] == match.after["slot_kv_allocated_len"] == 21
    assert len(match.free) == freed


def test_an_abort_of_a_later_turn_gives_back_row_pages_and_lock_but_not_the_tokens() -> None:
    engine = engine_in_turn_2(3)
    engine.scheduler.abort("2")
    abort = engine.last("abort", "2")
    assert set(abort.free) == {3, 4, 5, 6} and not abort.after["slot_held"]
    assert (abort.after["checkpoint_len"], abort.after["inflight"]) == (14, False)
    assert engine.scheduler.state.prefixes.tree.protected_size == 0
    engine.turn("3", 2, 3)
    engine.drain()
    assert engine.last("create", "3").params["origin_len"] == 16
    assert engine.last("match", "3").after["prefix_len"] == 8


def test_an_abort_in_the_queue_leaves_the_slot_of_a_turn_that_never_ran() -> None:
    engine = engine_in_turn_2(0)
    engine.scheduler.abort("2")
    abort = engine.last("abort", "2")
    assert abort.free == () and abort.after["slot_held"] and not abort.after["inflight"]


def test_an_abort_in_the_queue_releases_what_a_retracted_turn_left_in_the_slot() -> None:
    engine = engine_in_turn_2(2)
    engine.scheduler.retract("2")
    engine.scheduler.abort("2")
    abort = engine.last("abort", "2")
    assert abort.free and not abort.after["slot_held"] and not abort.after["inflight"]
    engine.drain()
    assert engine.scheduler.state.rows.available_rows == engine.scheduler.config.rows


def test_a_close_waits_for_the_turn_in_flight_and_is_told_twice() -> None:
    engine = engine_in_turn_2(2)
    engine.scheduler.close_session("s")
    assert not engine.turn("3", 1, 1)
    engine.drain()
    deferred, done = engine.recorded.of("close")
    assert deferred.after["closing"] and deferred.free == ()
    assert done.free and not done.after["slot_held"] and done.row == 1
    assert engine.recorded.events[engine.recorded.events.index(done) - 1].action == "finish"
    with pytest.raises(UnknownSession, match="session 's' is not open"):
        engine.turn("4", 1, 1)


def test_a_too_long_turn_leaves_its_session_at_the_match_and_ends_as_an_ordinary_request() -> None:
    engine = engine_with_a_slot(row_width=32)
    engine.turn("2", 30, 6)
    engine.drain()
    assert engine.actions("2") == ["create", "match", "arrive", "match", "extend", "result", "finish"]
    create, detached, arrive, ordinary, *_ = [event for event in engine.recorded.events if event.turn == "2"]
    assert (create.params["origin_len"], create.params["too_long"], create.after["inflight"]) == (1, True, True)
    assert detached.session == "s" and detached.after["attached"] is False and detached.after["inflight"] is False
    assert detached.after["slot_kv_committed_len"] == 13
    assert arrive.session is None and ordinary.session is None and ordinary.after["prefix_len"] == 0
    assert not engine.scheduler.outcomes["2"].finished
    assert engine.turn("3", 3, 2)
    engine.drain()
    assert engine.last("match", "3").after["prefix_len"] == 13


def test_a_too_long_first_turn_ends_by_an_abort_of_its_session() -> None:
    engine = engine_with_a_turn(6, new=40, row_width=32)
    assert engine.actions("1") == ["create", "match", "extend", "result", "abort"]
    assert engine.last("abort", "1").free == (1,)


def test_chunks_of_a_session_are_stashed_and_those_of_others_inserted() -> None:
    engine = engine_with_a_turn(2, new=19, chunked_prefill_size=8)
    engine.scheduler.submit("o", list(range(100, 119)), 2)
    engine.drain()
    chunks = ["extend", "stash", "extend", "stash", "extend", "result", "insert", "decode", "result", "finish"]
    assert engine.actions("1")[2:] == chunks
    assert engine.actions("o")[2:] == [{"stash": "insert"}.get(action, action) for action in chunks]
    assert [event.params["seq_len"] for event in engine.recorded.of("extend", turn="1")] == [8, 16, 19]


def test_a_rejected_turn_is_matched_again_to_the_same_end() -> None:
    engine = engine_with_a_slot(chunked_prefill_size=8)
    engine.scheduler.submit("o", list(range(100, 130)), 2)
    engine.step()
    engine.turn("2", 5, 2)
    engine.drain()
    matches = engine.recorded.of("match", turn="2")
    assert len(matches) > 2
    assert all(match.after == matches[0].after and match.row == 1 for match in matches)


def test_pressure_evicts_before_it_retracts() -> None:
    engine = Engine(pool_pages=8)
    engine.scheduler.submit("a", list(range(1, 13)), 1)
    engine.drain()
    engine.scheduler.submit("b", list(range(50, 74)), 4)
    engine.drain()
    [evict] = engine.recorded.of("evict")
    position = engine.recorded.events.index(evict)
    assert engine.recorded.events[position + 1].action == "extend" and evict.free
    assert not engine.recorded.of("retract")


def test_pressure_retracts_the_request_with_the_least_output() -> None:
    engine = Engine(pool_pages=7)
    engine.scheduler.submit("old", list(range(1, 8)), 16)
    engine.step(4)
    engine.scheduler.submit("new", list(range(50, 57)), 12)
    engine.drain()
    assert {event.turn for event in engine.recorded.of("retract")} == {"new"}
    assert all(engine.scheduler.outcomes[rid].finished for rid in ("old", "new"))


def test_what_can_never_fit_is_given_up_instead_of_waiting_for_ever() -> None:
    engine = engine_with_a_slot(pool_pages=6)
    engine.scheduler.submit("o", list(range(50, 70)), 2)
    engine.drain()
    assert engine.scheduler.outcomes["o"].reason == "does not fit beside what open sessions hold"


def test_a_shared_prompt_is_freed_as_a_duplicate() -> None:
    engine = Engine()
    for rid in ("a", "b"):
        engine.scheduler.submit(rid, list(range(1, 11)), 3)
    engine.drain()
    first, second = engine.recorded.of("insert")
    assert (first.params["dup_len"], first.free) == (0, ())
    assert (second.params["dup_len"], len(second.free), second.shared) == (8, 2, first.shared)


@pytest.mark.parametrize(("tokens", "output"), [([], 1), ([1], 0)])
def test_an_empty_request_is_refused(tokens: list[int], output: int) -> None:
    with pytest.raises(ValueError, match="at least one input token and one output token"):
        Engine().scheduler.submit("x", tokens, output)
