"""Replay of many traces: which files are meant, the same answers whoever judges them, one verdict of all."""

from __future__ import annotations

import multiprocessing
import shutil
from pathlib import Path

import command_line
import pytest
from killing import killing
from many_traces import broken, sessions
from run_traces import first_finding, refused

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.replay import many_traces as many
from kvproof.conformance.replay.coverage import Coverage
from kvproof.conformance.replay.many_traces import CouldNotJudge, Judged, Options, judge_by_processes, judged, traces_in
from kvproof.conformance.replay.required_coverage import Required
from kvproof.conformance.replay.verdict import CONFORMS, INCOMPLETE, VIOLATES, Report


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    sessions(tmp_path / "traces" / "b.jsonl")
    sessions(tmp_path / "traces" / "rank-1" / "a.jsonl.gz", 5)
    sessions(tmp_path / "traces" / "a.jsonl", 4)
    (tmp_path / "traces" / "notes.txt").write_text("no trace")
    (tmp_path / "traces" / ".partial-7-c.jsonl").write_text("")
    return tmp_path / "traces"


def by_processes(paths: list[Path], jobs: int = 2) -> list[Judged]:
    return judge_by_processes(paths, Options(), jobs, lambda *_: None)


def test_folders_and_patterns_name_traces_in_a_fixed_order_and_each_once(folder: Path) -> None:
    named = [p.relative_to(folder).as_posix() for p in traces_in([folder])]
    assert named == ["a.jsonl", "b.jsonl", "rank-1/a.jsonl.gz"]
    assert traces_in([folder / "b.jsonl", folder]) == [folder / n for n in ("b.jsonl", "a.jsonl", "rank-1/a.jsonl.gz")]
    assert traces_in([f"{folder}/*.jsonl"]) == [folder / "a.jsonl", folder / "b.jsonl"]
    assert traces_in([f"{folder}/**/*.gz"]) == [folder / "rank-1" / "a.jsonl.gz"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    odd = sessions(tmp_path / "rank[0].jsonl")
    assert traces_in([odd]) == [odd]


def test_what_names_no_trace_is_refused(tmp_path: Path) -> None:
    assert "no trace in this folder" in refused(traces_in, [tmp_path])
    assert "no file matches this pattern" in refused(traces_in, [f"{tmp_path}/*.jsonl"])


def test_processes_give_the_answers_of_one_in_the_order_of_the_files(folder: Path, tmp_path: Path) -> None:
    paths = [*traces_in([folder]), broken(tmp_path / "bad.jsonl"), tmp_path / "none.jsonl"]
    answers = by_processes(paths)
    assert answers == [judged(path, Options()) for path in paths]
    assert [getattr(a, "verdict", None) for a in answers] == [CONFORMS] * 3 + [VIOLATES, None]


def test_a_trace_whose_worker_is_killed_is_judged_by_another(tmp_path: Path) -> None:
    paths = [sessions(tmp_path / f"{n}.jsonl", 8000) for n in range(2)]
    with killing(lambda: [p.pid for p in multiprocessing.active_children() if p.pid is not None]) as killed:
        answers = by_processes(paths)
    assert killed
    assert [(a.verdict, a.events) for a in answers if isinstance(a, Report)] == [(CONFORMS, 16000)] * 2


def test_a_trace_whose_workers_always_die_is_given_up_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "TRIES", 0)
    (answer,) = by_processes([sessions(tmp_path / "t.jsonl")])
    assert isinstance(answer, CouldNotJudge) and "a worker process died" in answer.message


def test_the_exit_code_is_that_of_the_worst(tmp_path: Path) -> None:
    good, bad = judged(sessions(tmp_path / "good.jsonl"), Options()), judged(broken(tmp_path / "bad.jsonl"), Options())
    open_end, gone = judged(sessions(tmp_path / "o.jsonl", closed=False), Options()), CouldNotJudge(tmp_path, "gone")
    empty = judged(sessions(tmp_path / "empty.jsonl", 0), Options())
    assert many.exit_code([good]) == ExitCode.PASS
    assert many.exit_code([good, open_end]) == ExitCode.INCONCLUSIVE
    assert many.exit_code([good, open_end, gone]) == many.exit_code([good, empty]) == ExitCode.COULD_NOT_RUN
    assert many.exit_code([gone, bad, good]) == ExitCode.VIOLATION


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_command_line_says_one_verdict_for_each_and_one_of_all(jobs: str, folder: Path) -> None:
    broken(folder / "bad.jsonl")
    result = command_line.run("replay", folder, "--jobs", jobs)
    assert result.exit_code == 1
    heads = [line.split()[0] for line in result.stdout.splitlines() if "page moves, page size" in line]
    assert heads == ["CONFORMS", "CONFORMS", "VIOLATES", "CONFORMS"]
    assert "4 traces: 3 conforms, 1 violates" in result.stdout
    assert "(F22862b, " in result.stdout
    quiet = command_line.run("replay", folder, "--jobs", jobs, "--quiet")
    assert [line.split("\t")[0] for line in quiet.stdout.splitlines()] == [CONFORMS, CONFORMS, VIOLATES, CONFORMS]


