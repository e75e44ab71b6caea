"""What each effect really does, on small rows of real pages: its conditions are enough, and its ghosts tell the truth.

The proof rests on the side conditions of `spec/effects.py`. One that is too weak would let every rule pass, a wrong one included.
So each effect is done here once more, by hand, page by page and token by token, on every small row; wherever its conditions
let it happen, nothing may go wrong, and the ghosts it writes must be what is then the case.

This says nothing of large rows. Those are the business of `model/page_lemmas.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any, cast

from kvproof.model.integers import Integers
from kvproof.spec import effects as spec_effects
from kvproof.spec.state import NONE, PREFILL, RUNNING, WAITING, Ledger, pristine

PAGES = 2
WINDOW = 1
ROW_WIDTH = 6


@dataclass
class Row:
    """The truth about one ledger's row: its pages by position, who owns each, and which tokens it holds."""

    page_size: int
    rows: int
    pages: int
    of_tree: int
    lost: int
    window_gone: int
    valid: int
    locks: int
    windowed: bool = False
    wrong: str = ""

    def demand(self, holds: bool, sentence: str) -> None:
        self.wrong = self.wrong or ("" if holds else sentence)

    def ghosts(self) -> dict[str, int]:
        return {
            "rows": self.rows,
            "row_end": self.pages,
            "tree_end": self.of_tree,
            "orphans": self.lost,
            "window_start": self.window_gone,
            "kv_valid": self.valid,
            "locks": self.locks,
        }

    def empty(self, rows: int) -> None:
        self.rows, self.pages, self.of_tree, self.window_gone, self.valid = rows, 0, 0, 0, 0

    def own_window_pages(self) -> list[int]:
        """Positions whose page of the window pool is the row's own and was not evicted."""
        return [k for k in range(self.pages) if k >= self.of_tree and k >= self.window_gone]


def _tokens_read(after: Any) -> int:
    """Leading tokens that a later step attends to: a live turn's own, else those that the slot hands on."""
    if after.phase in (PREFILL, RUNNING):
        return int(after.kv_committed_len)
    return int(after.slot_kv_committed_len) if after.slot_held else 0


def _take_row(row: Row, effect: Any, after: Ledger) -> None:
    if effect.when:
        row.demand(row.rows == 0, "the ledger has two rows")
        row.empty(row.rows + 1)


def _drop_row(row: Row, effect: Any, after: Ledger) -> None:
    if effect.when:
        row.demand(row.rows == 1, "a row goes back that is not there, or not the only one")
        row.demand(row.pages == row.of_tree, "pages are lost with the row")
        row.demand(after.phase not in (PREFILL, RUNNING), "a live turn loses its row")
        row.empty(row.rows - 1)


def _share(row: Row, effect: Any, after: Ledger) -> None:
    if effect.when:
        row.demand(row.pages == 0, "names of pages are overwritten by the shared prefix")
        row.pages = row.of_tree = effect.pages
        row.window_gone = 0
        row.valid = effect.pages * row.page_size


def _take(row: Row, effect: Any, after: Ledger) -> None:
    positions = range(effect.first, effect.last)
    if positions:
        row.demand(row.rows == 1, "pages are written into no row, or into one of two")
        row.demand(all(k >= row.pages for k in positions), "a page that is still the row's is no longer named")
        row.demand(positions[0] <= row.pages, "the row has a hole")
        row.demand(len(positions) * row.page_size <= effect.charge, "more is taken than was charged")
        row.pages = max(row.pages, effect.last)


