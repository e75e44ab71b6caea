"""`kvproof watch` gives the verdict of `kvproof replay`, however the trace comes; and says at once what it sees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import chain, groupby, repeat
from pathlib import Path
from typing import Any

import pytest
from command_line import refusal, run
from many_traces import broken
from model_runs import CONFIGURATIONS
from run_traces import trace_of_walk
from trace_events import copied

pytest.importorskip("pyarrow")


from kvproof.conformance.cli.commands import watch as command
from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, VIOLATES, Finding, replay
from kvproof.conformance.watch import growing_judge, growing_trace
from kvproof.conformance.watch import watch as watching
from kvproof.conformance.watch.status import IDLE, UNJUDGED, WAITING, Status
from kvproof.conformance.watch.watch import Options, Watch


class Seen:
    """What a watch tells."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.findings: list[tuple[Finding, int]] = []
        self.statuses: list[Status] = []
        self.say, self.status = self.said.append, self.statuses.append

    def finding(self, finding: Finding, times: int) -> None:
        self.findings.append((finding, times))

    @property
    def phases(self) -> list[str]:
        return [phase for phase, _ in groupby(self.statuses, key=lambda status: status.phase)]


Meanwhile = Callable[..., None]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Steps of the writer: one is done each time that the watch would wait. After the last one it is interrupted."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    def arrange(*steps: Callable[[], object]) -> None:
        left = iter((*steps, interrupt))
        monkeypatch.setattr(watching.time, "sleep", lambda _: next(left)())
        monkeypatch.setattr(watching, "STATUS_SECONDS", 0.0)

    return arrange


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return trace_of_walk(tmp_path / "whole.jsonl", 60, 11)


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    return broken(tmp_path / "bad.jsonl")


@pytest.fixture
def lines(trace: Path) -> list[bytes]:
    return lines_of(trace)


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """The trace that is written while it is watched."""
    return tmp_path / "live.jsonl"


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def appended(path: Path, *lines: bytes) -> Callable[[], object]:
    return lambda: path.open("ab").write(b"".join(lines))


def watched(path: Path, **options: Any) -> tuple[watching.Outcome, Seen]:
    seen = Seen()
    return Watch(path, Options(**options), seen).run(), seen


# --- the same verdict -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checker", ["interpreted", "compiled"])
@pytest.mark.parametrize("suffix", [".jsonl", ".kvtrace"])
@pytest.mark.parametrize("seed", range(len(CONFIGURATIONS)))
def test_a_trace_that_is_there_gets_the_report_of_a_replay(
    tmp_path: Path, seed: int, suffix: str, checker: str
) -> None:
    lines = trace_of_walk(tmp_path / "t.jsonl", 50, seed, **CONFIGURATIONS[seed])
    path = copied(lines, tmp_path / f"written{suffix}")
    outcome, _ = watched(path, checker=checker)
    assert outcome.report == replay(path)
    assert outcome.verdict == CONFORMS and outcome.events == outcome.report.events


@pytest.mark.parametrize("checker", ["interpreted", "compiled"])
@pytest.mark.parametrize("fault_id", ["F22862b", "F20070", "F12224", "S0511d"])
def test_a_violation_gets_the_diagnosis_of_a_replay(tmp_path: Path, fault_id: str, checker: str) -> None:
    path = broken(tmp_path / "t.jsonl", fault_id)
    outcome, seen = watched(path, checker=checker)
    report = replay(path)
    assert outcome.report == report and outcome.verdict == VIOLATES and outcome.violations == 1
    assert [finding for finding, _ in seen.findings] == report.findings
    assert fault_id in [fault.id for fault in seen.findings[0][0].explained_by]


def test_a_wrong_memory_check_does_not_end_the_following(live: Path) -> None:
    """It changes nothing; each is reported, the report keeps the first of its kind."""
    result = run("record", "--scenario", "busy-check", "--fault", "F22213", "--out", live)
    assert result.exit_code == 0, result.output
    report = replay(live)
    assert len(report.findings) > 1
    for checker in ("interpreted", "compiled"):
        outcome, seen = watched(live, checker=checker)
        assert [finding for finding, _ in seen.findings] == report.findings
        assert outcome.violations == len(report.findings) and outcome.report is not None
        assert [times for _, times in seen.findings] == list(range(1, len(report.findings) + 1))
        assert outcome.report.findings == report.findings[:1] and outcome.events == report.events


