"""Rounds that reserve ahead without a draft: the header says that they are no real speculation, the trace that slots are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sglang_process import PAGE_SIZES, RELEASES, Trace, run_with_sglang

TraceOf = Callable[[str, str, int], Trace]
pytestmark = pytest.mark.sglang


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("release", RELEASES)
def test_rounds_reserve_real_slots_and_the_header_says_so(trace_of: TraceOf, release: str, page_size: int) -> None:
    trace = trace_of(release, "matrix-speculation", page_size)
    assert (trace.header.config.speculation, trace.header.config.drafts) == (2, 2)
    assert any("speculation is emulated" in gap for gap in trace.header.gaps)
    ahead = [(event.after.kv_allocated_len or 0) - (event.after.kv_committed_len or 0) for event in trace.of("decode")]
    assert max(ahead) == 5 and len(trace.of("decode")) > 20
    taken = [len(event.alloc) for event in trace.of("decode")]
    assert max(taken) == (6 if page_size == 1 else 2)


def test_without_overlap_there_is_no_such_speculation(tmp_path: object) -> None:
    with pytest.raises(Exception, match="speculation v2 overlaps"):
        run_with_sglang(
            RELEASES[1],
            "-m",
            "kvproof.conformance.cli",
            "record",
            "--target",
            "sglang",
            "--scenario",
            "basic",
            "--set",
            "drafts=2",
            "--out",
            f"{tmp_path}/t.jsonl",
        )
