"""Reports and the state of a replay as plain data, and back: what a checkpoint holds and what workers send. JSON, no code."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

from kvproof.conformance.replay.coverage import Coverage
from kvproof.conformance.replay.judge import Difference
from kvproof.conformance.replay.page_book import FREE, PageBook, RowTable
from kvproof.conformance.replay.replayer import FIRST_LINE, Replayer
from kvproof.conformance.replay.verdict import Finding, Report
from kvproof.conformance.replay.wrong_pages import WrongPage
from kvproof.conformance.traces.data_file import count, text, whole_number
from kvproof.spec.faults import FAULTS
from kvproof.spec.state import FIELDS, Ledger
from kvproof.spec.trace import Config, Event

Data = dict[str, Any]
_FLAGS = frozenset(f.name for f in FIELDS if f.metadata["sort"] == "flag")


def report_as_data(report: Report) -> Data:
    return {
        "path": str(report.path),
        "config": report.config.model_dump(mode="json"),
        "verdict": report.verdict,
        "why": report.why,
        "findings": [finding_as_data(f) for f in report.findings],
        "followed": dict(report.followed),
        "coverage": coverage_as_data(report.coverage),
        "events": report.events,
        "pages_moved": report.pages_moved,
        "gaps": list(report.gaps),
        "profile": report.profile,
        "hint": report.hint,
    }


def report_from_data(data: Data) -> Report:
    return Report(
        path=Path(data["path"]),
        config=Config.model_validate(data["config"]),
        verdict=str(data["verdict"]),
        why=str(data["why"]),
        findings=[finding_from_data(f) for f in data["findings"]],
        followed=_counts(data["followed"]),
        coverage=coverage_from_data(data["coverage"]),
        events=whole_number(data["events"]),
        pages_moved=whole_number(data["pages_moved"]),
        gaps=tuple(map(str, data["gaps"])),
        profile=data["profile"] if data["profile"] is None else str(data["profile"]),
        hint=str(data["hint"]),
    )


def coverage_as_data(coverage: Coverage) -> Data:
    return {name: dict(counts) for name, counts in vars(coverage).items()}


def coverage_from_data(data: Data) -> Coverage:
    return Coverage(*(_counts(data[f.name]) for f in dataclasses.fields(Coverage)))


def finding_as_data(finding: Finding) -> Data:
    return {
        **{f.name: getattr(finding, f.name) for f in dataclasses.fields(Finding)},
        "path": str(finding.path),
        "event": finding.event.model_dump(mode="json", exclude_defaults=True),
        "before": None if finding.before is None else dict(vars(finding.before)),
        "differences": [dict(vars(d)) for d in finding.differences],
        "pages": list(finding.pages),
        "invariants": [list(pair) for pair in finding.invariants.items()],
        "explained_by": [fault.id for fault in finding.explained_by],
        "wrong": [dict(vars(page)) for page in finding.wrong],
    }


def finding_from_data(data: Data) -> Finding:
    return Finding(
        path=Path(data["path"]),
        line=_line(data["line"]),
        event=Event.model_validate(data["event"]),
        ledger=text(data["ledger"]),
        action=text(data["action"]),
        rule=text(data["rule"]),
        before=None if data["before"] is None else ledger_from_data(data["before"]),
        differences=tuple(_difference(d) for d in data["differences"]),
        pages=tuple(map(text, data["pages"])),
        invariants={text(name): text(sentence) for name, sentence in data["invariants"]},
        explained_by=tuple(FAULTS[name] for name in data["explained_by"]),
        profile=None if data["profile"] is None else text(data["profile"]),
        wrong=tuple(_wrong_page(page) for page in data.get("wrong", ())),
    )


def _line(number: Any) -> int:
    if count(number) < FIRST_LINE:
        raise ValueError(f"line {number} of a finding is no event's")
    return int(number)


def _difference(data: Data) -> Difference:
    for value in (data["before"], data["expected"], data["seen"]):
        for one in value if type(value) is list else [value]:  # pages, or one value
            if type(one) not in (bool, int, str, type(None)):
                raise ValueError(f"{data['name']} of a finding is {value!r:.60}")
    return Difference(text(data["name"]), data["before"], data["expected"], data["seen"])


def _wrong_page(data: Data) -> WrongPage:
    if type(data["page"]) is not int:
        raise ValueError(f"{data['page']!r:.60} is not a page")
    return WrongPage(data["page"], text(data["owner"]), text(data["became"]), text(data["rule"]))


def state_as_data(replayer: Replayer) -> Data:
    """All that a replayer remembers but its report. What can be counted from the rest is left out."""
    book = replayer.book
    owned: dict[str, list[int]] = {}
    for page, owner in book._owners.items():
        owned.setdefault(owner, []).append(page)
    return {
        "ledgers": {key: dict(vars(ledger)) for key, ledger in replayer.ledgers.items()},
        "of_turn": dict(replayer.of_turn),
        "elsewhere": sorted(replayer.elsewhere),
        "ended_in": dict(replayer.ended_in),
        "owned": owned,
        # In the order in which they were touched last: it is the order in which readers of a page are named.
        "tables": [[key, t.row, t.tree_end, t.pages] for key, t in book._tables.items()],
        "windows": [list(pair) for pair in book.window._window_of.items()],
    }


def restore_state(replayer: Replayer, data: Data) -> None:
    """Make a fresh replayer remember it. Raises what a wrong shape raises: KeyError, TypeError, ValueError."""
    replayer.ledgers = {str(key): ledger_from_data(ledger) for key, ledger in data["ledgers"].items()}
    replayer.of_turn = {str(turn): str(key) for turn, key in data["of_turn"].items()}
    replayer.elsewhere = set(map(str, data["elsewhere"]))
    replayer.ended_in = {str(k): None if step is None else whole_number(step) for k, step in data["ended_in"].items()}
    _restore_book(replayer.book, data)


def _restore_book(book: PageBook, data: Data) -> None:
    for owner, pages in data["owned"].items():
        for page in pages:
            book._owners[_page(book, page)] = str(owner)
    book._counts = Counter({FREE: book.pool_pages - len(book._owners), **Counter(book._owners.values())})
    for key, row, tree_end, pages in data["tables"]:
        table = RowTable(count(row), [_page(book, page) for page in pages], count(tree_end))
        book._tables[str(key)] = table
        book._users[table.row] = str(key)
        book._pin(table.pages[: table.tree_end], 1)
    book.window._window_of = {_page(book, page): _window(book, window) for page, window in data["windows"]}
    book.window._behind = {window: page for page, window in book.window._window_of.items()}


def _page(book: PageBook, page: Any) -> int:
    if not book._is_in_pool(whole_number(page)):
        raise ValueError(f"page {page} is not one of the pool")
    return int(page)


def _window(book: PageBook, window: Any) -> int:
    if not 1 <= whole_number(window) <= book.window.pool_pages:
        raise ValueError(f"page {window} is not one of the window pool")
    return int(window)


def ledger_from_data(data: Data) -> Ledger:
    ledger = Ledger(**data)
    for name, value in vars(ledger).items():
        if type(value) is not (bool if name in _FLAGS else int):
            raise ValueError(f"{name} of a ledger is {value!r:.60}")
    return ledger


def _counts(data: Data) -> Counter[str]:
    return Counter({str(name): whole_number(count) for name, count in data.items()})
