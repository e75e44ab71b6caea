"""Replay: a good trace conforms, and each way of tampering with it is found at its event, with page ids and invariant."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from run_traces import Records, edited, first_finding, refused
from trace_events import written

from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, VIOLATES, Report, replay
from kvproof.conformance.traces.open_trace import read_trace

pytest.importorskip("torch")
from kvproof.conformance.adapters.reference import record_scenario


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of the reference, by scenario."""
    folder = tmp_path_factory.mktemp("traces")
    names = ("many-sessions", "pressure")
    return {name: Path(record_scenario(name, folder / f"{name}.jsonl", page_size=4).path) for name in names}


@pytest.fixture
def good(traces: dict[str, Path]) -> Path:
    return traces["many-sessions"]


def tampered(path: Path, out: Path, change: Callable[[Records], object]) -> Report:
    return replay(edited(path, change, out))


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


def extends(records: Records) -> Records:
    return [r for r in records if r.get("action") == "extend" and r.get("alloc")]


def lose_a_page(records: Records) -> None:
    first(records, action="close", free=True)["free"].pop()


def free_twice(records: Records) -> None:
    freed = first(records, action="close", free=True)["free"]
    freed.append(freed[0])


def hand_out(page: int) -> Callable[[Records], None]:
    return lambda records: extends(records)[0]["alloc"].__setitem__(0, page)


def hand_out_again(records: Records) -> None:
    before, after = extends(records)[:2]
    after["alloc"][0] = before["alloc"][-1]


def use_a_row_in_use(records: Records) -> None:
    before, after = extends(records)[:2]
    for event in (r for r in records if r.get("turn") == after["turn"] and "row" in r):
        event["row"] = before["row"]


def one_token_more(records: Records) -> None:
    first(records, action="decode")["after"]["kv_committed_len"] += 1


def evict_a_locked_page(records: Records) -> None:
    inserted = first(records, action="insert", shared=True)
    evicted = {"record": "event", "action": "evict", "free": [inserted["shared"][0]]}
    records.insert(records.index(inserted) + 1, evicted)
    for seq, record in enumerate(r for r in records if r["record"] == "event"):
        record["seq"] = seq
    records[-1]["events"] += 1


def list_an_owned_page(records: Records) -> None:
    event = [r for r in records if r.get("action") == "check" and r.get("free_list")][1]
    pool = set(range(1, records[0]["config"]["pool_pages"] + 1))
    event["free_list"].append(min(pool - set(event["free_list"])))


def decode_too_early(records: Records) -> None:
    first(records, action="extend")["action"] = "decode"


@pytest.mark.parametrize(
    ("trace", "change", "action", "invariant", "said"),
    [
        ("many-sessions", lose_a_page, "close", "I16", r"page \d+ was not freed; the owner was session"),
        ("many-sessions", free_twice, "close", "I16", r"page \d+ was freed; the owner was session"),
        ("many-sessions", hand_out(0), "extend", "I1", "page 0 was handed out: it is the padding page"),
        ("many-sessions", hand_out(10_000), "extend", "I1", "page 10000 was handed out: it is not one of the pool's"),
        ("many-sessions", hand_out_again, "extend", "I1", r"page \d+ was handed out while session .* owns it"),
        ("many-sessions", use_a_row_in_use, "extend", "I5", r"row \d+ is handed out while session .* uses it"),
        ("many-sessions", decode_too_early, "decode", None, "no rule for 'decode' .* applies in this state"),
        ("pressure", evict_a_locked_page, "evict", "I11", "is in the protected prefix of"),
        ("pressure", list_an_owned_page, "check", "I2", r"page \d+ is in the free list and owned by"),
    ],
)
def test_a_wrong_event_is_found_with_its_page_its_owner_and_its_invariant(
    trace: str,
    change: Callable[[Records], None],
    action: str,
    invariant: str | None,
    said: str,
    traces: dict[str, Path],
    tmp_path: Path,
) -> None:
    finding = first_finding(edited(traces[trace], change, tmp_path / "t.jsonl"))
    assert finding.event.action == action
    assert invariant in finding.invariants if invariant else not finding.invariants
    assert re.search(said, "\n".join([finding.rule, *finding.pages, *finding.invariants.values()]))


