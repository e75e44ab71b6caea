"""Lines of events as the loop reads them: scanned at once (`scanner.py`), as far as they are plain."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np

from kvproof.conformance.compiled.build import compiled_scan
from kvproof.conformance.compiled.layout import (
    ABSENT,
    COLUMNS,
    LISTS,
    ODD,
    SESSION,
    TURN,
    Array,
    EventArrays,
    row_length,
)
from kvproof.conformance.compiled.scan_layout import (
    NAME_LENGTH,
    NAME_ROLE,
    NAME_START,
    PADDING,
    SCANNED_COUNTS,
    SCANNED_EVENTS,
    SCANNED_LONGEST,
    SCANNED_NAMES,
    SCANNED_SEQ,
    SCANNED_TO,
    KeyArrays,
    ScannedArrays,
    key_arrays,
)
from kvproof.conformance.traces import json_lines
from kvproof.conformance.traces.columnar_schema import ACTIONS
from kvproof.spec.trace import RECORD, Event

NEWLINE = 10
NAMED = [SESSION, TURN]
SHORTEST_LINE = 32
"""At most the bytes of an event as a line: so many empty lines are no reason to make room."""
LEAST_RUN = 2
"""Bytes of a page id and what parts it from the next."""

the_keys: Any = functools.cache(key_arrays)


@dataclass(frozen=True)
class ScannedLines:
    """Events of plain lines, one after the other, their seqs without a gap."""

    text: bytes
    scanned: ScannedArrays
    codes: Array
    """The number of each event's session and turn among the names of these lines, -1 where there is none."""
    counts: Array

    @classmethod
    def of(cls, text: bytes, begin: int = 0, scan: Any = None) -> ScannedLines:
        """Those that stand from a byte of `text` on, up to the first line that is not plain. Only whole lines are looked at."""
        end = text.rfind(b"\n") + 1
        if not text.isascii():
            end = _end_of_what_is_text(text, end)
        end = max(begin, end)
        keys = cast(KeyArrays, the_keys())
        newlines = int(np.count_nonzero(np.frombuffer(text, np.uint8)[begin:end] == NEWLINE))
        lines = min(newlines, (end - begin) // SHORTEST_LINE + 1)
        scanned = _room_for(lines, end - begin, len(keys.keys))
        counts: Array = np.zeros(SCANNED_COUNTS, np.int64)
        padded = text + PADDING
        words: Array = np.ndarray(len(text), np.dtype("<i8"), padded, strides=(1,))
        (scan or compiled_scan())(
            np.frombuffer(padded, np.uint8), words, begin, end, json_lines.LONGEST_RECORD, keys, scanned, counts
        )
        return cls(text, scanned, scanned.table[NAMED], counts)

    def __len__(self) -> int:
        return int(self.counts[SCANNED_EVENTS])

    @property
    def end(self) -> int:
        """The byte of the text at which the first line begins that is not among them."""
        return int(self.counts[SCANNED_TO])

    @property
    def first_seq(self) -> int:
        return int(self.counts[SCANNED_SEQ])

    @property
    def span(self) -> tuple[int, int, int]:
        """The seqs of the first and the last, and how many they are."""
        return self.first_seq, self.first_seq + len(self) - 1, len(self)

    @property
    def longest_list(self) -> int:
        return int(self.counts[SCANNED_LONGEST])

    def numbered(self, number_session: Any, number_turn: Any) -> EventArrays:
        """The arrays of the loop, once names have the numbers that they have in the whole trace."""
        n, scanned = len(self), self.scanned
        number = {SESSION: number_session, TURN: number_turn}
        numbers = np.full(int(self.counts[SCANNED_NAMES]) + 1, -1, np.int32)
        for place, name in enumerate(scanned.names[: len(numbers) - 1].tolist()):
            start = name[NAME_START]
            numbers[place] = number[name[NAME_ROLE]](self.text[start : start + name[NAME_LENGTH]].decode())
        for role, codes in zip(NAMED, self.codes, strict=True):
            scanned.table[role, :n] = numbers[codes[:n]]  # the last number, -1, is that of no name
        return EventArrays(scanned.table, scanned.steps, scanned.begins, scanned.ends, scanned.runs)

    def events(self, first: int, last: int) -> Iterator[Event]:
        """Some of them as objects."""
        starts = self.scanned.starts[first : last + 1].tolist()
        for begin, end in pairwise(starts):
            yield cast(Event, RECORD.validate_json(self.text[begin:end]))


def _end_of_what_is_text(text: bytes, end: int) -> int:
    """Where the line begins that is no UTF-8, or the end."""
    try:
        text[:end].decode()
    except UnicodeDecodeError as error:
        return text.rfind(b"\n", 0, error.start) + 1
    return end


def _room_for(lines: int, size: int, keys: int) -> ScannedArrays:
    """Room for so many lines of so many bytes. What is not filled in is never touched, and so takes no memory."""
    room = row_length(lines + 1)
    table: Array = np.empty((len(COLUMNS), room), np.int32)
    table[:] = ABSENT
    table[ODD] = 0
    table[NAMED] = -1
    return ScannedArrays(
        table=table,
        steps=np.full(lines + 1, ABSENT, np.int64),
        begins=np.zeros((len(LISTS), room), np.int32),
        ends=np.zeros((len(LISTS), room), np.int32),
        runs=np.empty((size // LEAST_RUN + 1, 2), np.int32),
        starts=np.empty(lines + 2, np.int64),
        names=np.empty((2 * lines + 2, 3), np.int64),
        slots=np.zeros(1 << (4 * lines + 4).bit_length(), np.int32),
        met=np.zeros(keys, np.int32),
        expected=np.zeros((len(ACTIONS) + 1, keys + 1), np.int32),
    )
