"""The window pool in a trace: each page that is taken, freed or kept wrongly is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from model_runs import DUPLICATES, of_one_ledger

from kvproof.conformance.drive.counterexample import write_witness
from kvproof.conformance.replay.replay import CONFORMS, VIOLATES, Report, replay
from kvproof.conformance.replay.window_book import WindowBook, WindowMoves
from kvproof.model.witness import Witness
from kvproof.spec.trace import Event

TURN = {"origin_len": 6, "too_long": False, "logprob": False}
EVICTED = (
    ("open", {}),
    ("create", TURN),
    ("match_tree", {"matched_len": 0}),
    ("extend", {"seq_len": 6, "last": True}),
    ("evict_window", {"pre_len": 6}),
    ("result", {"tokens": 1}),
    ("insert", {"dup_len": 0, "key_len": 6}),
    ("check", {"lingering": False}),
    ("finish", {"finished_len": 1}),
    ("check", {"lingering": False}),
    ("close", {}),
)


def trace_of(*steps: tuple[str, dict[str, Any]]) -> Witness:
    return of_one_ledger(1, 8, *steps, window=1)


def replayed(trace: Witness, path: Path, change: Callable[[list[Event]], None] = lambda events: None) -> Report:
    events = list(trace.events)
    change(events)
    write_witness(Witness(trace.config, tuple(events)), path, {})
    return replay(path)


def the(events: list[Event], action: str) -> int:
    return next(n for n, event in enumerate(events) if event.action == action)


def but(action: str, **fields: Any) -> Callable[[list[Event]], None]:
    def change(events: list[Event]) -> None:
        at = the(events, action)
        events[at] = events[at].model_copy(update=fields)

    return change


def test_a_row_takes_a_window_page_with_each_page_and_gives_up_those_behind_the_window(tmp_path: Path) -> None:
    trace = trace_of(*EVICTED)
    extend, window = (trace.events[the(list(trace.events), name)] for name in ("extend", "window"))
    assert len(extend.window_alloc) == len(extend.alloc) == 6
    assert window.window_free == extend.window_alloc[:4]
    assert replayed(trace, tmp_path / "t.jsonl").verdict == CONFORMS


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (but("window", window_free=(1, 2, 3)), "window page 4 was not freed; it is behind page 4"),
        (
            but("window", window_free=(1, 2, 3, 4, 5)),
            "window page 5 was freed; it was behind page 5 of session session-1",
        ),
        (but("extend", window_alloc=(1, 2, 3, 4, 5, 5)), "window page 5 was handed out while page 5 names it"),
        (
            but("extend", window_alloc=(1, 2, 3, 4, 5, 99)),
            "window page 99 was handed out: it is not one of the pool's 9",
        ),
    ],
)
def test_a_window_page_that_moves_wrongly_is_named(
    change: Callable[[list[Event]], None], sentence: str, tmp_path: Path
) -> None:
    report = replayed(trace_of(*EVICTED), tmp_path / "t.jsonl", change)
    assert report.verdict == VIOLATES
    assert report.first is not None
    assert sentence in report.first.pages


def test_too_few_window_pages_are_a_violation(tmp_path: Path) -> None:
    report = replayed(trace_of(*EVICTED), tmp_path / "t.jsonl", but("extend", window_alloc=(1, 2, 3)))
    assert report.first is not None
    assert [d.name for d in report.first.differences] == ["number of window pages taken"]


@pytest.mark.parametrize("term", ["available", "evictable", "session_held", "uncached"])
def test_a_wrong_term_of_the_window_pool_is_found(term: str, tmp_path: Path) -> None:
    trace = trace_of(*EVICTED)
    terms = trace.events[the(list(trace.events), "check")].window_terms
    assert terms is not None
    wrong = terms.model_copy(update={term: getattr(terms, term) + 1})
    report = replayed(trace, tmp_path / "t.jsonl", but("check", window_terms=wrong))
    assert report.first is not None
    assert [d.name for d in report.first.differences] == [
        "window " + ("evictable + protected" if term == "evictable" else term)
    ]


def test_a_free_list_that_holds_a_mapped_window_page_is_found(tmp_path: Path) -> None:
    report = replayed(trace_of(*EVICTED), tmp_path / "t.jsonl", but("check", window_free_list=(1, 2, 3, 4, 5, 7, 8, 9)))
    assert report.first is not None
    assert list(report.first.pages) == ["window page 5 is in the free list and owned by page 5"]


def with_eviction(trace: Witness, after: str, **moves: Any) -> Callable[[list[Event]], None]:
    def change(events: list[Event]) -> None:
        at = the(events, after) + 1
        events.insert(at, Event(seq=0, action="evict", **moves))
        events[:] = [event.model_copy(update={"seq": seq}) for seq, event in enumerate(events)]

    return change


def test_the_tree_keeps_the_window_pages_that_a_row_still_reaches(tmp_path: Path) -> None:
    trace = trace_of(*EVICTED)
    report = replayed(trace, tmp_path / "t.jsonl", with_eviction(trace, "insert", window_free=(6,)))
    assert report.first is not None
    assert report.first.pages == ("evicted window page 6 is in the window of session session-1",)
    assert report.first.invariants.keys() == {"I6"}


def test_the_tree_may_give_up_window_pages_alone(tmp_path: Path) -> None:
    """Page 5 is the tree's, and the window of 1 behind token 7 no longer reaches it."""
    trace = trace_of(*EVICTED[:7])
    assert replayed(trace, tmp_path / "t.jsonl", with_eviction(trace, "insert", window_free=(5,))).verdict == CONFORMS


