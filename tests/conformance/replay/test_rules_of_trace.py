"""`kvproof replay --profile`: a trace judged by the rules of the release that it was recorded from."""

from __future__ import annotations

import gzip
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import refusal, run
from golden import of_sglang_0523
from many_traces import broken
from model_runs import steps_of_one_ledger
from run_traces import Records, edited, first_finding, refused, trace_of_steps

from kvproof.conformance.drive.counterexample import write_witness
from kvproof.conformance.replay.checkpoint import Checkpoints
from kvproof.conformance.replay.many_traces import Options, judge_by_processes
from kvproof.conformance.replay.replay import CONFORMS, VIOLATES, replay
from kvproof.conformance.watch.growing_judge import WARM, Preparation
from kvproof.model.witness import witness
from kvproof.spec.faults import FAULTS
from kvproof.spec.gaps import GAPS
from kvproof.spec.profiles import PROFILES

NEWEST = "sglang-0.5.23"
# What of each kept trace 0.5.23 does by another design: the action where the model's own rules find the first difference.
BY_ANOTHER_DESIGN = {
    "abort-first-p1": "abort_first",
    "abort-chunked-p4": "insert",
    "busy-check-p1": "check",
    "chunked-p4": "insert",
    "matrix-chunk-cache-window-p4": "evict_window",
}
FIRST_TURN = (
    ("open", {}),
    ("create", {"origin_len": 2, "too_long": False, "logprob": False}),
    ("match_tree", {"matched_len": 0}),
    ("extend", {"seq_len": 2, "last": True}),
    ("result", {"tokens": 1}),
    ("insert", {"dup_len": 0, "key_len": 2}),
)


def changed(name: str, path: Path, change: Callable[[Records], object] = lambda records: None) -> Path:
    """A kept trace with something else in its records."""
    path.write_bytes(gzip.decompress(of_sglang_0523(name).read_bytes()))
    return edited(path, change)


@pytest.mark.parametrize(("name", "action"), BY_ANOTHER_DESIGN.items())
def test_what_a_release_does_by_design_is_a_violation_of_the_model_s_rules_and_none_of_its_own(
    name: str, action: str
) -> None:
    trace = of_sglang_0523(name)
    by_the_model, by_its_own = first_finding(trace), replay(trace, profile=NEWEST)
    assert by_the_model.profile is None
    assert action in (by_the_model.action, by_the_model.event.action)
    assert not by_the_model.explained_by, "another design is no fault of the catalogue"
    assert (by_its_own.verdict, by_its_own.profile) == (CONFORMS, NEWEST)
    assert by_its_own.events > by_the_model.event.seq


def test_what_went_into_the_tree_was_not_lost() -> None:
    """At page size 1 an abort into the tree frees nothing, as F22790b does; but the event says where the tokens went."""
    first = first_finding(of_sglang_0523("abort-first-p1"))
    inserted, copies, freed = first.differences
    assert (inserted.name, inserted.expected, inserted.seen) == ("inserted", False, True)
    assert (copies.name, copies.expected) == ("dup_len", 0)
    assert freed.name == "freed pages" and "I16" in first.invariants


def test_a_known_deviation_is_followed_and_named_and_with_strict_a_violation() -> None:
    trace = of_sglang_0523("retract-p4")
    followed = run("replay", trace, "--profile", NEWEST)
    assert followed.exit_code == 0, followed.stdout
    assert f"CONFORMS  {trace}  by the rules of {NEWEST}" in followed.stdout
    assert f"known deviation S0511a of {NEWEST}, 5 times" in followed.stdout
    strict = run("replay", trace, "--profile", NEWEST, "--strict")
    assert strict.exit_code == 1
    assert "  fault     a retract clears" in strict.stdout and f"(S0511a of {NEWEST}, " in strict.stdout
    assert f"--strict --profile {NEWEST}" in strict.stdout, "the command that shows it again"


def test_the_profile_knows_the_deviations_also_where_the_header_does_not(tmp_path: Path) -> None:
    trace = changed("retract-p4", tmp_path / "t.jsonl", lambda records: records[0].update(known_deviations=[]))
    assert replay(trace).verdict == VIOLATES
    report = replay(trace, profile=NEWEST)
    assert report.verdict == CONFORMS and report.followed == {"S0511a": 5}


