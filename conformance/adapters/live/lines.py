"""Makes the lines of a trace out of what a recorder put down: in the process that writes, away from the scheduler.

Most lines of a busy server are steps that the same batch does again and again. Their lines differ in a few numbers only, so
for each turn the line is made once as all others are, and from then on the numbers are filled in: ten times as fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kvproof.conformance.adapters.live.assembly import DECODE, RESULT, Assembly, Opened
from kvproof.conformance.traces.records import event_line

# Numbers that stand in a line for those to be filled in, in the order in which lines have them.
_PLACES = range(7_340_178_211_000_001, 7_340_178_211_000_009)
_SEQ, _STEP, _TOKENS, _PAGE, _COMMITTED, _ALLOCATED, _PROTECTED, _OUTPUT = _PLACES


@dataclass(frozen=True)
class Patterns:
    """Of each turn of a batch the lines of its steps, with places for the numbers."""

    turns: list[str]
    rows: list[int]
    decodes: list[bytes]
    opens_page: list[bytes]
    results: list[bytes]
    may_be_filled_in: bool
    """False if a turn has a name that leaves no room for numbers"""


class Lines:
    def __init__(self, page_size: int) -> None:
        self._assembly = Assembly(page_size)
        self._seq = 0
        # Of the batch that decoded last, if it did so again.
        self._patterns: Patterns | None = None

    def of(self, records: Iterable[Any]) -> list[bytes]:
        """The lines of these records, each with its newline."""
        return [line for record in records for line in self._of(record)]

    def _of(self, record: Any) -> list[bytes]:
        filled_in = self._filled_in(record)
        if filled_in is not None:
            return filled_in
        lines = [
            event_line(seq, event) + b"\n" for seq, event in enumerate(self._assembly.events(record), start=self._seq)
        ]
        self._seq += len(lines)
        return lines

    def _filled_in(self, record: Any) -> list[bytes] | None:
        """The lines of a record of the same batch; None if they are to be made one by one."""
        kind, step, turns, *values = record if isinstance(record, tuple) else (None, 0, [])
        patterns = self._patterns
        if kind == RESULT:
            if patterns is None or patterns.turns != turns or not patterns.may_be_filled_in:
                return None
            return self._results(patterns, step, *values)
        if kind is None or values[3] is not None or values[5] is not None:  # sessions were read, or rounds reserve
            self._patterns = None
            return None
        rows, lengths, output_lens, _, opened, _ = values
        if patterns is None or patterns.turns != turns or patterns.rows != rows:
            self._patterns = patterns = patterns_of(self._assembly, turns, rows)
        if not patterns.may_be_filled_in or (opened is not None and opened[2]):  # pages of a window have no place
            return None
        return self._decodes(patterns, step, lengths, output_lens, opened)

    def _decodes(
        self,
        patterns: Patterns,
        step: int,
        lengths: list[tuple[int, int, int]],
        output_lens: list[int],
        opened: Opened | None,
    ) -> list[bytes]:
        lines = []
        for place, output_len in enumerate(output_lens):
            numbers = (*lengths[place], output_len)
            if opened is not None and self._assembly.opens_page(opened, place):
                line = patterns.opens_page[place] % (self._seq, step, opened[1][place], *numbers)
            else:
                line = patterns.decodes[place] % (self._seq, step, *numbers)
            lines.append(line)
            self._seq += 1
        return lines

    def _results(self, patterns: Patterns, step: int, before: list[int], output_lens: list[int]) -> list[bytes]:
        lines = []
        for pattern, earlier, output_len in zip(patterns.results, before, output_lens, strict=True):
            if output_len != earlier:
                lines.append(pattern % (self._seq, step, output_len - earlier, output_len))
                self._seq += 1
        return lines


def patterns_of(assembly: Assembly, turns: list[str], rows: list[int]) -> Patterns:
    """Those of a batch whose sessions the assembly knows."""
    many = len(turns)
    lengths, output_lens = [(_COMMITTED, _ALLOCATED, _PROTECTED)] * many, [_OUTPUT] * many
    places = (_COMMITTED, _ALLOCATED, _PROTECTED, _OUTPUT)

    def decodes(opened: Opened | None) -> Iterator[dict[str, Any]]:
        return assembly.events((DECODE, _STEP, turns, rows, lengths, output_lens, None, opened, None))

    of_decodes = [_pattern(event, _STEP, *places) for event in decodes(None)]
    opens_page = [_pattern(event, _STEP, _PAGE, *places) for event in decodes((None, [_PAGE] * many, None))]
    gained = assembly.events((RESULT, _STEP, turns, [_OUTPUT - _TOKENS] * many, output_lens))
    results = [_pattern(event, _STEP, _TOKENS, _OUTPUT) for event in gained]
    return Patterns(turns, rows, of_decodes, opens_page, results, all((*of_decodes, *opens_page, *results)))


def _pattern(event: dict[str, Any], *places: int) -> bytes:
    """Empty if these numbers do not stand in the line in this order, each once."""
    line = event_line(_SEQ, event).replace(b"%", b"%%") + b"\n"
    numbers = [b"%d" % place for place in (_SEQ, *places)]
    found = [line.find(number) for number in numbers]
    if -1 in found or found != sorted(found) or any(line.count(number) != 1 for number in numbers):
        return b""
    for number in numbers:
        line = line.replace(number, b"%d")
    return line
