"""Traces of real SGLang releases, judged without the model: by their form, and by a census of the pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sglang_census import Census
from sglang_process import LATER, PAGE_SIZES, RECORD_SCENARIOS, RELEASES, Trace, run_with_sglang

from kvproof.conformance.adapters.sglang.scenarios import SCENARIOS

pytestmark = pytest.mark.sglang

TraceOf = Callable[[str, str, int], Trace]

OLD, NEW = RELEASES

# What is known to go wrong, and how it shows. Whatever is not named here must end well, with every page accounted for.
CRASHES = {
    (OLD, "busy"): "no attribute 'lock_ref'",
    (OLD, "busy-twice"): "no attribute 'lock_ref'",
    (OLD, "close-running"): "no attribute 'lock_ref'",
    **{(release, "full-of-rows"): "alloc_req_slots runs out of memory" for release in RELEASES},
    **{(release, "ignore-eos"): "AssertionError" for release in RELEASES},
    **{
        (OLD, f"matrix-{kind}"): "lock_ref'"
        for kind in (
            "full",
            "checked",
            "overlap",
            "mixed-overlap",
            "window",
            "window-overlap",
            "speculation",
            "speculation-window",
            "speculation-v1",
            "speculation-v1-window",
        )
    },
}
# A close in the middle of a turn; a chunk cache has no lock to stumble over, so the pages go back a second time.
DOUBLE_FREES = {
    (OLD, f"matrix-{kind}")
    for kind in (
        "chunk-cache",
        "chunk-cache-overlap",
        "chunk-cache-window",
        "speculation-chunk-cache",
        "speculation-v1-chunk-cache",
    )
}
STUCK = {(release, scenario) for release in RELEASES for scenario in ("full-of-sessions", "given-up")}
LEAKS = {
    (OLD, "retract"),
    (OLD, "retract-twice"),
    (OLD, "abort-then-retract"),
    (OLD, "too-long"),
    (NEW, "busy-at-once"),
    (NEW, "busy-twice"),
}
# Nobody will ever close these: the session waits for a turn that is gone.
HELD_FOR_EVER = {(NEW, "abort-queued-close"), (NEW, "abort-retracted")}
FALSE_ALARMS = {(OLD, "busy-check")}


def census(trace: Trace) -> Census:
    return Census.of(trace.header, trace.events)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("release", RELEASES)
class TestEveryTrace:
    def test_is_complete_and_names_its_origin(
        self, trace_of: TraceOf, release: str, scenario: str, page_size: int
    ) -> None:
        trace = trace_of(release, scenario, page_size)
        assert trace.header.producer.target == f"sglang {release}"
        assert (trace.header.scenario, trace.header.config.page_size) == (scenario, page_size)
        assert trace.events and trace.dropped == 0

    def test_names_every_page_that_moved(self, trace_of: TraceOf, release: str, scenario: str, page_size: int) -> None:
        """The census of the events equals the allocator's free list and the tree's size, at every check."""
        trace = trace_of(release, scenario, page_size)
        wrong = census(trace).wrong
        if (release, scenario) in DOUBLE_FREES:
            assert "was freed twice" in wrong[0]
        else:
            assert wrong == []
        assert trace.of("check") or (release, scenario) in CRASHES

    def test_ends_as_known(self, trace_of: TraceOf, release: str, scenario: str, page_size: int) -> None:
        trace = trace_of(release, scenario, page_size)
        case = (release, scenario)
        if case in CRASHES:
            assert trace.reason.startswith("crashed: ") and CRASHES[case] in trace.reason
        elif case in STUCK:
            assert trace.reason.startswith("stuck: ")
        else:
            assert trace.reason == "finished"

    def test_accounts_for_every_page_at_its_end(
        self, trace_of: TraceOf, release: str, scenario: str, page_size: int
    ) -> None:
        case, counted = (release, scenario), census(trace_of(release, scenario, page_size))
        if case in CRASHES or case in STUCK or case in DOUBLE_FREES:
            return
        held = sum(map(len, counted.rows.values()))
        assert (held > 0) == (case in HELD_FOR_EVER)
        if case in LEAKS:
            # At page size 4 the orphaned tail may share its page with committed tokens, and then nothing leaks.
            assert counted.leaked or page_size > 1
        else:
            assert counted.leaked == set()
        everyone = [counted.free, counted.tree, counted.leaked, *counted.rows.values()]
        assert sum(map(len, everyone)) == counted.pool_pages == len(set().union(*everyone))

    def test_own_check_agrees_with_the_census(
        self, trace_of: TraceOf, release: str, scenario: str, page_size: int
    ) -> None:
        trace = trace_of(release, scenario, page_size)
        counted = census(trace)
        if (release, scenario) in FALSE_ALARMS:
            assert counted.own_checks[False] > 0 and not counted.leaked
        elif (release, scenario) not in CRASHES:
            assert (counted.own_checks[False] > 0) == bool(counted.leaked)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("release", RELEASES)
def test_scenarios_reach_what_they_are_for(trace_of: TraceOf, release: str, page_size: int) -> None:
    def seen(scenario: str) -> set[str]:
        return {str(event.action) for event in trace_of(release, scenario, page_size).events}

    assert {"evict", "retract"} <= seen("pressure")
    assert {"stash", "insert"} <= seen("chunked")
    assert {"stash", "abort", "close"} <= seen("storm")
    assert any(event.params["logprob"] for event in trace_of(release, "logprob", page_size).of("create"))
    assert any(event.params["busy"] for event in trace_of(release, "busy-check", page_size).of("check"))


@pytest.mark.parametrize("page_size", PAGE_SIZES)
class TestSeedBugs:
    """The faults of the seeds, on the release before the fixes; the release after them is clean."""

    def test_retract_retry_orphans_a_page(self, trace_of: TraceOf, page_size: int) -> None:
        assert census(trace_of(OLD, "retract", page_size)).leaked  # F22862a
        assert not census(trace_of(NEW, "retract", page_size)).leaked

    def test_too_long_turn_overwrites_the_slot(self, trace_of: TraceOf, page_size: int) -> None:
        held = [event.terms.session_held for event in trace_of(OLD, "too-long", page_size).of("check") if event.terms]
        assert min(held) < 0  # F21875b: C = 1 below R
        match = trace_of(NEW, "too-long", page_size).of("match", "arrive")
        detached = next(place for place, event in enumerate(match) if event.action == "arrive")
        assert match[detached - 1].after.attached is False and match[detached - 1].session == "s1"
        assert match[detached + 1].session is None and match[detached + 1].turn == match[detached].turn

    def test_lent_slot_is_counted_twice(self, trace_of: TraceOf, page_size: int) -> None:
        def excess(release: str) -> int:
            terms = [event.terms for event in trace_of(release, "busy-check", page_size).of("check") if event.terms]
            sums = [t.available + t.evictable + t.protected + t.session_held + t.uncached - t.total for t in terms]
            return max(sums)

        assert excess(OLD) > 0  # F22213
        assert excess(NEW) == 0

    def test_turn_after_an_abort_builds_on_the_aborted_tokens(self, trace_of: TraceOf, page_size: int) -> None:
        def checkpoints(release: str) -> list[int | None]:
            ends = trace_of(release, "abort-nth", page_size).of("finish", "abort")
            return [event.after.checkpoint_len for event in ends][1:3]

        before, after = checkpoints(OLD)
        assert before is not None and after is not None and after > before  # F22790d
        before, after = checkpoints(NEW)
        assert before == after


@pytest.mark.parametrize("page_size", PAGE_SIZES)
class TestFindingsIn0511:
    """What 0.5.11 still does; each is one scenario."""

    def test_retract_clears_the_marker_and_moves_the_checkpoint(self, trace_of: TraceOf, page_size: int) -> None:
        for retract in trace_of(NEW, "retract", page_size).of("retract"):
            earlier = trace_of(NEW, "retract", page_size).events[: retract.seq]
            before = [e for e in earlier if e.session == "s1" and e.after.inflight is not None][-1]
            assert before.after.inflight is True and retract.after.inflight is False
            assert (retract.after.checkpoint_len or 0) > (before.after.checkpoint_len or 0)

    def test_queued_abort_keeps_the_marker(self, trace_of: TraceOf, page_size: int) -> None:
        trace = trace_of(NEW, "abort-queued", page_size)
        [abort] = trace.of("abort")
        assert abort.after.inflight is True
        refused = [event.turn for event in trace.of("create") if not event.params["admitted"]]
        assert refused == ["s1/03"]  # the next turn is lost
        assert [e.after.closing for e in trace_of(NEW, "abort-queued-close", page_size).of("close")] == [True]

    def test_second_retract_cuts_a_turn_off_its_session(self, trace_of: TraceOf, page_size: int) -> None:
        ends = [event for event in trace_of(NEW, "retract-twice", page_size).of("finish") if event.turn == "s1/02"]
        assert [event.session for event in ends] == [None]

    def test_refused_turn_clears_the_marker_of_the_running_one(self, trace_of: TraceOf, page_size: int) -> None:
        created = [(e.turn, e.params["admitted"]) for e in trace_of(NEW, "busy-twice", page_size).of("create")]
        assert created[1:4] == [("s1/02", True), ("s1/03", False), ("s1/04", True)]
        rows = {e.turn: e.row for e in trace_of(NEW, "busy-twice", page_size).of("extend")}
        assert rows["s1/02"] == rows["s1/04"]  # two running turns on one row

    def test_refused_turn_releases_the_slot_of_the_other(self, trace_of: TraceOf, page_size: int) -> None:
        first, second = trace_of(NEW, "busy-at-once", page_size).of("finish", "abort")[:2]
        assert first.after.slot_held is True and second.after.slot_held is False
        taken = {e.turn: set(e.alloc) for e in trace_of(NEW, "busy-at-once", page_size).of("extend")}
        assert set(second.free) == taken["s1/01"] and not set(second.free) & taken["s1/02"]

    def test_a_request_that_did_not_fit_once_is_never_looked_at_again(self, trace_of: TraceOf, page_size: int) -> None:
        trace = trace_of(NEW, "full-of-sessions", page_size)
        closed = [event.seq for event in trace.of("close")]
        assert all(event.after.slot_held is False for event in trace.of("close"))
        matches = [event for event in trace.of("match") if event.turn == "plain/1"]
        assert [match.seq < min(closed) for match in matches] == [True]
        available = [event.terms.available + event.terms.evictable for event in trace.of("check") if event.terms]
        assert available[-1] == trace.header.config.pool_pages  # the whole pool is there for it

    def test_retract_of_a_session_turn_frees_nothing(self, trace_of: TraceOf, page_size: int) -> None:
        [retract] = trace_of(NEW, "given-up", page_size).of("retract")
        assert retract.session is not None and retract.free == ()


@pytest.mark.parametrize("release", RELEASES)
def test_same_seed_writes_the_same_bytes(trace_of: TraceOf, release: str, tmp_path: Path) -> None:
    first = trace_of(release, "storm", 4).path
    run_with_sglang(release, RECORD_SCENARIOS, "sglang", str(tmp_path), "storm", "--page-size", "4")
    assert (tmp_path / release / first.name).read_bytes() == first.read_bytes()


@pytest.mark.parametrize("release", [*RELEASES, LATER[-1]])
def test_recording_changes_nothing_that_the_scheduler_does(release: str) -> None:
    """Same random schedule with and without the recorder: same outputs, same free lists, in order."""
    script = Path(__file__).with_name("drive_twice.py")
    assert run_with_sglang(release, str(script)).splitlines()[-1] == "same"