# --- as it is written -----------------------------------------------------------------------------------------------------


def test_it_waits_for_the_file_for_its_header_and_for_the_rest_of_a_line(
    lines: list[bytes], live: Path, meanwhile: Meanwhile
) -> None:
    parts = ([lines[0][:30]], [lines[0][30:]], [lines[1], lines[2][:9]], [lines[2][9:], *lines[3:]])
    meanwhile(*(appended(live, *part) for part in parts))
    outcome, seen = watched(live)
    assert outcome.verdict == CONFORMS and outcome.report == replay(live)
    assert seen.said[:3] == [
        f"waiting for {live}: there is no such file yet",
        f"waiting for {live}: the file has no header yet",
        f"following {live}",
    ]
    assert seen.phases[0] == WAITING
    assert any(status.held == 9 and status.lag_bytes == 0 for status in seen.statuses)


def test_a_violation_is_told_before_the_trace_goes_on(bad: Path, live: Path, meanwhile: Meanwhile) -> None:
    lines, seen = lines_of(bad), Seen()
    told, rung = [], []
    run = Watch(live, Options(), seen, rung.append)
    meanwhile(appended(live, *lines[:-2]), lambda: told.append(bool(seen.findings)), appended(live, lines[-2]))
    outcome = run.run()
    assert told == [False] and outcome.verdict == VIOLATES and not outcome.interrupted
    assert len(rung) == 1 and rung[0]["seq"] == seen.findings[0][0].event.seq
    assert json.loads(json.dumps(rung[0], default=str))["explained_by"] == ["F22862b"]
    assert seen.statuses[-1].violations == 1 and seen.statuses[-1].first_violation.startswith("event ")


def test_kept_going_events_and_pages_are_counted_and_not_judged(bad: Path, live: Path, meanwhile: Meanwhile) -> None:
    lines = lines_of(bad)
    seq = len(lines) - 2
    more = [
        json.dumps({"record": "event", "seq": seq + n, "action": "extend", "session": "x", **moved}).encode() + b"\n"
        for n, moved in enumerate([{"alloc": [1, 2]}, {"free": [1]}, {"alloc": [7]}])
    ]
    meanwhile(appended(live, *lines[:-1]), appended(live, *more), lambda: None)
    outcome, seen = watched(live, keep_going=True)
    assert outcome.interrupted and outcome.violations == 1 and outcome.unjudged == 3
    assert outcome.events == seq + 3 and outcome.report is not None and outcome.report.events == seq
    at_violation = next(status for status in seen.statuses if status.phase == UNJUDGED).pools["full"]
    last = seen.statuses[-1].pools["full"]
    assert set(last) == {"free", "taken"} and last["free"] == at_violation["free"] - 2
    assert sum(last.values()) == sum(at_violation.values())


def test_interrupted_or_asked_once_it_has_a_verdict_so_far(
    lines: list[bytes], live: Path, meanwhile: Meanwhile
) -> None:
    meanwhile(appended(live, *lines[:9], b'{"record":'))
    for once in (False, True):
        outcome, _ = watched(live, once=once)
        assert outcome.interrupted != once and outcome.events == 8 and outcome.verdict == INCOMPLETE
        assert outcome.report is not None and "the line is cut off (10 bytes" in outcome.report.why


def of_a_server(lines: list[bytes]) -> list[bytes]:
    """The events are not SGLang's, so the release is one that kvproof expects nothing of."""
    header = json.loads(lines[0])
    header["producer"]["target"] = "sglang 99"
    return [json.dumps(header).encode() + b"\n", *lines[1:]]


def ended(events: int, reason: str = "finished") -> bytes:
    return json.dumps({"record": "end", "events": events, "reason": reason}).encode() + b"\n"


