"""Replay: a good trace conforms, and each way of tampering with it is found at its event, with page ids and invariant."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvproof.conformance.cli.cli import app
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, VIOLATES, Report, replay

pytest.importorskip("torch")
from kvproof.conformance.adapters.reference import record_scenario

Records = list[dict[str, Any]]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "many.jsonl"
    record_scenario("many-sessions", path, page_size=4)
    return path


@pytest.fixture(scope="module")
def pressure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "pressure.jsonl"
    record_scenario("pressure", path, page_size=4)
    return path


def tampered(path: Path, out: Path, change: Callable[[Records], None]) -> Report:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    change(records)
    out.write_text("".join(json.dumps(r) + "\n" for r in records))
    return replay(out)


def first(records: Records, **wanted: Any) -> dict[str, Any]:
    """The first event with these values; a value True asks only that the field is there and not empty."""

    def fits(record: dict[str, Any]) -> bool:
        return all(bool(record.get(k)) if v is True else record.get(k) == v for k, v in wanted.items())

    return next(r for r in records if r["record"] == "event" and fits(r))


def test_a_good_trace_conforms_and_says_how_much_was_checked(good: Path) -> None:
    report = replay(good)
    assert report.verdict == CONFORMS
    assert report.findings == []
    assert report.events == sum('"event"' in line for line in good.read_text().splitlines())
    assert report.actions["match_slot"] > 0
    assert report.pages_moved > 0


def test_a_page_that_was_not_freed_is_named_with_its_owner(good: Path, tmp_path: Path) -> None:
    lost: list[int] = []

    def keep_one(records: Records) -> None:
        event = first(records, action="close", free=True)
        lost.append(event["free"].pop())

    report = tampered(good, tmp_path / "t.jsonl", keep_one)
    assert report.verdict == VIOLATES
    assert report.first is not None
    assert report.first.action == "close"
    assert any(f"page {lost[0]} was not freed" in line and "session" in line for line in report.first.pages)


def test_a_page_that_is_freed_twice_is_found(good: Path, tmp_path: Path) -> None:
    def twice(records: Records) -> None:
        event = first(records, action="close", free=True)
        event["free"].append(event["free"][0])

    report = tampered(good, tmp_path / "t.jsonl", twice)
    assert report.first is not None
    assert any("was freed" in line for line in report.first.pages)


@pytest.mark.parametrize("page", [0, 10_000])
def test_a_page_that_is_none_of_the_pool_is_found(good: Path, tmp_path: Path, page: int) -> None:
    def hand_out(records: Records) -> None:
        first(records, action="extend", alloc=True)["alloc"][0] = page

    report = tampered(good, tmp_path / "t.jsonl", hand_out)
    assert report.first is not None
    assert "I1" in report.first.invariants
    assert f"page {page} was handed out" in report.first.invariants["I1"]


def test_a_page_that_is_handed_out_twice_is_found_with_its_owner(good: Path, tmp_path: Path) -> None:
    def hand_out_again(records: Records) -> None:
        events = [r for r in records if r.get("action") == "extend" and r.get("alloc")]
        events[1]["alloc"][0] = events[0]["alloc"][-1]

    report = tampered(good, tmp_path / "t.jsonl", hand_out_again)
    assert report.first is not None
    assert report.first.action == "extend"
    assert "owns it" in report.first.invariants["I1"]


def test_a_row_that_is_handed_out_while_it_is_used_is_found(good: Path, tmp_path: Path) -> None:
    def same_row(records: Records) -> None:
        events = [r for r in records if r.get("action") == "extend" and r.get("alloc")]
        for event in (r for r in records if r.get("turn") == events[1]["turn"] and "row" in r):
            event["row"] = events[0]["row"]

    report = tampered(good, tmp_path / "t.jsonl", same_row)
    assert report.first is not None
    assert "I5" in report.first.invariants


def test_a_length_that_differs_is_shown_before_and_after(good: Path, tmp_path: Path) -> None:
    def one_more(records: Records) -> None:
        first(records, action="decode")["after"]["kv_committed_len"] += 1

    report = tampered(good, tmp_path / "t.jsonl", one_more)
    assert report.first is not None
    (difference,) = report.first.differences
    assert difference.name == "kv_committed_len"
    assert difference.seen == difference.expected + 1  # type: ignore[operator]
    assert report.first.explained_by == ()


def test_an_evicted_page_that_a_row_still_reads_is_found(pressure: Path, tmp_path: Path) -> None:
    def evict_a_locked_page(records: Records) -> None:
        inserted = first(records, action="insert", shared=True)
        at = records.index(inserted) + 1
        event = {"record": "event", "action": "evict", "free": [inserted["shared"][0]]}
        records.insert(at, event)
        for seq, record in enumerate(r for r in records if r["record"] == "event"):
            record["seq"] = seq
        records[-1]["events"] += 1

    report = tampered(pressure, tmp_path / "t.jsonl", evict_a_locked_page)
    assert report.first is not None
    assert "I11" in report.first.invariants
    assert "protected prefix" in report.first.invariants["I11"]


def test_a_check_that_counts_wrongly_is_found_and_the_replay_goes_on(pressure: Path, tmp_path: Path) -> None:
    def miscount(records: Records) -> None:
        for event in [r for r in records if r.get("action") == "check"][:2]:
            event["terms"]["available"] -= 1

    report = tampered(pressure, tmp_path / "t.jsonl", miscount)
    assert report.verdict == VIOLATES
    assert len(report.findings) == 2
    assert "I2" in report.findings[0].invariants
    assert report.events == replay(pressure).events


def test_a_free_list_that_holds_an_owned_page_is_found(pressure: Path, tmp_path: Path) -> None:
    def free_and_owned(records: Records) -> None:
        event = [r for r in records if r.get("action") == "check" and r.get("free_list")][1]
        pool = set(range(1, records[0]["config"]["pool_pages"] + 1))
        event["free_list"].append(min(pool - set(event["free_list"])))

    report = tampered(pressure, tmp_path / "t.jsonl", free_and_owned)
    assert report.first is not None
    assert "is in the free list and owned by" in report.first.pages[0]


def test_an_event_that_the_protocol_does_not_know_now_is_found(good: Path, tmp_path: Path) -> None:
    def decode_too_early(records: Records) -> None:
        first(records, action="extend")["action"] = "decode"

    report = tampered(good, tmp_path / "t.jsonl", decode_too_early)
    assert report.first is not None
    assert "applies in this state" in report.first.rule


def test_without_its_terminal_record_a_trace_is_incomplete(good: Path, tmp_path: Path) -> None:
    report = tampered(good, tmp_path / "t.jsonl", lambda records: records.pop() and None)
    assert report.verdict == INCOMPLETE
    assert "no terminal record" in report.why


def test_a_torn_last_line_is_named(good: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(good.read_bytes()[:-20])
    report = replay(torn)
    assert report.verdict == INCOMPLETE
    assert f"torn.jsonl:{len(good.read_text().splitlines())}" in report.why


def test_dropped_events_make_a_trace_incomplete(good: Path, tmp_path: Path) -> None:
    def drop(records: Records) -> None:
        records[-1]["dropped"] = 3

    assert tampered(good, tmp_path / "t.jsonl", drop).verdict == INCOMPLETE


def test_a_violation_is_reported_also_when_the_trace_is_incomplete(good: Path, tmp_path: Path) -> None:
    def broken_and_torn(records: Records) -> None:
        first(records, action="decode")["after"]["kv_committed_len"] += 1
        records.pop()

    assert tampered(good, tmp_path / "t.jsonl", broken_and_torn).verdict == VIOLATES


def test_another_specification_is_refused(good: Path, tmp_path: Path) -> None:
    def other(records: Records) -> None:
        records[0]["spec"] = "99"

    with pytest.raises(UserError, match=r"t\.jsonl:1: written for specification '99'"):
        tampered(good, tmp_path / "t.jsonl", other)


def test_an_unknown_known_deviation_is_refused_with_the_valid_ones(good: Path, tmp_path: Path) -> None:
    def unknown(records: Records) -> None:
        records[0]["known_deviations"] = ["S0511z"]

    with pytest.raises(UserError, match="S0511a"):
        tampered(good, tmp_path / "t.jsonl", unknown)


def test_a_trace_without_events_is_never_a_pass(good: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    header = good.read_text().splitlines()[0]
    empty.write_text(header + "\n" + json.dumps({"record": "end", "events": 0}) + "\n")
    result = CliRunner().invoke(app, ["replay", str(empty)])
    assert result.exit_code == 2
    assert "nothing was checked" in result.stderr


def test_the_command_line_has_an_exit_code_for_each_verdict(good: Path, tmp_path: Path) -> None:
    def wrong(records: Records) -> None:
        first(records, action="decode")["after"]["kv_committed_len"] += 1

    tampered(good, tmp_path / "bad.jsonl", wrong)
    tampered(good, tmp_path / "cut.jsonl", lambda records: records.pop() and None)
    run = CliRunner().invoke
    assert run(app, ["replay", str(good)]).exit_code == 0
    assert run(app, ["replay", str(good), str(tmp_path / "bad.jsonl")]).exit_code == 1
    assert run(app, ["replay", str(good), str(tmp_path / "cut.jsonl")]).exit_code == 3


def test_the_report_for_machines_says_the_same(good: Path, tmp_path: Path) -> None:
    def keep_one(records: Records) -> None:
        first(records, action="close", free=True)["free"].pop()

    tampered(good, tmp_path / "bad.jsonl", keep_one)
    out = tmp_path / "report.json"
    CliRunner().invoke(app, ["replay", str(tmp_path / "bad.jsonl"), "--json", str(out)])
    (report,) = json.loads(out.read_text())
    assert report["verdict"] == VIOLATES
    assert report["findings"][0]["action"] == "close"
    assert report["findings"][0]["pages"]


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [
        ({"params": {}}, "'create' has no origin_len, which its rule needs"),
        ({"session": None, "turn": None}, "'create' names neither a session nor a turn"),
    ],
)
def test_an_event_that_lacks_what_its_rule_needs_is_named_by_its_line(
    lost: dict[str, Any], sentence: str, good: Path, tmp_path: Path
) -> None:
    def lose(records: Records) -> None:
        first(records, action="create").update(lost)

    with pytest.raises(UserError, match=f"lacking.jsonl:[0-9]+: .*{sentence}"):
        tampered(good, tmp_path / "lacking.jsonl", lose)
