"""A trace read in batches and by records: the events, and how the reading ended. Both have to be the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kvproof.conformance.errors import UserError
from kvproof.conformance.traces.columnar_events import events_of
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.trace import Event

Reading = tuple[list[Event], Any]
"""The events, and after them the sentence of an error, or what the reader knows of the end."""


def read_in_batches(path: Path) -> Reading:
    return _read(path, lambda reader: (event for batch in reader.stored_batches() for event in events_of(batch)))


def read_by_records(path: Path) -> Reading:
    return _read(path, lambda reader: (record for _, record in reader if isinstance(record, Event)))


def _read(path: Path, events_in: Callable[[Any], Iterable[Event]]) -> Reading:
    found = []
    try:
        reader = read_trace(path)
        for event in events_in(reader):
            found.append(event)
    except UserError as error:
        return found, error.message
    return found, (reader.end, reader.truncated_at, reader.broken_off, reader.place, reader.position)
