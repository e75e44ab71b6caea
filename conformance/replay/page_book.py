"""Who owns which page: the specification's effects, applied to the page ids of a trace.

The ledger knows how many pages a row has; the book knows which. For one event `foresee` works out, without changing anything,
what the effects mean in page ids: which pages must be freed, how many must be taken, and what is wrong with those that
were taken. `commit` then makes it so.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kvproof.conformance.replay.prefix_tree import PrefixMoves, PrefixTree, may_have_a_copy
from kvproof.conformance.replay.window_book import WindowBook, WindowMoves, reaches
from kvproof.model.integers import Integers
from kvproof.spec.effects import DropRow, Effect, Free, FreeByLoc, FreeWindow, Insert, Share, Take, TakeRow
from kvproof.spec.trace import Event
from kvproof.spec.tree import ROOT, UNKNOWN, may_be_evicted

FREE = "free list"
TREE = "tree"


@dataclass(frozen=True)
class Problem:
    """Something wrong with page ids: the invariant it breaks, in a sentence with page ids and owners."""

    invariant: str
    sentence: str
    page: int | None = None
    """The page of the full pool that it is about, where it is one; with its owner, and who has it by the event."""
    owner: str = ""
    claimant: str = ""


@dataclass
class RowTable:
    """The pages behind one row, from position 0; the first `tree_end` are the tree's. `row` is its index."""

    row: int
    pages: list[int] = field(default_factory=list)
    tree_end: int = 0

    def copy(self) -> RowTable:
        return RowTable(self.row, list(self.pages), self.tree_end)


@dataclass
class Moves:
    """What one event does to pages: ids that become free, ids that are taken, the owners after it."""

    key: str
    table: RowTable | None
    owners: dict[int, str] = field(default_factory=dict)
    freed: list[int] = field(default_factory=list)
    wanted: int = 0
    problems: list[Problem] = field(default_factory=list)
    window: WindowMoves = field(default_factory=WindowMoves)
    prefixes: PrefixMoves = field(default_factory=PrefixMoves)


