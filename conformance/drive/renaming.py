"""Two events that should be the same, up to the names of pages and rows.

Which page the allocator hands out is its own business. So the pages (and rows) of two runs are paired as they are handed out,
one to one, and from then on a page must appear wherever its partner does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kvproof.conformance.replay.judge import WITH_ROW, Difference
from kvproof.conformance.replay.memory_check import counts_of
from kvproof.spec.trace import Event


class Pairs:
    """Names of one run and their partners in the other."""

    def __init__(self) -> None:
        self._there: dict[int, int] = {}
        self._here: dict[int, int] = {}

    def pair(self, here: int, there: int) -> None:
        """A name was handed out: whatever it or its partner stood for before is over."""
        self._there.pop(self._here.pop(there, -1), None)
        self._here.pop(self._there.pop(here, -1), None)
        self._there[here], self._here[there] = there, here

    def back(self, there: Iterable[int]) -> list[int | None]:
        """The names here of names there; None for one that was never paired."""
        return [self._here.get(name) for name in there]


class Renaming:
    """Compares event by event, and learns the pairs on the way."""

    def __init__(self) -> None:
        self._pages, self._rows = Pairs(), Pairs()

    def differences(self, expected: Event, seen: Event) -> list[Difference]:
        """What the second event shows otherwise. What one of the two did not observe is not compared."""
        names = ("action", "session", "turn")
        found = _unequal(names, {n: getattr(expected, n) for n in names}, {n: getattr(seen, n) for n in names})
        if found:
            return found
        found += _of_both(_of_rules(expected), _of_rules(seen))
        found += _of_both(expected.after.model_dump(exclude_none=True), seen.after.model_dump(exclude_none=True))
        return [*found, *self._terms(expected, seen), *self._moves(expected, seen), *self._row(expected, seen)]

    def _terms(self, expected: Event, seen: Event) -> list[Difference]:
        if expected.terms is None or seen.terms is None:
            return []
        return _of_both(counts_of(expected.terms), counts_of(seen.terms))

    def _moves(self, expected: Event, seen: Event) -> list[Difference]:
        """Pages are freed and shared by the names that they were handed out under, before new ones are handed out.

        A verified round is the exception: it frees pages that it has just taken, for drafts that were rejected.
        """
        found = []
        if expected.action == "verify":
            self._taken(expected, seen)
        if Counter(self._pages.back(seen.free)) != Counter(expected.free):
            found.append(Difference("freed pages", None, sorted(expected.free), self._named(seen.free)))
        if len(expected.alloc) != len(seen.alloc):
            found.append(Difference("number of pages taken", None, len(expected.alloc), len(seen.alloc)))
        shared = expected.shared is not None and seen.shared is not None
        if shared and self._pages.back(seen.shared or ()) != list(expected.shared or ()):
            found.append(Difference("shared pages", None, list(expected.shared or ()), self._named(seen.shared or ())))
        if expected.action != "verify":
            self._taken(expected, seen)
        return found

    def _taken(self, expected: Event, seen: Event) -> None:
        for here, there in zip(expected.alloc, seen.alloc, strict=False):
            self._pages.pair(here, there)

    def _row(self, expected: Event, seen: Event) -> list[Difference]:
        """An extend may take a row; every other event names one that its turn or its slot has."""
        if expected.action in WITH_ROW and (expected.row is None) != (seen.row is None):
            return [Difference("row", None, expected.row, seen.row)]
        if expected.row is None or seen.row is None:
            return []
        if expected.action == "extend" and expected.shared is not None:
            self._rows.pair(expected.row, seen.row)
        [known] = self._rows.back([seen.row])
        return [] if known == expected.row else [Difference("row", None, expected.row, known)]

    def _named(self, there: Iterable[int]) -> list[int | str]:
        """The pages of the second run by the names of the first."""
        pages = list(there)
        return [f"unknown page {t}" if h is None else h for h, t in zip(self._pages.back(pages), pages, strict=True)]


def _of_rules(event: Event) -> dict[str, object]:
    """The parameters that a rule has. Not `busy`, which also tells of results in flight, which need not be in a trace; and not
    `prefix_id`: the two runs have other tokens."""
    return {name: value for name, value in event.params.items() if name not in ("busy", "prefix_id")}


def _of_both(expected: Mapping[str, object], seen: Mapping[str, object]) -> list[Difference]:
    return _unequal([name for name in expected if name in seen], expected, seen)


def _unequal(names: Iterable[str], expected: Mapping[str, object], seen: Mapping[str, object]) -> list[Difference]:
    return [Difference(n, None, expected[n], seen[n]) for n in names if expected[n] != seen[n]]
