"""The table of gaps: what a recorder of this project says that it cannot see is in it."""

from __future__ import annotations

from kvproof.conformance.adapters.sglang.releases import RELEASES, release_of
from kvproof.conformance.adapters.sglang.seams import SEAMS
from kvproof.spec.gaps import GAPS, is_known


def test_every_gap_that_a_recorder_may_name_is_known() -> None:
    found = {seam.name: seam.ways[-1] if seam.otherwise is None else None for seam in SEAMS}
    for version in ("9.9.9", "0.6.0.post1+local", *(known.version for known in RELEASES)):
        gaps = release_of(version, found).gaps
        assert gaps and [gap for gap in gaps if not is_known(gap)] == []


def test_a_gap_is_known_as_a_whole() -> None:
    assert all(is_known(gap.replace("{release}", "0.5.18")) for gap in GAPS)
    assert not any(is_known(f"{gap} and more") or is_known(gap[:-1]) for gap in GAPS)