@pytest.mark.parametrize("profile", [None, NEWEST, "auto"])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "F22900",
            r"t\.jsonl:1: known_deviations: F22900 \(bug that was fixed\) is no known deviation of sglang 0.5.23",
        ),
        ("M18", "M18 .* is no known deviation of sglang 0.5.23: valid are S0511a"),
        ("S0511b", r"S0511b .* is no known deviation of sglang 0.5.23: valid are S0511a; leave it out"),
        ("S9999z", "unknown deviation 'S9999z'"),
    ],
)
def test_a_header_names_only_deviations_that_its_release_is_known_for(
    name: str, sentence: str, strict: bool, profile: str | None, tmp_path: Path
) -> None:
    trace = changed("retract-p4", tmp_path / "t.jsonl", lambda records: records[0].update(known_deviations=[name]))
    assert re.search(sentence, refused(replay, trace, strict=strict, profile=profile))


def test_a_bug_that_was_fixed_is_a_violation_and_no_header_can_allow_it(tmp_path: Path) -> None:
    """The trace of the bug conformed once, if its header named it."""
    trace = broken(tmp_path / "t.jsonl", "F22900")
    assert replay(trace).verdict == VIOLATES
    edited(trace, lambda records: records[0].update(known_deviations=["F22900"]))
    assert "there is no profile of it" in refused(replay, trace)


def test_a_gap_that_no_recorder_has_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    trace = changed("retract-p4", tmp_path / "t.jsonl", lambda records: records[0].update(gaps=["freed pages"]))
    message = refused(replay, trace)
    assert re.search(r"t\.jsonl:1: gaps: unknown gap 'freed pages'", message) and [*GAPS][1] in message


def test_auto_takes_the_rules_of_the_release_that_the_trace_names(tmp_path: Path) -> None:
    assert replay(of_sglang_0523("abort-first-p1"), profile="auto").profile == NEWEST
    of_the_model = replay(trace_of_steps(tmp_path / "t.jsonl", 1, 4, *FIRST_TURN), profile="auto")
    assert of_the_model.profile is None and of_the_model.verdict == CONFORMS
    assert "there is no profile of model" in of_the_model.hint


def test_a_violation_tells_of_the_release_s_own_rules_and_a_pass_does_not() -> None:
    trace = of_sglang_0523("abort-first-p1")
    assert f"this trace says sglang 0.5.23; its own rules: --profile {NEWEST}" in run("replay", trace).stdout
    assert "its own rules" not in run("replay", trace, "--profile", NEWEST).stdout
    another = run("replay", trace, "--profile", "sglang-0.5.17")
    assert another.exit_code == 1 and f"its own rules: --profile {NEWEST}" in another.stdout


def test_what_is_wrong_by_the_design_is_found(tmp_path: Path) -> None:
    """A page that the tree keeps is freed as well."""

    def free_one(records: Records) -> None:
        next(record for record in records if record.get("action") == "abort")["free"] = [14]

    trace = changed("abort-first-p1", tmp_path / "t.jsonl", free_one)
    first = first_finding(trace, profile=NEWEST)
    assert first.action == "abort_first" and {d.name for d in first.differences} == {"freed pages"}
    assert f"by the design of {NEWEST}" in run("replay", trace, "--profile", NEWEST).stdout


AGAIN = (("create", {"origin_len": 2, "too_long": False, "logprob": False}), *FIRST_TURN[2:])
NEXT_TURN = (
    ("finish", {"finished_len": 1}),
    ("create", {"origin_len": 4, "too_long": False, "logprob": False}),
    ("match_slot", {}),
    ("extend", {"seq_len": 4, "last": True}),
    ("result", {"tokens": 1}),
)
SHOWN_BY: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "S0511a": (*AGAIN, ("retract", {})),
    "S0510b": (*AGAIN, *NEXT_TURN, ("abort_nth", {})),
    "F22213": (*AGAIN, *NEXT_TURN, ("check", {"lingering": False})),
    "F21875a": (*AGAIN, *NEXT_TURN, ("defer_close", {})),
}


@pytest.mark.parametrize("fault_id", SHOWN_BY)
def test_a_fault_among_the_rules_of_the_release_is_named(fault_id: str, tmp_path: Path) -> None:
    """Its run begins with an abort into the tree, which the model's own rules do not have: they find that first."""
    begun = (*FIRST_TURN, ("abort_first", {"dup_len": 2, "inserted": True, "key_len": 2}))
    faulty = {**PROFILES[NEWEST].actions, **FAULTS[fault_id].in_traces}
    steps = steps_of_one_ledger(1, 8, *begun, *SHOWN_BY[fault_id], actions=faulty)
    path = tmp_path / "t.jsonl"
    write_witness(witness(steps, 1, 8, actions=faulty), path, {})
    first = first_finding(path, profile=NEWEST, strict=True)
    assert first.action == SHOWN_BY[fault_id][-1][0]
    # A check that counts a lent slot twice may do so by F22213's rule or by F22753's.
    alike = ["F22753"] if fault_id == "F22213" else []
    assert [f.id for f in first.explained_by] == [fault_id, *alike]
    by_the_model = first_finding(path)
    assert by_the_model.action == "abort_first" and not by_the_model.explained_by


