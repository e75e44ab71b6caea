"""What stands still although it can go on.

A scheduler is judged by what it could have done: a turn that runs gets steps, a turn that waits is admitted while there is room
for it and for all that run, and a close whose turn is over is carried out. How long each may take is the profile's `Patience`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter

from kvproof.conformance.replay.page_book import FREE, TREE, PageBook
from kvproof.conformance.replay.passes import Passes
from kvproof.model.integers import Integers
from kvproof.spec.liveness import STAGES
from kvproof.spec.patience import Patience
from kvproof.spec.state import NONE, RUNNING, WAITING, Ledger, fill_len, is_live

ROW, PAGES, WINDOW_PAGES = "row", "pages", "window pages"
A_TURN = "a turn continues"
"""What a turn waits for in a state that the rules do not lead to: after a known deviation was followed."""
AN_ABORT = "a turn that is to be aborted ends"


SPARE = 2
"""Pages that a scheduler may want beside what a turn can use, while others run: SGLang adds a page, and wants more to be there
than that (#31205)."""


def has_room(wanted: int, obtainable: int) -> bool:
    """Pages that may be wanted, of all that a scheduler keeps back for those that run, too, can be had."""
    return wanted <= obtainable


@dataclass(frozen=True)
class Standing:
    """A ledger that stands still, or goes round. `waits_for`: the stage that the proof of liveness shows it can leave.

    `how`: for how long, in words.
    """

    key: str
    waits_for: str
    how: str


@dataclass(frozen=True)
class Liveness:
    """Looks at all ledgers of a replay. `rows`: of req_to_token."""

    d: Integers
    rows: int
    patience: Patience
    ledgers: Mapping[str, Ledger]
    book: PageBook
    passes: Passes

    def standing(self, idle_passes: int = 0) -> Iterator[Standing]:
        """Who stands still after the last event. `idle_passes`: so often since then the scheduler found nothing to run.

        In the order of names: that in which ledgers came to be is not known to each checker.
        """
        is_idle = idle_passes >= self.patience.turns
        for key, ledger in sorted(self.ledgers.items(), key=itemgetter(0)):
            stood = max(self.passes.since(key), idle_passes if is_idle else 0)
            if self._stands(key, ledger, stood, is_idle=is_idle):
                yield Standing(
                    key, self._waits_for(ledger), f"after {stood} passes of the scheduler it stands where it stood"
                )

    def goes_round(self, key: str) -> Standing | None:
        """A turn that was just retracted, too often."""
        times = self.passes.retracts.get(key, 0)
        if times <= self.patience.retracts:
            return None
        return Standing(key, A_TURN, f"it was retracted {times} times, and got no token between")

    def runs_on(self, key: str, steps: int) -> Standing | None:
        """A turn of which so many steps were launched after its abort was asked for."""
        if steps <= self.patience.aborted:
            return None
        return Standing(key, AN_ABORT, f"{steps} steps of it were launched since its abort was asked for")

    def _stands(self, key: str, ledger: Ledger, stood: int, *, is_idle: bool) -> bool:
        if ledger.phase == NONE:
            return ledger.closing and stood >= (self.patience.turns if is_idle else self.patience.closes)
        if stood < self.patience.turns:
            return False
        if ledger.phase == RUNNING:
            return not is_idle or has_room(1, self.obtainable())
        if is_idle:
            return self.can_run(key)
        if self.passes.barren < self.patience.turns or not self._could_run_beside_others(key):
            return False
        return ledger.phase != WAITING or not self._is_the_queue_held_up()

    def _is_the_queue_held_up(self) -> bool:
        """While others run, a turn may wait behind one that lacks a row or pages: a scheduler may keep the order of its queue."""
        return any(of.phase == WAITING and not self._could_run_beside_others(key) for key, of in self.ledgers.items())

    def can_run(self, key: str) -> bool:
        """A turn that waits or is in its prefill has a row, or can have one, and its pages: if others run, then even if they
        all, and this turn, take their whole rows. Not known of a window pool whose pages the trace does not name.
        """
        return self._is_room_known() and not self.lacking(key, self._wanted(key))

    def _could_run_beside_others(self, key: str) -> bool:
        """Whether it can now, and could since something was given back last: from then on pages only became fewer.

        Window pages come and go with each pass. But each stands behind a page of the full pool, so they are never more than the
        pages that are in use.
        """
        wanted, window = self._wanted(key) + SPARE, self.book.window
        in_use = self.book.pool_pages - self.obtainable()
        windows_were_short = window.is_followed and not has_room(wanted, window.pool_pages - in_use)
        return self._is_room_known() and not windows_were_short and not self.lacking(key, wanted)

    def _is_room_known(self) -> bool:
        return self.book.window.is_followed or not self.d.window

    def _wanted(self, key: str) -> int:
        widest = self.d.ceil_pages(self.d.row_width)
        others = [other for other, of in self.ledgers.items() if other != key and is_live(self.d, of)]
        reserved = sum(widest - self._length(other) for other in others)
        return (widest if others else self.input_pages(key)) - self._length(key) + reserved

    def lacking(self, key: str, pages: int) -> tuple[str, ...]:
        """What a turn cannot have, of a row and so many pages."""
        waits = self.ledgers[key].phase == WAITING and not self.ledgers[key].slot_held
        return (
            *((ROW,) if waits and len(self.users()) >= self.rows else ()),
            *(() if has_room(pages, self.obtainable()) else (PAGES,)),
            *((WINDOW_PAGES,) if self._windows_are_short(pages) else ()),
        )

    def _windows_are_short(self, pages: int) -> bool:
        window = self.book.window
        return window.is_followed and not has_room(pages, window.free_count())

    def input_pages(self, key: str) -> int:
        """Pages of the tokens that a turn has to run."""
        return self.d.ceil_pages(fill_len(self.ledgers[key]))

    def missing_pages(self, key: str) -> int:
        """Those of them that its row does not have."""
        return self.input_pages(key) - self._length(key)

    def obtainable(self) -> int:
        """Pages that are free, or can be evicted."""
        return self.book.count(FREE) + self.evictable()

    def users(self) -> list[str]:
        """Ledgers that have a row."""
        return sorted(key for key in self.ledgers if self.book.table(key) is not None)

    def evictable(self) -> int:
        """Pages of the tree that no lock holds."""
        return self.book.count(TREE) - self.book.protected

    def _length(self, key: str) -> int:
        """Pages in the row of a ledger."""
        table = self.book.table(key)
        return 0 if table is None else len(table.pages)

    def _waits_for(self, ledger: Ledger) -> str:
        last = STAGES[-1].waits_for if ledger.phase == NONE else A_TURN
        return next((stage.waits_for for stage in STAGES if stage.holds(self.d, ledger)), last)
