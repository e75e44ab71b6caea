"""What every step of the scheduler does: a decode is prepared for a batch, and the result of one is processed.

This is the hot path, and in a server its caches are cold: an attribute that a tight loop reads in 20 ns takes 50. So nothing
is read twice. Of a batch that was put down before, and to which nothing but decode steps and results happened since, only
what such a step changes is read: the lengths, the output lengths once they have grown, and the allocated indices where a
page begins. Whatever else happens, the next step is read anew and whole.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from kvproof.conformance.adapters.live.assembly import AGAIN, DECODE, GAINED, RESULT
from kvproof.conformance.adapters.sglang.notes import Notes
from kvproof.conformance.adapters.sglang.observe import Observer
from kvproof.conformance.adapters.sglang.releases import Release
from kvproof.conformance.adapters.sglang.rounds import Rounds

RID = attrgetter("rid")


class Steps:
    def __init__(self, release: Release, observe: Observer, notes: Notes, rounds: Rounds | None = None) -> None:
        self._release = release
        self._observe = observe
        self._notes = notes
        self._put, self._step, self._lengths = notes.put, notes.step, release.lengths
        self._rounds = rounds
        # The batch that was put down last, its output lengths as they were read last, and when its next page begins.
        self._reqs: list[Any] | None = None
        self._output_lens: list[int] = []
        self._openings = Openings(observe.page_size)
        self._steps_to_opening = 0
        # A result of that batch that is not put down yet: (step, output lengths).
        self._gained: tuple[int, list[int]] | None = None
        notes.before_event = self.tell_result
        # Requests of the batch whose result is being processed, their output lengths before it, and how many are written.
        self._awaiting_result: list[Any] = []
        self._lens_before: list[int] = []
        self._results_written = 0

    # -- a decode is prepared --

    def prepared_for_decode(self, batch: Any) -> None:
        if self._rounds is None:
            self._put_decodes(batch)
        else:
            self._put_rounds(batch, self._rounds)

    def _put_decodes(self, batch: Any) -> None:
        reqs = batch.reqs
        if reqs != self._reqs or not self._notes.sessions_are_known:
            self._decodes(batch)
            return
        self._steps_to_opening -= 1
        if self._steps_to_opening:
            self._put((AGAIN, self._step(), self._lengths(reqs), self._gained))
        else:
            self._opens_pages(batch)
        self._gained = None

    def _decodes(self, batch: Any) -> None:
        self.tell_result()
        reqs, observe, release, notes = batch.reqs, self._observe, self._release, self._notes
        seq_lens = batch.seq_lens_cpu.tolist()
        pages = window_pages = None
        if self._openings.at(seq_lens):
            pages, window_pages = observe.pages_of(batch.out_cache_loc), observe.window_pages_of(batch.out_cache_loc)
        self._steps_to_opening = self._openings.steps_to_next
        sessions = None if notes.sessions_are_known else observe.sessions_of(reqs)
        notes.sessions_are_known = True
        self._reqs = list(reqs)
        self._output_lens = [len(req.output_ids) for req in reqs]
        notes.put(
            (
                DECODE,
                notes.step(),
                list(map(RID, reqs)),
                list(map(release.row, reqs)),
                release.lengths(reqs),
                self._output_lens,
                sessions,
                seq_lens,
                pages,
                window_pages,
                None,
            )
        )

    def _put_rounds(self, batch: Any, rounds: Rounds) -> None:
        """A round is told in full each time."""
        self.tell_result()
        reqs, observe, release, notes = batch.reqs, self._observe, self._release, self._notes
        rows, taken = list(map(release.row, reqs)), rounds.launched(reqs)
        notes.sessions_are_known = True
        notes.put(
            (
                DECODE,
                notes.step(),
                list(map(RID, reqs)),
                rows,
                rounds.lengths(reqs),
                [len(req.output_ids) for req in reqs],
                observe.sessions_of(reqs),
                None,
                None,
                None,
                [
                    (observe.new_pages(row, *positions), observe.new_window_pages(row, *positions))
                    for row, positions in zip(rows, taken, strict=True)
                ],
            )
        )

    def _opens_pages(self, batch: Any) -> None:
        """The batch that was put down last decodes once more, and a new page begins."""
        seq_lens = self._openings.after(batch.seq_lens_cpu)
        self._steps_to_opening = self._openings.steps_to_next
        pages, window_pages = (
            self._observe.pages_of(batch.out_cache_loc),
            self._observe.window_pages_of(batch.out_cache_loc),
        )
        self._put((AGAIN, self._step(), self._lengths(batch.reqs), self._gained, seq_lens, pages, window_pages))

    def over(self, req: Any) -> None:
        """The request was retracted, or is over."""
        if self._rounds is not None:
            self._rounds.over(req.rid)

    # -- results come --

    def results_come(self, _scheduler: Any, batch: Any, result: Any = None, *_args: Any) -> None:
        if self._rounds is not None:
            self._rounds.results_come(batch, result)
        self._awaiting_result = reqs = batch.reqs
        self._results_written = 0
        if reqs == self._reqs and self._notes.sessions_are_known:
            self._lens_before = self._output_lens
        else:
            self._lens_before = [len(req.output_ids) for req in reqs]

    def results_came(self, _scheduler: Any, _batch: Any, *_args: Any) -> None:
        reqs, before = self._awaiting_result, self._lens_before
        if before is self._output_lens and self._notes.sessions_are_known and not self._results_written:
            output_lens = [len(req.output_ids) for req in reqs]
            if output_lens != before:
                self.tell_result()
                self._output_lens, self._gained = output_lens, (self._step(), output_lens)
        else:
            self.write_results_up_to(None)
        self._awaiting_result = []

    def tell_result(self) -> None:
        """What a batch gained is told with its next step, or before whatever else happens."""
        if self._gained is not None:
            gained, self._gained = self._gained, None
            self._put((GAINED, *gained))

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
        output_lens, before = [len(req.output_ids) for req in reqs], self._lens_before[start : self._results_written]
        if output_lens != before:
            self.tell_result()
            self._reqs = None  # with overlap some may be of the batch that is prepared already
            self._notes.put((RESULT, self._notes.step(), list(map(RID, reqs)), before, output_lens))


class Openings:
    """When a decode step opens a page. While a batch only decodes, each of its requests grows by one token a step."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._seq_lens: list[int] = []
        self.steps_to_next = 0
        """how often the same batch decodes until one of its requests opens a page"""

    def at(self, seq_lens: list[int]) -> bool:
        """A batch decodes and reaches these lengths: does one of their last tokens open a page?"""
        offsets = [(seq_len - 1) % self._page_size for seq_len in seq_lens]
        self._seq_lens, self.steps_to_next = seq_lens, self._page_size - max(offsets, default=0)
        return 0 in offsets

    def after(self, seq_lens_cpu: Any) -> list[int] | None:
        """The lengths after `steps_to_next` steps; None where each token opens a page, and nobody needs to know them.

        Raises RuntimeError if they are not what was counted.
        """
        if self._page_size == 1:
            return None
        seq_lens: list[int] = seq_lens_cpu.tolist()
        if seq_lens != [seq_len + self.steps_to_next for seq_len in self._seq_lens]:
            raise RuntimeError(
                f"{self.steps_to_next} decode steps after lengths {self._seq_lens} a batch has {seq_lens}: "
                "pages may have been missed"
            )
        self.at(seq_lens)
        return seq_lens
