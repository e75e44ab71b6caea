"""Which page of the tree continues which: the prefixes that rows share, page by page.

Keys of the tree are whole pages, so a prefix is a path of pages, whatever its nodes are: a node that is split stays the same
path. An insert tells the path: the leading pages of its row, with the tree's own in place of duplicates. Where an event names no
page of the tree for a duplicate, as at the end of a request, the page behind it continues one that is unknown, until a later
event shows it. What is unknown agrees with everything. The rules are those of `spec/tree.py`.

What a path holds is not known from pages: the matched pages of another prompt are a path, too. A recorder may number
prefixes by their tokens (`prefix_id`). Then all that events tell of one prefix must agree, and it is one path of the tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kvproof.spec.tree import ROOT, UNKNOWN, is_continued, is_of_tokens


def may_have_a_copy(behind: int, unplaced: int) -> bool:
    """A page is freed as a copy only where the tree has one that may be the same: known to stand there, or of unknown place."""
    return behind > 0 or unplaced > 0


def told_before(told: tuple[int, int] | None, length: int) -> int:
    """The number of the first so many pages of a turn, as an event said before; 0: none did."""
    return told[1] if told is not None and told[0] == length else 0


@dataclass
class PrefixMoves:
    """What one event tells of the tree: which page continues which, and pages that took the place of others."""

    above: dict[int, int] = field(default_factory=dict)
    """Page -> the page that it continues."""
    replaced: dict[int, int] = field(default_factory=dict)
    """Page that left the tree -> the page that stands there now; UNKNOWN: one of several."""
    ids: dict[int, int] = field(default_factory=dict)
    """Page -> the number of the prefix that ends with it."""
    told: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Ledger -> how many pages its row shares with the tree, and their number."""


