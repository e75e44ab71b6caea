"""A sliding window in the scheduler: cursor, both pools under pressure, what is refused, and answers that depend on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine import Engine, engine_with_a_session

from kvproof.conformance.adapters.reference import record_scenario
from kvproof.conformance.replay.replay import CONFORMS, VIOLATES, replay
from kvproof.impl import window_eviction
from kvproof.impl.census import CensusViolation, take_census
from kvproof.impl.config import EngineConfig
from kvproof.impl.request import Request
from kvproof.impl.session import SessionSlot
from kvproof.impl.state import EngineState
from kvproof.impl.transformer_runner import logits_from_scratch
from kvproof.impl.window_tree import WindowTree


def engine_after(*turns: tuple[int, int], **settings: Any) -> Engine:
    """Session s after turns t0, t1, … of so many input and output tokens."""
    engine = engine_with_a_session(**{"window": 5, **settings})
    for number, (new, output) in enumerate(turns):
        engine.turn(f"t{number}", new, output)
        engine.drain()
    return engine


def engine_with_a_retracted_turn(steps: int, **settings: Any) -> Engine:
    """A turn of session s that was far from its end."""
    engine = engine_after(**settings)
    engine.turn("t", 3, 40)
    engine.step(steps)
    engine.scheduler.retract("t")
    return engine


# -- the cursor --


def test_the_window_moves_by_whole_pages_and_leaves_one_more_than_is_seen() -> None:
    recorded = engine_after((3, 40)).recorded
    moves = [(event.params["pre_len"], event.after["swa_evicted_seqlen"]) for event in recorded.of("window")]
    assert moves[:3] == [(13, 4), (17, 8), (21, 12)]
    assert all(evicted == (pre_len - 5 - 4) // 4 * 4 for pre_len, evicted in moves)
    assert all(len(event.window_free) == 1 and event.free == () for event in recorded.of("window"))


def test_a_turn_hands_its_cursor_on_and_takes_it_over() -> None:
    engine = engine_after((3, 40), (2, 3))
    finish, match = engine.last("finish", "t0"), engine.last("match", "t1")
    assert finish.after["slot_swa_evicted_seqlen"] == match.after["swa_evicted_seqlen"] == 32


def test_a_retract_clears_the_cursor_of_the_request_and_the_slot_keeps_it() -> None:
    engine = engine_with_a_retracted_turn(steps=30)
    [retract] = engine.recorded.of("retract")
    assert (retract.after["swa_evicted_seqlen"], retract.after["slot_swa_evicted_seqlen"]) == (0, 20)
    engine.drain()
    assert len(engine.scheduler.outcomes["t"].output_ids) == 40


def test_what_a_forward_in_flight_reads_or_writes_is_not_evicted() -> None:
    """With overlap a chunk is still in flight when the next one is prepared: the window is counted from before it."""
    counted = {}
    for overlap in (False, True):
        recorded = engine_after((59, 2), overlap=overlap, chunked_prefill_size=16).recorded
        counted[overlap] = [event.params["pre_len"] for event in recorded.of("window")]
    assert counted[False][:2] == [16, 32]
    assert counted[True][:2] == [16, 32] and len(counted[True]) <= len(counted[False])


def test_of_a_decode_in_flight_the_token_does_not_count_yet() -> None:
    recorded = engine_after((3, 40), overlap=True).recorded
    moves = recorded.of("window")
    first = recorded.events.index(moves[0])
    prepared = [event for event in recorded.events[:first] if event.action == "decode"][-1]
    assert moves[0].params["pre_len"] == 13 and prepared.after["kv_committed_len"] == 14


def test_a_retracted_turn_waits_with_no_more_than_its_window() -> None:
    """With speculation its last round has moved the window by less than it brought."""
    settings = {"speculation": 1, "drafts": 4, "draft_accuracy": 1.0, "page_size": 1, "pool_pages": 200}
    [retract] = engine_with_a_retracted_turn(steps=5, **settings).recorded.of("retract")
    assert retract.after["slot_swa_evicted_seqlen"] == retract.after["slot_kv_committed_len"] - 5 - 1


def test_the_cursor_moves_down_with_the_lengths() -> None:
    """Where it stands above them; no run of the right rules brings it there."""
    state = engine_after().scheduler.state
    req = Request("t", [1, 2, 3], 5, swa_evicted_seqlen=16, kv_committed_len=20, kv_allocated_len=20, req_pool_idx=1)
    state.cache.trim_overshoot(req, 10)
    assert (req.swa_evicted_seqlen, req.kv_committed_len) == (10, 10)
    slot = SessionSlot(req_pool_idx=1, kv_committed_len=10, kv_allocated_len=10, swa_evicted_seqlen=10)
    state.cache.free_orphaned_tail(slot, req, 9)
    assert req.swa_evicted_seqlen == slot.swa_evicted_seqlen == 9


def test_every_step_holds_no_more_window_pages_than_the_window_needs() -> None:
    scheduler = engine_after(window_pages=16, pool_pages=64, chunked_prefill_size=8).scheduler
    scheduler.submit("long", list(range(1, 60)), 60)
    while not scheduler.is_idle:
        scheduler.step()
        terms = scheduler.state.window_terms()
        assert terms is not None and terms["uncached"] <= scheduler.config.least_window_pages
    assert scheduler.outcomes["long"].finished


# -- two pools under pressure --


@pytest.mark.parametrize("overlap", [False, True])
def test_the_window_pool_is_the_short_one_and_all_requests_finish(overlap: bool) -> None:
    least = EngineConfig(window=5, chunked_prefill_size=8).least_window_pages
    settings = {"overlap": overlap, "chunked_prefill_size": 8, "pool_pages": 200, "window_pages": least}
    engine = engine_after(**settings)
    for number in range(6):
        engine.scheduler.submit(f"r{number}", list(range(number, number + 30)), 30)
    engine.drain()
    outcomes = engine.scheduler.outcomes
    assert all(outcome.finished for outcome in outcomes.values()) and len(outcomes) == 6
    assert any(event.window_free for event in engine.recorded.of("evict")), "the tree gave window pages back"


def test_one_that_decodes_yields_to_one_between_chunks_instead_of_ending_it() -> None:
    """Each fits alone, both do not; the one between chunks has no token to show and cannot be retracted."""
    pools = {"pool_pages": 72, "window_pages": 9, "row_width": 200, "radix_cache": False}
    engine = engine_after(window=40, page_size=8, chunked_prefill_size=8, **pools)
    engine.scheduler.submit("decodes", list(range(1, 10)), 60)
    engine.step(3)
    engine.scheduler.submit("chunked", list(range(100, 130)), 40)
    engine.drain()
    assert [outcome.reason for outcome in engine.scheduler.outcomes.values()] == [None, None]


def test_a_prefix_without_its_window_pages_is_computed_again_and_heals_the_tree() -> None:
    engine = engine_after()
    prompt = list(range(1, 34))
    for number in range(3):
        # The second token: a prompt is inserted when its first one is there.
        engine.scheduler.submit(f"r{number}", prompt, 2)
        engine.drain()
        if number == 0:
            tree = engine.scheduler.state.prefixes.tree  # type: ignore[attr-defined]
            assert isinstance(tree, WindowTree)
            tree.match(prompt[:28])
            tree.match(prompt)  # of its parts the upper ones are taken first, and stay as tombstones
            tree.evict_window(28)
            take_census(engine.scheduler.state)
    matched = [engine.last("match", f"r{number}").after["prefix_len"] for number in range(3)]
    assert matched == [0, 0, 32]


# -- answers --


def outputs_and_expectation(**settings: Any) -> tuple[list[int], list[int]]:
    """A turn that outgrows its window, and the next one; the second answer, and what a computation without cache says."""
    settings = {"forward": "transformer", "pool_pages": 200, **settings}
    scheduler = engine_after((9, 30), (4, 20), **settings).scheduler
    first, second = (list(scheduler.outcomes[rid].output_ids) for rid in ("t0", "t1"))
    tokens = [*range(1, 10), *first, *range(1, 5), *second]
    logits = logits_from_scratch(scheduler.runner.model, tokens[:-1])  # type: ignore[attr-defined]
    return second, logits[len(tokens) - len(second) - 1 :].argmax(dim=-1).tolist()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"overlap": True, "page_size": 1},
        {"speculation": 1, "drafts": 3},
        {"overlap": True, "speculation": 2, "drafts": 3, "page_size": 2},
        {"attention": "mla", "chunked_prefill_size": 4},
        {"radix_cache": False, "page_size": 16},
    ],
)
def test_answers_with_evicted_windows_equal_a_computation_from_scratch(settings: dict[str, Any]) -> None:
    output, expected = outputs_and_expectation(**settings)
    assert output == expected


@pytest.fixture
def _evicts_too_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window is moved 12 tokens too far: pages that the next token looks back to are gone."""
    right = window_eviction.evict_window
    monkeypatch.setattr(window_eviction, "evict_window", lambda state, req, pre_len: right(state, req, pre_len + 12))


