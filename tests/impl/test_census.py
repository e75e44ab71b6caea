"""Every page, row and lock has the owner it should have, recounted after each step of every scenario."""

from __future__ import annotations

import random

import pytest
from page_census import Census, Recorded

from kvproof.impl.scenario_player import play, scenario_config
from kvproof.impl.scenarios import SCENARIOS


@pytest.mark.parametrize("page_size", [1, 4, 16, 256])
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_page_has_exactly_one_owner_after_every_step_and_is_free_or_evictable_at_the_end(
    name: str, page_size: int
) -> None:
    """At 256 a recount takes long: the matrix has it."""
    recorded = Recorded()
    census = Census(recorded)
    forward = {"forward": "none"} if page_size == 256 else {}
    config = scenario_config(name, page_size=page_size, settings=forward)
    scheduler = play(name, config, recorded, (lambda _: None) if page_size == 256 else census)
    assert census.errors == []
    terms = recorded.events[-1].terms
    assert terms is not None
    assert terms["available"] + terms["evictable"] == terms["total"]
    assert scheduler.state.rows.available_rows == scheduler.config.rows
    assert scheduler.state.controller.sessions == {} and scheduler.state.cache.slots == {}


@pytest.mark.parametrize("seed", range(24))
def test_storms_on_other_machines_lose_nothing_either(seed: int) -> None:
    """Pools, rows, chunks and the order of rows by chance: too small for the load, more often than not."""
    chance = random.Random(seed)
    page_size = chance.choice((1, 2, 3, 4, 8, 16))
    settings = {
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
    recorded = Recorded()
    census = Census(recorded)
    play("storm", scenario_config("storm", page_size=page_size, seed=seed, settings=settings), recorded, census)
    assert census.errors == []


@pytest.mark.parametrize(
    ("fault", "name", "page_size"),
    [
        ("F20070", "basic", 1),
        ("F20070", "basic", 4),
        ("F20476", "chunked", 4),
        ("F20557", "logprob", 4),
        ("F21875a", "close-running", 4),
        ("F21875b", "too-long", 4),
        ("F22790b", "abort-first", 1),
        ("F22790b", "abort-first", 4),
        ("F22790c", "too-long", 4),
        ("F22790e", "busy", 4),
        ("F22862a", "retract", 1),
        ("F22862a", "retract", 4),
        ("F22862b", "retract", 4),
        ("F22862b", "retract", 16),
    ],
)
def test_the_census_sees_faults_that_lose_or_share_pages(fault: str, name: str, page_size: int) -> None:
    census = Census()
    play(name, scenario_config(name, page_size=page_size, faults=(fault,)), Recorded(), census)
    assert census.errors
