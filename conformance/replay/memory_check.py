"""The implementation's own memory check against the true counts: its terms, and its free lists, of both pools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice

from kvproof.conformance.replay.judge import Difference
from kvproof.conformance.replay.page_book import FREE, TREE, PageBook
from kvproof.conformance.replay.wrong_pages import WrongPage
from kvproof.spec.effects import Report
from kvproof.spec.trace import Event, Terms

OF_THE_TREE, PROTECTED = "evictable + protected", "protected"
"""Differences of the tree's counters: of all its pages, and of those in a row's protected prefix."""
WINDOW_PROTECTED = f"window {PROTECTED}"
MAX_NAMED = 8
"""Pages of a wrong free list that are named one by one."""


def wrong_terms(event: Event, book: PageBook, true: Report) -> Iterator[Difference]:
    """The terms that the check read and that are not the true counts.

    How many window pages the tree protects depends on where its nodes begin: those of no row's prefix are none of them.
    """
    if event.terms is not None:
        yield from _wrong("", event.terms, book.count(FREE), book.count(TREE), true.session_held, true.uncached)
        if event.terms.protected != book.protected:
            yield Difference(PROTECTED, None, book.protected, event.terms.protected)
    if event.window_terms is not None and book.window.is_followed:
        free, (in_tree, in_prefixes) = book.window.free_count(), book.windows_of_tree()
        yield from _wrong("window ", event.window_terms, free, in_tree, true.window_held, true.window_uncached)
        if event.window_terms.protected > in_prefixes:
            yield Difference(WINDOW_PROTECTED, None, in_prefixes, event.window_terms.protected)
    if event.window_terms is not None:
        for name, count in (("evictable", event.window_terms.evictable), (PROTECTED, event.window_terms.protected)):
            if count < 0:
                yield Difference(f"window {name}", None, 0, count)


def _wrong(pool: str, terms: Terms, free: int, tree: int, held: int, uncached: int) -> Iterator[Difference]:
    true = {"available": free, OF_THE_TREE: tree, "session_held": held, "uncached": uncached}
    seen = counts_of(terms)
    return (Difference(pool + name, None, t, seen[name]) for name, t in true.items() if t != seen[name])


def recounted(event: Event, wrong: Iterable[Difference], book: PageBook, true: Report) -> Event:
    """A check that reads the true counts of another state, each as wrong as it was. The lists of free pages are left out."""
    off = {d.name: d.seen - d.expected for d in wrong if isinstance(d.seen, int) and isinstance(d.expected, int)}
    new: dict[str, object] = {"free_list": None, "window_free_list": None}

    def terms(pool: str, free: int, in_tree: int, protected: int, held: int, uncached: int, total: int) -> Terms:
        protected += off.get(pool + PROTECTED, 0)
        return Terms(
            available=free + off.get(f"{pool}available", 0),
            evictable=in_tree + off.get(pool + OF_THE_TREE, 0) - protected,
            protected=protected,
            session_held=held + off.get(f"{pool}session_held", 0),
            uncached=uncached + off.get(f"{pool}uncached", 0),
            total=total,
        )

    if event.terms is not None:
        counts = (book.count(FREE), book.count(TREE), book.protected, true.session_held, true.uncached)
        new["terms"] = terms("", *counts, event.terms.total)
    if event.window_terms is not None:
        in_tree, _ = book.windows_of_tree()
        counts = (book.window.free_count(), in_tree, 0, true.window_held, true.window_uncached)
        new["window_terms"] = terms("window ", *counts, event.window_terms.total)
    return event.model_copy(update=new)


def counts_of(terms: Terms) -> dict[str, int]:
    """What a check read, by name, and the pages of the tree together."""
    return {
        "available": terms.available,
        OF_THE_TREE: terms.evictable + terms.protected,
        PROTECTED: terms.protected,
        "session_held": terms.session_held,
        "uncached": terms.uncached,
    }


def invariant_of(difference: Difference) -> str:
    """What it is about: a counter of locked pages that is no recount of them, or a count of an owner's pages."""
    return "I13" if difference.name in (PROTECTED, WINDOW_PROTECTED) else "I2"


def is_about_holders(difference: Difference) -> bool:
    """Whether it is what slots hold or turns use that was counted wrongly: what faulty rules of the check do."""
    return difference.name.endswith(("session_held", "uncached"))


def seen_of_holders(event: Event) -> tuple[int, ...]:
    """What the check read of holders: of the pool, and of the window pool where it was read."""
    pools = [terms for terms in (event.terms, event.window_terms) if terms is not None]
    return tuple(count for terms in pools for count in (terms.session_held, terms.uncached))


def true_of_holders(report: Report, event: Event) -> tuple[int, ...]:
    """The four counts of the report by a rule of the check, as far as the event has them."""
    counts = (report.session_held, report.uncached, report.window_held, report.window_uncached)
    return counts if event.window_terms is not None else counts[:2]


def misplaced_pages(event: Event, book: PageBook) -> list[WrongPage]:
    """Pages of the full pool whose place in the free list is not what the trace's own moves say."""
    if event.free_list is None:
        return []
    listed, free = set(event.free_list), _Free(book.is_free, book.count(FREE), book.pool_pages)
    taken, left = _taken(listed, free), islice(free.but(listed), MAX_NAMED)
    return [
        *(WrongPage(page, book.owner(page), FREE, book.owner(page)) for page in taken[:MAX_NAMED]),
        *(WrongPage(page, FREE, "no free list", FREE) for page in left),
    ]


def wrong_free_pages(event: Event, book: PageBook) -> list[str]:
    """Pages whose place in the free lists is not what the trace's own moves say, in words."""
    lines: list[str] = []
    if event.free_list is not None:
        lines += _misplaced("page", event.free_list, _Free(book.is_free, book.count(FREE), book.pool_pages), book.owner)
    if event.window_free_list is not None and book.window.is_followed:
        window = book.window

        def named(page: int) -> str:
            return f"page {window.behind(page)}"

        free = _Free(window.is_free, window.free_count(), window.pool_pages)
        lines += _misplaced("window page", event.window_free_list, free, named)
    return lines


@dataclass(frozen=True)
class _Free:
    """The pages of a pool that are free. A set of them would be as large as the pool, whatever the trace moved."""

    holds: Callable[[int], bool]
    count: int
    pool_pages: int

    def but(self, listed: Set[int]) -> Iterator[int]:
        """Those that are not listed, in ascending order."""
        if self.count == sum(map(self.holds, listed)):
            return iter(())
        return (page for page in range(1, self.pool_pages + 1) if self.holds(page) and page not in listed)


def _taken(listed: Iterable[int], free: _Free) -> list[int]:
    return sorted(page for page in listed if not free.holds(page))


def _misplaced(kind: str, pages: Sequence[int], free: _Free, owner: Callable[[int], str]) -> list[str]:
    listed = Counter(pages)
    taken = _taken(listed, free)
    twice = sorted(page for page, times in listed.items() if times > 1)
    return [
        *(f"{kind} {p} is {listed[p]} times in the free list" for p in twice[:MAX_NAMED]),
        *(f"{kind} {p} is in the free list and owned by {owner(p)}" for p in taken[:MAX_NAMED]),
        *(f"{kind} {p} is in no free list and has no owner" for p in islice(free.but(listed.keys()), MAX_NAMED)),
    ]
