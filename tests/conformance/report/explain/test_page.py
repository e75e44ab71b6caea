"""The page of a report, as a file: what is in it, that nothing of a trace is read as HTML, how large it is, and its story."""

from __future__ import annotations

import base64
import gzip
import json
import re
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import pytest
from command_line import refusal, run
from golden import of_sglang_0523
from html_tags import Tags
from run_traces import edited, renamed

from kvproof.conformance.replay.page_book import FREE
from kvproof.conformance.replay.replay import Replayer, replay
from kvproof.conformance.report.explain.story import Story, Subject, story_of
from kvproof.conformance.traces.open_trace import read_trace

HOSTILE = "</script><script>alert(1)</script><b onclick='x'>\"&amp;"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "storm.jsonl"
    options = ("--scenario", "storm", "--page-size", 4, "--seed", 3, "--fault", "F22862b")
    assert run("record", *options, "--out", path).exit_code == 0
    return path


@pytest.fixture(scope="module")
def page(trace: Path) -> str:
    path = trace.with_suffix(".html")
    assert run("explain", trace, "--html", path).exit_code == 1
    return path.read_text()


def story_in(page: str) -> dict[str, Any]:
    (packed,) = re.findall(r'id="story">([^<]*)<', page)
    raw = base64.b64decode(packed)
    assert raw[4:8] == bytes(4), "no clock is in it"
    unpacked: dict[str, Any] = json.loads(gzip.decompress(raw))
    return unpacked


def test_what_broke_is_written_out_as_text(page: str) -> None:
    for part in (
        "page 35 was freed; the owner was session s7",
        "event 364, step 42, storm.jsonl:366",
        "F22862b",
        "sglang #22862",
        "a free starts on a page boundary",
        "session s7, turn s7-39, row 6 of req_to_token",
        "kvproof shrink",
    ):
        assert part in page


def test_nothing_is_asked_for_from_anywhere(page: str) -> None:
    assert not [
        tag for tag, attrs in Tags(page).seen if {"src", "href", "action"} & set(attrs) or tag in ("link", "img")
    ]
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "http" not in policy


def test_a_page_of_a_small_trace_is_small_and_always_the_same(page: str, trace: Path) -> None:
    assert len(page.encode()) < 200_000
    again = trace.with_name("again.html")
    run("explain", trace, "--html", again)
    assert again.read_text() == page


def test_no_name_of_a_trace_becomes_a_tag(trace: Path, tmp_path: Path, page: str) -> None:
    hostile = renamed(trace, lambda name: name + HOSTILE, tmp_path / "<b onclick='x'>.jsonl")
    edited(hostile, lambda records: records[0]["producer"].update(name=HOSTILE))
    run("explain", hostile, "--html", tmp_path / "page.html")
    written = (tmp_path / "page.html").read_text()
    assert Tags(written).names == Tags(page).names
    assert HOSTILE not in written and "&lt;/script&gt;" in written


def test_the_story_has_the_owners_that_the_replay_has(trace: Path, page: str) -> None:
    """The last owner of each page, as told, against the page book of a replay up to the bad event."""
    story = story_in(page)
    last = {
        page_id: story["owners"][owner]
        for page_id, owner in zip(accumulate(story["pages"]["page"]), accumulate(story["pages"]["to"]), strict=True)
    }
    assert {page_id: owner for page_id, owner in last.items() if owner != FREE} == dict(book_before(trace, 364).owned())


def book_before(trace: Path, seq: int) -> Any:
    reader = read_trace(trace)
    replayer = Replayer(reader, [])
    for line, event in islice(reader, seq):
        assert replayer.feed(line, event) is None
    return replayer.book


def test_the_story_has_the_lengths_and_phases_of_the_ledgers(trace: Path) -> None:
    story = story_of(Subject(trace))
    retract, bad = (moment for moment in story.events if moment.seq in (363, 364))
    assert (retract.c, retract.a, retract.r, retract.e) == (14, 14, 4, 0)
    assert list(story.owners)[retract.who] == "session s7"
    assert list(story.actions)[retract.action] == "retract"
    assert (bad.c, bad.a) == (13, 13), "what was seen, of an event that was not accepted"
    assert next(iter(story.bad)) == story.events.index(bad)


def test_only_the_last_events_are_told_if_that_is_asked_for_with_the_owners_before_them(
    trace: Path, tmp_path: Path
) -> None:
    run("explain", trace, "--html", tmp_path / "page.html", "--events", 50)
    story = story_in((tmp_path / "page.html").read_text())
    assert story["first_seq"] == 315 and len(story["events"]["who"]) == 50
    before = book_before(trace, 315)
    told = [
        (page_id, story["owners"][owner])
        for event, page_id, owner in zip(*(accumulate(story["pages"][n]) for n in ("event", "page", "to")), strict=True)
        if event == -1
    ]
    assert dict(told) == dict(before.owned())


def test_a_story_that_begins_behind_what_the_compiled_checker_judged_is_the_same(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    interpreted = story_of(Subject(trace), since=200)
    monkeypatch.setattr("kvproof.conformance.compiled.choose.LARGE", 0)
    assert _told(story_of(Subject(trace), since=200)) == _told(interpreted)


def _told(story: Story) -> list[Any]:
    owners = list(story.owners)
    pages = [(e, p, owners[to]) for e, p, to in story.pages]
    held = sorted(change for change in pages if change[0] == -1)
    who = [owners[moment.who] for moment in story.events]
    rest = [moment._replace(who=0) for moment in story.events]
    return [held, [change for change in pages if change[0] >= 0], who, rest, [f.event.seq for f in story.bad.values()]]


def test_the_story_of_a_window_trace_has_its_window_pages(tmp_path: Path) -> None:
    path = tmp_path / "window.jsonl"
    run("record", "--scenario", "window", "--page-size", 4, "--out", path)
    story = story_of(Subject(path))
    assert story.report.verdict == "conforms"
    taken = sum(len(event.window_alloc) for event in read_trace(path).events_from(0))
    assert taken <= sum(change.to > 0 for change in story.window_pages) <= taken + 20, (
        "handed on to the tree's own page at times"
    )


def test_a_story_judges_as_a_replay_does(trace: Path) -> None:
    golden = of_sglang_0523("retract-p4")
    for path, profile in ((trace, None), (golden, "auto"), (golden, None)):
        story, judged = story_of(Subject(path, profile=profile)).report, replay(path, profile=profile)
        assert (story.verdict, story.findings, story.coverage) == (judged.verdict, judged.findings, judged.coverage)


def test_a_slice_that_carries_its_state_is_told_from_there(trace: Path, tmp_path: Path) -> None:
    window = tmp_path / "window.jsonl"
    assert run("slice", trace, "--from", 300, "--with-state", "--out", window).exit_code in (0, 3)
    assert run("explain", window, "--html", tmp_path / "page.html").exit_code == 1
    assert story_in((tmp_path / "page.html").read_text())["first_seq"] == 300


def test_a_page_is_never_written_over_the_trace(trace: Path) -> None:
    assert "give another name" in refusal("explain", trace, "--html", trace)


def test_a_folder_that_cannot_be_written_into_is_an_error_of_the_user(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write" in refusal("explain", trace, "--html", tmp_path / "file" / "page.html")
