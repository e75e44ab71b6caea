"""How often in a row a live server's event loop found nothing to run, and when that is worth an event.

A server asks thousands of times a second, and looks after some of its work only once a second (SGLang: closes). So the first
time is after some seconds, and each later one after four times as many passes: a few events in a night.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kvproof.spec.patience import Patience

FIRST_PASSES, FIRST_SECONDS, TIMES = Patience().turns, 2.5, 4


def idle_params(scheduler: Any, passes: int) -> dict[str, int | bool]:
    """Parameters of the event that says so, of SGLang's scheduler or one that came of it."""
    return {"idle_passes": passes, "marked_full": bool(getattr(scheduler.running_batch, "batch_is_full", False))}


class IdlePasses:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._records = -1
        self._passes = self._next = 0
        self._since = 0.0

    def one_more(self, records: int) -> int:
        """A pass found nothing to run; how many did in a row, if it is time to say so, else 0.

        `records`: how many were made so far. Where one was made, something happened.
        """
        if records != self._records:
            self._records, self._passes, self._next, self._since = records, 0, FIRST_PASSES, self._clock()
        self._passes += 1
        if self._passes < self._next or self._clock() - self._since < FIRST_SECONDS:
            return 0
        self._next = TIMES * self._passes
        return self._passes

    def was_said(self, records: int) -> None:
        """The record that says so is nothing that happened."""
        self._records = records
