"""A trace that violates a rule is made small: it still violates the same rule at the same action, and the same fault is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run
from many_traces import broken, sessions

pytest.importorskip("torch")
from kvproof.conformance.adapters.reference import record_scenario
from kvproof.conformance.fuzz.play import play
from kvproof.conformance.fuzz.reference import Reference
from kvproof.conformance.fuzz.schedule import Act, Schedule
from kvproof.conformance.replay.replay import VIOLATES, replay
from kvproof.conformance.shrink.delta import Limit, least, without_any_stretch, without_stretches
from kvproof.conformance.shrink.shrink_trace import Same, Shrunk, TraceShrinker
from kvproof.conformance.traces.open_trace import read_trace, write_trace
from kvproof.impl.faults import FAULTS as IMPLEMENTED
from kvproof.impl.scenarios import SCENARIOS
from kvproof.spec.faults import FAULTS
from kvproof.spec.trace import Event

BUGS = [fault for fault in IMPLEMENTED if fault in FAULTS]
QUICK = ("F22862b", "F22213", "F994d")


def shrunk(path: Path, seconds: float = 60) -> Shrunk:
    return TraceShrinker(path, None, seconds).run()


def flagged(fault: str, folder: Path) -> Path:
    """A trace of the reference with the fault on, that is flagged: of the first scenario that shows it."""
    for name, scenario in SCENARIOS.items():
        if fault in scenario.exposes:
            path = folder / f"{name}.jsonl"
            record_scenario(name, path, page_size=4, faults=(fault,), settings={"forward": "none"})
            if replay(path).verdict == VIOLATES:
                return path
    raise AssertionError(f"no scenario shows {fault}")


def assert_shrunk_to_the_same(fault: str, folder: Path) -> None:
    path, small, again = flagged(fault, folder), folder / "small.jsonl", folder / "again.jsonl"
    first, records = replay(path).first, replay(path).events
    result = shrunk(path)
    assert result.is_smallest
    result.save(small)
    report = replay(small)
    assert first is not None and report.first is not None
    assert Same.of(report.first) == Same.of(first)
    assert fault in {f.id for f in report.first.explained_by}
    assert report.first.event.seq == report.events - 1
    assert report.events < records or records <= 2
    shrunk(path).save(again)
    assert again.read_bytes() == small.read_bytes()
    shrunk(small).save(again)
    assert again.read_bytes() == small.read_bytes()


@pytest.mark.parametrize("fault", QUICK)
def test_what_is_left_is_flagged_the_same(fault: str, tmp_path: Path) -> None:
    assert_shrunk_to_the_same(fault, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fault for fault in BUGS if fault not in QUICK])
def test_each_fault_assert_shrunk_to_the_same(fault: str, tmp_path: Path) -> None:
    assert_shrunk_to_the_same(fault, tmp_path)


def long_trace(path: Path, turns: int) -> Path:
    """Sessions and requests without a retract, then one: with F22862b on it is not survived."""
    acts: list[Act] = []
    for _ in range(turns):
        acts += [
            Act(do="open"),
            Act(do="turn", new_tokens=9, max_new_tokens=20),
            Act(do="send", new_tokens=30, shared=8),
        ]
        acts += [Act(do="step", times=40), Act(do="turn", new_tokens=5, max_new_tokens=9), Act(do="step", times=40)]
        acts += [Act(do="close")]
    acts += [Act(do="open"), Act(do="turn", new_tokens=7, max_new_tokens=9), Act(do="step", times=20)]
    acts += [
        Act(do="turn", new_tokens=3, max_new_tokens=9),
        Act(do="step", times=5),
        Act(do="retract"),
        Act(do="step", times=9),
    ]
    settings = {"page_size": 4, "overlap": True}
    schedule = Schedule(target="reference", faults=("F22862b",), settings=settings, acts=tuple(acts))
    played = play(schedule, Reference())
    assert played.trouble is not None and played.header is not None
    with write_trace(path, played.header) as writer:
        for event in played.events:
            writer.write(event)
    return path


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["t.jsonl", pytest.param("t.jsonl.gz", marks=SLOW), pytest.param("t.kvtrace", marks=SLOW)]
)
def test_a_long_trace_becomes_a_handful(name: str, tmp_path: Path) -> None:
    path = long_trace(tmp_path / name, 6)
    result = run("shrink", path, "--out", tmp_path / "small.jsonl")
    assert result.exit_code == 0, result.output
    assert "explained by F22862b" in result.output
    assert f"see it: kvproof replay {tmp_path / 'small.jsonl'}" in result.output
    report = replay(tmp_path / "small.jsonl")
    assert report.events <= 8 and report.first is not None
    assert read_trace(path).header.config.page_size == 4


def test_nothing_of_who_sent_it_is_left(tmp_path: Path) -> None:
    path = flagged("F22213", tmp_path)  # a check: its events stay those that were recorded
    header = read_trace(path).header.model_copy(update={"extra": {"user": "secret"}, "scenario": "secret"})
    named = tmp_path / "named.jsonl"
    with write_trace(named, header) as writer:
        for event in read_trace(path).events_from(0):
            names = {n: f"secret-{getattr(event, n)}" for n in ("session", "turn") if getattr(event, n) is not None}
            writer.write(event.model_copy(update=names))
    shrunk(named).save(tmp_path / "small.jsonl")
    assert "secret" in named.read_text() and "secret" not in (tmp_path / "small.jsonl").read_text()


def test_a_finding_without_a_name_is_cut_out_and_kept(tmp_path: Path) -> None:
    """No fault predicts it, so nothing is told anew: the events are those that were recorded."""
    path = long_trace(tmp_path / "long.jsonl", 5)
    spoilt = tmp_path / "spoilt.jsonl"
    done = False
    with write_trace(spoilt, read_trace(path).header) as writer:
        for event in read_trace(path).events_from(0):
            if event.action == "finish" and event.seq > 200 and not done:
                done = True
                event = Event(**{**event.model_dump(), "free": (*event.free, 39)})
            writer.write(event)
    first = replay(spoilt).first
    assert first is not None and not first.explained_by
    result = shrunk(spoilt)
    assert Same.of(result.finding) == Same.of(first)
    assert len(result.events) < 60 < result.records
    assert result.lives_left == 1 < result.lives


def test_a_trace_that_conforms_has_nothing_to_shrink(tmp_path: Path) -> None:
    result = run("shrink", sessions(tmp_path / "t.jsonl"))
    assert result.exit_code == 2 and "conforms: there is nothing to shrink" in result.output


def test_a_trace_that_is_incomplete_is_said_to_be_so(tmp_path: Path) -> None:
    result = run("shrink", sessions(tmp_path / "t.jsonl", closed=False))
    assert result.exit_code == 3 and "incomplete" in result.output and "did not finish" in result.output


def test_the_trace_itself_is_not_written_over(tmp_path: Path) -> None:
    path = broken(tmp_path / "t.jsonl")
    before = path.read_bytes()
    assert run("shrink", path, "--out", path).exit_code == 2
    assert run("shrink", path, "--out", "/dev/null/x").exit_code == 2
    assert run("shrink", path, "-q").output.strip() == str(tmp_path / "t.small.jsonl")
    assert path.read_bytes() == before


def test_when_the_time_is_up_the_smallest_so_far_is_kept(tmp_path: Path) -> None:
    result = shrunk(long_trace(tmp_path / "t.jsonl", 3), seconds=0)
    assert not result.is_smallest
    assert len(result.events) < result.records
    result.save(tmp_path / "small.jsonl")
    assert replay(tmp_path / "small.jsonl").verdict == VIOLATES


@pytest.mark.slow
def test_ctrl_c_keeps_the_smallest_so_far(tmp_path: Path) -> None:
    path, small = long_trace(tmp_path / "t.jsonl", 120), tmp_path / "small.jsonl"
    script = (
        "import sys, kvproof.conformance.shrink.shrink_trace as s, time\n"
        "first = s.TraceShrinker._leave_out\n"
        "s.TraceShrinker._leave_out = lambda self: (print('cut', flush=True), time.sleep(60), first(self))\n"
        "from kvproof.conformance.cli.program import main; main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, "shrink", str(path), "--out", str(small)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "cut\n"
    os.kill(process.pid, signal.SIGINT)
    _, complained = process.communicate(timeout=300)
    assert process.returncode == 130, complained
    assert f"{small} is the smallest so far" in complained
    assert replay(small).verdict == VIOLATES


def test_stretches_are_left_out_long_ones_first() -> None:
    assert list(without_stretches("abcd")) == [["a", "b"], ["c", "d"], *map(list, ("abc", "abd", "acd", "bcd"))]
    assert list(without_stretches("a")) == [[]] and list(without_stretches("")) == []


def test_any_stretch_is_left_out_if_need_be() -> None:
    assert list(without_any_stretch("abcd")) == [["a"], ["d"], *map(list, ("ab", "ad", "cd"))]


def test_the_least_is_found_that_is_kept() -> None:
    assert least(list(range(20)), without_stretches, lambda some: {3, 7, 11} <= set(some), Limit(60)) == [3, 7, 11]
