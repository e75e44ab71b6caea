"""The window pool in a trace: each page that is taken, freed or kept wrongly is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from model_runs import DUPLICATES, of_one_ledger

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.drive.counterexample import write_witness
from kvproof.conformance.replay.replay import CONFORMS, VIOLATES, Finding, Report, replay
from kvproof.conformance.replay.window_book import WindowBook, WindowMoves
from kvproof.model.witness import Witness
from kvproof.spec.gaps import WINDOW_PAGES
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


RUN = of_one_ledger(1, 8, *EVICTED, window=1)
Change = Callable[[list[Event]], None]


def replayed(path: Path, change: Change = lambda events: None) -> Report:
    events = list(RUN.events)
    change(events)
    write_witness(Witness(RUN.config, tuple(events)), path, {})
    return replay(path)


def found(path: Path, change: Change) -> Finding:
    report = replayed(path, change)
    assert report.verdict == VIOLATES and report.first is not None
    return report.first


def the(events: Sequence[Event], action: str) -> int:
    return next(n for n, event in enumerate(events) if event.action == action)


def but(action: str, **fields: Any) -> Change:
    def change(events: list[Event]) -> None:
        at = the(events, action)
        events[at] = events[at].model_copy(update=fields)

    return change


def evicting(after: str, **moves: Any) -> Change:
    def change(events: list[Event]) -> None:
        events.insert(the(events, after) + 1, Event(seq=0, action="evict", **moves))
        events[:] = [event.model_copy(update={"seq": seq}) for seq, event in enumerate(events)]

    return change


def test_a_row_takes_a_window_page_with_each_page_and_gives_up_those_behind_the_window(tmp_path: Path) -> None:
    extend, window = (RUN.events[the(RUN.events, name)] for name in ("extend", "window"))
    assert len(extend.window_alloc) == len(extend.alloc) == 6
    assert window.window_free == extend.window_alloc[:4]
    assert replayed(tmp_path / "t.jsonl").verdict == CONFORMS


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
        (evicting("close", window_free=(1,)), "evicted window page 1 is free already: no page names it"),
        (evicting("close", window_free=(6, 6)), "evicted window page 6 is free already: no page names it"),
        (evicting("close", free=(6,)), "window page 6 was not freed with the page that names it"),
    ],
)
def test_a_window_page_that_moves_wrongly_is_named(change: Change, sentence: str, tmp_path: Path) -> None:
    assert sentence in found(tmp_path / "t.jsonl", change).pages


def test_too_few_window_pages_are_a_violation(tmp_path: Path) -> None:
    differences = found(tmp_path / "t.jsonl", but("extend", window_alloc=(1, 2, 3))).differences
    assert [d.name for d in differences] == ["number of window pages taken"]


@pytest.mark.parametrize(
    ("term", "named"),
    [
        *((term, f"window {term}") for term in ("available", "session_held", "uncached")),
        ("evictable", "window evictable + protected"),
    ],
)
def test_a_wrong_term_of_the_window_pool_is_found(term: str, named: str, tmp_path: Path) -> None:
    terms = RUN.events[the(RUN.events, "check")].window_terms
    wrong = terms.model_copy(update={term: getattr(terms, term) + 1})
    differences = found(tmp_path / "t.jsonl", but("check", window_terms=wrong)).differences
    assert [d.name for d in differences] == [named]


def test_a_free_list_that_holds_a_mapped_window_page_is_found(tmp_path: Path) -> None:
    finding = found(tmp_path / "t.jsonl", but("check", window_free_list=(1, 2, 3, 4, 5, 7, 8, 9)))
    assert list(finding.pages) == ["window page 5 is in the free list and owned by page 5"]


def test_the_tree_keeps_the_window_pages_that_a_row_still_reaches(tmp_path: Path) -> None:
    finding = found(tmp_path / "t.jsonl", evicting("insert", window_free=(6,)))
    assert finding.pages == ("evicted window page 6 is in the window of session session-1",)
    assert finding.invariants.keys() == {"I6"}


def test_the_tree_may_give_up_window_pages_alone(tmp_path: Path) -> None:
    """Page 5 is the tree's, and the window of 1 behind token 7 no longer reaches it."""

    def up_to_the_insert(events: list[Event]) -> None:
        evicting("insert", window_free=(5,))(events)
        del events[the(events, "evict") + 1 :]

    assert replayed(tmp_path / "t.jsonl", up_to_the_insert).verdict == CONFORMS


