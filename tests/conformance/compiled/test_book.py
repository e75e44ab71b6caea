"""An event that the loop does not find clean leaves everything as it was before it."""

from __future__ import annotations

import contextlib
import copy
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

from checker_runs import (
    PAGE_LISTS,
    changed_at,
    one_of_each_kind,
    read_records,
    with_an_eviction,
    with_prefix_ids,
    write_records,
)
from model_runs import UNTOLD_DUPLICATE
from run_traces import trace_of_steps, trace_of_walk

from kvproof.conformance.compiled import build, layout
from kvproof.conformance.compiled.checker import CompiledChecker
from kvproof.conformance.compiled.columns import batches
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replay import Replayer
from kvproof.conformance.traces.open_trace import read_trace

KINDS = {
    layout.WINDOW_OF: "the window page behind a page",
    layout.ABOVE: "the page that a page continues",
    layout.BEHIND_IT: "the pages that continue a page",
    layout.PREFIX_ID: "the number of a prefix",
    layout.JOURNAL_WINDOWS + layout.BEHIND: "the page behind a window page",
    layout.JOURNAL_WINDOWS + layout.WINDOW_MARK: "the mark of a window page",
    layout.JOURNAL_ARENA: "a page of a row",
    layout.JOURNAL_OWNERS: "owners of a row's pages",
    layout.JOURNAL_PINS: "pins of a row's pages",
    layout.JOURNAL_RUN: "owners of a run of pages",
}
CONFIGS: tuple[dict[str, Any], ...] = ({}, {"window": 2}, {"window": 3, "overlap": True})


def everything(checker: CompiledChecker) -> tuple[Any, ...]:
    """What the arrays hold, and what the interpreted checker would get of it."""
    checker.bring_up_to_date()
    state, replayer = checker._state, checker.replayer
    book = replayer.book
    arrays = (state.pages, state.windows, state.users, state.counts[: layout.EVENTS], state.ledgers)
    held = (
        replayer.ledgers,
        replayer.of_turn,
        replayer.elsewhere,
        replayer.ended_in,
        replayer.late,
        vars(book) | dict.fromkeys(("window", "prefixes")),
    )
    return copy.deepcopy((held, vars(book.window), vars(book.prefixes), [array.tolist() for array in arrays]))


class Undone:
    """A loop run by Python, event by event; what was undone, by kind."""

    def __init__(self) -> None:
        self.judge = build.plain_judge()
        self.kinds: Counter[str] = Counter()
        within = self.judge.loop.__globals__
        undo = within["undo"]

        def counted(state: Any, *arguments: Any) -> None:
            entries = state.journal[: state.counts[layout.JOURNAL], 0] & layout.JOURNAL_WHAT
            self.kinds.update(KINDS[entry] for entry in entries.tolist())
            undo(state, *arguments)

        within["undo"] = counted

    def follow(self, path: Path) -> None:
        reader = read_trace(path)
        checker = CompiledChecker(Replayer(reader, []), self.one_by_one)
        self.checker = checker
        with contextlib.suppress(UserError):  # a number that is none: the events before it were judged
            checker.follow(batches(reader), lambda _: None)

    def one_by_one(self, first: int, last: int, *arrays: Any) -> tuple[int, int]:
        for at in range(first, last):
            before = everything(self.checker)
            status, _ = self.judge(at, at + 1, *arrays)
            if status != layout.ALL_JUDGED:
                assert everything(self.checker) == before
                return status, at
        return layout.ALL_JUDGED, last


def test_an_event_that_is_not_clean_changes_nothing(tmp_path: Path) -> None:
    undone, path = Undone(), tmp_path / "t.jsonl"
    runs = [trace_of_walk(tmp_path / f"{seed}.jsonl", 70, 21 + seed, **config) for seed, config in enumerate(CONFIGS)]
    runs.append(trace_of_steps(tmp_path / "steps.jsonl", 2, 8, *UNTOLD_DUPLICATE))
    for seed, run in enumerate(runs):
        records, chance = with_prefix_ids(read_records(run)), random.Random(seed)
        of_lists = [p for p in one_of_each_kind(records, chance) if {*PAGE_LISTS} & {*p}]
        for place in of_lists:
            for shorter in (True, False):
                write_records(path, changed_at(records, place, chance, shorter))
                undone.follow(path)
        for _ in range(10):
            write_records(path, with_an_eviction(records, chance))
            undone.follow(path)
    assert set(undone.kinds) == set(KINDS.values())