def test_the_end_of_an_idle_server_is_not_the_end(lines: list[bytes], live: Path, meanwhile: Meanwhile) -> None:
    """The recorder of a server ends its trace whenever the server is idle, and takes the end back."""
    first, rest = of_a_server(lines[:7]), lines[7:-1]

    def goes_on() -> None:
        os.truncate(live, len(b"".join(first)))
        appended(live, *rest, ended(len(lines) - 2))()

    meanwhile(appended(live, *first, ended(6)), lambda: None, goes_on, lambda: None)
    outcome, seen = watched(live)
    assert outcome.interrupted and outcome.events == len(lines) - 2
    assert outcome.report is not None and "the end record says 'finished'" in outcome.report.why  # a walk ends anywhere
    assert seen.statuses[-1].ends_taken_back == 1
    assert IDLE in seen.phases and seen.phases.index(IDLE) < len(seen.phases) - 2
    outcome, _ = watched(live, until_end=True)
    assert not outcome.interrupted and outcome.verdict == INCOMPLETE


def test_a_server_that_crashed_is_the_end(lines: list[bytes], live: Path, meanwhile: Meanwhile) -> None:
    meanwhile(appended(live, *of_a_server(lines[:5]), ended(4, "crashed: out of memory")))
    outcome, _ = watched(live)
    assert not outcome.interrupted and outcome.verdict == INCOMPLETE
    assert outcome.report is not None and "crashed: out of memory" in outcome.report.why


@pytest.mark.parametrize("what", ["was truncated, or written anew", "was replaced by another file"])
def test_another_trace_in_its_place_is_begun_anew(
    what: str, trace: Path, lines: list[bytes], live: Path, meanwhile: Meanwhile
) -> None:
    if "truncated" in what:
        others = (lambda: live.write_bytes(b"".join(lines[:3])), appended(live, *lines[3:]))
    else:
        others = (lambda: trace.replace(live), lambda: None)
    meanwhile(appended(live, *lines[:20]), *others)
    outcome, seen = watched(live)
    assert not outcome.interrupted and outcome.verdict == CONFORMS and outcome.restarts == 1
    assert outcome.events == len(lines) - 2
    assert f"{live} {what}; it had 19 events: incomplete. Beginning anew" in seen.said


def test_a_violation_before_the_trace_was_begun_anew_is_not_forgotten(
    trace: Path, bad: Path, live: Path, meanwhile: Meanwhile
) -> None:
    meanwhile(appended(live, *lines_of(bad)[:-1]), lambda: live.write_bytes(trace.read_bytes()))
    outcome, _ = watched(live, keep_going=True)
    assert outcome.report is not None and outcome.report.verdict == CONFORMS
    assert outcome.verdict == VIOLATES and outcome.violations == 1


def test_a_removed_file_is_said_and_what_comes_in_its_place_is_followed(
    lines: list[bytes], live: Path, meanwhile: Meanwhile
) -> None:
    meanwhile(appended(live, *lines[:4]), live.unlink, lambda: None, appended(live, *lines))
    outcome, seen = watched(live)
    assert outcome.verdict == CONFORMS and outcome.restarts == 1
    assert sum("was removed" in text for text in seen.said) == 1


# --- from one checker to the other ----------------------------------------------------------------------------------------


Hurried = Callable[..., None]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> Hurried:
    """Reads so many events at once, and counts whatever waits as too much; `polls`: exit codes of the preparation, in order."""

    def hurry(events_at_once: int, polls: Iterator[int | None] | None = None) -> None:
        monkeypatch.setattr(growing_trace, "EVENTS_AT_ONCE", events_at_once)
        monkeypatch.setattr(growing_trace, "AT_ONCE", 3000)
        for source in (growing_trace.LineSource, growing_trace.BlockSource):
            monkeypatch.setattr(source, "behind_from", -1)
        if polls is not None:
            monkeypatch.setattr(growing_judge.Preparation, "start", lambda self: None)
            monkeypatch.setattr(growing_judge.Preparation, "exit_code", property(lambda self: next(polls)))

    return hurry


@pytest.mark.parametrize("suffix", [".jsonl", ".kvtrace"])
def test_the_compiled_checker_takes_over_in_the_middle(tmp_path: Path, suffix: str, hurried: Hurried) -> None:
    """Wherever it does, report, counts of pages and load are those of the interpreted one."""
    lines = trace_of_walk(tmp_path / "t.jsonl", 400, 5, ledgers=4, window=2, overlap=True)
    path = copied(lines, tmp_path / f"live{suffix}")
    expected, seen = watched(path, checker="interpreted")
    for after in (0, 1, 2, 5, 11):
        hurried(7, chain(repeat(None, after), repeat(0)))
        outcome, seen_too = watched(path, checker="auto")
        assert outcome.report == expected.report
        last, last_too = seen.statuses[-1], seen_too.statuses[-1]
        assert last_too.compiled and not last.compiled
        assert (last_too.pools, last_too.load, last_too.actions) == (last.pools, last.load, last.actions)


