"""What a replay exercised: counted alike by both checkers, and never more than happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden import GOLDEN
from run_traces import Records, edited, records_of, trace_of_steps
from trace_events import copied, write_records

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.replay.compared_fields import SHOWN, traced_comparisons
from kvproof.conformance.replay.coverage import Coverage, all_branches, decisions_in, exercised_by_state, in_words
from kvproof.conformance.replay.replay import replay
from kvproof.conformance.replay.verdict import CONFORMS, Report
from kvproof.model.tracing import Tracing, evaluate
from kvproof.spec.actions import ACTIONS
from kvproof.spec.invariants import INVARIANTS
from kvproof.spec.state import FIELDS, RUNNING, Ledger

ARRIVES: tuple[Any, ...] = (("arrive", {"origin_len": 3}),)
RUNS = (*ARRIVES, ("match_tree", {"matched_len": 0}), ("extend", {"seq_len": 3, "last": True}))


def replayed(path: Path, page_size: int, *steps: Any, **config: Any) -> Report:
    report = replay(trace_of_steps(path, page_size, 8, *steps, **config))
    assert report.verdict == CONFORMS
    return report


def test_each_guard_takes_one_branch_each_time_its_action_is_judged(tmp_path: Path) -> None:
    chunks = (*ARRIVES, RUNS[1], ("extend", {"seq_len": 2, "last": False}), ("insert", {"dup_len": 0, "key_len": 2}))
    coverage = replayed(tmp_path / "t.jsonl", 2, *chunks, ("extend", {"seq_len": 3, "last": True})).coverage
    sentence = "extend: the last chunk is the one that ends the input"
    assert coverage.branches[f"{sentence}: last"] == coverage.branches[f"{sentence}: not last"] == 1
    for name, action in ACTIONS.items():
        for decision in decisions_in(action):
            times = sum(coverage.branches[decision.key(place)] for place in range(len(decision.branches)))
            assert times == coverage.actions[name]


def test_a_later_alternative_counts_only_where_no_earlier_one_holds(tmp_path: Path) -> None:
    inserted = (*RUNS, ("result", {"tokens": 1}), ("insert", {"dup_len": 0, "key_len": 3}))
    branches = replayed(tmp_path / "t.jsonl", 2, *inserted).coverage.branches
    of_insert = {key: count for key, count in branches.items() if key.startswith("insert: a session inserts")}
    assert of_insert == {"insert: a session inserts its prompt, never its output: plain": 1}


def test_an_invariant_that_had_nothing_to_say_is_not_exercised(tmp_path: Path) -> None:
    assert replayed(tmp_path / "t.jsonl", 2, *ARRIVES).coverage.invariants == {}
    running = replayed(tmp_path / "t.jsonl", 2, *RUNS).coverage.invariants
    assert running["I1"] == running["I3"] == running["I18"] == 1
    assert running["I4"] == 0, "nothing was freed"
    assert running["I14"] == 0, "no session turn ended"
    assert running["I9"] == running["I10"] == 0, "there is no window"


def test_a_window_exercises_the_invariants_about_it(tmp_path: Path) -> None:
    running = replayed(tmp_path / "t.jsonl", 2, *RUNS, window=2).coverage.invariants
    assert running["I9"] == 1


def test_late_results_exercise_what_is_said_of_them(tmp_path: Path) -> None:
    retracted = (("result", {"tokens": 1}), ("decode", {}), ("retract", {}), ("late_result", {}))
    session = (("open", {}), ("create", {"origin_len": 3, "too_long": False, "logprob": False}), *RUNS[1:])
    report = replayed(tmp_path / "t.jsonl", 2, *session, *retracted, overlap=True)
    assert report.coverage.invariants["I17"] == 1


def test_a_sentence_that_compares_zeros_says_nothing() -> None:
    """On the pristine ledger no invariant says anything; on a running request most do."""
    d = Tracing()
    flags = exercised_by_state(d, d.arbitrary(Ledger), INVARIANTS)
    empty = {f"s.{f.name}": False if f.metadata["sort"] == "flag" else 0 for f in FIELDS}
    config = {
        "d.spec_v2": False,
        "d.row_width": 8,
        "d.windowed": True,
        "d.window": 2,
        "d.drafts": 1,
        "d.overlap": False,
        "d.tree": True,
    }
    assert not any(evaluate(flag, {**empty, **config}, 2) for flag in flags.values())
    running = {"s.plain": True, "s.phase": RUNNING, "s.origin_len": 3, "s.kv_committed_len": 3, "s.kv_allocated_len": 3}
    ghosts = {"s.rows": 1, "s.locks": 1, "s.row_end": 2, "s.kv_valid": 3}
    said = {name for name, flag in flags.items() if evaluate(flag, {**empty, **running, **ghosts, **config}, 2)}
    assert {"I1", "I2", "I3", "I8", "I11", "I16", "I22"} <= said


def test_every_branch_has_a_name_of_its_own_in_words() -> None:
    names = [name for branches in all_branches().values() for name in branches]
    assert len(names) == len(set(names)) == 35
    assert not any("s." in name.split(": ")[-1] or "(s" in name for name in names)
    d = Tracing()
    assert in_words(d.operation("equal", d.read("s.phase"), RUNNING)) == "phase = running"


@pytest.mark.parametrize("checker", ["interpreted", "compiled"])
def test_a_check_and_an_eviction_exercise_what_the_page_book_compares(checker: str, tmp_path: Path) -> None:
    if checker == "compiled":
        pytest.importorskip("numba")
    finished = (*RUNS, ("result", {"tokens": 1}), ("finish_plain", {"dup_len": 0, "inserted": True}))
    path = trace_of_steps(tmp_path / "t.jsonl", 1, 8, *finished, ("check", {"lingering": False}))

    def evict(records: Records) -> None:
        events = len(records) - 2
        records.insert(-1, {"record": "event", "seq": events, "action": "evict", "free": [3]})
        records[-1]["events"] = events + 1

    before = replay(edited(path, evict), checker=Chosen(checker))
    assert before.verdict == CONFORMS
    assert before.actions["evict"] == 1
    assert before.coverage.invariants["I11"] > 0
    assert before.coverage.invariants["I13"] == 2, "the check and the eviction"


# --- only what the trace shows is checked ---------------------------------------------------------------------------------

CHECKERS = ["interpreted", "compiled"]
OF_MATCHES = ("match",)


def coverage_by(checker: str, path: Path) -> Coverage:
    if checker == "compiled":
        pytest.importorskip("numba")
    report = replay(path, checker=Chosen(checker))
    assert report.verdict == CONFORMS
    return report.coverage


def without_after(records: Records, but: tuple[str, ...] = ()) -> Records:
    return [{**r, "after": {}} if r["record"] == "event" and r["action"] not in but else r for r in records]


def recorded(path: Path, name: str) -> tuple[Path, Records]:
    """A recorded trace, under a target of which nothing is expected."""
    copied(GOLDEN / name, path)
    records = records_of(path)
    records[0]["producer"]["target"], records[0]["known_deviations"] = "none", []
    return write_records(path, records), records


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("name", ["sglang-0.5.11-cpu/basic.jsonl.gz", "sglang-0.5.11-cpu/pressure.jsonl.gz"])
def test_a_trace_that_shows_less_is_checked_less(checker: str, name: str, tmp_path: Path) -> None:
    path, records = recorded(tmp_path / "t.jsonl", name)
    whole = coverage_by(checker, path)
    less = coverage_by(checker, write_records(path, without_after(records, OF_MATCHES)))
    nothing = coverage_by(checker, write_records(path, without_after(records)))
    assert whole.actions == less.actions == nothing.actions
    matches = sum(times for name, times in whole.actions.items() if name.startswith("match_"))
    creates = whole.actions["create"]  # an event says whether its turn was admitted, as a parameter
    assert creates < less.invariants["I15"] <= matches + creates < whole.invariants["I15"]
    assert nothing.invariants["I15"] == creates
    assert nothing.invariants["I12"] < less.invariants["I12"] < whole.invariants["I12"]
    told = whole.actions["result"]  # events say as a parameter how many tokens they bring
    assert told <= nothing.invariants["I22"] == less.invariants["I22"] < whole.invariants["I22"]
    assert less.fields["kv_committed_len"] == matches and nothing.fields["kv_committed_len"] == 0


@pytest.mark.parametrize("checker", CHECKERS)
def test_without_a_shown_value_only_what_pages_and_parameters_show_is_checked(checker: str, tmp_path: Path) -> None:
    chunks = (*ARRIVES, RUNS[1], ("extend", {"seq_len": 3, "last": True}), ("result", {"tokens": 1}), ("decode", {}))
    path = trace_of_steps(tmp_path / "t.jsonl", 2, 8, *chunks)
    write_records(path, without_after(records_of(path)))
    checked = coverage_by(checker, path).invariants
    assert checked["I18"] == 1, "the extend says up to where it runs, and its pages are listed; the decode takes none"
    assert checked["I1"] == 1 and checked["I3"] == checked["I16"] == 0


@pytest.mark.parametrize("checker", CHECKERS)
def test_each_value_of_each_event_is_counted_as_shown_or_not(checker: str, tmp_path: Path) -> None:
    path, records = recorded(tmp_path / "t.jsonl", "sglang-0.5.11-cpu/basic.jsonl.gz")
    hidden = next(r for r in records if r.get("action") == "extend" and "session" in r)
    del hidden["after"]["slot_held"], hidden["after"]["kv_committed_len"]
    coverage = coverage_by(checker, write_records(path, records))
    assert coverage.not_shown["extend.slot_held"] == coverage.not_shown["extend.kv_committed_len"] == 1
    for value in ("slot_held", "kv_committed_len"):
        key = f"extend.{value}"
        assert coverage.shown[key] + coverage.not_shown[key] == coverage.actions["extend"]
    checks = [r for r in records if r.get("action") == "check"]
    assert coverage.shown["check.terms"] == len(checks)


def test_values_that_may_be_shown_have_names_and_tell_of_fields_that_rules_read() -> None:
    names = {name for action in ACTIONS.values() for name in traced_comparisons(Tracing(), action)}
    assert names <= set(SHOWN)
    about = {name: c.fields for name, c in traced_comparisons(Tracing(), ACTIONS["match_slot"]).items()}
    assert about["kv_committed_len"] == {"kv_committed_len"}
    assert about["attached"] == {"inflight", "turns"} and about["fill_len"] == {"origin_len", "output_len"}
