"""Every page, row and lock has the owner it should have, recounted after each step of every scenario."""

from __future__ import annotations

import pytest
from page_census import Census, Recorded

from kvproof.impl.scenarios import SCENARIOS
from kvproof.impl.script import play, scenario_config


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_page_has_exactly_one_owner_after_every_step(name: str, page_size: int) -> None:
    recorded = Recorded()
    census = Census(recorded)
    play(name, scenario_config(name, page_size=page_size), recorded, census)
    assert census.errors == []


@pytest.mark.parametrize("seed", range(12))
def test_storms_of_other_seeds_lose_nothing_either(seed: int) -> None:
    recorded = Recorded()
    census = Census(recorded)
    page_size = (1, 2, 4, 8)[seed % 4]
    play(
        "storm",
        scenario_config("storm", page_size=page_size, seed=seed, settings={"forward": "none"}),
        recorded,
        census,
    )
    assert census.errors == []


@pytest.mark.parametrize("page_size", [1, 4, 16, 256])
@pytest.mark.parametrize("name", SCENARIOS)
def test_at_the_end_every_page_is_free_or_evictable(name: str, page_size: int) -> None:
    recorded = Recorded()
    scheduler = play(name, scenario_config(name, page_size=page_size, settings={"forward": "none"}), recorded)
    terms = recorded.events[-1].terms
    assert terms is not None
    assert terms["available"] + terms["evictable"] == terms["total"]
    assert scheduler.rows.available_rows == scheduler.config.rows
    assert scheduler.controller.sessions == {} and scheduler.cache.slots == {}


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
