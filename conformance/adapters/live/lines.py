"""Makes the lines of a trace out of what a recorder put down: in the process that writes, away from the scheduler.

Most lines of a busy server are steps that the same batch does again and again. Their lines differ in a few numbers only, so
for each turn the line is made once as all others are, and from then on the numbers are filled in: ten times as fast.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kvproof.conformance.adapters.live.assembly import AGAIN, GAINED, Assembly
from kvproof.spec.trace import Event, Observed

_EVENT_FIELDS = tuple(name for name in Event.model_fields if name not in ("record", "seq"))
_OBSERVED_FIELDS = tuple(Observed.model_fields)
encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

# Numbers that stand in a line for those to be filled in, in the order in which lines have them.
_PLACES = range(7_340_178_211_000_001, 7_340_178_211_000_009)
_SEQ, _STEP, _TOKENS, _PAGE, _COMMITTED, _ALLOCATED, _PROTECTED, _OUTPUT = _PLACES


def event_line(seq: int, fields: dict[str, Any]) -> bytes:
    """The line of an event as `TraceWriter` would write it, ten times as fast: the fields are not validated again."""
    body: dict[str, Any] = {"record": "event", "seq": seq}
    for name in _EVENT_FIELDS:
        value = fields.get(name)
        if value is None or (not value and name in ("alloc", "free", "window_alloc", "window_free", "params", "after")):
            continue
        if name == "after":
            value = {key: value[key] for key in _OBSERVED_FIELDS if value.get(key) is not None}
            if not value:
                continue
        elif name == "params":
            value = dict(sorted(value.items()))
        body[name] = value
    return encode(body).encode() + b"\n"


@dataclass(frozen=True)
class Patterns:
    """For each turn of a batch the lines of its next steps, with places for the numbers."""

    decodes: list[bytes]
    opens_page: list[bytes]
    results: list[bytes]


class Lines:
    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._assembly = Assembly(page_size)
        self._seq = 0
        # Of the batch that decoded last.
        self._patterns: Patterns | None = None

    def of(self, records: Iterable[Any]) -> list[bytes]:
        """The lines of these records, each with its newline."""
        return [line for record in records for line in self._of(record)]

    def _of(self, record: Any) -> list[bytes]:
        if isinstance(record, tuple) and record[0] in (AGAIN, GAINED):
            if self._patterns is None:
                self._patterns = patterns_of(self._assembly)
            if self._patterns is not None and not (len(record) > 4 and record[-1]):  # pages of a window have no place
                kind, *values = record
                return (
                    self._decodes(self._patterns, *values) if kind == AGAIN else self._results(self._patterns, *values)
                )
        else:
            self._patterns = None
        lines = [event_line(seq, event) for seq, event in enumerate(self._assembly.events(record), start=self._seq)]
        self._seq += len(lines)
        return lines

    def _decodes(
        self,
        patterns: Patterns,
        step: int,
        lengths: list[tuple[int, int, int]],
        gained: tuple[int, list[int]] | None,
        seq_lens: list[int] | None = None,
        pages: list[int] | None = None,
        _window_pages: None = None,
    ) -> list[bytes]:
        lines = self._results(patterns, *gained) if gained is not None else []
        seq = self._seq
        for place, output_len in enumerate(self._assembly.output_lens):
            if pages is not None and (seq_lens is None or (seq_lens[place] - 1) % self._page_size == 0):
                line = patterns.opens_page[place] % (seq + place, step, pages[place], *lengths[place], output_len)
            else:
                line = patterns.decodes[place] % (seq + place, step, *lengths[place], output_len)
            lines.append(line)
        self._seq += len(lengths)
        return lines

    def _results(self, patterns: Patterns, step: int, output_lens: list[int]) -> list[bytes]:
        lines = []
        for pattern, before, output_len in zip(patterns.results, self._assembly.output_lens, output_lens, strict=True):
            if output_len != before:
                lines.append(pattern % (self._seq, step, output_len - before, output_len))
                self._seq += 1
        self._assembly.output_lens = output_lens
        return lines


def patterns_of(assembly: Assembly) -> Patterns | None:
    """None if a turn has a name that leaves no room for numbers; then its lines are made one by one."""
    probe, turns = copy.copy(assembly), len(assembly.turns)
    probe.output_lens, lengths = [_OUTPUT] * turns, [(_COMMITTED, _ALLOCATED, _PROTECTED)] * turns
    places = (_COMMITTED, _ALLOCATED, _PROTECTED, _OUTPUT)
    decodes = [_pattern(event, _STEP, *places) for event in probe.events((AGAIN, _STEP, lengths, None))]
    opening = probe.events((AGAIN, _STEP, lengths, None, None, [_PAGE] * turns, None))
    opens_page = [_pattern(event, _STEP, _PAGE, *places) for event in opening]
    probe.output_lens = [_OUTPUT - _TOKENS] * turns
    results = [_pattern(event, _STEP, _TOKENS, _OUTPUT) for event in probe.events((GAINED, _STEP, [_OUTPUT] * turns))]
    if not all((*decodes, *opens_page, *results)):
        return None
    return Patterns(decodes, opens_page, results)


def _pattern(event: dict[str, Any], *places: int) -> bytes:
    """Empty if these numbers do not stand in the line in this order, each once."""
    line = event_line(_SEQ, event).replace(b"%", b"%%")
    numbers = [b"%d" % place for place in (_SEQ, *places)]
    found = [line.find(number) for number in numbers]
    if -1 in found or found != sorted(found) or any(line.count(number) != 1 for number in numbers):
        return b""
    for number in numbers:
        line = line.replace(number, b"%d")
    return line
