"""Pages that one event moved wrongly, in words: each with the owner that it had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kvproof.conformance.replay.judge import Judgement
from kvproof.conformance.replay.kept_types import Text, WholeNumber
from kvproof.conformance.replay.page_book import FREE, PageBook, Problem
from kvproof.spec.trace import Event


@dataclass(frozen=True)
class WrongPage:
    """A page of the full pool that an event moved wrongly, and its owners in words."""

    page: WholeNumber
    owner: Text
    """Before the event."""
    became: Text
    """After it, as the event tells."""
    rule: Text
    """After it, by the rule."""


def wrong_pages_of(right: Judgement, key: str, event: Event, book: PageBook) -> Iterator[WrongPage]:
    """Each page once, in the order in which `lines_of` names them. `key`: the ledger that the event is about."""
    found = {wrong.page: wrong for wrong in map(claimed, right.moves.problems) if wrong is not None}
    expected, seen = set(right.moves.freed), set(event.free)
    for page in sorted(seen - expected):
        owner = book.owner(page)
        found.setdefault(page, WrongPage(page, owner, FREE, right.moves.owners.get(page, owner)))
    for page in sorted(expected - seen):
        found.setdefault(page, WrongPage(page, book.owner(page), key if book.owner(page) == key else "nobody", FREE))
    yield from found.values()


def claimed(problem: Problem) -> WrongPage | None:
    """The page that a problem is about; None where it is about none."""
    if problem.page is None:
        return None
    return WrongPage(problem.page, problem.owner, problem.claimant, problem.owner)


def lines_of(right: Judgement, event: Event, book: PageBook) -> Iterable[str]:
    """Pages that moved wrongly, by owner."""
    for problem in right.moves.problems:
        yield problem.sentence
    expected, seen = Counter(right.moves.freed), Counter(event.free)
    for owner, pages in _by_owner((seen - expected).elements(), book):
        yield f"{_named(pages)} freed; the owner was {owner}"
    for owner, pages in _by_owner((expected - seen).elements(), book):
        yield f"{_named(pages)} not freed; the owner was {owner}"
    if book.window.is_followed:
        yield from _window_lines(Counter(right.moves.window.freed), Counter(event.window_free), book)


def _window_lines(expected: Counter[int], seen: Counter[int], book: PageBook) -> Iterable[str]:
    for window in sorted((seen - expected).elements()):
        page = book.window.behind(window)
        owner = "free already" if page is None else f"behind page {page} of {book.owner(page)}"
        yield f"window page {window} was freed; it was {owner}"
    for window in sorted((expected - seen).elements()):
        page = book.window.behind(window)
        yield f"window page {window} was not freed; it is behind page {page}"


def _by_owner(pages: Iterable[int], book: PageBook) -> Iterable[tuple[str, list[int]]]:
    groups: dict[str, list[int]] = {}
    for page in sorted(pages):
        groups.setdefault(book.owner(page), []).append(page)
    return groups.items()


def _named(pages: list[int]) -> str:
    return f"page {pages[0]} was" if len(pages) == 1 else f"pages {', '.join(map(str, pages))} were"
