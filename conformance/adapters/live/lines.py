"""Makes the lines of a trace out of what a recorder put down: in the process that writes, away from the scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from kvproof.conformance.adapters.live.assembly import Assembly
from kvproof.conformance.traces.records import event_line


class Lines:
    def __init__(self, page_size: int) -> None:
        self._assembly = Assembly(page_size)
        self._seq = 0
        self.actions: Counter[str] = Counter()
        """How many lines of each action there were so far."""

    def of(self, records: Iterable[Any]) -> list[bytes]:
        """The lines of these records, each with its newline."""
        lines = []
        for record in records:
            # Most lines of a busy server are those of batches: they are put in order once, in `Assembly`, not at each line.
            is_in_order = isinstance(record, tuple)
            for event in self._assembly.events(record):
                whole = {"record": "event", "seq": self._seq, **event}
                lines.append((msgspec.json.encode(whole) if is_in_order else event_line(self._seq, event)) + b"\n")
                self._seq += 1
                self.actions[event["action"]] += 1
        return lines
