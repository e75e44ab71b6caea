"""How many events a record will be, counted where it is put down: what never reaches the process that writes can be named too."""

from __future__ import annotations

from collections.abc import Iterable
from operator import ne
from typing import Any

from kvproof.conformance.adapters.live.assembly import AGAIN, DECODE, GAINED


class Tally:
    """Counts what `Assembly` makes of the same records in the same order."""

    def __init__(self) -> None:
        # Output lengths of the batch that decoded last: a request that gained nothing has no result.
        self._output_lens: list[int] = []

    def of(self, records: Iterable[Any]) -> int:
        return sum(map(self._of, records))

    def _of(self, record: Any) -> int:
        if isinstance(record, dict):
            return int(record["action"] != "evict" or bool(record["free"] or record.get("window_free")))
        kind = record[0]
        if kind == AGAIN:
            gained = record[3]
            return len(record[2]) + (self._gained(gained[1]) if gained is not None else 0)
        if kind == GAINED:
            return self._gained(record[2])
        if kind == DECODE:
            self._output_lens = record[5]
            return len(record[2])
        return sum(map(ne, record[3], record[4]))

    def _gained(self, output_lens: list[int]) -> int:
        before, self._output_lens = self._output_lens, output_lens
        return sum(map(ne, before, output_lens))