def test_a_violation_after_the_compiled_checker_took_over_is_the_same(bad: Path, hurried: Hurried) -> None:
    hurried(2, repeat(0))
    outcome, seen = watched(bad)
    assert outcome.report == replay(bad) and seen.statuses[-1].compiled


def test_a_checker_that_cannot_be_made_is_said_once(
    trace: Path, hurried: Hurried, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(1)
    monkeypatch.setattr(growing_judge, "WARM", [sys.executable, "-c", "raise SystemExit(5)"])
    waited = property(lambda self: self._process and self._process.wait())
    monkeypatch.setattr(growing_judge.Preparation, "exit_code", waited)
    outcome, seen = watched(trace)
    assert outcome.verdict == CONFORMS
    assert sum("could not be made (exit code 5)" in text for text in seen.said) == 1


@pytest.mark.slow
def test_the_compiled_checker_is_prepared_by_a_process_of_its_own() -> None:
    assert subprocess.run(growing_judge.WARM, check=False).returncode == 0


# --- the command ----------------------------------------------------------------------------------------------------------


def test_the_exit_codes_are_those_of_replay(tmp_path: Path, trace: Path, bad: Path, live: Path) -> None:
    good = run("watch", trace)
    assert good.exit_code == 0 and f"CONFORMS  {trace}" in good.output
    violating = run("watch", bad)
    assert violating.exit_code == 1
    assert "VIOLATION" in violating.output and "(F22862b, " in violating.output
    assert f"again: kvproof replay {bad}" in violating.output
    live.write_bytes(trace.read_bytes()[:-200])
    assert run("watch", "--once", live).exit_code == 3
    missing = run("watch", "--once", tmp_path / "none.jsonl")
    assert missing.exit_code == 2 and "no trace is there" in missing.stderr


def test_what_cannot_be_watched_is_refused(trace: Path, lines: list[bytes], live: Path) -> None:
    live.write_text("nonsense\n")
    assert "not JSON" in refusal("watch", live)
    assert "unknown checker 'fast'" in refusal("watch", "--checker", "fast", trace)
    assert "needs a command" in refusal("watch", "--alarm", "", trace)
    live.write_bytes(lines[0] + ended(0))
    result = run("watch", live)
    assert result.exit_code == 2 and "nothing was checked" in result.stderr


def test_a_result_for_machines_is_written(tmp_path: Path, bad: Path) -> None:
    assert run("watch", bad, "--json", tmp_path / "r.json").exit_code == 1
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["verdict"], result["violations"], result["interrupted"]) == (VIOLATES, 1, False)
    assert result["findings"][0]["explained_by"] == ["F22862b"]


def test_the_alarm_is_over_before_the_watch_ends(tmp_path: Path, bad: Path) -> None:
    told = tmp_path / "told"
    alarm = tmp_path / "alarm.py"
    alarm.write_text(f"import sys, time; time.sleep(0.3); open({str(told)!r}, 'w').write(sys.stdin.read())")
    assert run("watch", bad, "--alarm", f"'{sys.executable}' '{alarm}'").exit_code == 1
    assert json.loads(told.read_text())["trace"] == str(bad)
    assert command.watch.__doc__ is not None and "130" in command.watch.__doc__


def test_ctrl_c_ends_with_the_verdict_so_far(lines: list[bytes], live: Path) -> None:
    live.write_bytes(b"".join(lines[:9]))
    # A shell that runs tests in the background lets its children ignore the signal.
    begin = [sys.executable, "-c", "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
             "from kvproof.conformance.cli.program import main; main()"]  # fmt: skip
    process = subprocess.Popen([*begin, "watch", str(live)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert any("8 events" in line for line in process.stdout), "the watch ended by itself"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130 and "Traceback" not in err
    assert f"INCOMPLETE  {live}" in out and "interrupted after 8 events" in out
