"""The seed faults: named in the release before their fixes and gone in the one after, on both pools and at each page size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sglang_process import RECORD_SCENARIOS, RELEASES, Trace, run_with_sglang

from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, Report, replay
from kvproof.conformance.replay.rules_of_trace import OF_THE_TRACE

pytestmark = pytest.mark.sglang

BEFORE, AFTER = RELEASES
PAGE_SIZES = (1, 4, 16)
POOLS = {"full": 0, "window": 8}
"""Of each the window, in tokens: less than a page of 16, whole pages of 4."""
SCENARIO = {
    "F21875a": "close-running",
    "F21875b": "too-long",
    "F22213": "busy-check",
    "F22790e": "busy",
    "F22862a": "retract",
    "S0510a": "abort-first",  # F22790b, as the release has it
    "S0510b": "abort-nth",  # F22790a
    "S0510c": "abort-queued",  # F22790c
    "S0510e": "matrix-speculation",  # F21875c
}
STILL_WRONG = {"F22790e": "S0511d", "S0510c": "S0511b"}
"""What the next release has in its place."""

OnPool = Callable[[str, str, str, int], Trace]


@pytest.fixture(scope="module")
def on_pool(tmp_path_factory: pytest.TempPathFactory) -> OnPool:
    """The trace of (release, pool, scenario, page size); all of a release and pool are recorded at once."""
    folder = tmp_path_factory.mktemp("seed-faults")

    def trace(release: str, pool: str, scenario: str, page_size: int) -> Trace:
        recorded = folder / pool / release
        if not recorded.exists():
            run_with_sglang(
                *(release, RECORD_SCENARIOS, "sglang", str(folder / pool), *SCENARIO.values()),
                *("--page-size", *map(str, PAGE_SIZES), "--set", f"window={POOLS[pool]}"),
            )
        return Trace.read(recorded / f"{scenario}-p{page_size}.jsonl")

    return trace


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("fault", SCENARIO)
def test_it_is_named_before_its_fix_and_gone_after(on_pool: OnPool, fault: str, pool: str, page_size: int) -> None:
    before = on_pool(BEFORE, pool, SCENARIO[fault], page_size)
    assert before.header.config.window == POOLS[pool] and before.header.config.page_size == page_size
    if (fault, pool) == ("F22213", "window"):
        assert before.reason == "crashed: NotImplementedError"  # this release's busy check knows no window pool
        assert _judged(before).verdict == INCOMPLETE
    else:
        assert fault in _first_named(before)
    after = on_pool(AFTER, pool, SCENARIO[fault], page_size)
    if fault in STILL_WRONG:
        assert _first_named(after) == {STILL_WRONG[fault]}
    else:
        assert _judged(after).verdict == CONFORMS


def _judged(trace: Trace) -> Report:
    return replay(trace.path, profile=OF_THE_TRACE)


def _first_named(trace: Trace) -> set[str]:
    return {fault.id for finding in _judged(trace).findings[:1] for fault in finding.explained_by}
