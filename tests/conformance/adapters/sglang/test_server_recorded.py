"""Real servers, recorded while clients talk HTTP to them: what their traces say, and that they never notice the recorder."""

from __future__ import annotations

import http.client
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from live_traces import wait_until_written
from measuring import writer_of
from sglang_process import LATER, RELEASES, Trace
from sglang_server import Server, server
from waiting import wait_until

from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, VIOLATES, Report, replay
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.trace import Event

OLD, NEW = RELEASES[0], "0.5.11"
full = pytest.mark.sglang_full
LAUNCHER = (sys.executable, "-m", "kvproof", "record", "--target", "sglang-server", "--out")
LONG = 3900
"""Tokens of an answer that nobody waits for: the server hears of it two seconds after its client has gone."""
WITHOUT_OVERLAP = "--disable-overlap-schedule"
STRICT = "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY"
FORCED_RETRACT = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "7"}


def ids(count: int, seed: int = 0) -> list[int]:
    return [3 + (seed * 31 + place * 7) % 500 for place in range(count)]


def together(*clients: Callable[[], Any]) -> None:
    """All at once; what one of them raises is raised here."""
    with ThreadPoolExecutor(len(clients)) as threads:
        for done in [threads.submit(client) for client in clients]:
            done.result()


def session_life(live: Server, name: str, turns: int) -> None:
    live.open_session(name)
    for number in range(turns):
        answer = live.generate(ids(11 + number, number), 9, session=name)
        assert len(answer["output_ids"]) == 9, answer
    live.close_session(name)


def well_behaved_clients(live: Server) -> None:
    """Sessions with several turns, and ordinary requests with a common prefix, all at once."""
    together(
        lambda: session_life(live, "s1", 4),
        lambda: session_life(live, "s2", 3),
        *(lambda length=length: live.generate(ids(length), 12) for length in (24, 31, 38, 7)),  # type: ignore[misc]
    )


def clients_that_leave(live: Server) -> None:
    """One hangs up in the middle of an ordinary request, one in the first turn of a session and one in a later one."""
    live.hang_up(ids(9), LONG)
    live.open_session("left")
    live.hang_up(ids(9), LONG, session="left")
    wait_until_idle(live)
    live.generate(ids(5), 6, session="left")
    live.hang_up(ids(6), LONG, session="left")
    wait_until_idle(live)
    live.generate(ids(4), 5, session="left")
    live.close_session("left")


def wait_until_idle(live: Server) -> None:
    """An abort is carried out some time after the client has gone; its session takes no turn before."""
    wait_until(lambda: "#running-req" in live.log.read_text(errors="replace"), "a running request", 30)
    sizes = [live.trace_size()]

    def is_still() -> bool:
        time.sleep(1.0)
        sizes.append(live.trace_size())
        return sizes[-1] == sizes[-2]

    wait_until(is_still, "an idle server", 30)


def stopped(live: Server, trace: Path) -> int:
    """Stop the server and wait for the last line of its trace."""
    code = live.stop()
    wait_until_written(trace)
    return code


def verdict(trace: Path) -> Report:
    report = replay(trace)
    print(trace, report.verdict, report.why, report.followed, [finding.event for finding in report.findings])
    return report


