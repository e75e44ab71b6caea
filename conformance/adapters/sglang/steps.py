"""What every step of the scheduler does: a decode is prepared for a batch, and the result of one is processed.

This is the hot path, and in a server its caches are cold: an attribute that a tight loop reads in 20 ns takes 50. So nothing
is read twice. While a batch only decodes, only what a step changes is read: the lengths, the output lengths once they have
grown, and the allocated indices where a page begins. What stays the same is put down as the same list again, which `marshal`
packs as a reference. After any event but a decode and a result the batch is read anew and whole.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from kvproof.conformance.adapters.live.assembly import DECODE, RESULT
from kvproof.conformance.adapters.sglang.event_records import EventRecords
from kvproof.conformance.adapters.sglang.observe import Observer
from kvproof.conformance.adapters.sglang.releases import Release
from kvproof.conformance.adapters.sglang.speculation_v2 import Rounds

RID = attrgetter("rid")


class Steps:
    def __init__(self, release: Release, observe: Observer, events: EventRecords, rounds: Rounds | None = None) -> None:
        self._release = release
        self._observe = observe
        self._events = events
        self._put, self._step, self._lengths = events.put, events.step, release.lengths
        self._rounds = rounds
        # The batch that decoded last, as long as what was read of it holds, and its output lengths as they were read last.
        self._reqs: list[Any] | None = None
        self._turns: list[str] = []
        self._rows: list[int] = []
        self._output_lens: list[int] = []
        self._openings = PageOpenings(observe.page_size)
        self._steps_to_opening = 0
        # Requests of the batch whose result is being processed, their output lengths before it, and how many are written.
        self._awaiting_result: list[Any] = []
        self._lens_before: list[int] = []
        self._results_written = 0

    # -- a decode is prepared --

    def prepared_for_decode(self, batch: Any) -> None:
        reqs, sessions, opened = batch.reqs, None, None
        if reqs == self._reqs and self._events.sessions_are_known:
            self._steps_to_opening -= 1
            if not self._steps_to_opening:
                self._openings.after(batch.seq_lens_cpu)
                self._steps_to_opening = self._openings.steps_to_next
                opened = self._opened(batch.out_cache_loc)
        else:
            sessions = self._read_batch(reqs)
            if self._openings.at(batch.seq_lens_cpu.tolist()):
                opened = self._opened(batch.out_cache_loc)
            self._steps_to_opening = self._openings.steps_to_next
        turns, rows, output_lens = self._turns, self._rows, self._output_lens
        self._put((DECODE, self._step(), turns, rows, self._lengths(reqs), output_lens, sessions, opened, None))

    def prepared_for_round(self, batch: Any) -> None:
        """Where rounds of speculation reserve ahead, each round is recorded in full."""
        assert self._rounds is not None
        reqs, observe = batch.reqs, self._observe
        taken = self._rounds.launched(reqs)
        self._events.sessions_are_known = False
        sessions = self._read_batch(reqs)
        reserved = [
            (observe.new_pages(row, *positions), observe.new_window_pages(row, *positions))
            for row, positions in zip(self._rows, taken, strict=True)
        ]
        lengths, turns, rows, output_lens = self._rounds.lengths(reqs), self._turns, self._rows, self._output_lens
        self._reqs = None
        self._put((DECODE, self._step(), turns, rows, lengths, output_lens, sessions, None, reserved))

    def _read_batch(self, reqs: list[Any]) -> list[Any] | None:
        """What holds while a batch only decodes. The sessions are returned, or None if they were not touched since."""
        sessions = None if self._events.sessions_are_known else self._observe.sessions_of(reqs)
        self._events.sessions_are_known = True
        self._reqs, self._turns = list(reqs), list(map(RID, reqs))
        self._rows = list(map(self._release.row, reqs))
        self._output_lens = [len(req.output_ids) for req in reqs]
        return sessions

    def _opened(self, indices: Any) -> tuple[list[int] | None, list[int], list[int] | None]:
        return self._openings.seq_lens, self._observe.pages_of(indices), self._observe.window_pages_of(indices)

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
        if reqs == self._reqs and self._events.sessions_are_known:
            self._lens_before = self._output_lens
        else:
            self._lens_before = [len(req.output_ids) for req in reqs]

    def results_came(self, _scheduler: Any, _batch: Any, *_args: Any) -> None:
        reqs, before = self._awaiting_result, self._lens_before
        if before is self._output_lens and self._events.sessions_are_known and not self._results_written:
            output_lens = [len(req.output_ids) for req in reqs]
            if output_lens != before:
                self._output_lens = output_lens
                self._put((RESULT, self._step(), self._turns, before, output_lens))
        else:
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
        output_lens, before = [len(req.output_ids) for req in reqs], self._lens_before[start : self._results_written]
        if output_lens != before:
            self._reqs = None  # with overlap some may be of the batch that is prepared already
            self._put((RESULT, self._step(), list(map(RID, reqs)), before, output_lens))


class PageOpenings:
    """When a decode step opens a page. While a batch only decodes, each of its requests grows by one token a step."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self.seq_lens: list[int] | None = None
        """lengths of the batch when a page began last; None where each token opens a page, and nobody needs to know them"""
        self.steps_to_next = 0
        """how often the same batch decodes until one of its requests opens a page"""

    def at(self, seq_lens: list[int]) -> bool:
        """A batch decodes and reaches these lengths: does one of their last tokens open a page?"""
        offsets = [(seq_len - 1) % self._page_size for seq_len in seq_lens]
        self.seq_lens = seq_lens if self._page_size > 1 else None
        self.steps_to_next = self._page_size - max(offsets, default=0)
        return 0 in offsets

    def after(self, seq_lens_cpu: Any) -> None:
        """The batch has decoded `steps_to_next` times. Raises RuntimeError if its lengths are not what was counted."""
        if self.seq_lens is None:
            return
        seq_lens: list[int] = seq_lens_cpu.tolist()
        if seq_lens != [seq_len + self.steps_to_next for seq_len in self.seq_lens]:
            raise RuntimeError(
                f"{self.steps_to_next} decode steps after lengths {self.seq_lens} a batch has {seq_lens}: "
                "pages may have been missed"
            )
        self.at(seq_lens)
