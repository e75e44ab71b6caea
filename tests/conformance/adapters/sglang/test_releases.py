"""Every known release is driven by the seams that are there; which ones those are is pinned in seams.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sglang_process import EACH_RELEASE, LATER, RELEASES, Trace

from kvproof.conformance.adapters.sglang.releases import RELEASES as KNOWN
from kvproof.conformance.adapters.sglang.seams import SEAMS

SEAMS_FOUND = Path(__file__).with_name("seams.json")
TraceOf = Callable[[str, str, int], Trace]


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
