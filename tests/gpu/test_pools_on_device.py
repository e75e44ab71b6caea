"""Pools on a device: nothing waits for it, its own tables are counted, no event is lost. tests/impl has the same on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from engine import Recorded
from soak.engine_soak import soak
from test_device_census import CORRUPTIONS, corrupt, running

from kvproof.conformance.adapters.reference import record_scenario
from kvproof.conformance.replay.replay import CONFORMS, VIOLATES, replay
from kvproof.impl import ring_events
from kvproof.impl.census import CensusViolation
from kvproof.impl.config import EngineConfig
from kvproof.impl.device import Device
from kvproof.impl.scenarios import SCENARIOS
from kvproof.impl.scheduler import Scheduler

STRICT = {"forward": "none", "check_every_step": True, "census_every_step": True}


def recorded_lines(folder: Path, name: str, page_size: int, settings: dict[str, Any], fault: str = "") -> list[bytes]:
    path = folder / f"{settings['device']}.jsonl"
    faults = (fault,) if fault else ()
    record_scenario(name, path, page_size=page_size, faults=faults, settings=settings)
    return path.read_bytes().splitlines()[1:-1]  # the header names the device, and the end has a digest over the header


@pytest.mark.parametrize("page_size", [1, 4, 256])
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_leaves_the_trace_of_the_cpu(name: str, page_size: int, tmp_path: Path) -> None:
    on_cpu, on_device = (
        recorded_lines(tmp_path, name, page_size, {**STRICT, "device": device}) for device in ("cpu", "cuda")
    )
    assert on_device == on_cpu
    assert replay(tmp_path / "cuda.jsonl").verdict == CONFORMS


@pytest.mark.parametrize(("fault", "name"), [("F22862b", "retract"), ("F22790b", "abort-first")])
def test_a_fault_leaves_the_trace_of_the_cpu_and_is_named(fault: str, name: str, tmp_path: Path) -> None:
    on_cpu, on_device = (
        recorded_lines(tmp_path, name, 4, {"forward": "none", "device": device}, fault) for device in ("cpu", "cuda")
    )
    assert on_device == on_cpu
    report = replay(tmp_path / "cuda.jsonl")
    assert report.verdict == VIOLATES and report.first is not None
    assert fault in [known.id for known in report.first.explained_by]


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_each_violation_of_the_device_alone_is_seen_one_step_later(kind: str) -> None:
    scheduler, device = running("cuda")
    corrupt(device, kind)
    scheduler.step()
    with pytest.raises(CensusViolation, match=rf"^step 4: .*{CORRUPTIONS[kind][1]}"):
        scheduler.step()


def busy_engine() -> tuple[Scheduler, Device]:
    """Requests decode, everything is recorded and counted, and the kernels are compiled."""
    config = EngineConfig(page_size=4, pool_pages=400, row_width=300, device="cuda", **STRICT)  # type: ignore[arg-type]
    scheduler = Scheduler(config, Recorded())
    for number in range(6):
        scheduler.submit(f"r{number}", [1 + number] * 9, 250)
    for _ in range(30):
        scheduler.step()
    return scheduler, scheduler.state.device


def test_a_step_waits_for_nothing_on_the_device() -> None:
    """The device is kept busy: the step must be over before that. What it reads is the verdict of the step before."""
    scheduler, device = busy_engine()
    torch.cuda.synchronize()
    with device.stream.running():
        torch.cuda._sleep(400_000_000)
        busy = torch.cuda.Event()
        busy.record()
    scheduler.step()
    assert not busy.query(), "a step waited for the device"
    scheduler.settle_census()
    scheduler.settle()


def test_no_step_asks_the_device_for_a_value() -> None:
    scheduler, _ = busy_engine()
    before = scheduler.state.reporter.step
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(20):
            scheduler.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert scheduler.state.reporter.step == before + 20


@pytest.mark.parametrize(("records", "pages"), [(8, 2**12), (4096, 150)])
def test_a_small_ring_is_waited_for_and_loses_nothing(
    records: int, pages: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu = recorded_lines(tmp_path, "many-sessions", 4, {**STRICT, "device": "cpu"})
    monkeypatch.setattr(ring_events, "RING_RECORDS", records)
    monkeypatch.setattr(ring_events, "ring_pages", lambda config: pages)
    assert recorded_lines(tmp_path, "many-sessions", 4, {**STRICT, "device": "cuda"}) == on_cpu


def test_a_soak_on_the_device_loses_nothing() -> None:
    told: list[str] = []
    assert soak(1_000, 4, told.append, device="cuda") == 0, told