@pytest.mark.parametrize(
    ("moves", "sentence"),
    [
        ({"window_free": (1,)}, "evicted window page 1 is free already: no page names it"),
        ({"free": (6,)}, "window page 6 was not freed with the page that names it"),
    ],
)
def test_an_eviction_that_loses_or_doubles_a_window_page_is_named(
    moves: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    trace = trace_of(*EVICTED)
    report = replayed(trace, tmp_path / "t.jsonl", with_eviction(trace, "close", **moves))
    assert report.first is not None
    assert sentence in report.first.pages


def test_a_page_whose_window_page_was_evicted_may_get_that_of_its_duplicate() -> None:
    book = WindowBook(4)
    moves = WindowMoves()
    book.take(moves, [7], [2])
    book.hand_on(moves, 7, 3, returned=[])
    book.commit(moves)
    assert (moves.freed, book.behind(2)) == ([], 3)


def test_a_page_that_has_its_window_page_keeps_it() -> None:
    book = WindowBook(4)
    moves = WindowMoves()
    book.take(moves, [7, 3], [2, 1])
    book.hand_on(moves, 7, 3, returned=[])
    book.commit(moves)
    assert (moves.freed, book.behind(2), book.behind(1)) == ([2], None, 3)


READER: tuple[dict[str, Any], ...] = (
    {"action": "arrive", "params": {"origin_len": 8}},
    {"action": "match", "params": {"fill_len": 8}, "after": {"prefix_len": 4, "cache_protected_len": 4}},
    {
        "action": "extend",
        "row": 2,
        "params": {"last": True, "seq_len": 8},
        "alloc": (6, 7),
        "window_alloc": (6, 7),
        "shared": (4, 5),
        "after": {"kv_committed_len": 8},
    },
)
"""A request whose row begins with pages 4 and 5, and whose window of 2 does not reach them."""
EVICT_THEIR_WINDOW_PAGES = {"action": "evict", "window_free": (4, 5)}


def exchanged(path: Path, before: Sequence[dict[str, Any]], at_the_end: bool = False, **insert: Any) -> Report:
    """The tree takes pages 1 and 2 of the request in place of 4 and 5."""
    last = ("finish_plain", {"finished_len": 1, "dup_len": 4, "inserted": True}) if at_the_end else DUPLICATES[-1]
    trace = of_one_ledger(2, 8, *DUPLICATES[:-1], last, window=2)
    events = list(trace.events)
    at = len(events) - 1
    reading = [{"turn": "request-3", **event} if event["action"] != "evict" else event for event in before]
    given_back = [page for page in events[at].free if page not in (1, 2)]
    windows = [window for window in events[at].window_free if window not in (1, 2)]
    shared = None if at_the_end else (1, 2)
    taken = {"free": (4, 5, *given_back), "shared": shared, "window_free": tuple(windows), **insert}
    events[at:] = [*(Event(seq=0, **event) for event in reading), events[at].model_copy(update=taken)]
    numbered = tuple(event.model_copy(update={"seq": seq}) for seq, event in enumerate(events))
    config = trace.config.model_copy(update={"pool_pages": 8, "window_pages": 8})
    write_witness(Witness(config, numbered), path, {})
    return replay(path)


def test_the_tree_may_take_a_row_s_pages_in_place_of_those_that_lost_their_window_pages(tmp_path: Path) -> None:
    """Seen on SGLang's tree for sliding windows (0.5.11), in a soak of 200,000 steps."""
    assert exchanged(tmp_path / "t.jsonl", [EVICT_THEIR_WINDOW_PAGES]).verdict == CONFORMS
    assert exchanged(tmp_path / "t.jsonl", [EVICT_THEIR_WINDOW_PAGES], at_the_end=True).verdict == CONFORMS
    half = exchanged(tmp_path / "t.jsonl", [EVICT_THEIR_WINDOW_PAGES], free=(1, 5), shared=(4, 2))
    assert half.verdict == CONFORMS


def test_a_page_that_still_has_its_window_page_is_not_given_up(tmp_path: Path) -> None:
    report = exchanged(tmp_path / "t.jsonl", [])
    assert report.first is not None
    assert "page 4 of the tree was given up for page 1 although it has a window page" in report.first.pages
    assert "I10" in report.first.invariants


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_page_that_another_row_begins_with_is_not_given_up(at_the_end: bool, tmp_path: Path) -> None:
    """SGLang up to 0.5.14 does so: docs/findings/tree_gives_up_a_prefix_in_use.md."""
    report = exchanged(tmp_path / "t.jsonl", [*READER, EVICT_THEIR_WINDOW_PAGES], at_the_end)
    assert report.first is not None
    read = "page 4 of the tree was given up for page 1; it is in the protected prefix of request request-3"
    assert read in report.first.pages
    assert report.first.invariants.keys() == {"I11"}
    assert report.first.explained_by == (), "no fault of the catalogue does that, also if it follows the event"


def test_a_page_that_is_not_given_back_is_missed_as_ever(tmp_path: Path) -> None:
    report = exchanged(tmp_path / "t.jsonl", [EVICT_THEIR_WINDOW_PAGES], free=(4,))
    assert report.verdict == VIOLATES


def test_a_trace_without_window_pages_is_judged_by_its_lengths(tmp_path: Path) -> None:
    trace = trace_of(*EVICTED)
    header = trace.config.model_copy(update={"window_pages": 0})
    bare = [event.model_copy(update={"window_alloc": (), "window_free": ()}) for event in trace.events]
    write_witness(Witness(header, tuple(bare)), tmp_path / "t.jsonl", {})
    assert replay(tmp_path / "t.jsonl").verdict == CONFORMS
