from __future__ import annotations

from dataclasses import dataclass

from engine import Recorded

from kvproof.impl.config import EngineConfig
from kvproof.impl.workload_driver import run_workload


@dataclass
class Asked:
    arrival_ms: float
    session: str | None
    new_tokens: int
    output_tokens: int
    prefix_group: str | None = None


REQUESTS = [
    Asked(3, "a", 5, 4),
    Asked(0, "a", 20, 6, "g"),
    Asked(1, None, 24, 3, "g"),
    Asked(2, "b", 9, 2),
    Asked(4, "a", 300, 2),
    Asked(5, "a", 4, 2),
]
CONFIG = EngineConfig(page_size=4, pool_pages=40, rows=2, forward="none")


def test_turns_follow_one_another_and_sessions_close_after_their_last() -> None:
    recorded, told = Recorded(), []
    scheduler = run_workload(REQUESTS, CONFIG, [recorded], lambda done, total: told.append((done, total)))
    assert [event.params["origin_len"] for event in recorded.of("create", session="a")] == [20, 31, 1, 39]
    assert all(event.params["admitted"] for event in recorded.of("create"))
    assert sorted(event.session for event in recorded.of("close")) == ["a", "b"]
    assert told[-1] == (6, 6)
    assert scheduler.state.rows.available_rows == 2
    terms = recorded.events[-1].terms
    assert terms and terms["available"] + terms["evictable"] == terms["total"]


def test_requests_of_a_prefix_group_share_pages() -> None:
    recorded = Recorded()
    run_workload(REQUESTS[1:3], EngineConfig(page_size=4, pool_pages=40, rows=1, forward="none"), [recorded])
    assert recorded.of("match")[1].after["prefix_len"] == 8


def test_the_same_workload_gives_the_same_events() -> None:
    first, second = Recorded(), Recorded()
    run_workload(REQUESTS, CONFIG, [first])
    run_workload(REQUESTS, CONFIG, [second])
    assert first.events == second.events
