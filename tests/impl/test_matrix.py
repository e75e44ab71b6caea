"""The behaviours of the seeds on every configuration: pages, rows and locks counted after every step, the sums of the memory
check, every output token against a computation without any cache, and a replay of the recorded trace.

A sample of the cells runs by default, all valid cells under the marker `slow`. Invalid configurations are refused in one
sentence (test_config.py).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from page_census import Census

from kvproof.conformance.adapters.reference import record_scenario
from kvproof.conformance.replay import CONFORMS, replay
from kvproof.impl import script
from kvproof.impl.model import Transformer, logits_from_scratch
from kvproof.impl.request import Request
from kvproof.impl.scheduler import Scheduler

BEHAVIOURS = {
    "inherit": "inheritance of cached tokens across turns",
    "concurrent-logprobs": "concurrent sessions with logprobs and no leak",
    "many-sessions": "many concurrent sessions mixed with ordinary requests",
    "too-long": "pre-abort, then recovery",
    "abort-first": "first turn aborted mid-way, then recovery",
    "abort-nth": "n-th turn aborted mid-way, then recovery to the last success",
    "close-running": "close while running",
    "abort-storm": "chunked-prefill abort storm",
}
SCHEDULES: tuple[dict[str, Any], ...] = (
    {"overlap": False, "speculation": 0},
    {"overlap": True, "speculation": 0},
    {"overlap": False, "speculation": 1, "drafts": 3},
    {"overlap": True, "speculation": 2, "drafts": 3},
)
CHUNKS: tuple[dict[str, Any], ...] = (
    {"chunked_prefill_size": None, "mixed_chunk": False},
    {"chunked_prefill_size": 2, "mixed_chunk": False},  # pages; in tokens below
    {"chunked_prefill_size": 2, "mixed_chunk": True},
)
BOTH = ((True, False), (False, True), (False, True))
"""With and without: a tree, forced retracts, a sliding window."""
SEED = 3


@dataclass(frozen=True)
class Cell:
    behaviour: str
    page_size: int
    schedule: int
    chunks: int
    radix_cache: bool
    forced_retract: bool
    windowed: bool

    @property
    def settings(self) -> dict[str, Any]:
        chunks = dict(CHUNKS[self.chunks])
        if chunks["chunked_prefill_size"] is not None:
            chunks["chunked_prefill_size"] *= self.page_size
        return {
            **SCHEDULES[self.schedule],
            **chunks,
            "radix_cache": self.radix_cache,
            "retract_interval": 3 if self.forced_retract else None,
            "check_every_step": True,
            "census_every_step": True,
            "pool_pages": 160,
            "window": self.window,
        }

    @property
    def window(self) -> int:
        """Tokens: less than a page, so that the window also begins inside of one; at page size 1 a few of them."""
        return max(3, self.page_size - 1) if self.windowed else 0

    @property
    def is_valid(self) -> bool:
        return not (CHUNKS[self.chunks]["mixed_chunk"] and SCHEDULES[self.schedule]["speculation"])

    def __str__(self) -> str:
        schedule, chunks = SCHEDULES[self.schedule], CHUNKS[self.chunks]
        words = [
            self.behaviour,
            str(self.page_size),
            "overlap" if schedule["overlap"] else "",
            f"v{schedule['speculation']}" if schedule["speculation"] else "",
            "" if chunks["chunked_prefill_size"] is None else "mixed" if chunks["mixed_chunk"] else "chunked",
            "" if self.radix_cache else "notree",
            "retract" if self.forced_retract else "",
            "window" if self.windowed else "",
        ]
        return "-".join(word for word in words if word)


CELLS = [
    cell
    for parts in itertools.product(BEHAVIOURS, (1, 4, 16, 64, 256), range(4), range(3), *BOTH)
    if (cell := Cell(*parts)).is_valid
]


def sample(count: int) -> list[Cell]:
    """Page sizes 1 and 256 always, the others by chance; every behaviour, schedule, chunking and cache occurs."""
    chance = random.Random(SEED)
    always = [cell for cell in CELLS if cell.page_size in (1, 256)]
    others = [cell for cell in CELLS if cell.page_size not in (1, 256)]
    return chance.sample(always, 2 * count // 3) + chance.sample(others, count - 2 * count // 3)


class Watch:
    """Counts after every step, and remembers every request that it saw."""

    def __init__(self) -> None:
        self.census = Census()
        self.requests: dict[str, Request] = {}

    def __call__(self, scheduler: Scheduler) -> None:
        self.census(scheduler)
        for req in (*scheduler.state.waiting, *scheduler.state.live_requests()):
            self.requests[req.rid] = req


def play_cell(cell: Cell, trace: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Watch, Scheduler]:
    """Record the cell's trace, as `kvproof record` does, with a watch after every step."""
    watch, played = Watch(), []

    def watched(name: str, config: Any, observer: Any) -> Scheduler:
        played.append(original(name, config, observer, watch))
        return played[-1]

    original = script.play
    monkeypatch.setattr(script, "play", watched)
    record_scenario(cell.behaviour, trace, page_size=cell.page_size, settings=cell.settings)
    return watch, played[0]


