"""Whole runs of the reference implementation on a device: the same events as on the CPU, and they conform."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvproof.conformance.adapters.reference import record_scenario
from kvproof.conformance.replay.replay import CONFORMS, replay
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.trace import Event

MODES = {
    "plain": {},
    "overlap": {"overlap": True},
    "v1": {"speculation": 1, "drafts": 3},
    "v2": {"overlap": True, "speculation": 2, "drafts": 3},
    "window": {"window": 20},
    "latent": {"attention": "mla"},
    "mixed": {"chunked_prefill_size": 16, "mixed_chunk": True, "overlap": True},
}
SCENARIOS = ("inherit", "many-sessions", "abort-first", "abort-nth", "close-running", "abort-storm", "retract")


def recorded(scenario: str, path: Path, mode: str, page_size: int, device: str) -> list[Event]:
    settings = {**MODES[mode], "device": device, "census_every_step": True, "check_every_step": True}
    result = record_scenario(scenario, path, page_size=page_size, settings=settings)
    assert result.reason == "finished"
    report = replay(path)
    assert report.verdict == CONFORMS, report.first
    return [record for _, record in read_trace(path) if isinstance(record, Event)]


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_run_on_the_device_is_the_run_on_the_cpu(scenario: str, mode: str, page_size: int, tmp_path: Path) -> None:
    """Greedy decoding of a tiny model in float32: what is accepted of a draft is the same, and so is every page."""
    on_cpu = recorded(scenario, tmp_path / "cpu.jsonl", mode, page_size, "cpu")
    assert recorded(scenario, tmp_path / "cuda.jsonl", mode, page_size, "cuda") == on_cpu
