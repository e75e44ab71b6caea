"""`kvproof info`: what a trace holds, and whether it is whole."""

from __future__ import annotations

from pathlib import Path

from command_line import refusal, run
from many_traces import HEADER
from repository import EXCERPT

from kvproof.conformance.traces.json_lines import TraceWriter


def test_info_of_a_complete_trace(trace: Path) -> None:
    result = run("info", trace)
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for part in (
        "producer test 0, driving none",
        "page size 4 tokens",
        "pool 8 pages, 2 rows of 32 tokens",
        "cannot see tree nodes",
        "known deviations F994a",
        "engine rows=2, faults=F994a",
        "sessions 1 turns 1 events 3 open 1 extend 1 finish 1",
        "pages moved 2 taken, 1 freed, 0 shared",
        "kv_committed_len 3 to 7 tokens",
        "state complete (finished)",
    ):
        assert part in text


def test_info_of_a_trace_without_its_end_is_inconclusive(trace: Path) -> None:
    trace.write_text("".join(trace.read_text().splitlines(keepends=True)[:-1]))
    result = run("info", trace)
    assert result.exit_code == 3
    assert "incomplete: no end record;" in result.stdout


def test_info_names_the_torn_line(trace: Path) -> None:
    trace.write_bytes(trace.read_bytes()[:-20])
    result = run("info", "-q", trace)
    assert result.exit_code == 3
    assert result.stdout.startswith(f"{trace}: 3 events, page size 4, incomplete: no end record, line 5 is torn")


def test_info_of_a_trace_with_dropped_events_is_inconclusive(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t.jsonl", HEADER)
    writer.close(dropped=5)
    result = run("info", tmp_path / "t.jsonl")
    assert result.exit_code == 3
    assert "the recorder dropped 5 events" in result.stdout


def test_one_incomplete_trace_among_several_decides_the_exit_code(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl").write_text(trace.read_text().splitlines(keepends=True)[0])
    result = run("info", "-q", tmp_path / "cut.jsonl", trace)
    assert result.exit_code == 3
    assert len(result.stdout.splitlines()) == 2


def test_info_refuses_what_is_no_trace(trace: Path, tmp_path: Path) -> None:
    assert "cannot read the trace" in refusal("info", tmp_path / "none.jsonl")
    assert "the header is missing" in refusal("info", EXCERPT)
    trace.write_text(trace.read_text().replace('"format":1', '"format":7'))
    assert "trace format 7; this kvproof reads format 1" in refusal("info", trace)
