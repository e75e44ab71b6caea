"""A trace on a time line, for ui.perfetto.dev and chrome://tracing: Chrome's trace event format, as a JSON object.

A trace of kvproof has no clock, so each event lasts one millisecond: at event 7 means at 7 ms. Each session and each ordinary
request is a process with three tracks (its turns, their phases, what was done) and the counters C, A, R, E in tokens; the pool
is a process whose counters are the pages of each kind of owner.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kvproof.conformance.printable import for_json
from kvproof.conformance.replay.finding_words import NO_FAULT, by_the_rule
from kvproof.conformance.replay.ledger_words import value
from kvproof.conformance.replay.owner_counts import pools_of_book
from kvproof.conformance.report.formats.followed import Followed, Moment
from kvproof.spec.state import NONE, PHASE_NAMES, Ledger, is_live

TICK = 1000
"""Microseconds of an event."""
POOL = 1
"""The process of the counters of pages; that of the first session is the next."""
TURNS, PHASES, DONE = TRACKS = (1, 2, 3)
TRACK_NAMES = {TURNS: "turn", PHASES: "phase", DONE: "done"}
WINDOW_CURSOR = "swa_evicted_seqlen"
LENGTHS = {
    "kv_committed_len": ("kv_committed_len", "slot_kv_committed_len"),
    "kv_allocated_len": ("kv_allocated_len", "slot_kv_allocated_len"),
    "cache_protected_len": ("cache_protected_len", "slot_cache_protected_len"),
    WINDOW_CURSOR: ("swa_evicted_seqlen", "slot_swa_evicted_seqlen"),
}
"""Of each counter the field of a turn that runs, and that of a slot between turns."""


def perfetto(followed: Followed) -> Iterator[str]:
    """The document in pieces: a long trace need not fit into memory."""
    header = followed.reader.header
    other = {"source": followed.reader.path.name, "target": header.producer.target, "time": "1 ms is 1 event"}
    yield '{"displayTimeUnit":"ms","otherData":' + json.dumps(for_json(other)) + ',"traceEvents":[\n'
    comma = ""
    for event in _Timeline(followed).events():
        yield comma + json.dumps(for_json(event), separators=(",", ":"))
        comma = ",\n"
    yield "\n]}\n"


class _Timeline:
    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self._processes: dict[str, int] = {}
        self._open: dict[tuple[int, int], str] = {}
        """The slice that is open on each track."""
        self._counted: dict[tuple[int, str], int] = {}

    def events(self) -> Iterator[dict[str, Any]]:
        yield _named(POOL, "pool")
        at = 0
        for moment in self._followed.moments():
            at = moment.event.seq * TICK
            yield from self._of(moment, at)
        for process, track in sorted(self._open):
            yield {"ph": "E", "pid": process, "tid": track, "ts": at + TICK}

    def _of(self, moment: Moment, at: int) -> Iterator[dict[str, Any]]:
        event, replayer = moment.event, self._followed.replayer
        key = replayer.ledger_of(event)
        if key is not None:
            if key not in self._processes:
                self._processes[key] = POOL + 1 + len(self._processes)
                yield from _tracks(self._processes[key], key)
            process = self._processes[key]
            ledger = replayer.ledgers.get(key)
            yield from self._slices(process, ledger, event.turn, at)
            if ledger is not None:
                yield from self._lengths(process, ledger, at)
        else:
            process = POOL
        yield {
            "name": event.action,
            "cat": "violation" if moment.finding is not None else "event",
            "ph": "X",
            "pid": process,
            "tid": DONE,
            "ts": at,
            "dur": TICK,
            **({"cname": "terrible"} if moment.finding is not None else {}),
            "args": _arguments(moment),
        }
        if moment.finding is not None:
            name = f"violates {moment.violates}"
            yield {"name": name, "ph": "i", "s": "g", "pid": process, "tid": DONE, "ts": at, "args": _arguments(moment)}
        yield from self._pages(at)

    def _slices(self, process: int, ledger: Ledger | None, turn: str | None, at: int) -> Iterator[dict[str, Any]]:
        """Begin and end what the ledger says now: a turn from its admission on, and where it stands."""
        phase = NONE if ledger is None else ledger.phase
        yield from self._shown(process, TURNS, (turn or "turn") if phase != NONE else "", at, keep=phase != NONE)
        yield from self._shown(process, PHASES, PHASE_NAMES[phase] if phase != NONE else "", at)

    def _shown(self, process: int, track: int, name: str, at: int, *, keep: bool = False) -> Iterator[dict[str, Any]]:
        """`keep`: what is open stays open, whatever its name."""
        was = self._open.get((process, track), "")
        if name == was or (keep and was):
            return
        if was:
            del self._open[process, track]
            yield {"ph": "E", "pid": process, "tid": track, "ts": at}
        if name:
            self._open[process, track] = name
            yield {"name": name, "cat": TRACK_NAMES[track], "ph": "B", "pid": process, "tid": track, "ts": at}

    def _lengths(self, process: int, ledger: Ledger, at: int) -> Iterator[dict[str, Any]]:
        which = 0 if is_live(self._followed.replayer.d, ledger) else 1
        for name, fields in LENGTHS.items():
            if name == WINDOW_CURSOR and not self._followed.reader.header.config.window:
                continue
            yield from self._count(process, name, "tokens", int(getattr(ledger, fields[which])), at)

    def _pages(self, at: int) -> Iterator[dict[str, Any]]:
        for pool, owners in pools_of_book(self._followed.replayer).items():
            for owner, pages in owners.items():
                name = f"pages: {owner}" if pool == "full" else f"{pool} pages: {owner}"
                yield from self._count(POOL, name, "pages", pages, at)

    def _count(self, process: int, name: str, unit: str, number: int, at: int) -> Iterator[dict[str, Any]]:
        if self._counted.get((process, name)) != number:
            self._counted[process, name] = number
            yield {"name": name, "ph": "C", "pid": process, "ts": at, "args": {unit: number}}


def _tracks(process: int, name: str) -> Iterator[dict[str, Any]]:
    yield _named(process, name)
    for track in TRACKS:
        yield {"name": "thread_name", "ph": "M", "pid": process, "tid": track, "args": {"name": TRACK_NAMES[track]}}


def _named(process: int, name: str) -> dict[str, Any]:
    return {"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}}


def _arguments(moment: Moment) -> dict[str, Any]:
    """What a click on the event shows."""
    event = moment.event
    pages = {name: list(moved) for name in ("alloc", "free") if (moved := getattr(event, name))}
    said = {"seq": event.seq, "step": event.step, "session": event.session, "turn": event.turn, "row": event.row}
    shown = {name: one for name, one in said.items() if one is not None} | dict(event.params) | pages
    shown |= {f"after.{name}": one for name, one in event.after.model_dump(exclude_none=True).items()}
    if (finding := moment.finding) is not None:
        shown["rule"] = finding.rule
        shown |= {f"breaks {name}": sentence for name, sentence in finding.invariants.items()}
        for d in finding.differences:
            shown[f"differs: {d.name}"] = value(d.name, d.seen) + by_the_rule(d)
        shown |= {f"page {number}": line for number, line in enumerate(finding.pages, 1)}
        shown["explained by"] = ", ".join(fault.id for fault in finding.explained_by) or NO_FAULT
    return shown
