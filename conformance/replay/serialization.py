"""Reports and the state of a replay as plain data, and back: what a checkpoint holds and what workers send. JSON, no code."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pydantic import TypeAdapter

from kvproof.conformance.replay.batch_in_flight import BatchInFlight
from kvproof.conformance.replay.kept_types import ledger_from_data
from kvproof.conformance.replay.page_book import FREE, PageBook, RowTable
from kvproof.conformance.replay.passes import Passes
from kvproof.conformance.replay.replayer import Excused, Replayer
from kvproof.conformance.replay.verdict import Report
from kvproof.conformance.traces.columnar_schema import LARGEST_NUMBER
from kvproof.conformance.traces.data_file import count, whole_number
from kvproof.spec.faults import FAULTS
from kvproof.spec.tree import ROOT

Data = dict[str, Any]
REPORT = TypeAdapter(Report)


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
        "late": dict(replayer.late),
        "asked": dict(replayer.asked),
        "came": dict(replayer.came),
        # Absent in what an older kvproof wrote: then no row and no page is known to be of a batch in flight.
        "batch": _batch_as_data(replayer.batch),
        "excused": {key: list(vars(excused).values()) for key, excused in replayer.excused.items()},
        # Absent there, too: then all passes are counted from here on.
        "passes": dict(vars(replayer.passes)),
        "owned": owned,
        # In the order in which they were touched last: it is the order in which readers of a page are named.
        "tables": [[key, t.row, t.tree_end, t.pages] for key, t in book._tables.items()],
        # Absent in what an older kvproof wrote: then nothing is known of the tree's pages but that they are the tree's.
        "prefixes": [list(pair) for pair in book.prefixes.known()],
        "prefix_ids": [list(pair) for pair in book.prefixes.ids()],
        "prefix_lengths": [list(pair) for pair in book.prefixes.lengths.items()],
        "prefixes_told": {key: list(told) for key, told in book.prefixes.told.items()},
        "windows": [list(pair) for pair in book.window._window_of.items()],
    }


def restore_state(replayer: Replayer, data: Data) -> None:
    """Make a fresh replayer remember it. Raises what a wrong shape raises: KeyError, TypeError, ValueError."""
    replayer.ledgers = {str(key): ledger_from_data(ledger) for key, ledger in data["ledgers"].items()}
    replayer.of_turn = {str(turn): str(key) for turn, key in data["of_turn"].items()}
    replayer.elsewhere = set(map(str, data["elsewhere"]))
    replayer.ended_in = {str(k): None if step is None else whole_number(step) for k, step in data["ended_in"].items()}
    replayer.late = {str(turn): count(steps) for turn, steps in data["late"].items()}
    replayer.asked = {str(turn): count(steps) for turn, steps in data.get("asked", {}).items()}
    replayer.came = {str(turn): count(tokens) for turn, tokens in data.get("came", {}).items()}
    replayer.batch = _batch(replayer, data.get("batch"))
    replayer.excused = {str(k): _excused(*of) for k, of in data.get("excused", {}).items()}
    replayer.passes = _passes(data.get("passes"))
    _restore_book(replayer.book, data)


def _batch_as_data(batch: BatchInFlight) -> Data:
    used = {name: [*getattr(batch, name).items()] for name in ("rows", "pages", "windows")}
    return {**vars(batch), **used}


def _batch(replayer: Replayer, data: Data | None) -> BatchInFlight:
    if data is None:
        return BatchInFlight()
    step = None if data["step"] is None else whole_number(data["step"])
    rows = {count(row): count(number) for row, number in data["rows"]}
    pages = {_page(replayer.book, page): count(number) for page, number in data["pages"]}
    # Absent in what an older kvproof wrote: then nothing is known of what was launched.
    awaited = {str(turn): count(number) for turn, number in data.get("awaited", {}).items()}
    launches = {str(turn): (count(last), count(before)) for turn, (last, before) in data.get("launches", {}).items()}
    windows = {_window(replayer.book, window): count(number) for window, number in data.get("windows", ())}
    first, before = count(data["first"]), count(data["before"])
    return BatchInFlight(step, first, before, rows, pages, awaited, launches, windows)


def _excused(seq: Any, fault: Any) -> Excused:
    if fault not in FAULTS:
        raise ValueError(f"{fault} is no fault of the catalogue")
    return Excused(count(seq), str(fault))


def _passes(data: Data | None) -> Passes:
    if data is None:
        return Passes()
    step = None if data["step"] is None else whole_number(data["step"])
    passes, barren, next_look, idle_at = (count(data[name]) for name in ("count", "barren", "next_look", "idle_at"))
    by_ledger = (data["last"], data.get("retracts", {}))  # of an older version retracts are counted from here on
    last, retracts = ({str(key): count(n) for key, n in counts.items()} for counts in by_ledger)
    return Passes(step, passes, barren, next_look, idle_at, last, retracts)


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
    above = {_page(book, page): _above(book, before) for page, before in data.get("prefixes", ())}
    book.prefixes.set_known(above, {_page(book, page): _prefix_id(told) for page, told in data.get("prefix_ids", ())})
    book.prefixes.lengths = {_prefix_id(told): count(length) for told, length in data.get("prefix_lengths", ())}
    told = data.get("prefixes_told", {}).items()
    book.prefixes.told = {str(key): (count(length), _prefix_id(number)) for key, (length, number) in told}
    book.window._behind = {window: page for page, window in book.window._window_of.items()}


def _page(book: PageBook, page: Any) -> int:
    if not book._is_in_pool(whole_number(page)):
        raise ValueError(f"page {page} is not one of the pool")
    return int(page)


def _above(book: PageBook, page: Any) -> int:
    return ROOT if page == ROOT else _page(book, page)


def _prefix_id(told: Any) -> int:
    if not 1 <= whole_number(told) <= LARGEST_NUMBER:
        raise ValueError(f"{told} is no number of a prefix")
    return int(told)


def _window(book: PageBook, window: Any) -> int:
    if not 1 <= whole_number(window) <= book.window.pool_pages:
        raise ValueError(f"page {window} is not one of the window pool")
    return int(window)
