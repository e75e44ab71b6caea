"""Ranks share nothing: a session stays where it was opened, load is spread, and each rank's own books are right."""

from __future__ import annotations

import pytest
from engine import Recorded, drain

from kvproof.impl.config import ConfigError, EngineConfig
from kvproof.impl.ranks import Ranks
from kvproof.impl.session import UnknownSession

CONFIG = EngineConfig(forward="none", overlap=True, census_every_step=True)


def test_a_session_stays_on_its_rank_and_inherits_there() -> None:
    recorded = [Recorded(), Recorded()]
    ranks = Ranks(CONFIG, 2, recorded)
    first, second = ranks.schedulers
    assert first.state.allocator is not second.state.allocator
    assert [ranks.open_session(name) for name in "abc"] == [0, 1, 0]
    for turn in range(3):
        for name in "abc":
            assert ranks.submit_turn(name, f"{name}{turn}", [1 + turn] * 9, 4)
        drain(ranks)
    turns = [{event.turn for event in one.of("match")} for one in recorded]
    assert turns == [{f"{name}{turn}" for name in names for turn in range(3)} for names in ("ac", "b")]
    assert all(event.after["lent"] for one in recorded for event in one.of("match") if not event.turn.endswith("0"))
    for name in "abc":
        ranks.close_session(name)
    assert all(scheduler.state.cache.slots == {} for scheduler in ranks.schedulers)


def test_an_ordinary_request_goes_to_the_rank_with_the_least_to_do() -> None:
    ranks = Ranks(CONFIG, 3)
    assert [ranks.submit(f"r{n}", [1] * length, 2) for n, length in enumerate((30, 10, 20, 5, 1))] == [0, 1, 2, 1, 1]
    drain(ranks)
    assert all(outcome.finished for outcome in ranks.outcomes.values()) and len(ranks.outcomes) == 5


def test_the_outcome_does_not_depend_on_the_number_of_ranks() -> None:
    outputs = []
    for count in (1, 3):
        ranks = Ranks(CONFIG, count)
        for number in range(7):
            ranks.submit(f"r{number}", list(range(1, 10 + number)), 5)
        drain(ranks)
        outputs.append({rid: outcome.output_ids for rid, outcome in ranks.outcomes.items()})
    assert outputs[0] == outputs[1]


def test_an_abort_finds_its_request_and_a_stranger_is_no_matter() -> None:
    ranks = Ranks(CONFIG, 2)
    ranks.submit("a", [1] * 9, 50)
    ranks.submit("b", [1] * 9, 3)
    ranks.step()
    ranks.abort("a")
    ranks.abort("nobody")
    drain(ranks)
    assert (ranks.outcomes["a"].reason, ranks.outcomes["b"].finished) == ("aborted", True)


def test_a_name_can_be_used_again_after_its_close() -> None:
    ranks = Ranks(CONFIG, 2)
    ranks.open_session("s")
    with pytest.raises(ValueError, match="session 's' is already open"):
        ranks.open_session("s")
    ranks.close_session("s")
    ranks.open_session("s")
    with pytest.raises(UnknownSession):
        ranks.submit_turn("t", "1", [1], 1)


@pytest.mark.parametrize(
    ("count", "observers", "message"), [(0, None, "ranks 0"), (2, [None], "1 observers for 2 ranks")]
)
def test_ranks_that_cannot_work_are_refused(count: int, observers: list[None] | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Ranks(CONFIG, count, observers)
