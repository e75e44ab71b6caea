"""How far a replay is: a bar, events a second, and the time left."""

from __future__ import annotations

import time

from kvproof.conformance.terminal import Progress

WIDTH = 24


class ReplayPace:
    """Called with the events so far and the share of the file that was read, where that is known."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._began: tuple[float, int, float] | None = None
        """Time, events and share at the first call: a replay that was resumed did not begin at 0."""

    def __call__(self, events: int, share: float | None = None) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = (now, events, share or 0.0)
        began, events_before, share_before = self._began
        spent = max(now - began, 1e-6)
        line = f"{events:,} events, {(events - events_before) / spent:,.0f} events/s"
        if share is not None and share > share_before:
            left = spent * (1 - share) / (share - share_before)
            line = f"{bar(share)} {share:.0%}, {line}, {in_time(left)} left"
        self._progress.show(line)

    def of_many(self, events: int, done: int, total: int) -> None:
        """The same of several traces at once."""
        now = time.monotonic()
        if self._began is None:
            self._began = (now, events, 0.0)
        spent = max(now - self._began[0], 1e-6)
        line = f"{bar(done / total)} {done} of {total} traces, {events:,} events, {events / spent:,.0f} events/s"
        self._progress.show(line + (f", {in_time(spent * (total - done) / done)} left" if done else ""))


def bar(share: float) -> str:
    full = round(min(1.0, share) * WIDTH)
    return f"[{'#' * full}{'.' * (WIDTH - full)}]"


def in_time(seconds: float) -> str:
    whole = round(seconds)
    return (
        f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}" if whole >= 3600 else f"{whole // 60}:{whole % 60:02}"
    )
