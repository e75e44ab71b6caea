"""Real SGLang releases judged by the specification: what conforms, what is flagged, and by which name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sglang_process import PAGE_SIZES, RELEASES, Trace

from kvproof.conformance.adapters.sglang import SCENARIOS
from kvproof.conformance.replay import CONFORMS, INCOMPLETE, VIOLATES, replay

pytestmark = pytest.mark.sglang

TraceOf = Callable[[str, str, int], Trace]
OLD, NEW = RELEASES

# The first finding of each flagged scenario; None: no fault of the catalogue explains it. Whatever is not here conforms.
FLAGGED: dict[tuple[str, str], str | None] = {
    (OLD, "retract"): "F22862a",
    (OLD, "retract-twice"): "F22862a",
    (OLD, "abort-then-retract"): "F22862a",
    (OLD, "busy-check"): "F22213",
    (OLD, "too-long"): "F21875b",
    (OLD, "close-running"): "F21875a",
    (OLD, "busy"): "F22790e",
    (OLD, "busy-twice"): "F22790e",
    (OLD, "busy-at-once"): "F22790e",
    (OLD, "abort-first"): "S0510a",
    (OLD, "abort-chunked"): "S0510a",
    (OLD, "too-long-first"): "S0510a",
    (OLD, "storm"): "S0510a",
    (OLD, "given-up"): "S0510a",
    (OLD, "abort-nth"): "S0510b",
    (OLD, "abort-queued"): "S0510c",
    (OLD, "abort-queued-close"): "S0510c",
    (OLD, "abort-retracted"): "S0510d",
    (NEW, "abort-queued"): "S0511c",
    (NEW, "busy"): "S0511d",
    (NEW, "busy-twice"): "S0511c",
    (NEW, "busy-at-once"): "S0511d",
    (NEW, "given-up"): "S0510a",
    (NEW, "abort-retracted"): None,
    (NEW, "abort-then-retract"): None,
    (NEW, "retract-twice"): None,
}
# Nothing wrong is seen in what was recorded, but the run did not end.
UNFINISHED = {"full-of-rows", "full-of-sessions"}
# Rules that 0.5.11 is known not to follow; the replay follows the release there and says so.
FOLLOWED = {"retract": {"S0511a"}, "abort-queued-close": {"S0511b"}}
# With pages of one token a pool that is too small shows in other ways: the old release orphans a page first, the new one
# stops for good.
AT_PAGE_SIZE_1 = {(OLD, "given-up"): "F22862a", (NEW, "given-up"): INCOMPLETE}


def expected(release: str, scenario: str, page_size: int) -> str | None:
    """A verdict, the name of the fault that explains a violation, or None for a violation that none explains."""
    if page_size == 1 and (release, scenario) in AT_PAGE_SIZE_1:
        return AT_PAGE_SIZE_1[release, scenario]
    if scenario in UNFINISHED:
        return INCOMPLETE
    return FLAGGED.get((release, scenario), CONFORMS)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("release", RELEASES)
def test_each_scenario_has_its_verdict(trace_of: TraceOf, release: str, scenario: str, page_size: int) -> None:
    report = replay(trace_of(release, scenario, page_size).path)
    wanted = expected(release, scenario, page_size)
    if wanted in (CONFORMS, INCOMPLETE):
        assert report.verdict == wanted, report.findings
        assert report.findings == []
    else:
        assert report.verdict == VIOLATES
        assert report.first is not None
        assert [f.id for f in report.first.explained_by] == ([wanted] if wanted else [])
    if release == NEW and scenario in FOLLOWED:
        assert set(report.followed) == FOLLOWED[scenario]


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("fault", ["F22862a", "F22213", "F21875b"])
def test_seed_faults_are_named_on_the_old_release_and_gone_on_the_new(
    trace_of: TraceOf, fault: str, page_size: int
) -> None:
    scenario = {"F22862a": "retract", "F22213": "busy-check", "F21875b": "too-long"}[fault]
    old = replay(trace_of(OLD, scenario, page_size).path)
    assert fault in {f.id for finding in old.findings for f in finding.explained_by}
    assert replay(trace_of(NEW, scenario, page_size).path).verdict == CONFORMS


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_strict_flags_what_is_known_of_the_release(trace_of: TraceOf, page_size: int) -> None:
    report = replay(trace_of(NEW, "retract", page_size).path, strict=True)
    assert report.verdict == VIOLATES
    assert report.first is not None
    assert [f.id for f in report.first.explained_by] == ["S0511a"]


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_cannot_show_is_said_with_the_verdict(trace_of: TraceOf, release: str) -> None:
    report = replay(trace_of(release, "basic", 4).path)
    assert bool(report.gaps) == (release == OLD)
