"""The quick census says yes exactly where the census of `kernels/census.py` finds nothing."""

from __future__ import annotations

import random

import pytest
from engine import Recorded

from kvproof.impl.census import tables_of_books
from kvproof.impl.page_ownership import Holdings, page_owners, window_page_owners
from kvproof.impl.quick_census import every_page_has_one_owner, every_window_page_has_one_owner
from kvproof.impl.scenario_player import play, scenario_config
from kvproof.impl.scheduler import Scheduler
from kvproof.impl.state import EngineState
from kvproof.kernels.census import page_census


def verdicts(state: EngineState) -> list[tuple[bool, bool]]:
    """(quick, census) of each pool: whether nothing is wrong."""
    held, tables = Holdings.of(state), tables_of_books(state)
    found = [(every_page_has_one_owner(state, held), not int(page_census(page_owners(state, held, tables)).verdict))]
    if (pool := state.window_pool) is not None:
        owners = window_page_owners(pool, held, tables)
        found.append((every_window_page_has_one_owner(state, pool, held), not int(page_census(owners).verdict)))
    return found


def hurt(state: EngineState, chance: random.Random) -> None:
    """Something that a wrong step could have done."""
    table, holders = state.rows.table, Holdings.of(state).holders
    match chance.randrange(6):
        case 0:
            height, width = table.shape
            table[chance.randrange(height), chance.randrange(width)] = chance.randint(-3, state.config.pool_pages + 3)
        case 1:
            state.allocator._free_pages.append(chance.randint(-1, state.config.pool_pages + 2))
        case 2 if state.allocator._free_pages:
            state.allocator._free_pages.pop(chance.randrange(len(state.allocator._free_pages)))
        case 3 if holders:
            chance.choice(holders).of.kv_allocated_len += chance.choice((-1, 1)) * chance.choice(
                (1, state.config.page_size, 10**6)
            )
        case 4 if holders:
            holder = chance.choice(holders).of
            holder.cache_protected_len = max(0, holder.cache_protected_len + chance.choice((-1, 1)) * 4)
        case 5 if state.window_pool is not None:
            state.window_pool._window_page_of[chance.randint(1, state.config.pool_pages)] = chance.randint(
                -1, state.window_pool.window_pages + 2
            )


@pytest.mark.parametrize("window", [0, 5])
@pytest.mark.parametrize("page_size", [1, 4])
def test_it_agrees_with_the_census_at_every_step(page_size: int, window: int) -> None:
    told: list[tuple[bool, bool]] = []

    def at_each_step(scheduler: Scheduler) -> None:
        told.extend(verdicts(scheduler.state))

    settings = {"forward": "none", "window": window}
    config = scenario_config("storm", page_size=page_size, seed=1, settings=settings)
    play("storm", config, Recorded(), at_each_step)
    assert len(told) > 50 and set(told) == {(True, True)}


@pytest.mark.parametrize("window", [0, 5])
@pytest.mark.parametrize("page_size", [1, 4])
def test_it_says_no_exactly_where_the_census_finds_something(page_size: int, window: int) -> None:
    told: set[tuple[bool, bool]] = set()

    for seed in range(60):
        chance = random.Random(seed)
        left = chance.randint(3, 40)

        class Over(Exception):
            pass

        def hurt_then_ask(scheduler: Scheduler) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                hurt(scheduler.state, chance)  # noqa: B023
                told.update(verdicts(scheduler.state))
                raise Over

        settings = {"forward": "none", "window": window}
        config = scenario_config("storm", page_size=page_size, seed=seed, settings=settings)
        with pytest.raises(Over):
            play("storm", config, Recorded(), hurt_then_ask)
    assert told == {(True, True), (False, False)}
