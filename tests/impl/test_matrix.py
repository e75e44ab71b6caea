"""The behaviours of the seeds on every configuration: pages, rows and locks counted after every step, the sums of the memory
check, every output token against a computation without any cache, and a replay of the recorded trace.

What a cell switches on must happen in it, to requests of the behaviour itself: a retract, a prefill that carries a decode, a
prompt cut into chunks, an accepted draft, a page that a window left behind.

A sample of the cells runs by default, in which every two settings meet, pages of 256 apart; all valid cells under the marker
`slow`. Invalid
configurations are refused in one sentence (test_config.py).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvproof.conformance.adapters.reference import record_scenario
from kvproof.conformance.replay.replay import CONFORMS, replay
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.impl import scenario_player
from kvproof.impl.config import EngineConfig
from kvproof.impl.observe import Observer
from kvproof.impl.recomputation import recomputed_output
from kvproof.impl.request import Request
from kvproof.impl.scheduler import Scheduler
from kvproof.impl.simulated_users import SimulatedUsers, to_its_end
from kvproof.spec.trace import Event

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
BOOLS = (False, True)
Pair = tuple[tuple[str, Any], tuple[str, Any]]
SEED = 3
COMPANION = "companion"
COMPANION_OUTPUT = 30
"""Tokens: a few dozen steps, and a small share of the pool at page size 1."""


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
            "retract_interval": 2 if self.forced_retract else None,
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
    def needs_company(self) -> bool:
        """A retract is forced only while others run, and a prefill is mixed with the decodes of others."""
        return self.forced_retract or self.settings["mixed_chunk"]

    @property
    def is_valid(self) -> bool:
        """All but one: a prefill step carries single decodes, no rounds, so the engine refuses mixed chunks with speculation."""
        return not (self.settings["mixed_chunk"] and self.settings["speculation"])

    @functools.cached_property
    def pairs(self) -> set[Pair]:
        """Every two of its settings."""
        return set(itertools.combinations(dataclasses.asdict(self).items(), 2))

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


SAMPLE = 40
"""Cells; 36 meet every pair."""
SLOWEST = 256
"""A page size whose cells take three times as long as the others'."""
CELLS = [
    cell
    for parts in itertools.product(BEHAVIOURS, (1, 4, 16, 64, SLOWEST), range(4), range(3), BOOLS, BOOLS, BOOLS)
    if (cell := Cell(*parts)).is_valid
]


def pairs_of(cells: Iterable[Cell]) -> set[Pair]:
    return set().union(*(cell.pairs for cell in cells))


@cache
def sample(count: int) -> list[Cell]:
    """Cells by chance, each time the one of some hundreds that brings the most pairs of settings not met before."""
    chance = random.Random(SEED)
    chosen: list[Cell] = []
    often = [cell for cell in CELLS if cell.page_size != SLOWEST]
    missing = pairs_of(often)
    while len(chosen) < count:
        candidates = [cell for cell in chance.sample(often, 300) if cell not in chosen]
        chosen.append(max(candidates, key=lambda cell: len(cell.pairs & missing)))
        missing -= chosen[-1].pairs
    return chosen


class Accompanied(SimulatedUsers):
    """A script whose requests never run alone: beside them decodes a companion, and another one follows when it ends.

    So there is always somebody who can be retracted, and a decode that a prefill can be mixed with.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.companions: list[str] = []

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            if all(rid in self.scheduler.outcomes for rid in self.companions):
                self.send_companion()
            super().step()

    def drain(self) -> None:
        """Until the requests of the behaviour are over: the companion continues."""
        while any(req.rid not in self.companions for req in self._pending()):
            self.step()

    def dismiss_companion(self) -> None:
        """No other follows: the last one comes to its end."""
        while not self.scheduler.is_idle:
            super().step()

    def send_companion(self) -> None:
        """Its tokens take no chance away from the behaviour, which says the same with and without it."""
        rid = f"{COMPANION}-{len(self.companions)}"
        self.companions.append(rid)
        self.scheduler.submit(rid, [1 + len(self.companions), 2, 3], COMPANION_OUTPUT)

    def _pending(self) -> list[Request]:
        return [*self.scheduler.state.waiting, *self.scheduler.state.live_requests()]


class Watch:
    """Remembers every request that it saw."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}

    def __call__(self, scheduler: Scheduler) -> None:
        self.requests.update((req.rid, req) for req in scheduler.known_requests())


def play_cell(cell: Cell, trace: Path, monkeypatch: pytest.MonkeyPatch, pools: str = "host") -> tuple[Watch, Scheduler]:
    """Record the cell's trace, as `kvproof record` does, with a watch after every step."""
    watch, played = Watch(), []

    def play(name: str, config: EngineConfig, observer: Observer) -> None:
        scheduler = Scheduler(config, observer)
        played.append(scheduler)
        with to_its_end(scheduler):
            play_behaviour(cell, scenario_player.find_scenario(name).run, scheduler, watch)

    monkeypatch.setattr(scenario_player, "play", play)
    record_scenario(cell.behaviour, trace, page_size=cell.page_size, settings={**cell.settings, "pools": pools})
    return watch, played[0]


