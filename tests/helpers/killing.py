"""Processes that are killed in the middle of their work."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def killing(found: Callable[[], Iterable[int]], times: int = 1, *, every: float = 0.3) -> Iterator[list[int]]:
    """While the block runs, so many of the processes that are found are killed; each is `every` seconds at work by then."""
    killed: list[int] = []
    over = threading.Event()

    def hunt() -> None:
        while len(killed) < times and not over.wait(0.02):
            for pid in [pid for pid in found() if pid not in killed][: times - len(killed)]:
                over.wait(every)
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    hunter = threading.Thread(target=hunt)
    hunter.start()
    try:
        yield killed
    finally:
        over.set()
        hunter.join()
