"""Makes the events of a trace out of what a recorder put down.

A rare event comes as a dict of its fields. A decode step, or the results of one, comes as one tuple for the whole batch:
naming the values of each request takes ten times as long as reading them, so it is done here, away from the scheduler. What
the same batch does next comes as a shorter tuple, which leaves out what was said of it before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvproof.conformance.adapters.live.readings import SESSION, TURN, Values, named

DECODE = "decode"
RESULT = "result"
# The same of the batch of the last `DECODE`.
AGAIN = "again"
GAINED = "gained"

SessionReading = tuple[str, tuple[Any, ...]]


class Assembly:
    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        # turn -> the session that it belonged to when it was last seen
        self._session_of: dict[str, str] = {}
        # Turns of the batch that decoded last, their rows, and their output lengths as they were seen last.
        self.turns: list[str] = []
        self._rows: list[int] = []
        self.output_lens: list[int] = []

    def events(self, record: Any) -> Iterator[Values]:
        """The fields of each event of a record, in the names of `spec.trace.Event`, in order."""
        if isinstance(record, dict):
            # Ids of a GPU were not known when an eviction was put down: it may have been of nothing.
            if record["action"] == "evict" and not (record["free"] or record.get("window_free")):
                return
            self._remember(record)
            yield record
            return
        kind, step, *rest = record
        if kind == AGAIN:
            yield from self._decodes_again(step, *rest)
        elif kind == GAINED:
            yield from self._gained(step, *rest)
        elif kind == DECODE:
            self.turns, self._rows, _, self.output_lens = rest[:4]
            yield from self._decode(step, *rest)
        else:
            yield from self._result(step, *rest)

    def _remember(self, event: Values) -> None:
        turn, session = event.get("turn"), event.get("session")
        if turn is None:
            return
        if session is None or event["action"] in ("finish", "abort"):
            self._session_of.pop(turn, None)
        else:
            self._session_of[turn] = session

    def _decodes_again(
        self,
        step: int,
        lengths: list[tuple[int, int, int]],
        gained: tuple[int, list[int]] | None,
        seq_lens: list[int] | None = None,
        pages: list[int] | None = None,
        window_pages: list[int] | None = None,
    ) -> Iterator[Values]:
        """Nothing has touched the batch since it was told, but steps and results of its own. Mostly no page begins.

        `gained`: the result that came before, its step and the output lengths.
        """
        if gained is not None:
            yield from self._gained(*gained)
        turns, rows, output_lens = self.turns, self._rows, self.output_lens
        yield from self._decode(step, turns, rows, lengths, output_lens, None, seq_lens, pages, window_pages, None)

    def _gained(self, step: int, output_lens: list[int]) -> Iterator[Values]:
        before, self.output_lens = self.output_lens, output_lens
        return self._result(step, self.turns, before, output_lens)

    def _decode(
        self,
        step: int,
        turns: list[str],
        rows: list[int],
        lengths: list[tuple[int, int, int]],
        output_lens: list[int],
        sessions: list[SessionReading | None] | None,
        seq_lens: list[int] | None,
        pages: list[int] | None,
        window_pages: list[int] | None,
        reserved: list[tuple[list[int], list[int]]] | None,
    ) -> Iterator[Values]:
        """`sessions`: of each turn, or None if nothing has touched them since they were read last.

        `seq_lens`: lengths with the token of this step, of interest only beside `pages`; None: each token opens a page.
        `reserved`: where rounds reserve ahead, the pages that each took, of both pools; then `pages` says nothing.
        """
        for place, turn in enumerate(turns):
            after = {**named(TURN, lengths[place]), "output_len": output_lens[place]}
            event: Values = {"action": DECODE, "step": step, "turn": turn, "row": rows[place], "after": after}
            reading = sessions[place] if sessions is not None else None
            if reading is not None:
                event["session"] = self._session_of[turn] = reading[0]
                event["after"] = {**named(SESSION, reading[1]), **after}
            elif sessions is not None:
                self._session_of.pop(turn, None)
            elif turn in self._session_of:
                event["session"] = self._session_of[turn]
            if pages is not None and (seq_lens is None or (seq_lens[place] - 1) % self._page_size == 0):
                event["alloc"] = [pages[place]]
                if window_pages is not None:
                    event["window_alloc"] = [window_pages[place]]
            if reserved is not None and reserved[place][0]:
                event["alloc"], event["window_alloc"] = reserved[place]
            yield event

    def _result(self, step: int, turns: list[str], before: list[int], output_lens: list[int]) -> Iterator[Values]:
        for turn, earlier, output_len in zip(turns, before, output_lens, strict=True):
            if output_len != earlier:
                event: Values = {"action": RESULT, "step": step, "turn": turn, "after": {"output_len": output_len}}
                event["params"] = {"tokens": output_len - earlier}
                if turn in self._session_of:
                    event["session"] = self._session_of[turn]
                yield event