def test_an_unknown_profile_is_answered_with_the_valid_ones() -> None:
    for command in ("replay", "watch"):
        message = refusal(command, of_sglang_0523("abort-first-p1"), "--profile", "sglang-0.5.24")
        assert f"did you mean {NEWEST}" in message and "valid: sglang-0.5.10, " in message and "auto" in message
    assert "unknown profile" in refused(replay, of_sglang_0523("abort-first-p1"), profile="sglang")


def test_a_checkpoint_goes_on_by_the_same_rules_only(tmp_path: Path) -> None:
    trace, state = of_sglang_0523("abort-first-p1"), Checkpoints(tmp_path / "c.json")
    replay(trace, profile=NEWEST, until=20, checkpoints=state)
    assert f"by the rules of {NEWEST}, not of the model" in refused(replay, trace, checkpoints=state, resume=True)
    resumed = replay(trace, profile=NEWEST, checkpoints=state, resume=True)
    assert resumed == replay(trace, profile=NEWEST) and resumed.verdict == CONFORMS


def test_a_slice_carries_the_state_that_the_release_s_rules_lead_to(tmp_path: Path) -> None:
    trace, part = of_sglang_0523("abort-first-p1"), tmp_path / "part.jsonl"
    window = ("slice", trace, "--from", 30, "--with-state", "--out", part)
    assert "event 14 breaks a rule" in refusal(*window)
    assert "--profile is for --with-state" in refusal("slice", trace, "--out", part, "--profile", NEWEST)
    cut = run(*window, "--profile", "auto")
    assert cut.exit_code == 0 and f"kvproof replay {part} --profile auto" in cut.stdout
    report = replay(part, profile=NEWEST)
    assert not report.findings and report.events == 47 - 30


def test_workers_judge_by_the_same_rules() -> None:
    traces = [of_sglang_0523(name) for name in ("abort-first-p1", "abort-chunked-p4")]
    answers = judge_by_processes(traces, Options(profile="auto"), 2, lambda *_: None)
    assert answers == [replay(trace, profile=NEWEST) for trace in traces]


def test_branches_of_the_release_s_rules_are_counted_and_can_be_required() -> None:
    """The model's abort has no guard with a choice; that of 0.5.23 ends like an ordinary request, which has some."""
    trace = of_sglang_0523("abort-first-p1")
    unknown = refusal("replay", trace, "--require-coverage", "guards=abort_first")
    assert "unknown name among guards 'abort_first'" in unknown
    required = run("replay", trace, "--profile", NEWEST, "--require-coverage", "guards=abort_first")
    assert required.exit_code == 2 and "branch 'abort_first: a chunk cache takes nothing: " in required.stderr
    assert run("replay", trace, "--profile", NEWEST, "--require-coverage", "actions=abort_first").exit_code == 0


@pytest.mark.parametrize("checker", ["interpreted", pytest.param("compiled", marks=pytest.mark.slow)])
def test_a_watch_judges_by_them_and_names_them(checker: str, tmp_path: Path) -> None:
    if checker == "compiled":
        pytest.importorskip("numba")
    trace = changed("abort-first-p1", tmp_path / "t.jsonl")
    watched = run("watch", trace, "--once", "--no-view", "--profile", "auto", "--checker", checker)
    assert watched.exit_code == 0, watched.output
    assert f"CONFORMS  {trace}  by the rules of {NEWEST}" in watched.stdout
    assert f"judged by the rules of {NEWEST}" in watched.stdout.splitlines()
    by_the_model = run("watch", trace, "--once", "--no-view", "--checker", checker)
    assert by_the_model.exit_code == 1 and f"its own rules: --profile {NEWEST}" in by_the_model.stdout


def test_what_a_watch_has_compiled_ahead_are_the_rules_that_it_judges_by(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    for profile in (None, NEWEST):
        Preparation(profile).start()
    assert started == [WARM, [*WARM, NEWEST]]
