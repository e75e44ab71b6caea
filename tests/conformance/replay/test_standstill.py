"""Why nothing continues, in one sentence that is the same for the same cause."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.conformance.fuzz.judging import Judging
from kvproof.spec.trace import Config, Header, Producer

CONFIG = Config(page_size=1, pool_pages=4, rows=2, row_width=8, tree=False)


def cause_of(events: Sequence[dict[str, Any]], **config: int) -> str:
    producer = Producer(name="test", version="1", target="test")
    judging = Judging(Header(spec="1", producer=producer, config=CONFIG.model_copy(update=config)))
    for event in events:
        judging.see(SimpleNamespace(step=0, **event))
    assert judging.finding is None
    return judging.cause_of_standstill()


def arrives(turn: str, tokens: int) -> list[dict[str, Any]]:
    matched = {"turn": turn, "params": {"fill_len": tokens}, "after": {"prefix_len": 0}}
    return [{"action": "arrive", "turn": turn, "params": {"origin_len": tokens}}, {"action": "match", **matched}]


def runs(turn: str) -> list[dict[str, Any]]:
    after = {"kv_committed_len": 1, "kv_allocated_len": 1, "cache_protected_len": 0}
    extend = {"turn": turn, "row": 0, "params": {"seq_len": 1, "last": True}, "alloc": (1,), "after": after}
    return [*arrives(turn, 1), {"action": "extend", **extend}]


FULL: list[dict[str, Any]] = [{"action": "check", "params": {"idle_passes": 1, "marked_full": True}}]
CLOSES: list[dict[str, Any]] = [
    {"action": "open", "session": "s", "after": {"inflight": False}},
    {"action": "create", "session": "s", "turn": "t", "params": {"origin_len": 1, "admitted": True}},
    {"action": "close", "session": "s", "after": {"closing": True}},
    {"action": "abort", "session": "s", "turn": "t", "after": {"closing": True}},
]


@pytest.mark.parametrize(
    ("events", "config", "cause"),
    [
        ([], {}, "no event told of what is left"),
        (FULL, {}, "the batch is marked as full"),
        (CLOSES, {}, "a close is not done"),
        (runs("a"), {}, "a turn that runs gets no step"),
        (runs("a") + arrives("b", 1), {}, "a turn is not run although there is room"),
        (arrives("a", 1), {}, "a turn is not run although nothing is held"),
        (arrives("b", 1) + runs("a"), {}, "a turn is not run although there is room"),
        (arrives("b", 1) + runs("a"), {"rows": 1}, "no row for a turn"),
        (arrives("b", 4) + runs("a"), {}, "no pages for a turn"),
        (arrives("a", 3), {"window": 1, "window_pages": 2}, "no window pages for a turn"),
        (arrives("a", 1) + FULL, {}, "a turn is not run: the batch is marked as full"),
        (
            arrives("a", 2) + FULL,
            {"window": 1, "window_pages": 2},
            "a turn is not run although the window pool is free",
        ),
    ],
)
def test_the_cause_of_a_standstill(events: list[dict[str, Any]], config: dict[str, int], cause: str) -> None:
    assert cause_of(events, **config) == cause
