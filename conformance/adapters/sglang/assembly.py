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


class Assembly:
    def __init__(self, page_size: int) -> None:
        self._page_size = page_size

    def events(self, record: Any) -> Iterator[Values]:
        """The fields of each event of a record, in the names of `spec.trace.Event`, in order."""
        if isinstance(record, dict):
            if record["action"] != "evict" or record["free"]:  # page ids of a GPU are not known when it is put down
                yield record
        elif record[0] == DECODE:
            yield from self._decode(*record[1:])
        else:
            yield from self._result(*record[1:])

    def _decode(
        self,
        step: int,
        turns: list[tuple[Any, ...]],
        output_lens: list[int],
        sessions: list[tuple[str, tuple[Any, ...]] | None],
        seq_lens: list[int],
        pages: list[int] | None,
    ) -> Iterator[Values]:
        for place, seq_len in enumerate(seq_lens):
            event = _of_turn(DECODE, step, turns[place], output_lens[place], sessions[place])
            event["row"] = turns[place][1]
            if pages is not None and (seq_len - 1) % self._page_size == 0:
                event["alloc"] = [pages[place]]
            yield event

    def _result(
        self,
        step: int,
        turns: list[tuple[Any, ...]],
        output_lens: list[int],
        sessions: list[tuple[str, tuple[Any, ...]] | None],
        tokens: list[int],
    ) -> Iterator[Values]:
        for place, gained in enumerate(tokens):
            event = _of_turn(RESULT, step, turns[place], output_lens[place], sessions[place])
            event["params"] = {"tokens": gained}
            yield event


def _of_turn(
    action: str, step: int, turn: tuple[Any, ...], output_len: int, session: tuple[str, tuple[Any, ...]] | None
) -> Values:
    after = {**named(TURN, turn[2:]), "output_len": output_len}
    event = {"action": action, "step": step, "turn": turn[0], "after": after}
    if session is not None:
        event["session"] = session[0]
        event["after"] = {**named(SESSION, session[1]), **after}
    return event
