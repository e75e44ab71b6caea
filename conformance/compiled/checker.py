"""Replays a trace by the compiled loop; what the loop does not find clean is judged by the interpreted checker.

An event that is not clean is a finding, a deviation that is known of the release, or one of the rare events that stand in no
column. The state goes over to the interpreted checker, which judges that event, and each time twice as many after it, before
the loop takes the state back: a trace full of such events is never much slower than without the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kvproof.conformance.compiled import layout
from kvproof.conformance.compiled.build import Judge
from kvproof.conformance.compiled.columns import EventBatch, arrays_of, first_seq
from kvproof.conformance.compiled.columns import batches as batches_of
from kvproof.conformance.compiled.state import State
from kvproof.conformance.replay.replay import Pause
from kvproof.conformance.replay.replayer import FIRST_LINE, Replayer
from kvproof.conformance.traces.json_lines import TraceReader
from kvproof.spec.trace import Event

MOST_INTERPRETED = 2**16
"""Events that are judged interpreted before the loop is tried again."""
CLEAN_ENOUGH = 64
"""Clean events for each interpreted one after which the next stretch is one event long again."""


class CompiledChecker:
    """Judges batches of events for a replayer, whose report it fills."""

    def __init__(self, replayer: Replayer, judge: Judge) -> None:
        config = replayer.report.config
        self.replayer = replayer
        self.handed_over = 0
        """How often the interpreted checker was asked."""
        self._judge = judge
        self._state = State(
            replayer.d,
            config.pool_pages,
            config.window_pages,
            replayer.limits,
            replayer.oracle.actions,
            replayer.report.patience,
        )
        self._in_arrays = True
        self._stretch, self._left, self._clean = 1, 0, 0
        self._line = FIRST_LINE

    @classmethod
    def taking_over(cls, replayer: Replayer, judge: Judge, line: int) -> CompiledChecker:
        """One that continues where an interpreted replay stands; `line` is that of the next event."""
        checker = cls(replayer, judge)
        checker._line = line
        checker._take_up()
        return checker

    @property
    def state(self) -> State | None:
        """The state where it is in arrays; None: the replayer has it."""
        return self._state if self._in_arrays else None

    def follow(self, batches: Iterable[Any], progress: Callable[[int], None]) -> None:
        """Judge all events, or up to the one that ends the replay."""
        for batch in batches:
            if not self.judge_batch(batch, progress):
                return
        self.finish()

    def follow_trace(
        self, reader: TraceReader, progress: Callable[[int], None], until: int | None, pause: Pause
    ) -> bool:
        """Judge a trace, from the state that the replayer has; True if there is more behind the last event to be judged."""
        if self.replayer.report.events or reader.first_seq:
            self._line += self.replayer.report.events
            self._take_up()
        place = reader.place
        for batch in batches_of(reader):
            seq = first_seq(batch)
            first = max(0, reader.first_seq + self.judged - seq)
            last = len(batch) if until is None else min(len(batch), max(0, until + 1 - seq))
            if first < last and not self.judge_batch(batch, progress, first, last):
                return False
            if last < len(batch):
                reader.place = place
                self.bring_up_to_date()
                return True
            pause(self.bring_up_to_date)
            place = reader.place
        self.bring_up_to_date()
        return False

    def _take_up(self) -> None:
        """Go on from the state that the replayer was given."""
        replayer, names = self.replayer, self._state.names
        for key in (
            *replayer.ledgers,
            *replayer.of_turn.values(),
            *replayer.ended_in,
            *replayer.excused,
            *replayer.book._tables,
            *replayer.book.prefixes.told,
        ):
            kind, _, name = key.partition(" ")
            (names.of_session if kind == "session" else names.of_turn)(name)
        launched = (*replayer.batch.awaited, *replayer.batch.launches)
        for turn in (
            *replayer.of_turn,
            *replayer.elsewhere,
            *replayer.late,
            *replayer.asked,
            *replayer.came,
            *launched,
        ):
            names.of_turn(turn)
        self._in_arrays = self._state.take_back(replayer)
        self._left = 0 if self._in_arrays else MOST_INTERPRETED

    def bring_up_to_date(self) -> None:
        """Give the replayer the state as it is now; the arrays keep it, too."""
        if self._in_arrays:
            self._state.hand_over(self.replayer)

    def judge_batch(
        self, batch: Any, progress: Callable[[int], None] = lambda _: None, first: int = 0, last: int | None = None
    ) -> bool:
        """Judge the events of a batch, or some of them; False if one of them ends the replay."""
        events = arrays_of(batch, self._state.names)
        self._state.make_room_for(events)
        at, last = first, len(events) if last is None else last
        self._line -= first
        while at < last:
            if self._in_arrays:
                at = self._judge_in_arrays(events, at, last)
            if not self._in_arrays:
                stop = min(last, at + self._left)
                if not self._judge_interpreted(events, at, stop):
                    return False
                at = stop
            progress(self.judged)
        self._line += last
        return True

    @property
    def judged(self) -> int:
        """Events so far."""
        return int(self._state.counts[layout.EVENTS]) if self._in_arrays else self.replayer.report.events

    def finish(self) -> None:
        if self._in_arrays:
            self._state.write_report(self.replayer)

    def _judge_in_arrays(self, events: EventBatch, first: int, last: int) -> int:
        """Judge from `first` on as long as events are clean. The event that is not is left to the interpreted checker."""
        state, at = self._state, first
        state.counts[layout.FIRST_SEQ] = events.first_seq
        status = layout.NEEDS_ROOM
        while status == layout.NEEDS_ROOM:
            status, at = self._judge(at, last, events.arrays, state.arrays())
            if status == layout.NEEDS_ROOM:
                state.make_room()
        self._clean += at - first
        if status == layout.NOT_CLEAN:
            state.hand_over(self.replayer)
            self.handed_over += 1
            self._in_arrays = False
            self._stretch = 1 if self._clean >= CLEAN_ENOUGH * self._stretch else 2 * self._stretch
            self._left, self._clean = min(self._stretch, MOST_INTERPRETED), 0
        return at

    def _judge_interpreted(self, events: EventBatch, first: int, last: int) -> bool:
        for at, event in enumerate(events.events(first, last), first):
            finding = self.replayer.feed(self._line + at, event)
            self._know(event)
            if finding is not None:
                self.replayer.report.findings.append(finding)
                if finding.action != "check":
                    return False
        self._left -= last - first
        if self._left == 0:
            self._in_arrays = self._state.take_back(self.replayer)
            self._left = 0 if self._in_arrays else MOST_INTERPRETED
        return True

    def _know(self, event: Event) -> None:
        """Names of an event that stands in no column are seen here first."""
        if event.session is not None:
            self._state.names.of_session(event.session)
        if event.turn is not None:
            self._state.names.of_turn(event.turn)
