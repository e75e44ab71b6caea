"""Whether an event that the trace leaves out explains a bad one: each event that may come before it is tried.

A recorder that loses an event leaves a trace that fails at the next thing that is seen. So the diagnosis inserts one event, by
the right rules and with each choice of parameters that the bad event suggests. If it then agrees, and the inserted events that
make it agree are all of one kind, that kind is named. Pages that the lost event took are not known; they get numbers of no pool.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.judge import Judgement, check_terms, judge, parameters
from kvproof.conformance.replay.memory_check import wrong_free_pages
from kvproof.conformance.replay.page_book import FREE, TREE, Moves, PageBook
from kvproof.conformance.replay.window_book import WindowMoves
from kvproof.model.oracle import Oracle, Outcome, Value
from kvproof.spec.effects import Share, Take
from kvproof.spec.state import Ledger
from kvproof.spec.trace import Event, Terms

NEVER_INSERTED = ("check",)
MOST_LEDGERS = 256
"""Ledgers up to which an event of each is tried before a memory check."""
ONE_CHOICE = {"logprob": False, "too_long": False}
"""Parameters with one value each: what else they may be does not show at the next event."""


@dataclass(frozen=True)
class BeforeEvent:
    """What was known when the bad event came. `ledgers`: all of them, by key."""

    oracle: Oracle
    book: PageBook
    ledgers: Mapping[str, Ledger]

    def event_of(self, key: str, before: Ledger, event: Event) -> str | None:
        """The kind of the one event of the ledger `key` that makes the next one agree; None: there is none, or several."""
        return _only({action for action, outcome in self._steps(before, event) if self._agrees(key, outcome, event)})

    def event_of_an_owner(self, key: str, before: Ledger, event: Event) -> tuple[str, str | None]:
        """The ledger and the kind of the one event of another ledger, which owns a page that the event names, that makes it
        agree with the rules of its own."""
        named = (*event.alloc, *event.free, *(event.shared or ()))
        owners = {self.book.owner(page) for page in named} & self.ledgers.keys() - {key}
        found = {
            (owner, action)
            for owner in owners
            for action, outcome in self._steps(self.ledgers[owner], event)
            if self._follows(self._moves(owner, outcome, event), key, before, event)
        }
        return _only(found) or ("", None)

    def event_before_check(self, event: Event) -> tuple[str, str | None]:
        """The ledger and the kind of the one event that makes a memory check read the true terms."""
        if event.terms is None or len(self.ledgers) > MOST_LEDGERS:
            return "", None
        total = check_terms(self.oracle, self.ledgers, frozenset())
        found = {
            (key, action)
            for key, ledger in self.ledgers.items()
            for action, outcome in self._steps(ledger, event)
            if self._makes_check_right(key, ledger, outcome, event, event.terms, (total.session_held, total.uncached))
        }
        return _only(found) or ("", None)

    def _steps(self, before: Ledger, event: Event) -> Iterator[tuple[str, Outcome]]:
        """Each step that the rules allow now, with its kind of event."""
        for action in self.oracle.actions.values():
            is_tried = action.event not in NEVER_INSERTED and not action.of_another
            if not is_tried or self.oracle.applicable(action.event, before) is not action:
                continue
            names = [self._choices(name, sort, before, event) for name, sort in action.params.items()]
            for values in itertools.product(*names):
                outcome = self.oracle.allowed_step(action, before, dict(zip(action.params, values, strict=True)))
                if outcome is not None and not outcome.broken(self.oracle.d):
                    yield action.event, outcome

    def _choices(self, name: str, sort: str, before: Ledger, event: Event) -> list[Value]:
        if name in ONE_CHOICE:
            return [ONE_CHOICE[name]]
        if name == "tokens":
            return [*range(self.oracle.d.drafts + 2)]
        if sort == "flag":
            return [True, False]
        of: dict[str, Any] = vars(before)
        committed, known = of["kv_committed_len"], of["origin_len"] + of["output_len"]
        if name == "key_len":  # under overlap a step that is prepared has claimed the last position
            return sorted({committed, of["origin_len"], *([committed - 1] if self.oracle.d.overlap else [])})
        if name == "dup_len":
            return [of["cache_protected_len"]]
        shown = (v for v in (*event.params.values(), *vars(event.after).values()) if isinstance(v, int))
        near = {0, committed, of["kv_allocated_len"], of["output_len"], known, *map(int, shown)}
        choices = {value + by for value in near for by in (0, 1, -of["origin_len"])}
        return sorted(value for value in choices if value >= 0)

    def _agrees(self, key: str, inserted: Outcome, event: Event) -> bool:
        """Whether the event is what the rules say of it behind an inserted one of its own ledger."""
        return self._follows(self._moves(key, inserted, event), key, inserted.after, event)

    def _follows(self, moved: tuple[set[int], Moves], key: str, before: Ledger, event: Event) -> bool:
        """Whether the event is what the rules say of it in this state of its ledger, behind these moves."""
        action = self.oracle.applicable(event.action, before)
        if action is None:
            return False
        try:
            outcome = self.oracle.allowed_step(action, before, parameters(event, action, before))
        except UserError:
            return False
        if outcome is None or outcome.broken(self.oracle.d):
            return False
        unknown, moves = moved
        found = judge(self.oracle.d, _behind(self.book, moves), key, outcome, event)
        return _agrees_but_for(found, event, unknown)

    def _moves(self, key: str, inserted: Outcome, event: Event) -> tuple[set[int], Moves]:
        """What an inserted event does to pages. Those that it took or shared are not known: their numbers are of no pool."""
        taken = sum(max(0, e.last - e.first) for e in inserted.effects if isinstance(e, Take))
        shared = sum(e.pages for e in inserted.effects if isinstance(e, Share) and e.when)
        fresh = range(self.book.pool_pages + 1, self.book.pool_pages + 1 + taken + shared)
        lost = Event(seq=0, action="extend", row=event.row, alloc=tuple(fresh[:taken]), shared=tuple(fresh[taken:]))
        return set(fresh), self.book.foresee(key, inserted.effects, lost)

    def _makes_check_right(
        self, key: str, ledger: Ledger, outcome: Outcome, event: Event, seen: Terms, total: tuple[int, int]
    ) -> bool:
        moves = self.book.foresee(key, outcome.effects, Event(seq=0, action="extend"))
        if moves.wanted:
            return False
        owners = Counter(moves.owners.values())
        owners.subtract(map(self.book.owner, moves.owners))
        free, in_tree = self.book.count(FREE) + owners[FREE], self.book.count(TREE) + owners[TREE]
        if (seen.available, seen.evictable + seen.protected) != (free, in_tree):
            return False
        was, now = (check_terms(self.oracle, {key: s}, frozenset()) for s in (ledger, outcome.after))
        held, uncached = total
        true = held - was.session_held + now.session_held, uncached - was.uncached + now.uncached
        return (seen.session_held, seen.uncached) == true and not wrong_free_pages(event, _behind(self.book, moves))


def missing_in_words(event: Event, missing: str | None, key: str) -> str:
    return f"an event is missing before event {event.seq}, probably {missing} of {key}" if missing else ""


def _behind(book: PageBook, moves: Moves) -> PageBook:
    """The book as it is after these moves; the book itself stays as it is."""
    after = book.copy()
    after.commit(moves)
    return after


def _agrees_but_for(found: Judgement, event: Event, unknown: set[int]) -> bool:
    if any(problem.page not in unknown for problem in found.moves.problems):
        return False
    freed = Counter(found.moves.freed)
    known = Counter({page: times for page, times in freed.items() if page not in unknown})
    may_be = {"freed pages"} if unknown and known <= Counter(event.free) and freed.total() == len(event.free) else set()
    if unknown and found.moves.window != WindowMoves():
        may_be |= {"freed window pages"}
    return all(difference.name in may_be for difference in found.differences)


def _only(found: set[Any]) -> Any:
    return next(iter(found)) if len(found) == 1 else None