@pytest.mark.parametrize(
    ("given_up", "freed", "behind"),
    [({7: 2}, [], {2: 3}), ({7: 2, 3: 1}, [2], {2: None, 1: 3})],
    ids=["gets that of its duplicate", "keeps its own"],
)
def test_a_page_that_is_given_up_hands_its_window_page_on_to_one_that_lost_its_own(
    given_up: dict[int, int], freed: list[int], behind: dict[int, int | None]
) -> None:
    """Page 7 is given up for page 3. `given_up`: pages and their window pages; `behind`: the page of each window page then."""
    book, moves = WindowBook(4), WindowMoves()
    book.take(moves, [*given_up], [*given_up.values()])
    book.hand_on(moves, 7, 3, returned=[])
    book.commit(moves)
    assert moves.freed == freed and {window: book.behind(window) for window in behind} == behind


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


def test_a_copy_may_stand_behind_a_page_that_the_tree_has_just_taken(tmp_path: Path) -> None:
    """The tree takes page 1 in place of 4. What continued page 4 continues page 1: page 5, of which page 2 is a copy."""
    half = {"free": (4, 2, 3), "window_free": (2, 3)}
    report = exchanged(tmp_path / "t.jsonl", [{"action": "evict", "window_free": (4,)}], at_the_end=True, **half)
    assert report.verdict == CONFORMS


def test_a_page_that_still_has_its_window_page_is_not_given_up(tmp_path: Path) -> None:
    (finding,) = exchanged(tmp_path / "t.jsonl", []).findings
    assert "page 4 of the tree was given up for page 1 although it has a window page" in finding.pages
    assert "I10" in finding.invariants


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_page_that_another_row_begins_with_is_not_given_up(at_the_end: bool, tmp_path: Path) -> None:
    """SGLang up to 0.5.14 does so: docs/findings/tree_gives_up_a_prefix_in_use.md."""
    (finding,) = exchanged(tmp_path / "t.jsonl", [*READER, EVICT_THEIR_WINDOW_PAGES], at_the_end).findings
    read = "page 4 of the tree was given up for page 1; it is in the protected prefix of request request-3"
    assert read in finding.pages
    assert finding.invariants.keys() == {"I11"}
    assert finding.explained_by == (), "no fault of the catalogue does that, also if it follows the event"


def test_a_page_that_is_not_given_back_is_missed_as_ever(tmp_path: Path) -> None:
    report = exchanged(tmp_path / "t.jsonl", [EVICT_THEIR_WINDOW_PAGES], free=(4,))
    assert report.verdict == VIOLATES


def test_a_trace_without_window_pages_is_judged_by_its_lengths(tmp_path: Path) -> None:
    header = RUN.config.model_copy(update={"window_pages": 0})
    bare = [event.model_copy(update={"window_alloc": (), "window_free": ()}) for event in RUN.events]
    write_witness(Witness(header, tuple(bare)), tmp_path / "t.jsonl", {})
    report = replay(tmp_path / "t.jsonl")
    assert report.verdict == CONFORMS and WINDOW_PAGES in report.gaps


@pytest.mark.parametrize("checker", ["interpreted", "compiled"])
@pytest.mark.parametrize(("kept", "verdict"), [(3, CONFORMS), (1, VIOLATES)])
def test_a_turn_that_begins_where_its_window_is_gone_is_a_violation(
    kept: int, verdict: str, checker: str, tmp_path: Path
) -> None:
    """A finish cuts the turn back behind what it evicted, and the next turn continues the row (sglang #22900)."""
    if checker == "compiled":
        pytest.importorskip("numba")
    steps = [("decode", {}), ("result", {"tokens": 1})] * 3
    run = of_one_ledger(
        1,
        8,
        ("open", {}),
        ("create", {**TURN, "origin_len": 2}),
        ("match_tree", {"matched_len": 0}),
        ("extend", {"seq_len": 2, "last": True}),
        ("result", {"tokens": 1}),
        *steps,
        ("evict_window", {"pre_len": 5}),
        ("finish", {"finished_len": kept}),
        ("create", {**TURN, "origin_len": 6}),
        ("match_slot", {}),
        ("extend", {"seq_len": 6, "last": True}),
        window=1,
    )
    write_witness(run, tmp_path / "t.jsonl", {})
    report = replay(tmp_path / "t.jsonl", checker=Chosen(checker))
    assert report.verdict == verdict
    if report.first is not None:
        assert report.first.invariants.keys() == {"I9"} and report.first.action == "extend"
        assert "the window of token 3 reaches it" in report.first.pages[0]