@pytest.mark.sglang
def test_plugin_records_a_server_with_the_overlap_scheduler(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    with server(NEW, tmp_path, trace=trace) as live:
        well_behaved_clients(live)
        clients_that_leave(live)
        time.sleep(1)
        stopped(live, trace)
    read = Trace.read(trace)
    assert read.header.config.overlap and read.reason == "finished" and read.dropped == 0
    assert {event.turn for event in read.of("finish") if event.session is None}
    assert len(read.of("open")) == 3 and len(read.of("abort")) == 2
    assert [event.params.get("own_check_ok") for event in read.of("check")].count(False) == 0
    report = verdict(trace)
    assert report.verdict == CONFORMS, report.findings


@full
def test_plugin_records_a_server_without_overlap_at_page_size_4(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl.gz"
    with server(NEW, tmp_path, WITHOUT_OVERLAP, "--page-size", "4", trace=trace) as live:
        well_behaved_clients(live)
        clients_that_leave(live)
        live.process.send_signal(signal.SIGINT)  # as in a terminal
        stopped(live, trace)
    report = verdict(trace)
    assert report.config.page_size == 4 and not report.config.overlap
    assert report.verdict == CONFORMS, report.findings


@full
@pytest.mark.parametrize("release", [NEW, LATER[-1]])
def test_busy_checks_are_recorded_where_they_are_asked_for(release: str, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    with server(release, tmp_path, trace=trace, environment={STRICT: "1"}) as live:
        live.generate(ids(24), 9)
        stopped(live, trace)
    checks = Trace.read(trace).of("check")
    assert {event.params["busy"] for event in checks if "busy" in event.params} == {True, False}
    assert all(event.params.get("own_check_ok", True) for event in checks)


@full
@pytest.mark.parametrize("overlap", [True, False])
def test_launcher_records_a_release_without_plugins(tmp_path: Path, overlap: bool) -> None:
    trace = tmp_path / "out" / "t.jsonl"
    arguments = [] if overlap else [WITHOUT_OVERLAP]
    with server(OLD, tmp_path, *arguments, launcher=(*LAUNCHER, str(trace), "--")) as live:
        live.trace = trace
        well_behaved_clients(live)
        code = stopped(live, trace)
    assert code == 128 + signal.SIGKILL  # SGLang stops by killing itself; the launcher passes that on
    assert f"recorded {trace}" in live.log.read_text(errors="replace")
    read = Trace.read(trace)
    assert read.header.config.overlap is overlap and read.header.producer.target == f"sglang {OLD}"
    report = verdict(trace)
    assert report.verdict == CONFORMS, report.findings


@full
@pytest.mark.parametrize("overlap", [True, False])
def test_forced_retracts_in_a_server(tmp_path: Path, overlap: bool) -> None:
    trace = tmp_path / "t.jsonl"
    arguments = [] if overlap else [WITHOUT_OVERLAP]
    with server(NEW, tmp_path, *arguments, trace=trace, environment=FORCED_RETRACT) as live:
        well_behaved_clients(live)
        stopped(live, trace)
    retracts = Counter(event.turn for event in Trace.read(trace).of("retract") if event.session is not None)
    assert retracts
    report = verdict(trace)
    assert set(report.followed) <= {"S0511a"}
    if max(retracts.values()) == 1:
        assert report.verdict == CONFORMS, report.findings
    else:  # what the scenario retract-twice shows: a second retract cuts a turn off its session
        assert report.verdict == VIOLATES and report.first is not None
        assert report.first.event.action == "match" and retracts[report.first.event.turn] == 2


@full
def test_a_killed_scheduler_leaves_whole_lines_and_no_verdict(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    with server(NEW, tmp_path, trace=trace) as live, ThreadPoolExecutor() as threads:
        client = threads.submit(live.generate, ids(9), 900)
        wait_until(lambda: trace.stat().st_size > 20_000, "a trace of some length")
        os.kill(live.scheduler_pid(), signal.SIGKILL)
        assert isinstance(client.exception(), OSError | http.client.HTTPException)
        stopped(live, trace)
    assert trace.read_bytes().endswith(b"\n")
    reader = read_trace(trace)
    assert [record for _, record in reader if isinstance(record, Event)] and reader.end is None
    assert verdict(trace).verdict == INCOMPLETE


@full
def test_a_server_outlives_the_process_that_writes(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    with server(NEW, tmp_path, trace=trace) as live:
        live.generate(ids(9), 8)
        wait_until(lambda: trace.stat().st_size > 0, f"the beginning of {trace}", 60)
        os.kill(writer_of(trace, live.process.pid), signal.SIGKILL)
        well_behaved_clients(live)
        assert live.is_up()
        stopped(live, trace)
    log = live.log.read_text(errors="replace")
    assert log.count("kvproof stops recording into") == 1
    assert verdict(trace).verdict == INCOMPLETE


@full
def test_a_trace_that_cannot_be_written_stops_no_server(tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    with server(NEW, tmp_path, trace=tmp_path / "a-file" / "t.jsonl") as live:
        live.trace = None
        well_behaved_clients(live)
        live.stop()
    assert live.log.read_text(errors="replace").count("kvproof records nothing: ") == 1


@full
def test_two_servers_with_one_name_and_one_without_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    with server(NEW, tmp_path / "first", trace=trace) as first, server(NEW, tmp_path / "second", trace=trace) as second:
        together(lambda: session_life(first, "s1", 2), lambda: session_life(second, "s1", 3))
        stopped(first, trace)
        stopped(second, trace)
    traces = sorted(tmp_path.glob("t*.jsonl"))
    assert len(traces) == 2
    assert [verdict(path).verdict for path in traces] == [CONFORMS, CONFORMS]
    assert sorted(len(Trace.read(path).of("create")) for path in traces) == [2, 3]


@full
def test_a_flushed_cache_ends_the_recording_and_not_the_server(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    with server(NEW, tmp_path, trace=trace) as live:
        live.generate(ids(20), 8)
        live.post("/flush_cache", {}, as_text=True)
        live.generate(ids(20), 8)
        stopped(live, trace)
    report = verdict(trace)
    assert report.verdict == INCOMPLETE and "the cache was flushed" in report.why