class PageBook:
    """Owners of all pages, the page tables of all rows in use, by ledger, the map to the window pool, the tree's prefixes."""

    def __init__(self, pool_pages: int, d: Integers, window_pages: int = 0, rows: int | None = None) -> None:
        """`rows`: how many there are; None: any number."""
        self.d, self.rows = d, rows
        self.pool_pages = pool_pages
        self.window = WindowBook(window_pages)
        self.prefixes = PrefixTree()
        self._owners: dict[int, str] = {}
        """Of each page that is not free: a large pool takes no memory before it is used."""
        self._tables: dict[str, RowTable] = {}
        self._users: dict[int, str] = {}
        self._pins: Counter[int] = Counter()
        self.protected = 0
        """Pages of the tree that are in the protected prefix of a row: what a recount of the locks gives."""
        self._counts: Counter[str] = Counter({FREE: pool_pages})

    def owner(self, page: int) -> str:
        """The owner of a page in words."""
        return self._owners.get(page) or (FREE if self._is_in_pool(page) else "nobody: not a page of this pool")

    def count(self, owner: str) -> int:
        return self._counts[owner]

    def owned(self) -> Iterable[tuple[int, str]]:
        """Each page that is not free, with its owner in words."""
        return self._owners.items()

    def windows_of_tree(self) -> tuple[int, int]:
        """Window pages behind pages of the tree, and how many of these pages are in the protected prefix of a row."""
        pages = [page for page in self.window.mapped() if self.owner(page) == TREE]
        return len(pages), sum(self._pins[page] > 0 for page in pages)

    def without_window(self, pages: Sequence[int], end: int) -> int | None:
        """The first of a row's pages that the window of its token at `end` reaches, and that has no window page."""
        if not self.window.is_followed:
            return None
        for position in range(self.d.floor_pages(max(end - self.d.window, 0)), min(self.d.ceil_pages(end), len(pages))):
            is_read = reaches(end, self.d.window, self.d.tokens(position + 1))
            if is_read and not self.window.is_behind(pages[position]):
                return pages[position]
        return None

    def is_free(self, page: int) -> bool:
        return page not in self._owners and self._is_in_pool(page)

    def table(self, key: str) -> RowTable | None:
        return self._tables.get(key)

    def copy(self) -> PageBook:
        """Another book of the same state, which may go on by itself."""
        other = copy.copy(self)
        for name in ("_owners", "_tables", "_users", "_pins", "_counts"):
            setattr(other, name, getattr(self, name).copy())
        other.window, other.prefixes = self.window.copy(), self.prefixes.copy()
        return other

    def foresee(self, key: str, effects: Iterable[Effect], event: Event) -> Moves:
        """What the effects mean for the pages of ledger `key`, given the ids that the event took or shared."""
        table = self._tables.get(key)
        moves = Moves(key, table.copy() if table else None)
        fresh, fresh_window = list(event.alloc), list(event.window_alloc)
        takes_over = False
        for effect in effects:
            takes_over |= isinstance(effect, Share | Insert) and bool(effect.when)
            match effect:
                case TakeRow(when=True):
                    self._take_row(moves, event)
                case Share(when=True, pages=pages):
                    self._share(moves, pages, event)
                case Take(first=first, last=last) if first < last:
                    self._take(moves, first, last, fresh, fresh_window)
                case Free(start=start, end=end) if start < end:
                    self._free(moves, self.d.floor_pages(start), self.d.ceil_pages(end))
                case FreeByLoc(start=start, end=end) if start < end and moves.table is not None:
                    # The row still names these pages: whoever releases it frees them again.
                    named = moves.table.pages[self.d.floor_pages(start) : self.d.ceil_pages(end)]
                    moves.freed += named
                    self.window.release(moves.window, named)
                case FreeWindow(first=first, last=last) if moves.table is not None:
                    self.window.release(moves.window, moves.table.pages[first:last])
                case Insert(when=True) as insert:
                    self._insert(moves, insert, event)
                case DropRow(when=True):
                    moves.table = None
                case _:
                    pass
        if event.shared and not takes_over:
            self._compare_row(moves, event.shared, event.action)
            if len(event.shared) > (len(moves.table.pages) if moves.table is not None else 0):
                moves.problems.append(Problem("I12", f"the {event.action} shows more pages than its row has"))
        if event.params.get("prefix_id") is not None and not takes_over:
            moves.problems.append(
                Problem("I12", f"the {event.action} numbers a prefix and puts none into the tree or the row")
            )
        moves.problems += [Problem("I1", sentence) for sentence in moves.window.problems]
        return moves

    def commit(self, moves: Moves) -> None:
        old = self._tables.pop(moves.key, None)
        if old is not None:
            self._users.pop(old.row, None)
            self._pin(old.pages[: old.tree_end], -1)
        if moves.table is not None:
            self._tables[moves.key] = moves.table
            self._users[moves.table.row] = moves.key
            self._pin(moves.table.pages[: moves.table.tree_end], 1)
        self.prefixes.commit(moves.prefixes)
        for page, owner in moves.owners.items():
            self._own(page, owner)
        self.window.commit(moves.window)

    def evict(self, event: Event, still_needs: Callable[[str, int], bool]) -> list[Problem]:
        """The tree frees pages of its own; none may be in the protected prefix of a row, or have pages behind it that stay.

        It may also free window pages alone and keep the page itself: those that no row's window reaches any more.
        `still_needs`: whether the row of a ledger reads the window page at a position (in pages).
        """
        return [*self._evict_pages(event.free), *self._evict_windows(event, still_needs)]

    def _evict_windows(self, event: Event, still_needs: Callable[[str, int], bool]) -> Iterator[Problem]:
        if not self.window.is_followed:
            return
        moves = WindowMoves()
        self.window.release(moves, event.free)
        gone = set(moves.freed)
        for window in event.window_free:
            page = self.window.named_by(moves, window)
            if window in gone:
                gone.discard(window)
            elif page is None:
                yield Problem("I16", f"evicted window page {window} is free already: no page names it")
            elif self.owner(page) != TREE:
                yield Problem("I1", f"evicted window page {window} belongs to page {page} of {self.owner(page)}")
            else:
                for key in self._readers(page):
                    if still_needs(key, self._tables[key].pages.index(page)):
                        yield Problem("I6", f"evicted window page {window} is in the window of {key}")
                self.window.release(moves, [page])
        for window in gone:
            yield Problem("I10", f"window page {window} was not freed with the page that names it")
        self.window.commit(moves)

    def _readers(self, page: int) -> list[str]:
        return [key for key, t in self._tables.items() if page in t.pages[: t.tree_end]]

    def _evict_pages(self, pages: Collection[int]) -> list[Problem]:
        problems = []
        for page in pages:
            if self.owner(page) != TREE:
                sentence = f"evicted page {page} belongs to {self.owner(page)}, not to the tree"
                problems.append(Problem("I1", sentence, page, self.owner(page), FREE))
            elif self._pins[page] > 0:
                readers = ", ".join(self._readers(page))
                sentence = f"evicted page {page} is in the protected prefix of {readers}"
                problems.append(Problem("I11", sentence, page, f"{TREE}, read by {readers}", FREE))
            else:
                self._own(page, FREE)
        for page in () if problems else pages:
            if not may_be_evicted(self.prefixes.behind(page)):
                left = ", ".join(map(str, self.prefixes.pages_behind(page)))
                problems.append(
                    Problem("I13", f"evicted page {page} is continued by page {left}, which stays in the tree")
                )
        return problems

    def _pin(self, pages: Iterable[int], times: int) -> None:
        for page in pages:
            was = self._pins[page] > 0
            self._pins[page] += times
            self.protected += (self._pins[page] > 0) - was

    def _own(self, page: int, owner: str) -> None:
        before = self.owner(page)
        if before == TREE != owner:
            self.prefixes.remove(page)
        self._counts[before] -= 1
        self._counts[owner] += 1
        if owner == FREE:
            self._owners.pop(page, None)
        else:
            self._owners[page] = owner

    def _is_in_pool(self, page: int) -> bool:
        return 1 <= page <= self.pool_pages

    def _now(self, moves: Moves, page: int) -> str:
        return moves.owners.get(page) or self.owner(page)

    def _take_row(self, moves: Moves, event: Event) -> None:
        if event.row is None:
            moves.problems.append(Problem("I5", "the turn needs a row, the event names none"))
            return
        user = self._users.get(event.row)
        if user is not None:
            moves.problems.append(Problem("I5", f"row {event.row} is handed out while {user} uses it"))
        elif self.rows is not None and len(self._users) >= self.rows:
            sentence = f"row {event.row} is handed out while all {self.rows} rows are in use"
            moves.problems.append(Problem("I5", sentence))
        moves.table = RowTable(event.row)

    def _share(self, moves: Moves, pages: int, event: Event) -> None:
        shared = list(event.shared or ())
        if len(shared) != pages:
            moves.problems.append(Problem("I12", f"{pages} matched pages, but {len(shared)} were written to the row"))
        for page in shared:
            if (owner := self._now(moves, page)) != TREE:
                sentence = f"shared page {page} belongs to {owner}"
                moves.problems.append(Problem("I1", sentence, page, owner, f"{owner}, read by {moves.key}"))
        if moves.table is not None:
            moves.table.pages, moves.table.tree_end = shared, pages
        self._show_path(moves, shared, event)
        self._look_for_windows(moves, shared)

    def _look_for_windows(self, moves: Moves, shared: list[int]) -> None:
        """The window of the token behind a shared prefix is there (SGLang #17061)."""
        page = self.without_window(shared, self.d.tokens(len(shared)))
        if page is not None:
            sentence = f"shared page {page} has no window page, and the window of the next token reaches it"
            moves.problems.append(Problem("I10", sentence, page, TREE, moves.key))

    def _take(self, moves: Moves, first: int, last: int, fresh: list[int], fresh_window: list[int]) -> None:
        moves.wanted += last - first
        got, fresh[: last - first] = fresh[: last - first], []
        self.window.take(moves.window, got, fresh_window)
        for page in got:
            owner = self._now(moves, page)
            if owner == TREE and self._pins[page] > 0:
                owner = f"{TREE}, read by {', '.join(self._readers(page))}"
            if not self._is_in_pool(page):
                name = "the padding page" if page == 0 else f"not one of the pool's {self.pool_pages} pages"
                moves.problems.append(Problem("I1", f"page {page} was handed out: it is {name}"))
                continue
            if owner != FREE:
                sentence = f"page {page} was handed out while {owner} owns it"
                moves.problems.append(Problem("I1", sentence, page, owner, moves.key))
            moves.owners[page] = moves.key
        if moves.table is not None:
            moves.table.pages[first:last] = got

    def _free(self, moves: Moves, first: int, last: int) -> None:
        if moves.table is None:
            return
        for page in moves.table.pages[first:last]:
            moves.freed.append(page)
            moves.owners[page] = FREE
        self.window.release(moves.window, moves.table.pages[first:last])
        del moves.table.pages[first:last]

    def _insert(self, moves: Moves, insert: Insert, event: Event) -> None:
        if moves.table is None:
            return
        last = min(insert.pages, len(moves.table.pages))
        before = moves.table.pages[moves.table.tree_end - 1] if moves.table.tree_end else ROOT
        has_duplicates = max(moves.table.tree_end, insert.freed_from) < min(insert.duplicates, last)
        returned = set(event.free) if has_duplicates else set()
        given_up = [page for page in event.free if self._now(moves, page) == TREE] if has_duplicates else []
        for position in range(moves.table.tree_end, last):
            page = moves.table.pages[position]
            told = event.shared[position] if event.shared is not None and position < len(event.shared) else None
            kept = told or None  # where a request ends, 0 for those of which nothing is known
            if position >= insert.duplicates:
                moves.owners[page] = TREE
                self.prefixes.add(moves.prefixes, page, before)
                before = page
            elif position >= insert.freed_from:
                if given_up and page not in returned and kept in (None, page) and self.window.is_behind(page):
                    self._exchange(moves, page, self._given_up_at(moves, before, given_up), before)
                    before = page
                    continue
                moves.freed.append(page)
                moves.owners[page] = FREE
                if kept is None:
                    self._look_for_a_copy(moves, page, before)
                    self.window.release(moves.window, [page])
                else:
                    self.window.hand_on(moves.window, page, kept, event.window_free)
                    self._adopt(moves, position, kept, before)
                before = kept or UNKNOWN
            else:  # a known fault keeps a duplicate, which the row does not name any more
                if kept is not None:
                    self._adopt(moves, position, kept, before)
                before = kept or UNKNOWN
        moves.table.tree_end = insert.pages
        self._show_id(moves, before, event)
        if event.shared is not None:
            # Where a request ends, it may show less, and 0 for a page of which nothing is known.
            is_whole = event.action == "insert"
            own = moves.table.pages
            known = event.shared if is_whole else [page or own[n] for n, page in enumerate(event.shared[:last])]
            self._compare_row(moves, known, event.action)
            if len(event.shared) > insert.pages or (is_whole and len(event.shared) < insert.pages):
                sentence = f"the {event.action} shows {len(event.shared)} pages of the tree, its row begins with {insert.pages}"
                moves.problems.append(Problem("I12", sentence))

    def _look_for_a_copy(self, moves: Moves, page: int, before: int) -> None:
        """The tree has a page that may be the one of which this page is a copy, and which no event names."""
        in_tree = self.count(TREE)
        behind = in_tree
        if before != ROOT:
            behind = self.prefixes.behind(before) + self.prefixes.may_come_behind(moves.prefixes, before)
        if before != UNKNOWN and not may_have_a_copy(behind, in_tree - self.prefixes.placed()):
            where = f"behind page {before}" if before != ROOT else "at the begin of a prefix"
            sentence = f"page {page} is given up as a copy, and the tree has no page {where}"
            moves.problems.append(Problem("I16", sentence, page, moves.key, FREE))

    def _given_up_at(self, moves: Moves, before: int, given_up: list[int]) -> int:
        """Of the tree's pages that go back the one that stood behind the page `before`; the first where that is not known."""
        stood_there = (page for page in given_up if self.prefixes.above(moves.prefixes, page) == before)
        found = next(stood_there, given_up[0])
        given_up.remove(found)
        return found

    def _exchange(self, moves: Moves, page: int, given_up: int, before: int) -> None:
        """The tree takes the row's page, which has a window page, in place of its own, which has lost its window page.

        So SGLang's tree for sliding windows repairs a path whose window pages were evicted. Its own page goes back, and must be
        nobody else's by then.
        """
        self.prefixes.replace(moves.prefixes, page, given_up, before)
        moves.owners[page], moves.owners[given_up] = TREE, FREE
        moves.freed.append(given_up)
        if self.window.is_behind(given_up):
            sentence = f"page {given_up} of the tree was given up for page {page} although it has a window page"
            moves.problems.append(Problem("I10", sentence, given_up, TREE, FREE))
        if self._pins[given_up] > 0:
            readers = ", ".join(self._readers(given_up))
            sentence = (
                f"page {given_up} of the tree was given up for page {page}; it is in the protected prefix of {readers}"
            )
            moves.problems.append(Problem("I11", sentence, given_up, f"{TREE}, read by {readers}", FREE))

    def _adopt(self, moves: Moves, position: int, page: int, before: int) -> None:
        """The row now names the tree's own copy instead of its duplicate."""
        if self._now(moves, page) != TREE:
            moves.problems.append(Problem("I12", f"duplicate replaced by page {page} of {self._now(moves, page)}"))
        elif wrong := self.prefixes.show(moves.prefixes, page, before):
            moves.problems.append(Problem("I12", f"duplicate replaced by a page of another prefix: {wrong}"))
        assert moves.table is not None
        moves.table.pages[position] = page

    def _show_path(self, moves: Moves, shared: list[int], event: Event) -> None:
        """The tree's pages that a row begins with; of a wrong path the first page that stands in a wrong place is reported."""
        before = ROOT
        for page in shared:
            if self._now(moves, page) != TREE:
                return
            if wrong := self.prefixes.show(moves.prefixes, page, before):
                moves.problems.append(Problem("I12", f"the shared prefix is not a path of the tree: {wrong}"))
                return
            before = page
        self._show_id(moves, before, event)

    def _show_id(self, moves: Moves, last: int, event: Event) -> None:
        """What the event tells of the tokens up to the last page of its row's prefix of the tree."""
        told, length = event.params.get("prefix_id"), moves.table.tree_end if moves.table is not None else 0
        if wrong := self.prefixes.show_id(moves.prefixes, last, told, length, moves.key):
            moves.problems.append(Problem("I12", f"the row's prefix is not the request's: {wrong}"))

    def _compare_row(self, moves: Moves, shown: Iterable[int], action: str) -> None:
        """The pages that an event shows of a row, where it takes no other over, are those of the row."""
        own_pages = moves.table.pages if moves.table is not None else []
        for position, (page, own) in enumerate(zip(shown, own_pages, strict=False)):
            if page != own:
                sentence = (
                    f"the {action} shows page {page} at position {position} of the row, which has page {own} there"
                )
                moves.problems.append(Problem("I12", sentence))
                return
