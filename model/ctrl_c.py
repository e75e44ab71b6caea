"""A Ctrl-C that is not lost. Z3 takes the signal for itself and may answer all the same, or `unknown`; Python drops it where it
comes in the destructor of a term. In the constructor of a context it would leave half an object, whose destructor complains.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import z3

_presses: list[int] = []
"""Signals that came, until they are answered. A list: the digest of a search reads what it reaches, and a lock is no data."""
_searching: list[z3.Solver] = []


def leave_signals_alone(solver: z3.Solver) -> None:
    """Z3 shall not put its own handler in place of Python's while it searches."""
    solver.set("ctrl_c", False)


@contextmanager
def searching(solver: z3.Solver) -> Iterator[None]:
    """Around a search: a Ctrl-C ends it, and what it answered is dropped."""
    heed()
    _searching.append(solver)
    try:
        yield
    finally:
        _searching.remove(solver)
    heed()


@contextmanager
def kept_ctrl_c() -> Iterator[None]:
    """Within it a Ctrl-C ends Z3's search and raises KeyboardInterrupt: at once, or where it came in Z3's own code or the
    exception is dropped, when `heed` is called, which each search does.

    Where the program has a handler of its own, or a thread other than the main one calls, nothing is changed.
    """
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    watcher = threading.Thread(target=_end_searches, args=(told,), daemon=True)
    watcher.start()
    earlier = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(earlier)
        os.close(tell)
        watcher.join()
        _presses.clear()


def heed() -> None:
    """Raises KeyboardInterrupt if Ctrl-C was pressed and the program continues all the same."""
    if _presses:
        raise KeyboardInterrupt


def _note(signum: int, frame: FrameType | None) -> None:
    _presses.append(signum)
    if frame is None or frame.f_globals.get("__package__") != "z3":
        raise KeyboardInterrupt


def _end_searches(told: int) -> None:
    """In a thread: Python's own handler only runs once the search is over. Until the pipe is closed at its other end."""
    while signals := os.read(told, 64):
        if signal.SIGINT in signals:
            for solver in tuple(_searching):
                solver.interrupt()
    os.close(told)