class PrefixTree:
    """For each page of the tree the page that it continues, as far as the trace has told it."""

    def __init__(self) -> None:
        self._above: dict[int, int] = {}
        """A page of the tree that is not in it continues one that is unknown."""
        self._behind: Counter[int] = Counter()
        """Page -> how many pages of the tree are known to continue it."""
        self._ids: dict[int, int] = {}
        """Page of the tree -> the number of the prefix that ends with it, if an event told one."""
        self._pages: dict[int, int] = {}
        """The same, number -> page."""
        self.lengths: dict[int, int] = {}
        """Number -> how many pages a prefix with these tokens has, also of one that has left the tree."""
        self.told: dict[str, tuple[int, int]] = {}
        """Of the turn of a ledger: pages of its prefix, and their number, as an event told them last."""

    def copy(self) -> PrefixTree:
        """Another tree of the same state, which may go on by itself."""
        other = PrefixTree()
        other._above, other._behind, other._ids = self._above.copy(), self._behind.copy(), self._ids.copy()
        other._pages, other.lengths, other.told = self._pages.copy(), self.lengths.copy(), self.told.copy()
        return other

    def known(self) -> Iterable[tuple[int, int]]:
        """Each page of which it is known with the page that it continues."""
        return self._above.items()

    def ids(self) -> Iterable[tuple[int, int]]:
        """Each page of which an event told it, with the number of the prefix that ends with it."""
        return self._ids.items()

    def set_known(self, above: Mapping[int, int], ids: Mapping[int, int]) -> None:
        """Begin with this."""
        self._above, self._ids = dict(above), dict(ids)
        self._pages = {told: page for page, told in self._ids.items()}
        self._behind = Counter(page for page in self._above.values() if page != ROOT)

    def above(self, moves: PrefixMoves, page: int) -> int:
        """The page that a page continues once the moves so far are made."""
        if page in moves.above:
            return moves.above[page]
        above = self._above.get(page, UNKNOWN)
        return moves.replaced.get(above, above)

    def show(self, moves: PrefixMoves, page: int, before: int) -> str:
        """A row names a page of the tree behind the page `before`; what is wrong with that, as a sentence."""
        above = self.above(moves, page)
        if not is_continued(above, before):
            in_tree = "begins a prefix of the tree" if above == ROOT else f"continues page {above} in the tree"
            return f"page {page} {in_tree}, but " + (
                "begins the row" if before == ROOT else f"stands behind page {before} in the row"
            )
        if above == UNKNOWN:
            self.add(moves, page, before)
        return ""

    def show_id(self, moves: PrefixMoves, page: int, told: int | None, length: int, key: str) -> str:
        """A row's prefix of so many pages, which ends with this page of the tree, has this number; what is wrong with that, as a
        sentence."""
        if told is None:
            return ""
        if page == ROOT:
            return f"it has no page of the tree, and is number {told}"
        if (known := self.lengths.get(told, length)) != length:
            return f"number {told} is of a prefix of {known} pages, and the row's has {length}"
        if not is_of_tokens(before := told_before(self.told.get(key), length), told):
            return f"the first {length} pages of this turn were number {before} before, and are number {told} now"
        moves.told[key] = length, told
        if page == UNKNOWN:
            return ""
        if (other := self._pages.get(told)) not in (None, page) and other not in moves.replaced:
            return f"number {told} is the prefix that ends with page {other} in the tree, and ends with page {page} in the row"
        if not is_of_tokens(self._ids.get(page, 0), told):
            return f"the prefix that ends with page {page} is number {self._ids[page]} in the tree, and number {told} in the row"
        moves.ids[page] = told
        return ""

    def add(self, moves: PrefixMoves, page: int, before: int) -> None:
        """The tree has the page behind the page `before`."""
        if before != UNKNOWN:
            moves.above[page] = before

    def replace(self, moves: PrefixMoves, page: int, given_up: int, before: int) -> None:
        """The tree has the page, behind the page `before`, in place of its own page `given_up`.

        Where it is not known that this was the one that stood there, it is not known any more what continues it.
        """
        stood_there = before != UNKNOWN and self.above(moves, given_up) == before
        moves.replaced[given_up] = page if stood_there else UNKNOWN
        self.add(moves, page, before)

    def commit(self, moves: PrefixMoves) -> None:
        if moves.replaced:
            for page, above in [(p, a) for p, a in self._above.items() if a in moves.replaced]:
                self._put(page, moves.replaced[above])
            moved = {
                new: self._ids.pop(old) for old, new in moves.replaced.items() if new != UNKNOWN and old in self._ids
            }
            self._ids.update(moved)
            self._pages.update({told: page for page, told in moved.items()})
        for page, above in moves.above.items():
            self._put(page, above)
        self._ids.update(moves.ids)
        self._pages.update({told: page for page, told in moves.ids.items()})
        self.told.update(moves.told)
        self.lengths.update({told: length for length, told in moves.told.values()})

    def forget(self, key: str) -> None:
        """The turn of this ledger is over: the next one has other tokens."""
        self.told.pop(key, None)

    def remove(self, page: int) -> None:
        """The page left the tree."""
        self._put(page, UNKNOWN)
        told = self._ids.pop(page, None)
        if told is not None and self._pages.get(told) == page:
            del self._pages[told]

    def behind(self, page: int) -> int:
        """How many pages of the tree are known to continue it."""
        return self._behind[page]

    def may_come_behind(self, moves: PrefixMoves, page: int) -> int:
        """How many more may continue it once the moves so far are made: those behind a page that it took the place of."""
        return sum(self._behind[old] for old, new in moves.replaced.items() if new in (page, UNKNOWN))

    def placed(self) -> int:
        """Pages of the tree of which it is known what they continue."""
        return len(self._above)

    def pages_behind(self, page: int) -> Iterator[int]:
        return (other for other, above in self._above.items() if above == page)

    def _put(self, page: int, above: int) -> None:
        before = self._above.pop(page, UNKNOWN)
        if before > ROOT:
            self._behind[before] -= 1
            if not self._behind[before]:
                del self._behind[before]
        if above != UNKNOWN:
            self._above[page] = above
            if above > ROOT:
                self._behind[above] += 1
