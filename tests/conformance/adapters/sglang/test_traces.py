"""Traces of real SGLang releases, judged without the model: by their form, and by a census of the pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sglang_census import Census
from sglang_process import EACH_RELEASE, PAGE_SIZES, RECORD_SCENARIOS, RELEASES, Trace, each_on, run_with_sglang

from kvproof.conformance.adapters.sglang.scenarios import SCENARIOS

TraceOf = Callable[[str, str, int], Trace]

OLD, NEW = RELEASES

# What is known to go wrong, and how it shows. Whatever is not named here must end well, with every page accounted for.
KINDS = {name.removeprefix("matrix-") for name in SCENARIOS if name.startswith("matrix-")}
ON_A_CHUNK_CACHE = {kind for kind in KINDS if "chunk-cache" in kind}
CRASHES = {
    **{(OLD, name): "no attribute 'lock_ref'" for name in ("busy", "busy-twice", "close-running")},
    **{(OLD, f"matrix-{kind}"): "lock_ref'" for kind in KINDS - ON_A_CHUNK_CACHE},
    **{(release, "full-of-rows"): "alloc_req_slots runs out of memory" for release in RELEASES},
    **{(release, "ignore-eos"): "AssertionError" for release in RELEASES},
}
# A close in the middle of a turn; a chunk cache has no lock to stumble over, so the pages go back a second time.
DOUBLE_FREES = {(OLD, f"matrix-{kind}") for kind in ON_A_CHUNK_CACHE}
STUCK = {(release, scenario) for release in RELEASES for scenario in ("full-of-sessions", "given-up")}
LEAKS = {
    *((OLD, scenario) for scenario in ("retract", "retract-twice", "abort-then-retract", "too-long")),
    *((NEW, scenario) for scenario in ("busy-at-once", "busy-twice")),
}
# Nobody will ever close these: the session waits for a turn that is gone.
HELD_FOR_EVER = {(NEW, "abort-queued-close"), (NEW, "abort-retracted")}
FALSE_ALARMS = {(OLD, "busy-check")}


def census(trace: Trace) -> Census:
    return Census.of(trace.header, trace.events)


# Two turns on one row, or a turn in the name of another: in later releases pages are then lost, or freed twice.
SHARED_ROWS = {"busy", "busy-twice", "busy-at-once"}


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize(
    "release, scenario",
    [*each_on(EACH_RELEASE[:2], SCENARIOS), *each_on(EACH_RELEASE[2:], sorted(set(SCENARIOS) - SHARED_ROWS))],
)
def test_the_events_name_every_page_that_moved(trace_of: TraceOf, release: str, scenario: str, page_size: int) -> None:
    """The census of the events equals the allocator's free list and the tree's size, at every check."""
    trace = trace_of(release, scenario, page_size)
    wrong = census(trace).wrong
    if (release, scenario) in DOUBLE_FREES:
        assert "was freed twice" in wrong[0]
    else:
        assert wrong == []
    assert trace.dropped == 0
    assert trace.of("check") or (release, scenario) in CRASHES


@pytest.mark.sglang
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


@pytest.mark.sglang
@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("release", RELEASES)
def test_scenarios_reach_what_they_are_for(trace_of: TraceOf, release: str, page_size: int) -> None:
    def seen(scenario: str) -> set[str]:
        return {str(event.action) for event in trace_of(release, scenario, page_size).events}

    assert {"evict", "retract"} <= seen("pressure")
    assert {"stash", "insert"} <= seen("chunked")
    assert {"stash", "ask_abort", "abort", "close"} <= seen("storm")
    assert any(event.params["logprob"] for event in trace_of(release, "logprob", page_size).of("create"))
    assert any(event.params.get("busy") for event in trace_of(release, "busy-check", page_size).of("check"))


@pytest.mark.sglang
@pytest.mark.parametrize("release", RELEASES)
def test_same_seed_writes_the_same_bytes(trace_of: TraceOf, release: str, tmp_path: Path) -> None:
    first = trace_of(release, "storm", 4).path
    run_with_sglang(release, RECORD_SCENARIOS, "sglang", str(tmp_path), "storm", "--page-size", "4")
    assert (tmp_path / release / first.name).read_bytes() == first.read_bytes()


@pytest.mark.sglang
@pytest.mark.parametrize("release", RELEASES)
def test_a_recording_leaves_no_temporary_files(release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang makes a file for the name of each of its sockets."""
    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    run_with_sglang(release, RECORD_SCENARIOS, "sglang", str(tmp_path), "chunked", "--page-size", "4")
    assert [path.name for path in temporary.iterdir() if not path.name.startswith("torchinductor")] == []


@pytest.mark.sglang
def test_the_frees_of_the_opt_in_unified_tree_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its components keep methods of the allocator from before the recorder watches them."""
    monkeypatch.setenv("SGLANG_ENABLE_UNIFIED_RADIX_TREE", "1")
    run_with_sglang(NEW, RECORD_SCENARIOS, "sglang", str(tmp_path), "pressure", "--page-size", "4")
    trace = Trace.read(tmp_path / NEW / "pressure-p4.jsonl")
    assert trace.of("evict")
    assert census(trace).wrong == []