@pytest.mark.usefixtures("_evicts_too_far")
def test_an_eviction_inside_the_window_shows_as_a_wrong_token() -> None:
    output, expected = outputs_and_expectation(census_every_step=False)
    assert output != expected


@pytest.mark.usefixtures("_evicts_too_far")
def test_the_census_notices_an_eviction_inside_the_window() -> None:
    with pytest.raises(CensusViolation, match=r"lacks window pages of positions \["):
        engine_after((9, 30))


def map_two_pages_to_one(state: EngineState) -> None:
    state.window_pool.full_to_window[2] = state.window_pool.full_to_window[1]


@pytest.mark.parametrize(
    ("hurt", "said"),
    [
        (map_two_pages_to_one, r"window pool: page .* has no owner"),
        *(
            (
                lambda state, name=name: vars(state.prefixes.tree).update({name: 99}),
                "with window pages, its counters say",
            )
            for name in ("window_evictable_size", "window_protected_size")
        ),
    ],
    ids=["a window page that two pages name", "evictable", "protected"],
)
def test_the_census_notices_what_is_off_in_the_window_pool(hurt: Callable[[EngineState], None], said: str) -> None:
    state = engine_after((9, 3)).scheduler.state
    hurt(state)
    with pytest.raises(CensusViolation, match=said):
        take_census(state)