def test_one_unreadable_trace_keeps_no_other_from_being_judged(folder: Path) -> None:
    (folder / "c.jsonl").write_text("no header\n")
    result = command_line.run("replay", folder, "-q")
    assert result.exit_code == 2
    assert len(result.stdout.splitlines()) == 3
    assert "c.jsonl:1: not JSON" in result.stderr


def test_coverage_is_that_of_all_traces_and_can_be_required(folder: Path) -> None:
    enough = command_line.run("replay", folder, "--coverage", "--require-coverage", "actions=open,close")
    assert enough.exit_code == 0
    assert "open 12, close 12; never create" in enough.stdout
    asked = "actions=open,abort;invariants=I9;guards=insert;fields=lent"
    missing = command_line.run("replay", folder, "--require-coverage", asked)
    assert missing.exit_code == 2
    assert "not covered, so this is no pass: action abort, branch 'insert: " in missing.stderr
    assert missing.stderr.endswith("invariant I9, field lent\n")
    broken(folder / "bad.jsonl")
    violates = command_line.run("replay", folder, "--require-coverage", "invariants=I9")
    assert violates.exit_code == 1, "a violation stays one, whatever was not covered"


@pytest.mark.parametrize(
    ("required", "sentence"),
    [
        ("abort", "expected KIND=NAME"),
        ("actions=", "expected KIND=NAME"),
        (";", "names nothing"),
        ("rules=abort", "unknown kind of coverage"),
        ("actions=abrot", "did you mean abort"),
        ("invariants=I99", "unknown name among invariants"),
        ("guards=open", "unknown name among guards"),
        ("fields=lnet", "did you mean lent"),
    ],
)
def test_coverage_that_there_is_not_is_refused(required: str, sentence: str, tmp_path: Path) -> None:
    path = sessions(tmp_path / "t.jsonl")
    assert sentence in command_line.refusal("replay", path, "--require-coverage", required)


def test_any_rule_of_an_event_covers_the_event() -> None:
    coverage = Coverage()
    coverage.actions["abort_nth"] = 1
    assert Required.parsed("actions=abort").missing_in(coverage) == []
    assert Required.parsed("actions=abort_first").missing_in(coverage) == ["action abort_first"]


def test_the_window_of_events_shows_what_is_in_it_and_claims_no_more(tmp_path: Path) -> None:
    path = broken(tmp_path / "bad.jsonl")
    seq = first_finding(path).event.seq
    before = command_line.run("replay", path, "--to", seq - 1)
    assert before.exit_code == 3 and "the verdict of the whole is open" in before.stdout
    after = command_line.run("replay", path, "--from", seq + 1)
    assert after.exit_code == 1, "the state in the window rests on what came before"
    assert f"1 findings before event {seq + 1}" in after.stdout
    assert "was not reached" in after.stdout and "  fault " not in after.stdout
    assert "  fault " in command_line.run("replay", path, "--from", seq, "--to", seq).stdout
    assert "stands after the last" in command_line.refusal("replay", path, "--from", "5", "--to", "4")


@pytest.mark.parametrize("checker", ["interpreted", "compiled"])
def test_a_window_that_holds_the_end_is_the_whole(checker: str, tmp_path: Path) -> None:
    if checker == "compiled":
        pytest.importorskip("numba")
    path = sessions(tmp_path / "t.jsonl", 10)
    verdicts = [judged(path, Options(checker=Chosen(checker), until=n)).verdict for n in (0, 18, 19, 20)]  # type: ignore[union-attr]
    assert verdicts == [INCOMPLETE, INCOMPLETE, CONFORMS, CONFORMS]


def test_a_sessions_events_are_shown_beside_the_verdict_of_all(tmp_path: Path) -> None:
    result = command_line.run("replay", sessions(tmp_path / "t.jsonl"), "--session", "s1")
    assert result.exit_code == 0
    assert "6 events, 0 page moves" in result.stdout
    shown = [line for line in result.stdout.splitlines() if line.startswith("  event ")]
    assert shown == ["  event 2  open  session s1", "  event 3  close  session s1"]
    assert "none was judged" in command_line.run("replay", tmp_path / "t.jsonl", "--session", "nobody").stdout


def test_a_pages_events_end_where_the_replay_ended(tmp_path: Path) -> None:
    path = broken(tmp_path / "bad.jsonl")
    event = first_finding(path).event
    page = event.free[0]
    shown = command_line.run("replay", path, "--page", page).stdout.splitlines()
    events = [line for line in shown if line.startswith("  event ")]
    assert events and f"free {page}" in " ".join(events[-1].split("; "))
    assert f"event {event.seq}" in events[-1]


def test_a_copy_under_another_name_gets_the_same_answer(folder: Path, tmp_path: Path) -> None:
    bad = broken(tmp_path / "bad.jsonl")
    copy = shutil.copy(bad, tmp_path / "copy.jsonl")
    assert many.called(bad, judged(Path(copy), Options())) == judged(bad, Options())
