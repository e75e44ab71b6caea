"""Runs: many records packed as one, by machine code that packs each where it is put down."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator
from typing import Any

RUN = "run"

Run = tuple[int, int, list[int], bytes]
"""How many records, how many events they will be, output lengths of their batch after them, and the records, each packed."""


def unpacked(records: Iterable[Any]) -> Iterator[Any]:
    """The records, those of runs one by one. A list of marshal's begins with its length, in four bytes."""
    for record in records:
        if isinstance(record, tuple) and record[0] == RUN:
            _, count, _, _, packed = record
            yield from marshal.loads(b"[" + count.to_bytes(4, "little") + packed)
        else:
            yield record
