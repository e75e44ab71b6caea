"""Makes the events of a trace out of what a recorder put down.

A rare event comes as a dict of its fields, and of what can be told only when all page ids are here. A decode step, or the
results of one, comes as one tuple for the whole batch: naming the values of each request takes ten times as long as reading
them, so it is done here, away from the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import ne
from typing import Any

from kvproof.conformance.adapters.live.readings import SESSION, TURN, Values, named

DECODE = "decode"
"""(DECODE, step, turns, rows, lengths, output lengths, sessions, opened, reserved): a batch was prepared for a decode step.

`lengths`: the values of `TURN`. `sessions`: of each turn its session's id and the values of `SESSION`, None for a request
without one; None for all if nothing has touched them since they were read last. `opened`: None if no page begins; else
(the lengths with the token of this step, None where each token opens a page; the page of each token; its window page, or None).
`reserved`: where rounds of speculation reserve ahead, the pages that each turn took, of both pools; then nothing is `opened`.
"""
RESULT = "result"
"""(RESULT, step, turns, output lengths before it, output lengths): who gained nothing has no result."""

ONLY_IF_IT_FREES = "only if it frees"
"""Of a rare event: it is one only if a page was freed."""
TAKEN_OVER = "taken over"
"""Of a rare event: which pages of the tree took the window pages of a row, the window pages of that row by position, and how many
pages of it the tree was asked to take."""

SessionReading = tuple[str, tuple[Any, ...]]
Opened = tuple[list[int] | None, list[int], list[int] | None]


def events_of(record: Any) -> int:
    """How many events `Assembly` makes of a record: what never reaches the process that writes can be counted too."""
    if isinstance(record, dict):
        return int(not _is_empty(record))
    return len(record[2]) if record[0] == DECODE else sum(map(ne, record[3], record[4]))


def _is_empty(event: Values) -> bool:
    return ONLY_IF_IT_FREES in event and not (event.get("free") or event.get("window_free"))


def _shared(remapped: list[tuple[list[int], list[int]]], windows: list[int], pages: int) -> list[int]:
    """The page of the tree that took the window page at each position, 0 where none did."""
    taken = {window: page for pages, of_window in remapped for page, window in zip(pages, of_window, strict=True)}
    return [taken.get(window, 0) for window in windows[:pages]]


class Assembly:
    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        # turn -> the session that it belonged to when it was last seen
        self._session_of: dict[str, str] = {}

    def events(self, record: Any) -> Iterator[Values]:
        """The fields of each event of a record, in the names of `spec.trace.Event`; of a batch also in their order there."""
        if not isinstance(record, dict):
            kind, *values = record
            yield from (self._decodes if kind == DECODE else self._results)(*values)
        elif not _is_empty(record):
            self._remember(record)
            event = {name: value for name, value in record.items() if name not in (ONLY_IF_IT_FREES, TAKEN_OVER)}
            if TAKEN_OVER in record:
                event["shared"] = _shared(*record[TAKEN_OVER])
            yield event

    def _remember(self, event: Values) -> None:
        turn, session = event.get("turn"), event.get("session")
        if turn is None:
            return
        if session is None or event["action"] in ("finish", "abort"):
            self._session_of.pop(turn, None)
        else:
            self._session_of[turn] = session

    def _decodes(
        self,
        step: int,
        turns: list[str],
        rows: list[int],
        lengths: list[tuple[int, int, int]],
        output_lens: list[int],
        sessions: list[SessionReading | None] | None,
        opened: Opened | None,
        reserved: list[tuple[list[int], list[int]]] | None,
    ) -> Iterator[Values]:
        for place, turn in enumerate(turns):
            event: Values = {"step": step, "action": DECODE}
            after = {**named(TURN, lengths[place]), "output_len": output_lens[place]}
            reading = sessions[place] if sessions is not None else None
            if reading is not None:
                self._session_of[turn] = reading[0]
                after = {**named(SESSION, reading[1]), **after}
            elif sessions is not None:
                self._session_of.pop(turn, None)
            if turn in self._session_of:
                event["session"] = self._session_of[turn]
            event["turn"], event["row"] = turn, rows[place]
            if opened is not None and self._opens_page(opened, place):
                _, pages, window_pages = opened
                event["alloc"] = [pages[place]]
                if window_pages is not None:
                    event["window_alloc"] = [window_pages[place]]
            elif reserved is not None and reserved[place][0]:
                event["alloc"], window_pages = reserved[place]
                if window_pages:
                    event["window_alloc"] = window_pages
            event["after"] = after
            yield event

    def _opens_page(self, opened: Opened, place: int) -> bool:
        seq_lens = opened[0]
        return seq_lens is None or (seq_lens[place] - 1) % self._page_size == 0

    def _results(self, step: int, turns: list[str], before: list[int], output_lens: list[int]) -> Iterator[Values]:
        for turn, earlier, output_len in zip(turns, before, output_lens, strict=True):
            if output_len != earlier:
                event: Values = {"step": step, "action": RESULT}
                if turn in self._session_of:
                    event["session"] = self._session_of[turn]
                event["turn"], event["params"] = turn, {"tokens": output_len - earlier}
                event["after"] = {"output_len": output_len}
                yield event
