"""A Ctrl-C that is not lost: a solver answers `unknown` to it, and Python drops it where it comes in a term's destructor."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_pressed = threading.Event()


@contextmanager
def kept_ctrl_c() -> Iterator[None]:
    """Within it a Ctrl-C raises KeyboardInterrupt as ever, and if that is swallowed, again when `heed` is called.

    Where the program has a handler of its own, or a thread other than the main one calls, nothing is changed.
    """
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _pressed.clear()


def heed() -> None:
    """Raises KeyboardInterrupt if Ctrl-C was pressed and the program goes on all the same."""
    if _pressed.is_set():
        raise KeyboardInterrupt


def _note(signum: int, frame: FrameType | None) -> None:
    _pressed.set()
    raise KeyboardInterrupt
