"""What every step of the scheduler does: a decode is prepared for a batch, and the result of one is processed.

This is the hot path: of each request a few host-side integers are read, and the whole batch is put down as one tuple.
"""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import Any

from .assembly import DECODE, RESULT
from .notes import Notes
from .observe import Observer
from .releases import Release
from .reserving import Reserving

RID = attrgetter("rid")


class Steps:
    def __init__(self, release: Release, observe: Observer, notes: Notes, reserving: Reserving | None = None) -> None:
        self._release = release
        self._observe = observe
        self._notes = notes
        self._reserving = reserving
        # Requests of the batch whose result is being processed, their output lengths before it, and how many are written.
        self._awaiting_result: list[Any] = []
        self.lens_before: list[int] = []
        self._results_written = 0

    def prepared_for_decode(self, batch: Any) -> None:
        if sys.exc_info()[0] is not None:
            return  # it raised: nothing was prepared
        reqs, observe, release, notes = batch.reqs, self._observe, self._release, self._notes
        seq_lens = batch.seq_lens_cpu.tolist()
        pages = observe.pages_opened(batch.out_cache_loc, seq_lens) if self._reserving is None else None
        sessions = None if notes.sessions_are_known else observe.sessions_of(reqs)
        notes.sessions_are_known = True
        notes.put(
            (
                DECODE,
                notes.step(),
                list(map(RID, reqs)),
                list(map(release.row, reqs)),
                list(map(release.lengths, reqs)),
                [len(req.output_ids) for req in reqs],
                sessions,
                seq_lens,
                pages,
                observe.window_pages_opened(batch.out_cache_loc) if pages is not None else None,
                None if self._reserving is None else [self._reserved(self._reserving, req) for req in reqs],
            )
        )

    def _reserved(self, reserving: Reserving, req: Any) -> tuple[list[int], list[int]]:
        """Pages, and window pages, that this round reserved."""
        if req.rid not in reserving.taken:
            return [], []
        row, taken, observe = self._release.row(req), reserving.taken[req.rid], self._observe
        return observe.new_pages(row, *taken), observe.new_window_pages(row, *taken)

    def results_come(self, _scheduler: Any, batch: Any, *_args: Any) -> None:
        self._awaiting_result = batch.reqs
        self.lens_before = [len(req.output_ids) for req in batch.reqs]
        self._results_written = 0

    def results_came(self, _scheduler: Any, _batch: Any, *_args: Any) -> None:
        self.write_results_up_to(None)
        self._awaiting_result = []

    def write_results_up_to(self, last: Any | None) -> None:
        """Write `result` for the requests of the batch, in its order, through `last`: it is about to be cached or released.

        Only what a result can change is read: the lengths and the session are seen again when the next step is prepared,
        or at the event that follows.
        """
        reqs, start = self._awaiting_result, self._results_written
        if last is not None:
            if last not in reqs[start:]:
                return
            reqs = reqs[: reqs.index(last, start) + 1]
        self._results_written = len(reqs)
        if start:
            reqs = reqs[start:]
        output_lens, before = [len(req.output_ids) for req in reqs], self.lens_before[start : self._results_written]
        if output_lens != before:
            self._notes.put((RESULT, self._notes.step(), list(map(RID, reqs)), before, output_lens))
