"""Waiting for what another process does, where nothing tells of it."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(is_there: Callable[[], bool], what: str, seconds: float = 300) -> None:
    """Raises AssertionError after so many seconds: it will not come any more, however much the machine has to do."""
    end = time.monotonic() + seconds
    while not is_there():
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(0.02)
