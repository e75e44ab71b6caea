"""With overlap a step is launched before the result of the last one is known: lengths, late results, and who may wait."""

from __future__ import annotations

from functools import partial

import pytest
from engine import engine_with_a_session, engine_with_a_turn

overlapping_engine = partial(engine_with_a_session, overlap=True)
overlapping_turn = partial(engine_with_a_turn, overlap=True)


def test_a_step_is_prepared_before_the_result_of_the_last_one_is_processed() -> None:
    engine = overlapping_turn(2)
    assert engine.actions("1")[1:] == [
        *("match", "extend"),
        *("decode", "result", "insert"),
        *("decode", "result", "finish"),
        "result",
    ]


@pytest.mark.parametrize("output", [1, 2, 5])
def test_a_finish_leaves_all_its_tokens_with_kv(output: int) -> None:
    """C = A = O + F: step F was prepared before the result of step F - 1 was there."""
    engine = overlapping_turn(output)
    after = engine.last("finish", "1").after
    assert after["slot_kv_committed_len"] == after["slot_kv_allocated_len"] == after["checkpoint_len"] == 10 + output


def test_the_insert_of_a_prompt_says_how_much_was_prefilled() -> None:
    engine = overlapping_turn(3)
    inserted = engine.last("insert", "1")
    assert inserted.params["key_len"] == 10 and inserted.after["kv_committed_len"] == 11


def test_a_late_result_changes_nothing_and_shows_no_lengths_of_its_own() -> None:
    engine = overlapping_turn(3)
    late = engine.recorded.events[-1]
    assert (late.action, late.params, late.free) == ("result", {"tokens": 1}, ())
    assert late.session == "s" and late.after == engine.last("finish", "1").after  # its session's, none of its own
    assert len(engine.scheduler.outcomes["1"].output_ids) == 3


def test_a_retract_drops_the_token_in_flight_and_its_retry_is_one_short() -> None:
    engine = overlapping_turn(6, steps=3)
    engine.scheduler.retract("1")
    committed = engine.last("retract", "1").after["slot_kv_committed_len"]
    engine.drain()
    assert engine.last("match", "1").after["prefix_len"] == committed - 1
    assert len(engine.scheduler.outcomes["1"].output_ids) == 6


def test_whoever_has_no_token_to_show_is_given_the_time_before_a_retract() -> None:
    engine = overlapping_turn(6, steps=1)
    engine.scheduler.retract("1")
    assert engine.actions("1")[-2:] == ["insert", "retract"]
    engine.drain()


def test_a_retracted_turn_waits_until_the_step_that_carries_it_is_over() -> None:
    engine = overlapping_turn(6, steps=3)
    engine.scheduler.retract("1")
    engine.step()
    assert engine.actions("1")[-2:] == ["retract", "result"]
    engine.step()
    assert engine.actions("1")[-2:] == ["match", "extend"]


def test_the_next_turn_waits_until_the_last_step_of_the_one_before_is_over() -> None:
    engine = overlapping_turn(2, steps=3)
    assert engine.actions("1")[-1] == "finish"
    engine.turn("2", 3, 2)
    engine.step()
    assert engine.actions("2") == ["create"]
    engine.step()
    assert engine.actions("2") == ["create", "match", "extend"]


def test_so_does_a_turn_after_one_that_was_aborted_in_the_queue_meanwhile() -> None:
    engine = overlapping_turn(2, steps=3)
    engine.turn("2", 3, 2)
    engine.scheduler.abort("2")
    engine.turn("3", 3, 2)
    engine.step()
    assert engine.actions("3") == ["create"] and engine.actions("1")[-1] == "result"
    engine.drain()


def test_an_abort_between_the_halves_of_a_step_ends_with_the_result_that_lies_ready() -> None:
    engine = overlapping_turn(6, steps=2)
    engine.scheduler.launch_step()
    engine.scheduler.abort("1")
    assert engine.actions("1")[-1] == "decode"
    engine.scheduler.take_results()
    assert engine.actions("1")[-2:] == ["result", "abort"]
    engine.drain()
    assert engine.actions("1")[-1] == "result"


def test_an_abort_between_the_halves_ends_a_request_between_two_chunks_as_well() -> None:
    engine = overlapping_turn(6, new=30, steps=2, chunked_prefill_size=4)
    engine.scheduler.launch_step()
    engine.scheduler.abort("1")
    engine.scheduler.take_results()
    assert engine.actions("1")[-1] == "abort" and not engine.scheduler.outcomes["1"].finished
    engine.drain()


def test_a_close_between_the_halves_of_a_step_waits_for_the_turn() -> None:
    engine = overlapping_turn(2, steps=2)
    engine.scheduler.launch_step()
    engine.scheduler.close_session("s")
    engine.scheduler.take_results()
    closes = engine.recorded.of("close")
    assert [event.after["closing"] for event in closes] == [True, False] and closes[1].free
    engine.drain()


def test_a_mixed_step_prefills_one_and_decodes_the_others() -> None:
    engine = overlapping_turn(9, new=6, steps=2, chunked_prefill_size=8, mixed_chunk=True, overlap=False)
    engine.scheduler.submit("o", list(range(50, 72)), 2)
    engine.step(3)
    steps = {event.step for event in engine.recorded.of("extend", turn="o")}
    assert steps == {event.step for event in engine.recorded.of("decode", turn="1")} & steps
    assert [event.params["seq_len"] for event in engine.recorded.of("extend", turn="o")] == [4, 8, 12]
    engine.drain()


def test_a_chunk_cache_shares_nothing_and_keeps_nothing() -> None:
    engine = overlapping_engine(radix_cache=False)
    for rid in ("a", "b"):
        engine.scheduler.submit(rid, list(range(1, 11)), 3)
        engine.drain()
    assert [event.after["prefix_len"] for event in engine.recorded.of("match")] == [0, 0]
    assert [event.params["inserted"] for event in engine.recorded.of("finish")] == [False, False]
    assert engine.scheduler.state.allocator.available_pages == engine.scheduler.config.pool_pages


def test_the_least_priority_is_retracted_first_whatever_its_output() -> None:
    engine = overlapping_engine(pool_pages=8)
    engine.scheduler.submit("cheap", list(range(1, 8)), 12)
    engine.step(3)
    engine.scheduler.submit("dear", list(range(50, 57)), 12, priority=1)
    engine.drain()
    assert {event.turn for event in engine.recorded.of("retract")} == {"cheap"}


def test_an_estimate_of_output_admits_fewer_at_a_time_and_saves_retracts() -> None:
    retracts = []
    for estimate in (0, 16):
        engine = overlapping_engine(pool_pages=9, new_token_estimate=estimate)
        for number in range(3):
            engine.scheduler.submit(f"r{number}", [number + 1] * 7, 16)
        engine.drain()
        assert all(outcome.finished for outcome in engine.scheduler.outcomes.values())
        retracts.append(len(engine.recorded.of("retract")))
    assert retracts[0] > retracts[1] == 0


@pytest.mark.parametrize("interval", [2, 3])
def test_forced_retracts_end(interval: int) -> None:
    engine = overlapping_engine(retract_interval=interval)
    for number in range(4):
        engine.scheduler.submit(f"r{number}", [number + 1] * 5, 8)
    engine.drain()
    assert engine.recorded.of("retract")
    assert all(len(outcome.output_ids) == 8 for outcome in engine.scheduler.outcomes.values())