def test_a_length_that_differs_is_shown_before_and_after(good: Path, tmp_path: Path) -> None:
    finding = first_finding(edited(good, one_token_more, tmp_path / "t.jsonl"))
    (difference,) = finding.differences
    assert difference.name == "kv_committed_len"
    assert difference.seen == difference.expected + 1  # type: ignore[operator]
    assert finding.explained_by == ()


def test_a_check_that_counts_wrongly_is_found_and_the_replay_goes_on(traces: dict[str, Path], tmp_path: Path) -> None:
    def miscount(records: Records) -> None:
        for event in [r for r in records if r.get("action") == "check"][:2]:
            event["terms"]["available"] -= 1

    report = tampered(traces["pressure"], tmp_path / "t.jsonl", miscount)
    assert report.verdict == VIOLATES
    assert len(report.findings) == 2
    assert "I2" in report.findings[0].invariants
    assert report.events == replay(traces["pressure"]).events


def cut_off(records: Records) -> None:
    records.pop()


@pytest.mark.parametrize(
    ("change", "verdict", "why"),
    [
        (cut_off, INCOMPLETE, "no terminal record"),
        (lambda records: records[-1].update(dropped=3), INCOMPLETE, "dropped 3 events"),
        (lambda records: records[-1].update(reason="killed"), INCOMPLETE, "the run ended early: killed"),
        (lambda records: [one_token_more(records), cut_off(records)], VIOLATES, ""),
    ],
)
def test_a_trace_that_is_not_whole_is_incomplete_unless_it_violates(
    change: Callable[[Records], None], verdict: str, why: str, good: Path, tmp_path: Path
) -> None:
    report = tampered(good, tmp_path / "t.jsonl", change)
    assert report.verdict == verdict and why in report.why


def test_a_torn_last_line_is_named(good: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(good.read_bytes()[:-20])
    report = replay(torn)
    assert report.verdict == INCOMPLETE
    assert f"torn.jsonl:{len(good.read_text().splitlines())}" in report.why


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda records: records[0].update(spec="99"), r"t\.jsonl:1: written for specification '99'"),
        (lambda records: records[0].update(known_deviations=["S0511z"]), "S0511a"),
        (
            lambda records: first(records, action="create").update(params={}),
            r"t\.jsonl:[0-9]+: .*'create' has no origin_len, which its rule needs",
        ),
        (
            lambda records: first(records, action="create").update(session=None, turn=None),
            r"t\.jsonl:[0-9]+: .*'create' names neither a session nor a turn",
        ),
    ],
)
def test_what_cannot_be_judged_is_refused_by_its_line(
    change: Callable[[Records], None], sentence: str, good: Path, tmp_path: Path
) -> None:
    assert re.search(sentence, refused(tampered, good, tmp_path / "t.jsonl", change))


def test_a_trace_without_events_is_never_a_pass(good: Path, tmp_path: Path) -> None:
    empty = written(tmp_path / "empty.jsonl", [], read_trace(good).header)
    result = run("replay", empty)
    assert result.exit_code == 2 and "nothing was checked" in result.stderr


def test_the_command_line_has_an_exit_code_for_each_verdict(good: Path, tmp_path: Path) -> None:
    tampered(good, tmp_path / "bad.jsonl", lose_a_page)
    tampered(good, tmp_path / "cut.jsonl", cut_off)
    assert run("replay", good).exit_code == 0
    assert run("replay", good, tmp_path / "bad.jsonl", "--json", tmp_path / "report.json").exit_code == 1
    assert run("replay", good, tmp_path / "cut.jsonl").exit_code == 3
    _, report = json.loads((tmp_path / "report.json").read_text())["traces"]
    assert report["verdict"] == VIOLATES
    assert report["findings"][0]["action"] == "close"
    assert report["findings"][0]["pages"]
