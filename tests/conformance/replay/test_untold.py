"""A trace that tells less than the recorder of its target does is incomplete, with the names of what is missing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, get_args

import pytest
from golden import GOLDEN
from run_traces import Records, records_of
from trace_events import copied, write_records

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.compared_fields import BUSY, COMPARED_PARAMS, OF_A_SESSION, SHARED, SHOWN, STEP, TERMS
from kvproof.conformance.replay.replay import replay
from kvproof.conformance.replay.untold import leaves_out
from kvproof.conformance.replay.verdict import CONFORMS, INCOMPLETE, Report
from kvproof.spec import gaps
from kvproof.spec.actions import ACTIONS
from kvproof.spec.profiles import told_by
from kvproof.spec.recorded_values import OF_TARGETS, WHERE_NO_TURN_IS_ON_THE_SLOT
from kvproof.spec.trace import EventName

CHECKERS = ["interpreted", "compiled"]
RECORDED = sorted(GOLDEN.rglob("*.jsonl.gz"))
Missing = tuple[str, str]
"""Event and value."""


def judged(path: Path, checker: str = "interpreted") -> Report:
    if checker == "compiled":
        pytest.importorskip("numba")
    return replay(path, profile="auto", checker=Chosen(checker))


def of_golden(path: Path, name: str) -> Records:
    copied(GOLDEN / name, path)
    return records_of(path)


def without(records: Records, event: str, value: str) -> Records:
    """No event of this kind shows the value."""
    changed: Records = []
    for record in records:
        if record.get("action") == event:
            part: Any = "params" if value in (*COMPARED_PARAMS, BUSY) else "after"
            record = {**record, part: {name: v for name, v in record.get(part, {}).items() if name != value}}
            if value in (TERMS, SHARED, STEP):
                record.pop(value, None)
        changed.append(record)
    return changed


@pytest.mark.parametrize("path", RECORDED, ids=[f"{p.parent.name}-{p.name}" for p in RECORDED])
def test_every_recorded_trace_tells_what_its_recorder_does(path: Path) -> None:
    assert judged(path).verdict == CONFORMS


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_value_that_one_event_leaves_out_is_named(checker: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    records = of_golden(path, "sglang-0.5.11-cpu/retract.jsonl.gz")
    next(r for r in records if r.get("action") == "finish")["after"].pop("inflight")
    report = judged(write_records(path, records), checker)
    assert report.verdict == INCOMPLETE
    assert "it tells less than the recorder of sglang 0.5.11 does: finish: inflight (1 times)" in report.why


@pytest.mark.parametrize("name", ["sglang-0.5.11-cpu/retract.jsonl.gz", "sglang-0.5.23/chunked-p4.jsonl.gz"])
def test_any_value_that_a_recorded_trace_loses_is_missed(name: str, tmp_path: Path) -> None:
    """Whatever a kind of event shows throughout; of a value that only a part of them shows, nothing is expected."""
    path = tmp_path / "t.jsonl"
    records = of_golden(path, name)
    coverage = judged(path).coverage
    always = sorted(
        {
            (ACTIONS[rule].event or "check", value)
            for rule, _, value in (key.partition(".") for key in coverage.shown)
            if not coverage.not_shown[f"{rule}.{value}"]
            if not any(leaves_out(gap, rule, value) for gap in records[0]["gaps"])
        }
    )
    part_of_it = {("decode", value) for value in OF_A_SESSION}  # only of the session that an event before has touched
    told_alone = {("match", "attached")}  # read by the rule that it chooses
    for event, value in random.Random(1).sample([m for m in always if m not in part_of_it | told_alone], 12):
        write_records(path, without(records, event, value))
        try:
            report = judged(path)
        except UserError as refused:
            assert value in refused.message
            continue
        assert report.verdict != CONFORMS, (event, value)
        assert report.findings or (f"{event}: " in report.why and value in report.why), (event, value, report.why)


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize(
    ("gap", "verdict"),
    [
        (gaps.INFLIGHT, CONFORMS),
        (gaps.CLOSING, INCOMPLETE),
        (gaps.ONE_RECORD, INCOMPLETE),
        (gaps.BUSY_CHECK, INCOMPLETE),
    ],
)
def test_what_the_header_declares_is_not_missed(gap: str, verdict: str, checker: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    records = without(of_golden(path, "sglang-0.5.11-cpu/retract.jsonl.gz"), "finish", "inflight")
    records[0]["gaps"] = [gap]
    assert judged(write_records(path, records), checker).verdict == verdict


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_gap_excuses_no_event_where_others_show_the_value(checker: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    records = of_golden(path, "sglang-0.5.11-cpu/retract.jsonl.gz")
    del next(r for r in records if r.get("action") == "finish")["after"]["inflight"]
    records[0]["gaps"] = [gaps.INFLIGHT]
    report = judged(write_records(path, records), checker)
    assert report.verdict == INCOMPLETE
    assert "names the gap 'inflight" in report.why and "events 'finish' show inflight" in report.why


@pytest.mark.parametrize("checker", CHECKERS)
def test_window_pages_are_told_or_their_gap_is(checker: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    records = of_golden(path, "sglang-0.5.11-cpu/matrix-window-overlap.jsonl.gz")
    records[0]["gaps"] = [gaps.WINDOW_PAGES]
    report = judged(write_records(path, records), checker)
    assert report.verdict == INCOMPLETE and "and names the gap 'pages of the window pool" in report.why
    for record in records:
        for name in ("window_alloc", "window_free", "window_free_list"):
            record.pop(name, None)
    records[0]["config"]["window_pages"] = 0
    assert judged(write_records(path, records), checker).verdict == CONFORMS
    records[0]["gaps"] = []
    report = judged(write_records(path, records), checker)
    assert report.verdict == INCOMPLETE and "names no gap 'pages of the window pool" in report.why


def test_a_target_without_a_known_recorder_may_tell_what_it_likes(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    records = without(of_golden(path, "sglang-0.5.11-cpu/basic.jsonl.gz"), "finish", "inflight")
    records[0]["producer"]["target"] = "my server"
    records[0]["known_deviations"] = []
    assert judged(write_records(path, records)).verdict == CONFORMS


def test_memory_checks_without_their_terms_are_missed(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    records = without(of_golden(path, "sglang-0.5.11-cpu/retract.jsonl.gz"), "check", "terms")
    report = judged(write_records(path, records))
    assert report.verdict == INCOMPLETE and "check: terms (6 times)" in report.why


def test_a_gap_leaves_out_values_of_events_and_when() -> None:
    assert leaves_out(gaps.ONE_RECORD, "decode", "slot_kv_committed_len")
    assert leaves_out(gaps.ONE_RECORD, "extend", "slot_held")
    assert not leaves_out(gaps.ONE_RECORD, "finish", "slot_held")
    assert not leaves_out(gaps.ONE_RECORD, "decode", "kv_committed_len")
    assert leaves_out(gaps.PROTECTED_LEN_OF_RETRACTED, "retract_plain", "cache_protected_len")
    assert not leaves_out(gaps.PROTECTED_LEN_OF_RETRACTED, "finish", "cache_protected_len")
    assert not leaves_out(gaps.UNKNOWN_RELEASE.replace("{release}", "0.5.99"), "decode", "output_len")


def test_each_gap_names_values_and_events_that_there_are() -> None:
    for unseen in gaps.GAPS.values():
        assert unseen.values <= set(SHOWN) and unseen.events <= set(get_args(EventName))


@pytest.mark.parametrize("target", ["sglang 0.5.10.post1", "sglang 0.5.14", "sglang 0.5.23", *OF_TARGETS])
def test_what_is_expected_are_values_of_rules_that_there_are(target: str) -> None:
    told = told_by(target)
    assert told and told.keys() <= ACTIONS.keys() and set().union(*told.values()) <= set(SHOWN)
    assert ACTIONS.keys() >= WHERE_NO_TURN_IS_ON_THE_SLOT
