"""`kvproof convert`: both directions, incomplete traces, and files that are never half there."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import command_line
import pytest
from command_line import require_exit
from many_traces import HEADER
from trace_events import all_in

from kvproof.conformance.traces import columnar
from kvproof.conformance.traces.json_lines import TraceWriter
from kvproof.conformance.traces.open_trace import is_columnar, read_trace
from kvproof.spec.trace import End, Event

run, refusal = partial(command_line.run, "convert"), partial(command_line.refusal, "convert")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    with TraceWriter(tmp_path / "t.jsonl", HEADER) as writer:
        writer.event(action="open", session="s")
        writer.event(action="extend", session="s", turn="a", alloc=(1, 2), after={"kv_committed_len": 7})
        writer.event(action="close", session="s", free=(2, 1))
        writer.close("out of memory", dropped=3)
    return tmp_path / "t.jsonl"


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["back.jsonl", "back.jsonl.gz"])
def test_there_and_back_by_the_names_alone(trace: Path, tmp_path: Path, name: str) -> None:
    result = run(trace, tmp_path / "t.kvtrace")
    assert result.exit_code == 0 and "3 events" in result.stdout
    assert is_columnar(tmp_path / "t.kvtrace")
    assert run(tmp_path / "t.kvtrace", tmp_path / name, "-q").output == ""
    assert list(read_trace(tmp_path / name)) == list(read_trace(trace))
    assert all_in(trace)[-1][1] == End(events=3, dropped=3, reason="out of memory")
    if name == "back.jsonl":
        assert (tmp_path / name).read_bytes() == trace.read_bytes()


@pytest.mark.parametrize(("to", "columns"), [("columnar", True), ("jsonl", False)])
def test_to_decides_before_the_name(trace: Path, tmp_path: Path, to: str, columns: bool) -> None:
    for name in ("a.jsonl", "a.kvtrace", "a.txt"):
        require_exit(0, "convert", trace, tmp_path / name, "--to", to)
        assert is_columnar(tmp_path / name) == columns
        assert len(list(read_trace(tmp_path / name))) == 4


def test_what_cannot_be_converted_is_said_in_one_line(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "same.jsonl").symlink_to(trace)
    for arguments, said in (
        ((trace, tmp_path / "o.kvtrace", "--to", "colunar"), "unknown form 'colunar'; did you mean columnar?"),
        ((trace, tmp_path / "o.txt"), "o.txt: the name ends with none of .jsonl, .jsonl.gz, .kvtrace"),
        ((trace, trace), "is the trace that is read"),
        ((trace, tmp_path / "same.jsonl"), "is the trace that is read"),
        ((tmp_path / "none.jsonl", tmp_path / "o.kvtrace"), "cannot read the trace"),
        ((trace, tmp_path / "file" / "o.kvtrace"), "cannot write the trace"),
    ):
        assert said in refusal(*arguments)
    assert files_in(tmp_path) == {"t.jsonl", "file", "same.jsonl"}
    assert read_trace(trace).header == HEADER


@pytest.mark.parametrize("name", ["o.kvtrace", "o.jsonl"])
def test_an_incomplete_trace_stays_incomplete(trace: Path, tmp_path: Path, name: str) -> None:
    trace.write_bytes(trace.read_bytes().rpartition(b'{"record":"end"')[0][:-20])
    result = require_exit(3, "convert", trace, tmp_path / name)
    assert f"incomplete as the trace is: {trace}:4: the line is cut off" in result.stdout
    converted = read_trace(tmp_path / name)
    assert [e.seq for _, e in converted if isinstance(e, Event)] == [0, 1] and not converted.complete


def test_a_trace_with_a_mistake_leaves_nothing_and_keeps_what_was_there(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "o.kvtrace").write_text("from yesterday")
    trace.write_text(trace.read_text().replace('"seq":2', '"seq":5'))
    assert "event seq 5, expected 2" in refusal(trace, tmp_path / "o.kvtrace")
    assert files_in(tmp_path) == {"t.jsonl", "o.kvtrace"}
    assert (tmp_path / "o.kvtrace").read_text() == "from yesterday"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device"), RuntimeError("a bug")])
def test_an_interrupted_copy_leaves_nothing(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    seen: set[str] = set()

    def failing(self: TraceWriter, event: Event) -> None:
        seen.update(files_in(tmp_path))
        raise error

    monkeypatch.setattr(columnar.ColumnarWriter, "write", failing)
    result = run(trace, tmp_path / "o.kvtrace")
    assert result.exit_code == (130 if isinstance(error, KeyboardInterrupt) else 2)
    assert "o.kvtrace" not in seen and any("partial" in name for name in seen)
    assert files_in(tmp_path) == {"t.jsonl"}


def test_without_pyarrow_lines_are_still_copied(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    require_exit(0, "convert", trace, tmp_path / "o.jsonl.gz")
    assert "pip install 'kvproof[scale]'" in refusal(trace, tmp_path / "o.kvtrace")
    assert files_in(tmp_path) == {"t.jsonl", "o.jsonl.gz"}


def test_a_long_conversion_says_how_far_it_is(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.conformance.report.terminal.SILENT_SECONDS", 0.0)
    result = run(trace, tmp_path / "o.kvtrace")
    assert f"converting {trace}: [" in result.stderr
    assert "%, 1 events, " in result.stderr and "events/s, " in result.stderr and " left" in result.stderr