def play_behaviour(cell: Cell, run: Callable[[SimulatedUsers], None], scheduler: Scheduler, watch: Watch) -> None:
    chance = random.Random(scheduler.config.seed)
    if cell.needs_company:
        accompanied = Accompanied(scheduler, chance, watch)
        run(accompanied)
        accompanied.dismiss_companion()
    else:
        alone = SimulatedUsers(scheduler, chance, watch)
        run(alone)
        alone.drain()
    scheduler.check()


def expected_output(req: Request, count: int, window: int) -> list[int]:
    """The output as one computation gives it that knows no cache, no chunks, no drafts and no other request."""
    return recomputed_output(req.origin_input_ids, req.output_ids[:count], seed=0, window=window)


def require_what_is_switched_on(cell: Cell, events: list[Event]) -> None:
    """Each setting has to happen to requests of the behaviour itself; else the cell is the same as the one without it."""
    own = [event for event in events if event.turn is not None and not event.turn.startswith(COMPANION)]
    if cell.forced_retract:
        assert any(event.action == "retract" for event in own), "nobody was retracted"
    if cell.settings["mixed_chunk"]:
        decoding = {event.step for event in events if event.action == "decode"}
        assert any(event.action == "extend" and event.step in decoding for event in own), "no prefill carried a decode"
    if cell.settings["chunked_prefill_size"]:
        assert any(event.action == "extend" and not event.params["last"] for event in own), "no prompt was cut"
    if cell.settings["speculation"]:
        rounds = [event.params["tokens"] or 0 for event in own if event.action in ("result", "verify")]
        assert any(tokens > 1 for tokens in rounds), "no draft was accepted"
    if cell.windowed:
        assert any(event.action == "window" and event.window_free for event in own), "no window left a page behind"


def check_cell(cell: Cell, folder: Path, monkeypatch: pytest.MonkeyPatch, pools: str = "host") -> None:
    trace = folder / "t.jsonl"
    watch, scheduler = play_cell(cell, trace, monkeypatch, pools)
    for rid, req in watch.requests.items():
        output = list(scheduler.outcomes[rid].output_ids)
        if output:
            assert output == expected_output(req, len(output), cell.window), rid
    for terms in filter(None, (scheduler.state.memory_terms(), scheduler.state.window_terms())):
        assert terms["available"] + terms["evictable"] == terms["total"]
    assert scheduler.state.rows.available_rows == scheduler.config.rows
    require_what_is_switched_on(cell, list(read_trace(trace).events_from(0)))
    report = replay(trace)
    assert report.verdict == CONFORMS, report.findings


def runs() -> Iterator[Any]:
    """Every cell with the pools of the host, the sample with those of a device as well; some of them each time.

    Those of a device are here tensors of the CPU: the same kernels' entries, the page table that the model reads, the census, the
    trace ring.
    """
    often = {"host": sample(SAMPLE), "device": sample(SAMPLE)[::3]}
    for pools, cells in (("host", CELLS), ("device", sample(SAMPLE))):
        for cell in cells:
            marks = () if cell in often[pools] else pytest.mark.slow
            yield pytest.param(cell, pools, marks=marks, id=f"{cell}-{pools}")


@pytest.mark.parametrize(("cell", "pools"), [*runs()])
def test_a_cell_of_the_matrix(cell: Cell, pools: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_cell(cell, tmp_path, monkeypatch, pools)


def test_the_sample_meets_every_pair_of_settings() -> None:
    cells = sample(SAMPLE)
    assert pairs_of(cells) == pairs_of(cell for cell in CELLS if cell.page_size != SLOWEST)
    for name, values in {"page_size": (1, 64), "speculation": (0, 1, 2), "overlap": BOOLS, "windowed": BOOLS}.items():
        met = {(cell.behaviour, {**cell.settings, **vars(cell)}[name]) for cell in cells}
        assert met >= set(itertools.product(BEHAVIOURS, values)), name


IDLE = {
    "nobody was retracted": {"forced_retract": True},
    "no prefill carried a decode": {"chunks": 2},
    "no prompt was cut": {"chunks": 1},
    "no draft was accepted": {"schedule": 2},
    "no window left a page behind": {"windowed": True},
}
"""What is said where that is switched on and does not happen."""
PLAIN = Cell("inherit", 4, 0, 0, True, False, False)


@pytest.mark.parametrize("complaint", IDLE)
def test_a_setting_that_is_idle_is_noticed(complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The events of a cell that has none of them switched on, judged as those of one that has."""
    trace = tmp_path / "t.jsonl"
    play_cell(PLAIN, trace, monkeypatch)
    cell = dataclasses.replace(PLAIN, **IDLE[complaint])
    with pytest.raises(AssertionError, match=complaint):
        require_what_is_switched_on(cell, list(read_trace(trace).events_from(0)))


@pytest.mark.parametrize("complaint", [*IDLE][:2])
def test_a_session_alone_is_neither_retracted_nor_mixed(
    complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the companion is for."""
    monkeypatch.setattr(Accompanied, "send_companion", lambda self: None)
    with pytest.raises(AssertionError, match=complaint):
        check_cell(dataclasses.replace(PLAIN, **IDLE[complaint]), tmp_path, monkeypatch)


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
