"""How far a long command is: a bar, a rate, and the time left where that is known."""

from __future__ import annotations

import time
from collections.abc import Callable

from kvproof.conformance.report.terminal import Progress, bar, in_time
from kvproof.conformance.traces.json_lines import TraceReader


class ReplayPace:
    """Called with the events so far and the share of the work that is done, where that is known; `of`: the share in words."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._began: tuple[float, int, float] | None = None
        """Time, events and share at the first call: a replay that was resumed did not begin at 0."""

    def begin(self) -> None:
        """From here, and from the first event, the rate and the time left are counted."""
        self._began = (time.monotonic(), 0, 0.0)

    def __call__(self, events: int, share: float | None = None, of: str = "") -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = (now, events, share or 0.0)
        began, events_before, share_before = self._began
        spent = max(now - began, 1e-6)
        line = f"{events:,} events, {(events - events_before) / spent:,.0f} events/s"
        if share is not None:
            line = f"{bar(share)} {of or f'{share:.0%}'}, {line}"
            if share > share_before:
                line += f", {in_time(spent * (1 - share) / (share - share_before))} left"
        self._progress.show(line)

    def of_many(self, events: int, done: int | None = None, total: int | None = None) -> None:
        """Several traces, or requests, at once: `done` of `total`, where these are known."""
        self(events, done / total if done is not None and total else None, f"{done} of {total}")


def reading_pace(progress: Progress, reader: TraceReader) -> Callable[[int], None]:
    """How far a reader of a trace is. Called with the events so far."""
    pace, size = ReplayPace(progress), reader.path.stat().st_size
    pace.begin()
    return lambda events: pace(events, reader.position / size if reader.position else None)


class FuzzPace:
    """Called with schedules, steps and kinds of trouble so far; the search takes `seconds`, shrinking comes on top."""

    def __init__(self, progress: Progress, seconds: float) -> None:
        self._progress, self._seconds = progress, seconds
        self._before: tuple[int, float] | None = None
        """Steps and time at the first call: a campaign that continues did not begin at 0."""

    def __call__(self, schedules: int, steps: int, found: int) -> None:
        now = self._progress.seconds
        if self._before is None:
            self._before = (steps, now)
        rate = (steps - self._before[0]) / max(now - self._before[1], 1e-6)
        time_bar = f"{bar(now / self._seconds)} {min(now, self._seconds):.0f} of {self._seconds:.0f} s"
        phase = ", shrinking what was found" if now > self._seconds else ""
        self._progress.show(f"{time_bar}{phase}, {schedules:,} schedules, {rate:,.0f} steps/s, {found} found")


class ShrinkPace:
    """Called with the phase, the records that are left in it, and the share of it, or of the time, that is over."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __call__(self, phase: str, records: int, share: float | None = None) -> None:
        self._progress.show(f"{'' if share is None else f'{bar(share)} {share:.0%} '}{phase}: {records:,} records")


class StepsPace:
    """Called with what is begun now, one of `total` steps."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._begun = progress, total, 0

    def __call__(self, what: str) -> None:
        done, self._begun = self._begun, self._begun + 1
        rate = done / self._progress.seconds
        self._progress.show(f"{bar(done / self._total)} {done} of {self._total}, {rate:.1f}/s: {what}")
