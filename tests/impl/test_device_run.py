"""Runs whose pools are on the device's side, here on tensors of the CPU: the same trace as with pools on the host, page by page.

`tests/gpu/test_record.py` runs the same on a device.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import completed
from engine import Recorded, drain
from interpreted_run import digest

from kvproof.conformance.adapters.reference import record_scenario
from kvproof.conformance.replay.replay import CONFORMS, VIOLATES, replay
from kvproof.impl import device_pools, ring_events
from kvproof.impl.census import CensusViolation
from kvproof.impl.config import EngineConfig
from kvproof.impl.device import Device
from kvproof.impl.ring_events import RingOverflow
from kvproof.impl.scenario_player import play, scenario_config
from kvproof.impl.scenarios import SCENARIOS
from kvproof.impl.scheduler import Scheduler
from kvproof.kernels.trace_ring import Drained, TraceRing

ON_DEVICE = {"forward": "none", "pools": "device"}
STRICT = {"forward": "none", "check_every_step": True, "census_every_step": True}
MODES: dict[str, dict[str, Any]] = {
    "window": {"window": 9, "chunked_prefill_size": 8, "mixed_chunk": True, "overlap": True},
    "v1": {"speculation": 1, "drafts": 3},
    "v2": {"speculation": 2, "drafts": 3, "overlap": True},
    "no tree": {"radix_cache": False},
}


def assert_same_trace(folder: Path, name: str, page_size: int, settings: dict[str, Any], *faults: str) -> str:
    """How both runs ended."""
    ends = []
    for pools in ("host", "device"):
        path, chosen = folder / f"{pools}.jsonl", {**STRICT, **settings, "pools": pools}
        reason = record_scenario(name, path, page_size=page_size, faults=faults, settings=chosen).reason
        ends.append((reason, path.read_bytes().splitlines()[1:-1]))  # the header says where the pools were
    assert ends[0] == ends[1], "the same steps and the same pages"
    assert len(ends[0][1]) > 10 and (faults or ends[0][0] == "finished")
    return ends[0][0]


@pytest.mark.parametrize("page_size", [1, 4, pytest.param(256, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_leaves_the_same_trace(name: str, page_size: int, tmp_path: Path) -> None:
    many_steps = page_size == 256  # the matrix counts the pages of every step at this size
    assert_same_trace(tmp_path, name, page_size, {"census_every_step": not many_steps})
    assert replay(tmp_path / "device.jsonl").verdict == CONFORMS


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["many-sessions", "chunked", "retract", "pressure", "abort-storm", "storm"])
def test_so_does_every_way_to_schedule(name: str, mode: str, tmp_path: Path) -> None:
    assert_same_trace(tmp_path, name, 4, MODES[mode])


@pytest.mark.parametrize("settings", [{"window": 9}, {"overlap": True, "speculation": 2, "drafts": 3}], ids=str)
def test_the_model_reads_the_page_table_of_the_device(settings: dict[str, Any], tmp_path: Path) -> None:
    """With the transformer, a wrong page table would give other tokens, and other tokens other lengths of accepted drafts."""
    assert_same_trace(tmp_path, "many-sessions", 4, {**settings, "forward": "transformer"})
    scheduler = Scheduler(EngineConfig(pools="device", window=9))
    device, runner = scheduler.state.device, vars(scheduler.runner)
    assert runner["_rows"].req_to_token is device.pools.req_to_token
    assert runner["_window_map"] is device.pools.full_to_window and runner["_stream"] is device.stream


@pytest.mark.skipif(find_spec("triton") is None, reason="no Triton")
def test_the_triton_kernels_leave_the_same_events() -> None:
    """In their interpreter: allocation, page-table writes, census and ring, as a run calls them."""
    always = {"forward": "none", "census_every_step": True}
    on_host = [
        ("basic", 4, {**always, "check_every_step": True}),
        ("inherit", 1, {**always, "window": 20, "overlap": True, "speculation": 2, "drafts": 3}),
    ]
    asked = json.dumps([(name, page_size, {**settings, "pools": "device"}) for name, page_size, settings in on_host])
    command = [sys.executable, Path(__file__).parent / "interpreted_run.py", asked]
    run = completed(command, env={**os.environ, "TRITON_INTERPRET": "1"})
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [[*digest(*run_on_host)] for run_on_host in on_host]


@pytest.mark.parametrize(
    ("fault", "name", "page_size"),
    [("F22862b", "retract", 4), ("F22790b", "abort-first", 4), ("F22862a", "retract", 1), ("F17850", "chunked", 4)],
)
def test_a_fault_leaves_the_same_trace_and_is_named(fault: str, name: str, page_size: int, tmp_path: Path) -> None:
    assert_same_trace(tmp_path, name, page_size, {"check_every_step": False, "census_every_step": False}, fault)
    report = replay(tmp_path / "device.jsonl")
    assert report.verdict == VIOLATES and report.first is not None
    assert fault in [known.id for known in report.first.explained_by]


@pytest.mark.parametrize(("fault", "name"), [("F22862b", "retract"), ("F22790b", "abort-first")])
def test_the_census_of_the_device_stops_a_fault(fault: str, name: str, tmp_path: Path) -> None:
    reason = assert_same_trace(tmp_path, name, 4, {}, fault)
    assert reason.startswith("crashed: CensusViolation: step ")
    assert '"record":"end"' in (tmp_path / "device.jsonl").read_text().splitlines()[-1]


# -- the launches --


Launches = dict[str, list[int]]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    """Of each of the kernels' entries: how many requests were in each call."""
    batches: Launches = {"alloc_extend": [], "alloc_decode": [], "write_req_to_token": []}

    def spy(entry: Callable[..., Any], seen: list[int]) -> Callable[..., Any]:
        def spied(*arguments: Any) -> Any:
            seen.append(len(arguments[1]))
            return entry(*arguments)

        return spied

    for name, seen in batches.items():
        monkeypatch.setattr(device_pools, name, spy(getattr(device_pools, name), seen))
    return batches