def expected_output(req: Request, count: int, window: int) -> list[int]:
    """The output as one computation gives it that knows no cache, no chunks, no drafts and no other request."""
    tokens = [*req.origin_input_ids, *req.output_ids[:count]]
    logits = logits_from_scratch(model(window), tokens[:-1])
    predicted: list[int] = logits[len(req.origin_input_ids) - 1 :].argmax(dim=-1).tolist()
    return predicted


@cache
def model(window: int) -> Transformer:
    return Transformer(0, window=window)


def check_cell(cell: Cell, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = folder / "t.jsonl"
    watch, scheduler = play_cell(cell, trace, monkeypatch)
    assert watch.census.errors == []
    for rid, req in watch.requests.items():
        output = list(scheduler.outcomes[rid].output_ids)
        if output:
            assert output == expected_output(req, len(output), cell.window), rid
    for terms in filter(None, (scheduler.state.memory_terms(), scheduler.state.window_terms())):
        assert terms["available"] + terms["evictable"] == terms["total"]
    assert scheduler.state.rows.available_rows == scheduler.config.rows
    report = replay(trace)
    assert report.verdict == CONFORMS, report.findings


@pytest.mark.parametrize("cell", sample(60), ids=str)
def test_a_sample_of_the_matrix(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_cell(cell, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_every_cell_of_the_matrix(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_cell(cell, tmp_path, monkeypatch)


def test_the_sample_meets_every_behaviour_and_every_setting() -> None:
    cells = sample(60)
    assert {cell.behaviour for cell in cells} == set(BEHAVIOURS)
    assert {cell.page_size for cell in cells} == {1, 4, 16, 64, 256}
    assert {(cell.schedule, cell.chunks) for cell in cells} == {(cell.schedule, cell.chunks) for cell in CELLS}
    assert {(cell.radix_cache, cell.forced_retract, cell.windowed) for cell in cells} == set(itertools.product(*BOTH))


def test_a_wrong_token_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: one output token is changed."""
    cell = Cell("abort-first", 4, 0, 0, True, False, False)
    watch, scheduler = play_cell(cell, tmp_path / "t.jsonl", monkeypatch)
    rid = next(rid for rid, outcome in scheduler.outcomes.items() if len(outcome.output_ids) > 2)
    req = watch.requests[rid]
    assert expected_output(req, 3, 0) == req.output_ids[:3]
    req.output_ids[1] += 1
    assert expected_output(req, 3, 0) != req.output_ids[:3]


def test_a_lost_page_is_noticed(tmp_path: Path) -> None:
    """So can the census: a fault that keeps pages of an aborted turn."""
    settings: Mapping[str, Any] = Cell("abort-first", 4, 1, 1, True, False, False).settings
    recorded = record_scenario("abort-first", tmp_path / "t.jsonl", page_size=4, faults=("F22790b",), settings=settings)
    assert recorded.reason.startswith("crashed: CensusViolation: step") and "has no owner" in recorded.reason
