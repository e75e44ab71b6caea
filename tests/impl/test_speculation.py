"""Rounds of drafts: what is reserved, claimed, resolved and trimmed; and the output is what it is without them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from engine import Recorded, engine_with_a_turn

from kvproof.impl.scheduler import Scheduler

V1: dict[str, Any] = {"speculation": 1, "drafts": 3}
V2: dict[str, Any] = {"overlap": True, "speculation": 2, "drafts": 3}
each_version = pytest.mark.parametrize("mode", [V1, V2], ids=["v1", "v2"])


def run(output: int, new: int = 10, **settings: Any) -> tuple[Scheduler, Recorded]:
    """One turn of session s, and a census after each step."""
    engine = engine_with_a_turn(output, new=new, **settings)
    return engine.scheduler, engine.recorded


@pytest.mark.parametrize("accuracy", [0.0, 0.6, 1.0])
@each_version
def test_the_output_is_what_it_is_without_drafts(mode: dict[str, Any], accuracy: float) -> None:
    for output in range(1, 14):
        plain, _ = run(output)
        drafted, _ = run(output, **mode, draft_accuracy=accuracy)
        assert drafted.outcomes["1"] == plain.outcomes["1"]


def test_v1_commits_what_was_accepted_and_frees_the_rest() -> None:
    _, recorded = run(9, page_size=1, draft_accuracy=0.5, **V1)
    rounds = recorded.of("verify")
    committed = [10, *(event.after["kv_committed_len"] for event in rounds)]
    for event, before in zip(rounds, committed, strict=False):
        assert event.after["kv_committed_len"] == event.after["kv_allocated_len"] == before + event.params["tokens"]
        assert (len(event.alloc), len(event.free)) == (4, 4 - event.params["tokens"])
    assert len({event.params["tokens"] for event in rounds}) > 1


def test_v2_claims_one_token_and_reserves_two_rounds_at_prepare() -> None:
    _, recorded = run(9, **V2)
    first = recorded.of("decode")[0]
    assert (first.after["kv_committed_len"], first.after["kv_allocated_len"]) == (11, 10 + 2 * 4)


def test_v2_adds_the_accepted_drafts_when_the_round_is_resolved() -> None:
    _, recorded = run(9, draft_accuracy=0.7, **V2)
    ended = recorded.events.index(recorded.of("finish")[0])
    events = [event for event in recorded.events[:ended] if event.action in ("decode", "result")]
    for before, event in pairwise(events):
        gained = 1 if event.action == "decode" else event.params["tokens"] - 1
        assert event.after["kv_committed_len"] == before.after["kv_committed_len"] + gained


@each_version
def test_a_finish_trims_what_its_last_round_overshot(mode: dict[str, Any]) -> None:
    overshot = False
    for output in range(1, 9):
        _, recorded = run(output, draft_accuracy=1.0, **mode)
        after = recorded.of("finish")[0].after
        assert after["checkpoint_len"] == 10 + output
        assert after["slot_kv_allocated_len"] == after["slot_kv_committed_len"] <= 10 + output
        overshot |= sum(event.params["tokens"] for event in recorded.events if "tokens" in event.params) > output
    assert overshot


@each_version
def test_a_row_that_is_just_wide_enough_is_enough(mode: dict[str, Any]) -> None:
    """No round is backed beyond the row, whatever is asked for."""
    for width in range(12, 30):
        scheduler, recorded = run(100, new=4, row_width=width, page_size=1, draft_accuracy=1.0, **mode)
        longest = max(event.after.get("kv_allocated_len", 0) for event in recorded.events)
        assert longest <= width and scheduler.outcomes["1"].finished == (scheduler.config.max_input_len >= 4)


@each_version
def test_a_pool_that_is_too_small_for_a_round_ends_the_request_with_a_reason(mode: dict[str, Any]) -> None:
    scheduler, _ = run(60, new=4, pool_pages=20, page_size=1, **mode)
    assert scheduler.outcomes["1"].reason == "out of memory, and no other request is left to retract"
    assert scheduler.outcomes["1"].output_ids
    assert scheduler.state.memory_terms()["available"] + scheduler.state.memory_terms()["evictable"] == 20
