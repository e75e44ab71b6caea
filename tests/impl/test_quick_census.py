"""The quick census says yes exactly where the census of `kernels/census.py` finds nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

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


def play_storm(seed: int, page_size: int, window: int, at_each_step: Callable[[Scheduler], None]) -> None:
    config = scenario_config("storm", page_size=page_size, seed=seed, settings={"forward": "none", "window": window})
    play("storm", config, Recorded(), after_step=at_each_step)


@pytest.mark.parametrize("window", [0, 5])
@pytest.mark.parametrize("page_size", [1, 4])
def test_it_agrees_with_the_census_at_every_step(page_size: int, window: int) -> None:
    told: list[tuple[bool, bool]] = []
    play_storm(1, page_size, window, lambda scheduler: told.extend(verdicts(scheduler.state)))
    assert len(told) > 50 and set(told) == {(True, True)}


class Over(Exception):
    pass


@pytest.mark.parametrize("window", [0, 5])
@pytest.mark.parametrize("page_size", [1, 4])
def test_it_says_no_exactly_where_the_census_finds_something(page_size: int, window: int) -> None:
    told: set[tuple[bool, bool]] = set()

    def hurt_then_ask(scheduler: Scheduler) -> None:
        if next(left) == 0:
            hurt(scheduler.state, chance)
            told.update(verdicts(scheduler.state))
            raise Over

    for seed in range(60):
        chance = random.Random(seed)
        left = count(1 - chance.randint(3, 40))
        with pytest.raises(Over):
            play_storm(seed, page_size, window, hurt_then_ask)
    assert told == {(True, True), (False, False)}
