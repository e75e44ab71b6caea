"""What each effect really does, on small rows of real pages: its conditions are what is needed, its ghosts tell the truth.

The proof rests on the side conditions of `spec/effects.py`. One that is too weak would let every rule pass, a wrong one included;
one that is too strong would refuse rules that are right. So each effect is done here once more, page by page and token by
token. The solver looks for a row of at most `PAGES` pages, arguments and a ledger after it for which the conditions hold and
something goes wrong, or fail and nothing does, or for which the ghosts tell what is not the case.

This says nothing of large rows. Those are the business of `model/page_lemmas.py`. Effects that touch no row are asked the same:
what they count of turns and tokens is so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.model.page_lemmas import AFTER, Lemma, as_one_lemma
from kvproof.model.questions import Asker, Posed
from kvproof.model.symbolic import PagedLength, Symbols
from kvproof.spec import effects
from kvproof.spec.state import FIELD_NAMES, PREFILL, RUNNING, Ledger

SMALL_ROWS = "small rows"
PAGES = 2
PAGE_SIZES = (1, 2)
POSITIONS = range(PAGES + 1)
MOST = 2
"""Rows, locks and lost pages of a ledger: one more than a right one has of them."""


class Row:
    """The truth about one ledger's row: its pages by position, who owns each, and which tokens it holds."""

    def __init__(self, d: Symbols, page_size: int, s: Ledger) -> None:
        self.d, self.page_size = d, page_size
        self.rows: Any = s.rows
        self.pages: Any = s.row_end
        self.of_tree: Any = s.tree_end
        self.lost: Any = s.orphans
        self.window_gone: Any = s.window_start
        self.valid: Any = s.kv_valid
        self.locks: Any = s.locks
        self.of_turn: dict[str, Any] = {}
        self.demanded: list[Any] = []

    def demand(self, holds: Any, when: Any = True) -> None:
        self.demanded.append(z3.Implies(when, holds))

    def ghosts(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "row_end": self.pages,
            "tree_end": self.of_tree,
            "orphans": self.lost,
            "window_start": self.window_gone,
            "kv_valid": self.valid,
            "locks": self.locks,
            **self.of_turn,
        }

    def is_small(self) -> list[Any]:
        ends = (self.pages, self.of_tree, self.window_gone)
        counts = (self.rows, self.locks, self.lost)
        return [
            *(z3.And(end >= 0, end <= self.pages) for end in ends),
            self.pages <= PAGES,
            self.valid <= self.tokens(len(POSITIONS)),
            *(z3.And(count >= 0, count <= MOST) for count in counts),
        ]

    def set(self, when: Any, **to: Any) -> None:
        for name, value in to.items():
            setattr(self, name, self.d.where(when, value, getattr(self, name)))

    def tokens(self, pages: Any) -> Any:
        return self.d.tokens(pages)

    @property
    def places(self) -> list[tuple[int, Any]]:
        """Each token of the row that an argument may reach: its page, and its position as a length."""
        each = range(len(POSITIONS) * self.page_size)
        return [(token // self.page_size, self._at(token)) for token in each]

    def _at(self, token: int) -> PagedLength:
        page, offset = divmod(token, self.page_size)
        return PagedLength(z3.IntVal(page), z3.IntVal(offset), self.d.page_size)

    def of(self, page: int) -> list[Any]:
        """The tokens of a page."""
        return [at for k, at in self.places if k == page]


def _count(flags: Iterable[Any]) -> Any:
    return z3.Sum([z3.If(flag, 1, 0) for flag in flags])


def _is_live(s: Ledger) -> Any:
    return z3.Or(s.phase == PREFILL, s.phase == RUNNING)


def _is_read(after: Ledger, token: Any) -> Any:
    """A later step attends to the token: one of a live turn's own, else one that the slot hands on."""
    of_slot = z3.And(after.slot_held, token < after.slot_kv_committed_len)
    return z3.If(_is_live(after), token < after.kv_committed_len, of_slot)


def _begin(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    row.demand(z3.Not(before.close_asked), e.of_session)
    row.of_turn = {"turns": z3.If(e.of_session, before.turns + 1, before.turns), "input_len": e.tokens}


def _generate(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    some = row.d.zero < e.tokens
    drafts = z3.And(z3.Or(row.d.spec_v1, row.d.spec_v2), e.tokens <= row.d.drafts + row.d.one)
    row.demand(after.phase == RUNNING, some)
    row.demand(z3.Or(e.tokens <= row.d.one, drafts))
    row.of_turn = {"generated_len": before.generated_len + e.tokens, "paid": z3.Or(before.paid, some)}


def _succeed(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    row.demand(z3.And(before.input_len <= e.tokens, e.tokens <= before.input_len + before.generated_len))
    row.of_turn = {"success_len": e.tokens}


def _end(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    turns = z3.If(e.of_session, before.turns - 1, before.turns)
    row.of_turn = {"turns": turns, "input_len": row.d.zero, "generated_len": row.d.zero}


def _ask_close(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    row.of_turn = {"close_asked": row.d.true}


def _end_session(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    row.demand(before.turns == 0)
    row.of_turn = {"success_len": row.d.zero, "close_asked": row.d.false}


def _take_row(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    row.demand(row.rows == 0, e.when)
    row.set(e.when, rows=row.rows + 1, pages=0, of_tree=0, window_gone=0, valid=row.d.zero)


def _drop_row(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    row.demand(row.rows == 1, e.when)
    for k in POSITIONS:  # a page of the row's own would be lost
        row.demand(z3.Not(z3.And(row.of_tree <= k, k < row.pages)), e.when)
    row.demand(z3.Not(_is_live(after)), e.when)
    row.set(e.when, rows=row.rows - 1, pages=0, of_tree=0, window_gone=0, valid=row.d.zero)


def _share(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    """A window page of the tree counts as the row's from the beginning; the row had none."""
    row.demand(row.pages == 0, e.when)
    row.set(e.when, pages=e.pages, of_tree=e.pages, valid=row.tokens(e.pages))


def _take(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    taken = [z3.And(e.first <= k, k < e.last) for k in POSITIONS]
    some = z3.Or(*taken)
    row.demand(row.rows == 1, some)
    for k in POSITIONS:
        row.demand(k >= row.pages, taken[k])  # a page that is still the row's is no longer named
        row.demand(taken[k], z3.And(some, row.pages <= k, k < e.last))  # no hole
    row.demand(row.tokens(_count(taken)) <= e.charge, some)
    row.set(some, pages=e.last)


def _write(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    some = e.start < e.end
    for k, at in row.places:
        row.demand(at < row.valid, z3.And(some, at < e.start))  # what was never written is not read
        written = z3.And(e.start <= at, at < e.end)
        row.demand(z3.And(k < row.pages, k >= row.of_tree), written)
    row.set(some, valid=e.end)


def _free(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    freed = [row.d.some(*(z3.And(e.start <= at, at < e.end) for at in row.of(k))) for k in POSITIONS]
    some = z3.Or(*freed)
    for k in POSITIONS:
        at, *more = row.of(k)
        row.demand(
            row.d.every(*(e.start <= token for token in (at, *more))), freed[k]
        )  # no page goes with tokens before the range
        row.demand(z3.And(row.of_tree <= k, k < row.pages, z3.Not(_is_read(after, at))), freed[k])
        is_behind = z3.And(k < row.pages, row.d.some(*freed[:k]))
        row.demand(freed[k], is_behind)  # pages behind the freed ones are lost
    first = _count(z3.Not(row.d.some(*freed[: k + 1])) for k in POSITIONS)
    is_gone = z3.And(some, first < row.window_gone)
    row.set(z3.And(some, row.tokens(first) < row.valid), valid=row.tokens(first))
    row.set(is_gone, window_gone=first)
    row.set(some, pages=first)


def _free_by_loc(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    row.demand(z3.Not(e.start < e.end))


def _free_window(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    freed = [z3.And(e.first <= k, k < e.last) for k in POSITIONS]
    for k in POSITIONS:
        own = z3.And(k < row.pages, k >= row.of_tree, k >= row.window_gone)
        row.demand(own, freed[k])
        row.demand(freed[k], z3.And(own, row.d.some(*freed[k + 1 :])))  # an older window page is forgotten
        for at in row.of(k):  # the next token attends to so many before it
            row.demand(_is_read(after, at + row.d.window), freed[k])
    row.set(z3.Or(*freed), window_gone=e.last)


def _forget(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    row.set(e.length < row.valid, valid=e.length)


def _insert(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    for k in POSITIONS:
        is_given = z3.And(e.when, k < e.pages)
        row.demand(k < row.pages, is_given)
        for at in row.of(k):  # a page without KV
            row.demand(at < row.valid, is_given)
        row.demand(k < e.pages, z3.And(e.when, k < row.of_tree))  # the tree loses a page that it had
        row.demand(k < e.pages, z3.And(e.when, k < e.duplicates))  # a page is freed that was not inserted
        is_copy = z3.And(e.when, k < e.duplicates, k >= row.of_tree)
        is_freed = z3.And(e.when, k < e.duplicates, k >= e.freed_from)
        row.demand(is_copy == is_freed, z3.And(e.when, row.of_tree < e.duplicates))
    row.set(e.when, of_tree=e.pages)


def _lock(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    row.locks += z3.If(e.when, 1, 0)


def _unlock(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    row.demand(row.locks == 1, e.when)
    row.locks -= z3.If(e.when, 1, 0)


def _report(row: Row, e: Any, before: Ledger, after: Ledger) -> None:
    own = [z3.And(k < row.pages, k >= row.of_tree) for k in POSITIONS]
    in_window = [z3.And(own[k], k >= row.window_gone) for k in POSITIONS]
    _counts(row, e.session_held, e.uncached, _count(own) + row.lost, after, z3.BoolVal(True))
    _counts(row, e.window_held, e.window_uncached, _count(in_window) + row.lost, after, row.d.windowed)


def _counts(row: Row, held: Any, uncached: Any, pages: Any, after: Ledger, when: Any) -> None:
    """One of the two terms counts the pages: a session's none of an ordinary request, a turn's none of who does not run."""
    row.demand(z3.And(z3.Or(held == 0, uncached == 0), held + uncached == pages), when)
    row.demand(held == 0, z3.And(when, after.plain))
    row.demand(uncached == 0, z3.And(when, z3.Not(_is_live(after))))


TRUTH: Mapping[str, Callable[[Row, Any, Ledger, Ledger], None]] = {
    "Begin": _begin,
    "Generate": _generate,
    "Succeed": _succeed,
    "End": _end,
    "AskClose": _ask_close,
    "EndSession": _end_session,
    "TakeRow": _take_row,
    "DropRow": _drop_row,
    "Share": _share,
    "Take": _take,
    "Write": _write,
    "Free": _free,
    "FreeByLoc": _free_by_loc,
    "FreeWindow": _free_window,
    "Forget": _forget,
    "Insert": _insert,
    "Lock": _lock,
    "Unlock": _unlock,
    "Report": _report,
}


def prove_small_rows(asker: Asker, names: Iterable[str] = tuple(TRUTH)) -> Iterator[Lemma]:
    """One lemma for each effect and page size."""
    for name in names:
        for page_size in PAGE_SIZES:
            yield as_one_lemma(asker, SMALL_ROWS, f"{name} with P={page_size}", partial(pose, name, page_size))


def pose(name: str, page_size: int) -> Posed:
    d = Symbols()
    before, after = d.arbitrary(Ledger), d.arbitrary(Ledger, AFTER)
    cls = getattr(effects, name)
    sorts = {field.name: str(field.type).lower() for field in dataclasses.fields(cls)}
    given = {argument: d.variable(sort, f"given.{argument}") for argument, sort in sorts.items()}
    said, conditions = cls(**given).apply(d, before, after)
    row = Row(d, page_size, before)
    small = [d.page_size == page_size, *row.is_small(), *_small(d, row, given, sorts)]
    TRUTH[name](row, cls(**given), before, after)
    right, asked = z3.And(True, True, *row.demanded), z3.And(True, True, *(c.holds for c in conditions))
    told = [_equal(getattr(said, ghost), value) for ghost, value in row.ghosts().items()]
    told += [_equal(getattr(said, field), getattr(before, field)) for field in FIELD_NAMES if field not in row.ghosts()]
    facts = (*d.domain_facts(before, SimpleNamespace(), {}), *d.domain_facts(after, SimpleNamespace(), {}))
    goals = {
        (name, "nothing goes wrong where its conditions hold"): z3.Implies(asked, right),
        (name, "its conditions hold where nothing goes wrong"): z3.Implies(right, asked),
        (name, "what it says of the row is so"): z3.Implies(right, z3.And(*told)),
    }
    return Posed((*facts, *small), goals)


def _small(d: Symbols, row: Row, given: Mapping[str, Any], sorts: Mapping[str, str]) -> Iterator[Any]:
    """Arguments that reach no further than one page behind the longest row."""
    for name, sort in sorts.items():
        if sort == "count":
            yield z3.And(given[name] >= 0, given[name] <= len(POSITIONS))
        elif sort == "length":
            yield z3.And(given[name].is_well_formed(), given[name] <= row.tokens(len(POSITIONS)))


def _equal(one: Any, other: Any) -> Any:
    return one == other