def _write(row: Row, effect: Any, after: Ledger) -> None:
    tokens = range(effect.start, effect.end)
    if tokens:
        row.demand(all(t < row.valid for t in range(effect.start)), "a token is read that was never written")
        row.demand(all(t // row.page_size < row.pages for t in tokens), "a token is written where no page is")
        row.demand(all(t // row.page_size >= row.of_tree for t in tokens), "a page of the tree is overwritten")
        row.valid = effect.end


def _free(row: Row, effect: Any, after: Ledger) -> None:
    freed = {t // row.page_size for t in range(effect.start, effect.end)}
    if freed:
        first, last = min(freed), max(freed) + 1
        row.demand(first * row.page_size == effect.start, "the page is freed with tokens before the range")
        row.demand(last <= row.pages, "a page is freed that is not there")
        row.demand(last >= row.pages, "pages behind the freed ones are lost")
        row.demand(all(k >= row.of_tree for k in freed), "a page of the tree is freed")
        read = {t // row.page_size for t in range(_tokens_read(after))}
        row.demand(not freed & read, "a page is freed that is still read")
        row.pages, row.valid = first, min(row.valid, first * row.page_size)
        row.window_gone = min(row.window_gone, first)


def _free_by_loc(row: Row, effect: Any, after: Ledger) -> None:
    row.demand(effect.start >= effect.end, "pages are freed that the row goes on naming")


def _free_window(row: Row, effect: Any, after: Ledger) -> None:
    positions = range(effect.first, effect.last)
    if positions:
        row.demand(effect.last <= row.pages, "a window page is freed that is not there")
        own = max(row.of_tree, row.window_gone)
        row.demand(effect.first >= own, "a window page is freed twice, or the tree's")
        row.demand(effect.first <= own, "an older window page is forgotten")
        first_read = cast("int", after.kv_committed_len) - WINDOW
        row.demand(effect.last * row.page_size <= first_read, "the window of the next token loses a page")
        row.window_gone = effect.last


def _forget(row: Row, effect: Any, after: Ledger) -> None:
    row.valid = min(row.valid, effect.length)


def _insert(row: Row, effect: Any, after: Ledger) -> None:
    if effect.when:
        row.demand(effect.pages <= row.pages, "the tree is given pages that are not there")
        row.demand(all(k < effect.pages for k in range(row.of_tree)), "the tree loses a page that it had")
        row.demand(all(k < effect.pages for k in range(effect.duplicates)), "a page is freed that was not inserted")
        copies = range(row.of_tree, effect.duplicates)
        row.demand(
            not copies or effect.freed_from == row.of_tree, "a copy is kept by nobody, or the tree's own is freed"
        )
        row.demand(effect.pages * row.page_size <= row.valid, "the tree is given pages without KV")
        row.of_tree = effect.pages


def _lock(row: Row, effect: Any, after: Ledger) -> None:
    row.locks += bool(effect.when)


def _unlock(row: Row, effect: Any, after: Ledger) -> None:
    if effect.when:
        row.demand(row.locks == 1, "a lock is undone that is not held, or not the only one")
        row.locks -= 1


def _report(row: Row, effect: Any, after: Ledger) -> None:
    own = sum(1 for k in range(row.pages) if k >= row.of_tree)
    terms = {effect.session_held, effect.uncached}
    row.demand(terms == {own + row.lost, 0}, "the memory check counts the pages in no term, or in two")
    in_window = len(row.own_window_pages()) + row.lost
    if row.windowed:
        row.demand({effect.window_held, effect.window_uncached} == {in_window, 0}, "and those of the window pool")
    of_turn = [effect.uncached] + [effect.window_uncached] * row.windowed
    row.demand(after.phase in (PREFILL, RUNNING) or not any(of_turn), "pages of who does not run count as a turn's")
    of_slot = [effect.session_held] + [effect.window_held] * row.windowed
    row.demand(not after.plain or not any(of_slot), "pages of an ordinary request count as a session's")


TRUTH: dict[str, Callable[[Row, Any, Ledger], None]] = {
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
# Effects that ask what the successor still reads.
READING = frozenset({"DropRow", "Free", "FreeByLoc", "FreeWindow"})
# Rows, locks and orphans of a ledger: nothing, a row, a row and an orphan, a row too many.
HOLDINGS = ((0, 0, 0), (1, 1, 0), (1, 1, 1), (2, 2, 0))
CHOICES: dict[str, Callable[[int], range]] = {
    "Flag": lambda page_size: range(2),
    "Count": lambda page_size: range(PAGES + 2),
    "Length": lambda page_size: range(PAGES * page_size + 2),
}


def untrue_effects(effects: ModuleType = spec_effects, names: Iterable[str] = tuple(TRUTH)) -> Iterator[str]:
    """For each effect that allows what is wrong, refuses what is right, or tells what is not so: the first case."""
    for name in names:
        if name in TRUTH and hasattr(effects, name) and (found := next(_untrue(getattr(effects, name)), "")):
            yield f"{name}: {found}"


def _untrue(cls: Any) -> Iterator[str]:
    for d, before, after in _cases(cls.__name__):
        for effect in _instances(cls, d.page_size):
            ghosts, conditions = effect.apply(d, before, after)
            row = _row(d, before)
            TRUTH[cls.__name__](row, effect, after)
            if failed := [c.sentence for c in conditions if not c.holds]:
                if not row.wrong:
                    yield f"refused ({failed[0]}), and nothing is wrong: {effect} with {_row(d, before)}"
                continue
            if row.wrong:
                yield f"{row.wrong}, and no condition says so: {effect} with {_row(d, before)}"
            for ghost, value in row.ghosts().items():
                if getattr(ghosts, ghost) != value:
                    yield f"{ghost} is {value}, not {getattr(ghosts, ghost)}: {effect} with {_row(d, before)}"


def _instances(cls: Any, page_size: int) -> Iterator[Any]:
    choices = [CHOICES[str(f.type)](page_size) for f in fields(cls)]
    flags = [str(f.type) == "Flag" for f in fields(cls)]
    for values in itertools.product(*choices):
        yield cls(*(bool(v) if flag else v for v, flag in zip(values, flags, strict=True)))


def _cases(effect: str) -> Iterator[tuple[Integers, Ledger, Ledger]]:
    """Every small row, and the ledgers that may stand behind it."""
    for page_size, window in itertools.product((1, 2), (0, WINDOW) if effect == "Report" else (WINDOW,)):
        d = Integers(page_size, ROW_WIDTH, window=window)
        for after in _afters(d) if effect in READING else (pristine(d),):
            for pages, (rows, locks, lost) in itertools.product(range(PAGES + 1), HOLDINGS):
                ends = range(pages + 1)
                for of_tree, gone, valid in itertools.product(ends, ends, range(pages * page_size + 1)):
                    yield (
                        d,
                        pristine(d).but(
                            rows=rows,
                            row_end=pages,
                            tree_end=of_tree,
                            orphans=lost,
                            window_start=gone,
                            kv_valid=valid,
                            locks=locks,
                        ),
                        after,
                    )


def _afters(d: Integers) -> Iterator[Ledger]:
    """What an action may leave: nothing, a slot, or a live turn, lent or not, that reads so many tokens."""
    yield pristine(d)
    for tokens in (1, d.page_size, d.page_size + 1):
        slot = pristine(d).but(slot_held=True, slot_kv_committed_len=tokens)
        yield from (slot.but(phase=phase) for phase in (NONE, WAITING))
        turn = pristine(d).but(phase=RUNNING, kv_committed_len=tokens, origin_len=tokens + 1)
        yield from (turn, turn.but(phase=PREFILL), turn.but(origin_len=tokens - 1, kv_committed_len=tokens))
        yield turn.but(plain=True)
        yield turn.but(slot_held=True, lent=True, slot_kv_committed_len=PAGES * d.page_size)


def _row(d: Integers, s: Any) -> Row:
    ghosts = (s.rows, s.row_end, s.tree_end, s.orphans, s.window_start, s.kv_valid, s.locks)
    return Row(d.page_size, *ghosts, windowed=d.windowed)