def engine_on_device(**settings: Any) -> tuple[Scheduler, Device, Recorded]:
    recorded = Recorded()
    scheduler = Scheduler(EngineConfig(**ON_DEVICE, **settings), recorded)
    return scheduler, scheduler.state.device, recorded


def test_a_batch_is_one_launch_of_each_kernel(launches: Launches) -> None:
    scheduler, *_ = engine_on_device()
    for number in range(5):
        scheduler.submit(f"r{number}", [number] * (3 + number), 9)
    scheduler.step()
    assert launches == {"alloc_extend": [5], "alloc_decode": [], "write_req_to_token": [5]}
    scheduler.step()
    # What the tree took over, no row has from elsewhere: nothing is written for it.
    assert launches == {"alloc_extend": [5], "alloc_decode": [5], "write_req_to_token": [5, 5]}


def test_a_mixed_step_is_one_launch_for_its_chunks_and_one_for_its_decodes(launches: Launches) -> None:
    scheduler, *_ = engine_on_device(chunked_prefill_size=8, mixed_chunk=True)
    for name in "abc":
        scheduler.submit(name, [ord(name)] * 2, 9)
    scheduler.step()
    for name in "de":
        scheduler.submit(name, [ord(name)], 9)  # as many new tokens as a decode has
    scheduler.step()
    assert (launches["alloc_extend"], launches["alloc_decode"]) == ([3, 2], [3])


def test_a_prefix_of_the_tree_is_written_before_the_new_pages_are(launches: Launches) -> None:
    scheduler, device, _ = engine_on_device()
    scheduler.submit("first", list(range(1, 14)), 2)
    drain(scheduler)
    launches["write_req_to_token"].clear()
    for name in "ab":
        scheduler.submit(name, [*range(1, 14), 50], 2)
    scheduler.step()
    assert launches["write_req_to_token"] == [2, 2]
    assert torch.equal(device.pools.req_to_token, scheduler.state.rows.req_to_token)


# -- the ring --


class LateRing(TraceRing):
    """As on a device: a drain hands out what was there two drains ago."""

    waits = 0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._under_way: list[Drained] = []

    def drain(self, wait: bool = False) -> Drained:
        self._under_way.append(super().drain(wait))
        LateRing.waits += wait
        if not wait:
            return self._under_way.pop(0) if len(self._under_way) > 2 else Drained()
        everything = Drained([record for drained in self._under_way for record in drained.records])
        everything.dropped_records = self._under_way[-1].dropped_records
        everything.dropped_pages = self._under_way[-1].dropped_pages
        self._under_way = []
        return everything


@pytest.fixture
def late_ring(monkeypatch: pytest.MonkeyPatch) -> type[LateRing]:
    monkeypatch.setattr(ring_events, "TraceRing", LateRing)
    monkeypatch.setattr(LateRing, "waits", 0)
    return LateRing


