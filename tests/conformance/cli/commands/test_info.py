"""`kvproof info`: what a trace holds, and whether it is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import refusal, require_exit, run
from repository import EXCERPT


def test_info_of_a_complete_trace(trace: Path) -> None:
    result = require_exit(0, "info", trace)
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


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (b"", "{0}: 3 events, page size 4, incomplete: no end record;"),
        (b'{"record":"end"', "{0}: 3 events, page size 4, incomplete: {0}:5: the line is cut off"),
        (b'{"record":"end","events":3,"dropped":5}\n', "the recorder dropped 5 events"),
    ],
)
def test_info_of_an_incomplete_trace_is_inconclusive(trace: Path, end: bytes, said: str) -> None:
    trace.write_bytes(b"".join(trace.read_bytes().splitlines(keepends=True)[:-1]) + end)
    result = run("info", "-q", trace)
    assert result.exit_code == 3 and said.format(trace) in result.stdout
    assert said.format(trace).partition("incomplete: ")[2] in run("info", trace).stdout


def test_one_incomplete_trace_among_several_decides_the_exit_code(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl").write_text(trace.read_text().splitlines(keepends=True)[0])
    assert len(require_exit(3, "info", "-q", tmp_path / "cut.jsonl", trace).stdout.splitlines()) == 2


def test_info_refuses_what_is_no_trace(trace: Path, tmp_path: Path) -> None:
    assert "cannot read the trace" in refusal("info", tmp_path / "none.jsonl")
    assert "the header is missing" in refusal("info", EXCERPT)
    trace.write_text(trace.read_text().replace('"format":1', '"format":7'))
    assert "trace format 7; this kvproof reads format 1" in refusal("info", trace)
