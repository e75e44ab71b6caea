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
from run_traces import Records, edited, first_finding, renamed

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

BUGS = [fault for fault in IMPLEMENTED if fault in FAULTS]
QUICK = ("F22862b", "F22213", "F994d")


LONG = 600
"""Seconds, of which a shrink on a quiet machine needs few."""


def shrunk(path: Path, seconds: float = LONG) -> Shrunk:
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


@pytest.mark.parametrize(
    "fault", [fault if fault in QUICK else pytest.param(fault, marks=pytest.mark.slow) for fault in BUGS]
)
def test_what_is_left_is_flagged_the_same(fault: str, tmp_path: Path) -> None:
    path, small, again = flagged(fault, tmp_path), tmp_path / "small.jsonl", tmp_path / "again.jsonl"
    records = replay(path).events
    result = shrunk(path)
    assert result.is_smallest
    result.save(small)
    first = first_finding(small)
    assert Same.of(first) == Same.of(first_finding(path))
    assert fault in {f.id for f in first.explained_by}
    left = replay(small).events
    assert first.event.seq == left - 1
    assert left < records or records <= 2
    for trace in (path, small):
        shrunk(trace).save(again)
        assert again.read_bytes() == small.read_bytes()


def long_trace(path: Path, turns: int) -> Path:
    """Sessions and requests without a retract, then one: with F22862b on it is not survived."""
    steps = Act(do="step", times=40)
    of_a_session = (
        Act(do="open"),
        Act(do="turn", new_tokens=9, max_new_tokens=20),
        Act(do="send", new_tokens=30, shared=8),
        steps,
        Act(do="turn", new_tokens=5, max_new_tokens=9),
        steps,
        Act(do="close"),
    )
    of_the_last = (
        Act(do="open"),
        Act(do="turn", new_tokens=7, max_new_tokens=9),
        Act(do="step", times=20),
        Act(do="turn", new_tokens=3, max_new_tokens=9),
        Act(do="step", times=5),
        Act(do="retract"),
        Act(do="step", times=9),
    )
    settings = {"page_size": 4, "overlap": True}
    schedule = Schedule(
        target="reference", faults=("F22862b",), settings=settings, acts=(*of_a_session * turns, *of_the_last)
    )
    played = play(schedule, Reference())
    assert played.trouble is not None and played.header is not None
    with write_trace(path, played.header) as writer:
        for event in played.events:
            writer.write(event)
    return path


@pytest.mark.parametrize(
    "name", ["t.jsonl", *(pytest.param(name, marks=pytest.mark.slow) for name in ("t.jsonl.gz", "t.kvtrace"))]
)
def test_a_long_trace_becomes_a_handful(name: str, tmp_path: Path) -> None:
    path = long_trace(tmp_path / name, 6)
    result = run("shrink", path, "--out", tmp_path / "small.jsonl", "--seconds", LONG)
    assert result.exit_code == 0, result.output
    assert "explained by F22862b" in result.output
    assert f"see it: kvproof replay {tmp_path / 'small.jsonl'}" in result.output
    assert first_finding(tmp_path / "small.jsonl").event.seq < 8
    assert read_trace(path).header.config.page_size == 4


def test_nothing_of_who_sent_it_is_left(tmp_path: Path) -> None:
    named = renamed(
        flagged("F22213", tmp_path), "secret-{}".format
    )  # a check: its events stay those that were recorded
    edited(named, lambda records: records[0].update(extra={"user": "secret"}, scenario="secret"))
    shrunk(named).save(tmp_path / "small.jsonl")
    assert "secret" in named.read_text() and "secret" not in (tmp_path / "small.jsonl").read_text()


def test_a_finding_without_a_name_is_cut_out_and_kept(tmp_path: Path) -> None:
    """No fault predicts it, so nothing is written anew: the events are those that were recorded."""
    path = long_trace(tmp_path / "t.jsonl", 5)

    def free_another(records: Records) -> None:
        late = next(r for r in records if r.get("action") == "finish" and r["seq"] > 200)
        late["free"] = [*late.get("free", ()), 39]

    first = first_finding(edited(path, free_another))
    assert not first.explained_by
    result = shrunk(path)
    assert Same.of(result.finding) == Same.of(first)
    assert len(result.events) < 60 < result.records
    assert result.lives_left == 1 < result.lives


@pytest.mark.parametrize(
    ("closed", "code", "said"), [(True, 2, "conforms: there is nothing to shrink"), (False, 3, "did not finish")]
)
def test_a_trace_without_a_violation_has_nothing_to_shrink(closed: bool, code: int, said: str, tmp_path: Path) -> None:
    result = run("shrink", sessions(tmp_path / "t.jsonl", closed=closed), "--seconds", LONG)
    assert result.exit_code == code and said in result.output
    assert closed or "incomplete" in result.output


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
