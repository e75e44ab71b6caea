"""Where a watch stands: what its view draws and its metrics export."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field

from kvproof.conformance.replay.owner_counts import Load, Pools
from kvproof.spec.trace import Header

WAITING, FOLLOWING, IDLE, UNJUDGED, ENDED = "waiting", "following", "idle", "unjudged", "ended"
"""Waiting: there is no header yet. Idle: the trace is complete as it stands. Unjudged: a violation ended the following."""
RATE_SECONDS = 5.0


@dataclass(frozen=True)
class Status:
    path: str
    phase: str = WAITING
    verdict: str = ""
    header: Header | None = None
    events: int = 0
    unjudged: int = 0
    violations: int = 0
    first_violation: str = ""
    rate: float = 0.0
    lag_bytes: int = 0
    lag_seconds: float = 0.0
    held: int = 0
    """Bytes of a record that is not whole yet: the writer's, not behind."""
    pools: Pools = field(default_factory=dict)
    load: Load = field(default_factory=Load)
    actions: Counter[str] = field(default_factory=Counter)
    followed: Counter[str] = field(default_factory=Counter)
    """Known deviations of the release."""
    compiled: bool = False
    restarts: int = 0
    ends_taken_back: int = 0
    seconds: float = 0.0


class Pace:
    """How fast events are judged, and how long ago the writer had written what is judged now, as seen from here."""

    def __init__(self, now: float) -> None:
        self._sizes: deque[tuple[float, int]] = deque()
        self._events: deque[tuple[float, int]] = deque([(now, 0)])

    def saw(self, now: float, size: int, read_until: int, events: int) -> None:
        if not self._sizes or self._sizes[-1][1] != size:
            self._sizes.append((now, size))
        while self._sizes and self._sizes[0][1] <= read_until:
            self._sizes.popleft()
        if now - self._events[-1][0] >= 0.1:
            self._events.append((now, events))
        while len(self._events) > 2 and now - self._events[0][0] > RATE_SECONDS:
            self._events.popleft()

    def lag_seconds(self, now: float) -> float:
        return now - self._sizes[0][0] if self._sizes else 0.0

    def rate(self) -> float:
        (begin, first), (end, last) = self._events[0], self._events[-1]
        return (last - first) / (end - begin) if end > begin else 0.0


def now() -> float:
    return time.monotonic()