def test_events_are_told_in_their_order_when_their_page_ids_have_come(late_ring: type[LateRing]) -> None:
    scheduler, _, recorded = engine_on_device()
    scheduler.submit("a", [1] * 9, 5)
    scheduler.step()
    assert recorded.events == [], "nothing has arrived yet, and nobody waited"
    drain(scheduler)
    arrived = len(recorded.events)
    scheduler.settle()
    assert late_ring.waits == 1 and arrived < len(recorded.events)
    assert [event.action for event in recorded.events][:3] == ["arrive", "match", "extend"]
    assert recorded.of("extend")[0].alloc == (1, 2, 3)


@pytest.mark.parametrize("mode", [{}, *MODES.values()], ids=str)
def test_a_run_with_a_late_ring_leaves_the_same_trace(
    mode: dict[str, Any], late_ring: type[LateRing], tmp_path: Path
) -> None:
    assert_same_trace(tmp_path, "storm", 4, mode)
    assert late_ring.waits == 1, "only the end of the run waited"


@pytest.mark.parametrize(("records", "pages"), [(8, 2**12), (4096, 70), (3, 70)])
def test_a_small_ring_is_waited_for_and_loses_nothing(
    records: int, pages: int, late_ring: type[LateRing], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring_events, "RING_RECORDS", records)
    monkeypatch.setattr(ring_events, "ring_pages", lambda config: pages)
    assert_same_trace(tmp_path, "many-sessions", 4, {"check_every_step": True})
    assert late_ring.waits > 3


def test_an_event_that_no_ring_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_events, "ring_pages", lambda config: 3)
    scheduler, *_ = engine_on_device()
    scheduler.submit("a", [1] * 17, 5)
    with pytest.raises(RingOverflow, match="5 page ids moved in one event, but the trace ring holds 3"):
        scheduler.step()


def test_a_ring_that_was_overtaken_ends_the_run(late_ring: type[LateRing]) -> None:
    """Somebody else writes into it: what they overwrote is reported, and no event gets page ids that are not its own."""
    scheduler, device, _ = engine_on_device()
    scheduler.submit("a", [1] * 9, 5)
    device.events.ring.header += 10_000
    with pytest.raises(RingOverflow, match=r"the trace ring was overtaken: \d+ events"):
        for _ in range(3):
            scheduler.step()
        scheduler.settle()


def test_a_record_of_another_event_ends_the_run(late_ring: type[LateRing]) -> None:
    scheduler, device, _ = engine_on_device()
    scheduler.submit("a", [1] * 9, 5)
    scheduler.step()
    device.events._under_way.rotate(1)
    with pytest.raises(RingOverflow, match=r"brought record .* where .* was appended"):
        scheduler.settle()


@pytest.fixture
def basic_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], None]], None]:
    """What the scenario `basic` does."""
    return lambda run: monkeypatch.setitem(vars(SCENARIOS["basic"]), "run", run)


def test_a_run_that_breaks_off_still_tells_every_event(late_ring: type[LateRing], basic_is: Any) -> None:
    recorded = Recorded()

    def breaks_off(script: Any) -> None:
        script.send(9, 5)
        script.step(2)
        raise KeyboardInterrupt

    basic_is(breaks_off)
    with pytest.raises(KeyboardInterrupt):
        play("basic", scenario_config("basic", settings=ON_DEVICE), recorded)
    assert " ".join(event.action for event in recorded.events) == "arrive match extend result insert decode result"


def test_the_verdict_of_the_last_step_ends_the_run_that_had_it(late_ring: type[LateRing], basic_is: Any) -> None:
    recorded = Recorded()

    def corrupts(script: Any) -> None:
        script.send(9, 1)
        script.scheduler.state.device.pools.free_pages.pages[5] = 5
        script.step()

    basic_is(corrupts)
    settings = {**ON_DEVICE, "census_every_step": True}
    with pytest.raises(CensusViolation, match=r"^step 1: page 5 is 2 times in the free list; page 6 has no owner$"):
        play("basic", scenario_config("basic", settings=settings), recorded)
    assert [event.action for event in recorded.events][-2:] == ["finish", "check"]


# -- the setting --


def test_the_pools_of_a_device_are_on_it_and_those_of_the_cpu_where_one_says() -> None:
    assert EngineConfig().pools == "host" and EngineConfig(pools="device").pools == "device"
    assert EngineConfig(device="cuda").pools == "device"
