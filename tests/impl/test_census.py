"""Every page, row and lock has the owner it should have after each step of every scenario; the census notices what has not."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from engine import Engine, Recorded

from kvproof.impl.census import CensusViolation, take_census
from kvproof.impl.scenario_player import play, scenario_config
from kvproof.impl.scenarios import SCENARIOS
from kvproof.impl.state import EngineState

EVERY_STEP = {"census_every_step": True, "check_every_step": True}


@pytest.mark.parametrize("page_size", [1, 4, 16, 256])
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_page_has_exactly_one_owner_after_every_step_and_is_free_or_evictable_at_the_end(
    name: str, page_size: int
) -> None:
    recorded = Recorded()
    settings = {**EVERY_STEP, "forward": "none"} if page_size == 256 else EVERY_STEP
    scheduler = play(name, scenario_config(name, page_size=page_size, settings=settings), recorded)
    terms = recorded.events[-1].terms
    assert terms["available"] + terms["evictable"] == terms["total"]
    assert scheduler.state.rows.available_rows == scheduler.config.rows
    assert scheduler.state.controller.sessions == {} and scheduler.state.cache.slots == {}


@pytest.mark.parametrize("seed", range(24))
def test_storms_on_other_machines_lose_nothing_either(seed: int) -> None:
    """Pools, rows, chunks and the order of rows by chance: too small for the load, more often than not."""
    chance = random.Random(seed)
    page_size = chance.choice((1, 2, 3, 4, 8, 16))
    settings = {
        **EVERY_STEP,
        "forward": "none",
        "rows": chance.randint(1, 9),
        "row_order": chance.choice(("fifo", "lifo")),
        "row_width": chance.randint(6 * page_size, 16 * page_size + 60),
        "pool_pages": chance.randint(3, 60),
        "chunked_prefill_size": chance.choice((None, page_size, 3 * page_size + 1)),
        "max_prefill_tokens": chance.choice((page_size + 2, 4096)),
        "max_running_requests": chance.choice((None, 2)),
        "retract_after_prepare": chance.random() < 0.5,
    }
    scheduler = play("storm", scenario_config("storm", page_size=page_size, seed=seed, settings=settings), Recorded())
    assert scheduler.state.rows.available_rows == scheduler.config.rows
    assert scheduler.state.controller.sessions == {} and scheduler.state.cache.slots == {}


LOSES_OR_SHARES_PAGES = {
    "F20070": ("basic", 1, 4),
    "F20476": ("chunked", 4),
    "F20557": ("logprob", 4),
    "F21875a": ("close-running", 4),
    "F21875b": ("too-long", 4),
    "F22790b": ("abort-first", 1, 4),
    "F22790c": ("too-long", 4),
    "F22790e": ("busy", 4),
    "F22862a": ("retract", 1, 4),
    "F22862b": ("retract", 4, 16),
}
"""Of a fault: a scenario that shows it, and page sizes."""


@pytest.mark.parametrize("fault", LOSES_OR_SHARES_PAGES)
def test_it_notices_faults_that_lose_or_share_pages(fault: str) -> None:
    name, *page_sizes = LOSES_OR_SHARES_PAGES[fault]
    for page_size in page_sizes:
        config = scenario_config(name, page_size=page_size, faults=(fault,), settings=EVERY_STEP)
        with pytest.raises(CensusViolation):
            play(name, config, Recorded())


def name_what_another_row_has(state: EngineState) -> None:
    state.rows.table[1, 12:16] = state.rows.table[2, 12:16]


def build_on_a_free_page(state: EngineState) -> None:
    state.rows.table[1, 0] = state.config.pool_pages * 4


@pytest.mark.parametrize(
    ("hurt", "sentence"),
    [
        (lambda state: state.rows.free(1), "row 1 has 2 users"),
        (
            lambda state: state.prefixes.unlock(state.running[0].last_node),
            "a node of 12 tokens has lock_ref 1 and 2 holders",
        ),
        (
            lambda state: vars(state.prefixes.tree).update(evictable_size=4),
            "the tree has 12 protected and 0 evictable tokens, its counters say 12 and 4",
        ),
        (
            lambda state: state.allocator.free(state.rows.read(1, 12, 13)),
            r"page \d+ is free and in use: the free list and request a",
        ),
        (name_what_another_row_has, r"page \d+ has 2 owners: request a and request b"),
        (build_on_a_free_page, r"request a builds on 1 leading page that the tree does not own: page 64"),
    ],
)
def test_it_says_what_has_no_owner_or_more_than_one(hurt: Callable[[EngineState], None], sentence: str) -> None:
    engine = Engine()
    for rid in "ab":
        engine.scheduler.submit(rid, list(range(1, 14)), 9)
    engine.step(2)
    take_census(engine.scheduler.state)
    hurt(engine.scheduler.state)
    with pytest.raises(CensusViolation, match=sentence):
        take_census(engine.scheduler.state)
