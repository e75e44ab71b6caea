"""The state of the compiled checker, in arrays, and its way to the interpreted checker and back.

What the two hold is the same: ledgers, page tables, owners, the window map, which turn belongs to which ledger. So an event
that the loop does not find clean is judged by `Replayer`, on its own state, with its own words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from kvproof.conformance.compiled import layout as at
from kvproof.conformance.compiled.book import block_class
from kvproof.conformance.compiled.columns import EventBatch, Names
from kvproof.conformance.compiled.coverage_bits import coverage_of, write_coverage
from kvproof.conformance.compiled.layout import Array
from kvproof.conformance.replay.batch_in_flight import BatchInFlight
from kvproof.conformance.replay.limits import CONTRARIES, Limits
from kvproof.conformance.replay.owner_counts import FULL, OWNERS, WINDOW, Load, Pool, Pools
from kvproof.conformance.replay.page_book import FREE, TREE, PageBook, RowTable
from kvproof.conformance.replay.passes import Passes
from kvproof.conformance.replay.replayer import Replayer
from kvproof.conformance.traces.columnar_schema import ACTIONS as EVENTS
from kvproof.conformance.traces.columnar_schema import LARGEST_NUMBER
from kvproof.model.compiled.assembly import page_shift
from kvproof.model.integers import Integers
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.patience import Patience
from kvproof.spec.state import FIELDS, NONE, PREFILL, RUNNING, WAITING, Ledger, is_live, pristine
from kvproof.spec.tree import ROOT, UNKNOWN

MOST_PAGES = 2**26
"""Pages of a pool for which arrays are made; and rows."""
MOST_ROWS = 2**22
MOST_PREFIXES = 2**22
"""Numbers of prefixes that the arrays take. A recorder numbers them as they appear; events with larger ones are interpreted."""
LARGEST = 2**40
"""Numbers of a ledger that the arrays take: sums and products of them stay within 64 bits."""
PATIENCE = Patience()
_FLAGS = frozenset(f.name for f in FIELDS if f.metadata["sort"] == "flag")


def fits(d: Integers, pool_pages: int, window_pages: int) -> bool:
    """Whether a configuration can be judged in arrays at all."""
    numbers = (d.page_size, d.row_width, d.drafts, d.window)
    return all(
        n <= at_most for n, at_most in ((max(numbers), 2**31), (pool_pages, MOST_PAGES), (window_pages, MOST_PAGES))
    )


def bits(actions: Iterable[str]) -> int:
    return sum(1 << EVENTS.index(name) for name in actions)


def contraries_in_arrays() -> Array:
    """As the loop takes them."""

    def said(value: int | None) -> int:
        return at.ABSENT if value is None else value

    rows = [(at.COLUMNS[c.column], bits(c.actions), c.lowest, at.COLUMNS[c.other], said(c.value)) for c in CONTRARIES]
    return np.array(rows, np.int32)


def arrays_of(limits: Limits) -> tuple[Array, Array]:
    """As the loop takes them: those of numbers, those of lists."""
    numbers = [(at.COLUMNS[n.column], bits(n.actions), n.lowest, n.highest) for n in limits.numbers]
    assert [at.LISTS[limit.column] for limit in limits.lists] == [*range(len(limits.lists))]
    return np.array(numbers, np.int32), np.array([bits(limit.actions) for limit in limits.lists], np.int64)


def settings_of(d: Integers, window_pages: int, longest_chunk: int, rows: int, patience: Patience) -> Array:
    derived = {
        "page_shift": page_shift(d.page_size),
        "window_followed": int(window_pages > 0),
        "longest_chunk": longest_chunk,
        "rows": rows,
        "patience": patience.turns,
        "close_patience": patience.closes,
        "retract_patience": patience.retracts,
        "abort_patience": patience.aborted,
    }
    return np.array([int(derived[n]) if n in derived else int(getattr(d, n)) for n in at.SETTINGS], np.int64)


class State:
    """All that the loop reads and changes, but for the events."""

    def __init__(
        self,
        d: Integers,
        pool_pages: int,
        window_pages: int,
        limits: Limits,
        actions: Mapping[str, Action] = ACTIONS,
        patience: Patience = PATIENCE,
    ) -> None:
        assert not any(vars(pristine(d)).values()), "a row of zeros is the pristine ledger"
        self.d = d
        self.settings = settings_of(d, window_pages, limits.longest_chunk, limits.rows, patience)
        self.limits, self.list_limits = arrays_of(limits)
        self.contraries = contraries_in_arrays()
        self.names = Names()
        self.ledgers: Array = np.zeros((64, len(at.FIELDS)), np.int64)
        self.tables: Array = _no_tables(64)
        self.prefixes: Array = np.zeros(1024, np.int32)
        self.prefix_lengths: Array = np.zeros(1024, np.int32)
        self.arena: Array = np.zeros(1024, np.int32)
        self.pages: Array = np.zeros((7, pool_pages + 1), np.int32)
        self.windows: Array = np.zeros((2, window_pages + 1), np.int32)
        self.users: Array = np.zeros(64, np.int32)
        self.launched: Array = np.zeros(64, np.int64)
        self.given_up: Array = np.zeros(pool_pages + 1 if d.overlap else 1, np.int64)
        self.window_given_up: Array = np.zeros(window_pages + 1 if d.overlap else 1, np.int64)
        self.turns: Array = np.zeros((64, 9), np.int64)
        self._known_turns = 0
        self.counts: Array = np.zeros(at.COUNTS, np.int64)
        self.counts[at.FREE_COUNT], self.counts[at.WINDOW_FREE_COUNT] = pool_pages, window_pages
        self.counts[at.PASS_STEP] = at.ABSENT
        self.actions = actions
        self.rules: Array = np.zeros(len(actions), np.int64)
        self.seen: Array = np.zeros((2 * at.SHOWN_ROWS, at.PLANES), np.int64)
        self.shown_last: Array = np.zeros((len(actions), 3), np.int64)
        self.dirty: Array = np.zeros(64, np.int32)
        self.reports: Array = np.zeros((64, 4), np.int64)
        self.journal: Array = np.zeros((1024, 3), np.int64)
        self.scratch: Array = np.zeros((3, 64), np.int32)
        self.new: Array = np.zeros(len(at.FIELDS), np.int64)
        self.moves: Array = np.zeros((at.LARGEST_MOVES, 4), np.int64)
        self.answer: Array = np.zeros(4, np.int64)
        # Of whoever judges.
        self.functions: Array = np.zeros(0, np.int64)
        self.about: Array = np.zeros((0, 0), np.int64)

    def arrays(self) -> at.StateArrays:
        """As they are now: those that grow are others then."""
        return at.StateArrays(*(getattr(self, name) for name in at.StateArrays._fields))

    def make_room_for(self, events: EventBatch) -> None:
        """Room for the names, rows and lists of a batch."""
        self._make_room_for_names()
        rows = int(events.arrays.table[at.ROW_SEEN, : len(events)].max(initial=0)) + 1
        if len(self.users) < rows <= MOST_ROWS:
            self.users, self.launched = _grown(self.users, rows), _grown(self.launched, rows)
        prefixes = int(events.arrays.table[at.PREFIX_ID_SEEN, : len(events)].max(initial=0)) + 1
        if len(self.prefixes) < prefixes <= MOST_PREFIXES:
            self.prefixes = _grown(self.prefixes, 2 * prefixes)
            self.prefix_lengths = _grown(self.prefix_lengths, 2 * prefixes)
        longest = events.longest_list
        if longest > self.scratch.shape[1]:
            self.scratch = np.zeros((3, longest), np.int32)

    def _make_room_for_names(self) -> None:
        ledgers, turns = len(self.names.keys), len(self.names.own_ledgers)
        if ledgers > len(self.ledgers):
            before, size = len(self.ledgers), 2 * ledgers
            self.ledgers, self.reports = _grown(self.ledgers, size), _grown(self.reports, size)
            self.dirty = _grown(self.dirty, size)
            tables = _no_tables(size)
            tables[:before] = self.tables
            self.tables = tables
        if turns > len(self.turns):
            self.turns = _grown(self.turns, 2 * turns)
        self.turns[self._known_turns : turns, at.OWN_LEDGER] = self.names.own_ledgers[self._known_turns :]
        self._known_turns = turns

    def make_room(self) -> None:
        """The loop came back for room: twice as much in arena and journal."""
        self.arena = _grown(self.arena, 2 * len(self.arena))
        self.journal = np.zeros((2 * len(self.journal), 3), np.int64)

    def write_report(self, replayer: Replayer) -> None:
        """How much was judged so far."""
        report = replayer.report
        report.events, report.pages_moved = int(self.counts[at.EVENTS]), int(self.counts[at.PAGES_MOVED])
        counted = dict(zip(self.actions, self.rules.tolist(), strict=True))
        counted |= {name: int(self.counts[place]) for name, place in at.BESIDE.items()}
        actions = Counter({name: times for name, times in counted.items() if times})
        vars(report.coverage).update(vars(coverage_of(self.seen, self.shown_last, actions, self.actions)))

    def pools(self) -> Pools:
        """How many pages each kind of owner has, in each pool."""
        phase = self.ledgers[:, at.FIELDS["phase"]]
        is_running = (phase == PREFILL) | (phase == RUNNING)

        def counted(owners: Array, free: int) -> Pool:
            """`owners`: codes of the pages that are not free."""
            of_ledgers = owners[owners >= at.OWNED_FROM] - at.OWNED_FROM
            running = int(is_running[of_ledgers].sum())
            tree = len(owners) - len(of_ledgers)
            return dict(zip(OWNERS, (free, tree, len(of_ledgers) - running, running), strict=True))

        owner = self.pages[at.OWNER]
        pools = {FULL: counted(owner[owner != at.OWNED_BY_NONE], int(self.counts[at.FREE_COUNT]))}
        if self.settings[at.FOLLOWED]:
            behind = np.flatnonzero(self.pages[at.WINDOW_OF])
            pools[WINDOW] = counted(owner[behind], int(self.counts[at.WINDOW_FREE_COUNT]))
        return pools

    def load(self) -> Load:
        """How many sessions and turns there are."""
        phase = self.ledgers[:, at.FIELDS["phase"]]
        sessions = int((self.ledgers[:, at.FIELDS["is_open"]] != 0).sum())
        has_turn = phase[phase != NONE]
        return Load(sessions, *(int((has_turn == p).sum()) for p in (RUNNING, PREFILL, WAITING)))

    def hand_over(self, replayer: Replayer) -> None:
        """Give the interpreted checker the state as it is here."""
        self.write_report(replayer)
        keys = self.names.keys
        used = np.flatnonzero(self.ledgers.any(axis=1)).tolist()
        replayer.ledgers = {keys[n]: _ledger(self.ledgers[n].tolist()) for n in used}
        turns = self.turns[: len(self.names.turns)]
        of_turn, elsewhere = turns[:, at.LEDGER_OF].tolist(), turns[:, at.ELSEWHERE].tolist()
        late = turns[:, at.LATE].tolist()
        replayer.of_turn = {turn: keys[of_turn[n] - 1] for turn, n in self.names.turns.items() if of_turn[n]}
        replayer.elsewhere = {turn for turn, n in self.names.turns.items() if elsewhere[n]}
        replayer.late = {turn: late[n] for turn, n in self.names.turns.items() if late[n]}
        asked = turns[:, at.ASKED].tolist()
        came = turns[:, at.CAME].tolist()
        replayer.came = {turn: came[n] - 1 for turn, n in self.names.turns.items() if came[n]}
        replayer.asked = {turn: asked[n] - 1 for turn, n in self.names.turns.items() if asked[n]}
        ended = np.flatnonzero(self.tables[:, at.ENDED_IN] != at.NEVER_ENDED).tolist()
        steps = self.tables[:, at.ENDED_IN]
        replayer.ended_in = {keys[n]: None if steps[n] == at.ABSENT else int(steps[n]) for n in ended}
        replayer.batch = self._batch()
        replayer.passes = self._passes(used)
        self._hand_over_pages(replayer.book)

    def _passes(self, used: list[int]) -> Passes:
        step, count, barren, next_look, idle_at = self.counts[
            [at.PASS_STEP, at.PASSES, at.BARREN, at.NEXT_LOOK, at.IDLE_AT]
        ].tolist()
        keys = [self.names.keys[n] for n in used]
        last = dict(zip(keys, self.tables[used, at.LAST_PASS].tolist(), strict=True))
        retracts = {key: n for key, n in zip(keys, self.tables[used, at.RETRACTED].tolist(), strict=True) if n}
        return Passes(None if step == at.ABSENT else step, count, barren, next_look, idle_at, last, retracts)

    def _take_back_passes(self, passes: Passes) -> None:
        self.counts[at.PASS_STEP] = at.ABSENT if passes.step is None else passes.step
        self.counts[[at.PASSES, at.BARREN]] = passes.count, passes.barren
        self.counts[[at.NEXT_LOOK, at.IDLE_AT]] = passes.next_look, passes.idle_at
        self.tables[:, at.LAST_PASS] = passes.count
        for key, last in passes.last.items():
            self.tables[self.names.ledgers[key], at.LAST_PASS] = last
        self.tables[:, at.RETRACTED] = 0
        for key, retracts in passes.retracts.items():
            self.tables[self.names.ledgers[key], at.RETRACTED] = retracts

    def _batch(self) -> BatchInFlight:
        step, first, before = self.counts[[at.BATCH_STEP, at.BATCH_FIRST, at.BATCH_BEFORE]].tolist()
        if first == 0:
            return BatchInFlight()
        rows = {row: number for row, number in _nonzero(self.launched) if number >= first}
        pages = {page: number for page, number in _nonzero(self.given_up) if number >= before}
        names, was_before = list(self.names.turns), self.turns[:, at.LAUNCHED_BEFORE].tolist()
        launches = {names[n]: (last, was_before[n]) for n, last in _nonzero(self.turns[:, at.LAUNCHED])}
        awaited = {names[n]: launches[names[n]][0] for n, _ in _nonzero(self.turns[:, at.IS_AWAITED])}
        windows = {window: number for window, number in _nonzero(self.window_given_up) if number >= before}
        step = None if step == at.ABSENT else step
        return BatchInFlight(step, first, before, rows, pages, awaited, launches, windows)

    def _take_back_batch(self, batch: BatchInFlight) -> None:
        self.counts[at.BATCH_STEP] = at.ABSENT if batch.step is None else batch.step
        self.counts[at.BATCH_FIRST], self.counts[at.BATCH_BEFORE] = batch.first, batch.before
        self.counts[at.LAST_GIVEN_UP] = max((*batch.pages.values(), *batch.windows.values()), default=0)
        self.launched[:], self.given_up[:], self.window_given_up[:] = 0, 0, 0
        for window, number in batch.windows.items():
            self.window_given_up[window] = number
        for row, number in batch.rows.items():
            self.launched[row] = number
        for page, number in batch.pages.items():
            self.given_up[page] = number
        self.turns[:, [at.LAUNCHED, at.LAUNCHED_BEFORE, at.IS_AWAITED]] = 0
        for turn, launches in batch.launches.items():
            self.turns[self.names.turns[turn], [at.LAUNCHED, at.LAUNCHED_BEFORE]] = launches
        for turn, number in batch.awaited.items():
            self.turns[self.names.turns[turn], [at.LAUNCHED, at.IS_AWAITED]] = number, 1
            self.counts[at.AWAITED if number >= batch.first else at.AWAITED_BEFORE] += 1

    def _hand_over_pages(self, book: PageBook) -> None:
        book._owners = {
            page: TREE if owner == at.OWNED_BY_TREE else self.names.keys[owner - at.OWNED_FROM]
            for page, owner in _nonzero(self.pages[at.OWNER])
        }
        free = book.pool_pages - len(book._owners)
        book._counts = Counter({FREE: free, **Counter(book._owners.values())})
        book._pins = Counter(dict(_nonzero(self.pages[at.PINS])))
        book.protected = int(self.counts[at.PROTECTED_COUNT])
        in_tree = np.flatnonzero((self.pages[at.OWNER] == at.OWNED_BY_TREE) & (self.pages[at.ABOVE] != UNKNOWN))
        above = dict(zip(in_tree.tolist(), self.pages[at.ABOVE, in_tree].tolist(), strict=True))
        book.prefixes.set_known(above, dict(_nonzero(self.pages[at.PREFIX_ID])))
        book.prefixes.lengths = dict(_nonzero(self.prefix_lengths))
        book.prefixes.told = {
            self.names.keys[n]: (length, int(self.tables[n, at.TOLD_ID]))
            for n, length in _nonzero(self.tables[:, at.TOLD_LENGTH])
        }
        in_rows = np.flatnonzero(self.tables[:, at.ROW] != at.NO_ROW).tolist()
        in_rows.sort(key=lambda n: self.tables[n, at.TOUCHED])
        book._tables = {self.names.keys[n]: self._table(n) for n in in_rows}
        book._users = {table.row: key for key, table in book._tables.items()}
        book.window._window_of = dict(_nonzero(self.pages[at.WINDOW_OF]))
        book.window._behind = dict(_nonzero(self.windows[at.BEHIND]))

    def _table(self, ledger: int) -> RowTable:
        known = self.tables[ledger]
        first = int(known[at.START])
        pages = self.arena[first : first + int(known[at.LENGTH])].tolist()
        return RowTable(int(known[at.ROW]), pages, int(known[at.TREE_END]))

    def take_back(self, replayer: Replayer) -> bool:
        """Take the state that the interpreted checker has now. False: it does not fit, and must stay there."""
        names, book = self.names, replayer.book
        if not all(map(_is_plain, replayer.ledgers.values())):
            return False
        if any(not 0 <= table.row < MOST_ROWS for table in book._tables.values()):
            return False
        owners = (owner for owner in book._counts if owner not in (FREE, TREE))
        if any(
            key not in names.ledgers
            for key in (
                *replayer.ledgers,
                *replayer.of_turn.values(),
                *replayer.ended_in,
                *replayer.excused,
                *book.prefixes.told,
            )
        ):
            return False
        if any(key not in names.ledgers for key in (*owners, *book._tables)):
            return False  # a state that was read from a file may say anything
        counted = (replayer.late, replayer.asked, replayer.came)
        if any(number >= LARGEST_NUMBER for numbers in counted for number in numbers.values()):
            return False
        launched = {*replayer.batch.awaited, *replayer.batch.launches}
        if (
            not {*replayer.of_turn, *replayer.elsewhere, *replayer.late, *replayer.asked, *replayer.came, *launched}
            <= names.turns.keys()
        ):
            return False
        self._make_room_for_names()  # an event that stands in no column may have brought some
        self.ledgers[:], self.reports[:], self.tables[:] = 0, 0, _no_tables(len(self.tables))
        for key, ledger in replayer.ledgers.items():
            self.ledgers[names.ledgers[key]] = [int(getattr(ledger, f.name)) for f in FIELDS]
        for key, step in replayer.ended_in.items():
            self.tables[names.ledgers[key], at.ENDED_IN] = at.ABSENT if step is None else step
        self.turns[:, [at.LEDGER_OF, at.ELSEWHERE, at.LATE, at.ASKED, at.CAME]] = 0
        for turn, tokens in replayer.came.items():
            self.turns[names.turns[turn], at.CAME] = tokens + 1
        for turn, key in replayer.of_turn.items():
            self.turns[names.turns[turn], at.LEDGER_OF] = names.ledgers[key] + 1
        for turn in replayer.elsewhere:
            self.turns[names.turns[turn], at.ELSEWHERE] = 1
        for turn, steps in replayer.late.items():
            self.turns[names.turns[turn], at.LATE] = steps
        for turn, steps in replayer.asked.items():
            self.turns[names.turns[turn], at.ASKED] = steps + 1
        self.counts[:] = 0
        self._count_what_is_reported(replayer)
        self._take_back_pages(book)
        self._take_back_batch(replayer.batch)
        self._take_back_passes(replayer.passes)
        for key in replayer.excused:
            self.tables[names.ledgers[key], at.EXCUSED] = 1
        return True

    def _count_what_is_reported(self, replayer: Replayer) -> None:
        report, counts = replayer.report, self.counts
        counts[at.EVENTS], counts[at.PAGES_MOVED] = report.events, report.pages_moved
        for name, place in at.BESIDE.items():
            counts[place] = report.actions[name]
        self.rules[:] = [0 if name == "check" else report.actions[name] for name in self.actions]
        write_coverage(self.seen, report.coverage, self.actions)
        self.shown_last[:] = 0
        changed = [self.names.ledgers[key] for key in replayer.ledgers]
        self.dirty[: len(changed)] = changed
        self.tables[changed, at.DIRTY] = 1
        counts[at.DIRTY_LEDGERS] = len(changed)
        counts[at.LIVE_TURNS] = sum(is_live(self.d, ledger) for ledger in replayer.ledgers.values())

    def _take_back_pages(self, book: PageBook) -> None:
        ledgers = self.names.ledgers
        owners = {FREE: at.OWNED_BY_NONE, TREE: at.OWNED_BY_TREE}
        self.pages[:], self.windows[:], self.users[:] = 0, 0, 0
        for page, owner in book._owners.items():
            code = owners.get(owner)
            self.pages[at.OWNER, page] = ledgers[owner] + at.OWNED_FROM if code is None else code
        for page, times in book._pins.items():
            self.pages[at.PINS, page] = times
        for page, window in book.window._window_of.items():
            self.pages[at.WINDOW_OF, page] = window
        for window, page in book.window._behind.items():
            self.windows[at.BEHIND, window] = page
        self.pages[at.ABOVE, self.pages[at.OWNER] == at.OWNED_BY_TREE] = UNKNOWN
        for page, above in book.prefixes.known():
            self.pages[at.ABOVE, page] = above
            self.pages[at.BEHIND_IT, above] += above != ROOT
        for page, told in book.prefixes.ids():
            self.pages[at.PREFIX_ID, page] = told
        largest = max((told for told in book.prefixes.lengths if told < MOST_PREFIXES), default=0)
        self.prefixes = np.zeros(max(2 * largest, len(self.prefixes)), np.int32)
        self.prefix_lengths = np.zeros(len(self.prefixes), np.int32)
        for page, told in book.prefixes.ids():
            if told < len(self.prefixes):
                self.prefixes[told] = page
        for told, length in book.prefixes.lengths.items():
            if told < len(self.prefix_lengths):
                self.prefix_lengths[told] = length
        for key, (length, told) in book.prefixes.told.items():
            self.tables[ledgers[key], [at.TOLD_LENGTH, at.TOLD_ID]] = length, told
        self.counts[at.ROWS_IN_USE] = len(book._tables)
        has_window = self.pages[at.WINDOW_OF, 1:] != 0
        in_tree = self.pages[at.OWNER, 1:] == at.OWNED_BY_TREE
        self.counts[at.FREE_COUNT], self.counts[at.TREE_COUNT] = book.count(FREE), book.count(TREE)
        self.counts[at.PROTECTED_COUNT] = book.protected
        self.counts[at.UNPLACED_COUNT] = book.count(TREE) - book.prefixes.placed()
        self.counts[at.WINDOW_FREE_COUNT] = book.window.free_count()
        is_pinned = self.pages[at.PINS, 1:] > 0
        self.counts[at.WINDOW_TREE_COUNT] = int((has_window & in_tree).sum())
        self.counts[at.WINDOW_PROTECTED_COUNT] = int((has_window & in_tree & is_pinned).sum())
        self._take_back_tables(book)

    def _take_back_tables(self, book: PageBook) -> None:
        """Each page table gets a block of its own, in the order in which they were touched last."""
        sizes = [1 << block_class(len(table.pages)) for table in book._tables.values()]
        if sum(sizes) > len(self.arena):
            self.arena = np.zeros(2 * sum(sizes), np.int32)
        rows = [table.row for table in book._tables.values()]
        if rows and max(rows) >= len(self.users):
            self.users = np.zeros(max(rows) + 1, np.int32)
            self.launched = np.zeros(max(rows) + 1, np.int64)
        top = 0
        for touched, ((key, table), size) in enumerate(zip(book._tables.items(), sizes, strict=True)):
            n = self.names.ledgers[key]
            self.arena[top : top + len(table.pages)] = table.pages
            known = {
                at.ROW: table.row,
                at.START: top,
                at.CAPACITY: size,
                at.LENGTH: len(table.pages),
                at.TREE_END: table.tree_end,
                at.TOUCHED: touched - len(sizes),
            }
            self.tables[n, list(known)] = list(known.values())
            self.users[table.row] = n + 1
            top += size
        self.counts[at.ARENA_TOP] = top


def _ledger(values: list[int]) -> Ledger:
    fields: dict[str, Any] = {n: bool(v) if n in _FLAGS else v for n, v in zip(at.FIELDS, values, strict=True)}
    return Ledger(**fields)


def _is_plain(ledger: Ledger) -> bool:
    """Every flag is a flag and every number a number that the arrays take."""
    return all(
        type(value) is bool if name in _FLAGS else type(value) is int and abs(value) < LARGEST
        for name, value in vars(ledger).items()
    )


def _nonzero(column: Array) -> list[tuple[int, int]]:
    places = np.flatnonzero(column)
    return list(zip(places.tolist(), column[places].tolist(), strict=True))


def _grown(array: Array, size: int) -> Array:
    grown = np.zeros((size, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _no_tables(size: int) -> Array:
    tables: Array = np.zeros((size, 14), np.int64)
    tables[:, at.ROW], tables[:, at.ENDED_IN], tables[:, at.EXERCISED] = at.NO_ROW, at.NEVER_ENDED, at.NOT_KNOWN
    return tables
