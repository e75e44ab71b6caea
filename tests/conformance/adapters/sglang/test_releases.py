"""Every known release is driven by the seams that are there; which ones those are is pinned in seams.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sglang_census import Census
from sglang_process import EACH_RELEASE, LATER, PAGE_SIZES, RELEASES, Trace, each_on

from kvproof.conformance.adapters.sglang.releases import RELEASES as KNOWN
from kvproof.conformance.adapters.sglang.scenarios import SCENARIOS
from kvproof.conformance.adapters.sglang.seams import SEAMS

SEAMS_FOUND = Path(__file__).with_name("seams.json")
TraceOf = Callable[[str, str, int], Trace]
# Two turns on one row, or a turn in the name of another: pages are then lost, or freed twice.
SHARED_ROWS = {"busy", "busy-twice", "busy-at-once"}


def test_each_release_of_the_table_has_its_seams_pinned() -> None:
    pinned = json.loads(SEAMS_FOUND.read_text())
    assert set(pinned) == {known.version for known in KNOWN} == {*RELEASES, *LATER}
    for found in pinned.values():
        assert set(found) == {seam.name for seam in SEAMS}


def test_each_way_is_taken_by_some_release() -> None:
    pinned = json.loads(SEAMS_FOUND.read_text())
    for seam in SEAMS:
        taken = {found[seam.name] for found in pinned.values()}
        assert {way.name for way in seam.ways} <= taken, f"no release takes each way of {seam.name}"


@pytest.mark.parametrize("release", EACH_RELEASE)
def test_the_seams_of_a_release_are_those_that_are_pinned(trace_of: TraceOf, release: str) -> None:
    assert trace_of(release, "basic", 4).header.extra["seams"] == json.loads(SEAMS_FOUND.read_text())[release]


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize(
    "release, scenario", each_on(EACH_RELEASE[len(RELEASES) :], sorted(set(SCENARIOS) - SHARED_ROWS))
)
def test_the_events_name_every_page_that_moved(trace_of: TraceOf, release: str, scenario: str, page_size: int) -> None:
    """The census of the events equals the allocator's free list and the tree's size, at every check."""
    trace = trace_of(release, scenario, page_size)
    assert trace.dropped == 0
    assert Census.of(trace.header, trace.events).wrong == []
