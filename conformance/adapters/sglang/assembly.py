"""Makes the events of a trace out of what a recorder put down.

A rare event comes as a dict of its fields. A decode step, or the results of one, comes as one tuple for the whole batch:
naming the values of each request takes ten times as long as reading them, so it is done here, away from the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .observe import SESSION, TURN, Values, named

DECODE = "decode"
RESULT = "result"

SessionReading = tuple[str, tuple[Any, ...]]


class Assembly:
    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        # turn -> the session that it belonged to when it was last seen
        self._session_of: dict[str, str] = {}

    def events(self, record: Any) -> Iterator[Values]:
        """The fields of each event of a record, in the names of `spec.trace.Event`, in order."""
        if isinstance(record, dict):
            # Ids of a GPU were not known when an eviction was put down: it may have been of nothing.
            if record["action"] == "evict" and not (record["free"] or record.get("window_free")):
                return
            self._remember(record)
            yield record
        elif record[0] == DECODE:
            yield from self._decode(*record[1:])
        else:
            yield from self._result(*record[1:])

    def _remember(self, event: Values) -> None:
        turn, session = event.get("turn"), event.get("session")
        if turn is None:
            return
        if session is None or event["action"] in ("finish", "abort"):
            self._session_of.pop(turn, None)
        else:
            self._session_of[turn] = session

    def _decode(
        self,
        step: int,
        turns: list[str],
        rows: list[int],
        lengths: list[tuple[int, int, int]],
        output_lens: list[int],
        sessions: list[SessionReading | None] | None,
        seq_lens: list[int],
        pages: list[int] | None,
        window_pages: list[int] | None,
        reserved: list[tuple[list[int], list[int]]] | None,
    ) -> Iterator[Values]:
        """`sessions`: of each turn, or None if nothing has touched them since they were read last.

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
            if pages is not None and (seq_lens[place] - 1) % self._page_size == 0:
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
