"""An event that was left out of a trace is named, where exactly one kind of event makes the next observation agree."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from golden import GOLDEN
from run_traces import Records, records_of
from trace_events import copied, write_records

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.replay.replay import replay
from kvproof.conformance.replay.verdict import Finding

BASIC = "sglang-0.5.11-cpu/basic.jsonl.gz"
CHUNKED = "sglang-0.5.11-cpu/matrix-window-overlap.jsonl.gz"


def records_of_golden(path: Path, name: str) -> Records:
    copied(GOLDEN / name, path)
    return records_of(path)


def without(records: Records, place: int) -> Records:
    """The records without one event, and numbered anew."""
    kept = [dict(record) for number, record in enumerate(records) if number != place]
    for seq, record in enumerate(kept[1:-1]):
        record["seq"] = seq
    kept[-1]["events"] = len(kept) - 2
    return kept


def first(path: Path, checker: str = "interpreted") -> Finding | None:
    return replay(path, profile="auto", checker=Chosen(checker)).first


@pytest.mark.parametrize("checker", ["interpreted", "compiled"])
@pytest.mark.parametrize("event", ["open", "create", "match", "extend", "insert", "decode", "result", "close"])
def test_an_event_that_was_left_out_is_named(event: str, checker: str, tmp_path: Path) -> None:
    if checker == "compiled":
        pytest.importorskip("numba")
    path = tmp_path / "t.jsonl"
    records = records_of_golden(path, BASIC)
    place = next(number for number, record in enumerate(records) if record.get("action") == event)
    finding = first(write_records(path, without(records, place)), checker)
    assert finding is not None and not finding.explained_by
    key = f"session {records[place]['session']}"
    assert finding.cause == f"an event is missing before event {finding.event.seq}, probably {event} of {key}"


@pytest.mark.parametrize("action", ["insert", "abort"])
def test_a_missing_event_of_another_ledger_is_named_where_its_pages_are_met(action: str, tmp_path: Path) -> None:
    """Another request shares pages that were inserted, or takes pages that were given back, unseen."""
    pytest.importorskip("torch")
    from kvproof.conformance.adapters.reference import record_scenario

    path = tmp_path / "t.jsonl"
    record_scenario("storm" if action == "abort" else "many-sessions", path, page_size=4, settings={"forward": "none"})
    records = records_of(path)
    place = next(n for n, record in enumerate(records) if record.get("action") == action and record.get("session"))
    finding = first(write_records(path, without(records, place)))
    assert finding is not None and finding.event.turn != records[place]["turn"]
    key = f"session {records[place]['session']}"
    assert finding.cause == f"an event is missing before event {finding.event.seq}, probably {action} of {key}"


def test_most_events_of_a_run_are_named_and_none_wrongly(tmp_path: Path) -> None:
    """Of chunks, windows, steps that overlap and ordinary requests. Where several kinds would do, none is named."""
    path = tmp_path / "t.jsonl"
    records = records_of_golden(path, CHUNKED)
    named: Counter[str] = Counter()
    for place in range(2, len(records) - 1, 9):
        finding = first(write_records(path, without(records, place)))
        if finding is not None:
            event, cause = records[place]["action"], finding.cause
            named["right" if f"probably {event} of " in cause else f"{event}: {cause}" if cause else "not at all"] += 1
    assert set(named) <= {"right", "not at all"}
    assert named["right"] > 2 * named["not at all"]


def test_a_wrong_value_is_no_missing_event(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    records = records_of_golden(path, BASIC)
    extend = next(record for record in records if record.get("action") == "extend")
    extend["after"]["kv_committed_len"] += 1
    finding = first(write_records(path, records))
    assert finding is not None and finding.cause == ""


def test_where_several_kinds_of_event_would_do_none_is_named(tmp_path: Path) -> None:
    """A turn that was running is over when the memory is checked: it may have ended in several ways."""
    path = tmp_path / "t.jsonl"
    records = records_of_golden(path, BASIC)
    place = next(number for number, record in enumerate(records) if record.get("action") == "finish")
    finding = first(write_records(path, without(records, place)))
    assert finding is not None and finding.event.action == "check" and finding.cause == ""