# -- faults --


def test_F22900_hands_on_a_cursor_above_the_lengths(tmp_path: Path) -> None:
    for faults, verdict in (((), CONFORMS), (("F22900",), VIOLATES)):
        path = tmp_path / "t.jsonl"
        record_scenario("window-rounds", path, page_size=4, faults=faults)
        report = replay(path)
        assert report.verdict == verdict
    assert report.first is not None and report.first.event.action == "finish"
    assert report.first.event.after.slot_swa_evicted_seqlen > report.first.event.after.slot_kv_allocated_len  # type: ignore[operator]


def test_F994b_loses_the_last_page_in_both_pools(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    settings = {"forward": "none", "census_every_step": True}
    result = record_scenario("window-in-flight", path, page_size=1, faults=("F994b",), settings=settings)
    assert "has no owner" in result.reason and "window pool: page" in result.reason


# -- its pool --


def test_a_window_pool_is_chosen_if_none_is_given() -> None:
    assert EngineConfig(window=5).window_pages == 32
    assert EngineConfig(window=100).window_pages == EngineConfig(window=100).least_window_pages == 54
    assert EngineConfig().window_pages is None


def test_without_chunks_a_request_is_no_longer_than_the_window_pool() -> None:
    """Retracted after it outgrew its window, it comes back as one prompt."""
    config = EngineConfig(window=5, window_pages=10, row_width=100)
    assert (config.max_total_len, config.max_input_len) == (40, 39)
    assert EngineConfig(window=5, window_pages=10, row_width=100, chunked_prefill_size=8).max_total_len == 100
