"""A violation in words: what the terminal says of a trace, a counterexample and a finding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import UNTIL_FOUND, refusal, require_exit, run
from golden import of_sglang_0523
from trace_events import read_records, write_records

from kvproof.conformance.replay.replay import replay
from kvproof.conformance.report.explain.account import Wrong, in_one_sentence, lengths_around, values_of
from kvproof.conformance.report.explain.picture import pictures, strip
from kvproof.conformance.report.explain.story import FROM_SLOT, FROM_TURN, Lengths


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of the reference with F22862b on: event 34 frees page 9, which holds committed tokens."""
    path = tmp_path_factory.mktemp("explain") / "retract.jsonl"
    require_exit(0, "record", "--scenario", "retract", "--page-size", 4, "--fault", "F22862b", "--out", path)
    return path


def test_a_violation_is_told_with_event_page_owners_rule_fault_and_what_to_do(trace: Path) -> None:
    result = require_exit(1, "explain", trace)
    said = result.stdout
    for part in (
        "page 9 was freed; the owner was session s",
        "event 34, step 10, retract.jsonl:36",
        "match_slot: a later turn restores the slot and frees the orphaned tail",
        "9: session s had it, free list has it now; by the rule: session s",
        "a free starts on a page boundary (I4)",
        "that still holds committed tokens is freed (F22862b, sglang #22862)",
        "with F22862b on, the model accepts this event",
        f"kvproof replay {trace}",
        f"kvproof shrink {trace}",
        "kvproof explain F22862b",
    ):
        assert part in said


def test_the_lengths_stand_before_by_the_rule_and_as_seen(trace: Path) -> None:
    finding = replay(trace).first
    values = {v.name: v for v in values_of(finding)}
    committed = values["slot_kv_committed_len"]
    assert committed[1:] == ("34", "33", "33") and not isinstance(committed.seen, Wrong)
    freed = values["freed pages"]
    assert freed[2:] == ("[]", "[9]") and isinstance(freed.seen, Wrong)
    assert "checkpoint_len" not in values, "it did not change"
    before, after = lengths_around(finding, 4)
    assert (before[0], before[1].c, after[0], after[1].c) == ("before", 34, "after", 33)


def test_what_led_to_it_ends_with_the_bad_event(trace: Path) -> None:
    said = run("explain", trace).stdout
    led = [" ".join(line.split()) for line in said[said.index("what led to it") :].splitlines()]
    assert led[1] == "event 28, step 8 create s-3 committed 25, allocated 25, protected 8"
    assert led[7] == "event 34 is the bad one"


def test_each_wrong_page_has_the_owner_that_had_it_and_the_one_that_has_it(trace: Path) -> None:
    finding = replay(trace).first
    assert [vars(wrong) for wrong in finding.wrong] == [
        {"page": 9, "owner": "session s", "became": "free list", "rule": "session s"}
    ]
    assert in_one_sentence(finding) == "page 9 was freed; the owner was session s"


def test_a_page_that_is_handed_out_twice_has_two_owners(trace: Path, tmp_path: Path) -> None:
    """The page that event 30 takes is one that the session has had since event 4."""
    records = read_records(trace)[:32]
    assert records[31]["alloc"] == [8, 9]
    records[31]["alloc"] = [8, 3]
    twice = write_records(tmp_path / "twice.jsonl", records)
    finding = replay(twice).first
    assert finding is not None and finding.event.seq == 30
    assert [(wrong.page, wrong.owner, wrong.became) for wrong in finding.wrong] == [(3, "session s", "session s")]


def test_a_trace_that_conforms_is_explained_as_such(tmp_path: Path) -> None:
    path = of_sglang_0523("abort-first-p1")
    result = require_exit(0, "explain", path, "--profile", "auto")
    assert result.stdout.startswith("CONFORMS") and "by the rules of sglang-0.5.23" in result.stdout
    assert f"kvproof replay {path} --profile auto" in result.stdout


def test_a_trace_without_its_end_is_incomplete(trace: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.jsonl"
    torn.write_text("\n".join(trace.read_text().splitlines()[:20]) + "\n")
    result = run("explain", torn)
    assert result.exit_code == 3 and "no terminal record" in result.stdout


def test_a_counterexample_is_as_short_as_they_get(tmp_path: Path) -> None:
    path = tmp_path / "cx.jsonl"
    require_exit(1, "prove", "--fault", "F20070", "--out", path)
    result = require_exit(1, "explain", path)
    assert "this trace is as short as they get that show it" in result.stdout
    assert "kvproof shrink" not in result.stdout


def test_a_finding_of_the_fuzzer_is_explained_by_its_folder(tmp_path: Path) -> None:
    out = tmp_path / "found"
    require_exit(1, "fuzz", "--fault", "F22862b", *UNTIL_FOUND, "--out", out)
    result = require_exit(1, "explain", out / "1")
    assert "F22862b" in result.stdout
    assert f"kvproof fuzz --replay {out / '1'}" in result.stdout
    assert f"pytest {out / '1' / 'test_finding.py'}" in result.stdout
    assert f"it holds findings: {out / '1'}" in refusal("explain", out)
    schedule = out / "1" / "schedule.json"
    schedule.write_text(json.dumps(json.loads(schedule.read_text()) | {"target": "mine:Server"}))
    again = run("explain", out / "1").stdout
    assert f"kvproof fuzz --target mine:Server --replay {out / '1'}" in again


def test_what_cannot_be_explained_is_named(tmp_path: Path) -> None:
    assert "no finding of kvproof fuzz" in refusal("explain", tmp_path)
    assert "no such trace" in refusal("explain", "out/nothing.jsonl")


@pytest.mark.parametrize(
    ("lengths", "page_size", "drawn"),
    [
        (Lengths(FROM_TURN, c=10, a=12, r=4, e=0), 4, "▒▒▒▒│████│██░░"),  # the tree's, committed, only allocated
        (Lengths(FROM_TURN, c=6, a=4, r=1, e=2), 1, "▒×██!!"),  # out of the window; without a page
    ],
)
def test_a_strip_tells_the_tokens_of_a_row_apart(lengths: Lengths, page_size: int, drawn: str) -> None:
    assert strip(lengths, page_size, longest=12, unit=1) == drawn


def test_long_rows_are_drawn_to_scale() -> None:
    *rows, legend = pictures([("row", Lengths(FROM_SLOT, c=64_000, a=64_000, r=0, e=0))], page_size=256)
    assert rows[0].plain.count("█") == 64
    assert "each character is 1000 tokens" in legend.plain


def test_nothing_is_drawn_of_rows_that_are_empty() -> None:
    assert pictures([("before", Lengths()), ("after", Lengths())], page_size=4) == []
