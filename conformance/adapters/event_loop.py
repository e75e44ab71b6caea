"""SGLang's own event loop, run one pass at a time.

The loop lives in a thread of its own, because it never returns: it asks for requests at the top of every pass, and there
it is held until the next pass is wanted. Only one of the two threads ever runs, so a schedule stays a sequence of calls.
No line of the loop is rewritten here; what a pass does, with or without overlap, is the release's own code.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

SECONDS_TO_END = 5.0


class _Ended(BaseException):
    """Thrown into the loop to leave it; it is no Exception, so that nothing on the way takes it for a failure."""


class EventLoop:
    def __init__(self, run: Callable[[], Any]) -> None:
        """`run` is the loop; it must take its requests from `receive`."""
        self._run = run
        self._inbox: list[Any] = []
        self._wanted, self._held = threading.Semaphore(0), threading.Semaphore(0)
        self._failure: BaseException | None = None
        self._ending = False
        self._thread: threading.Thread | None = None

    def receive(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Stands where the loop reads its socket: the pass before has ended; waits for the next one to be wanted."""
        self._held.release()
        self._wanted.acquire()
        if self._ending:
            raise _Ended
        inbox, self._inbox = self._inbox, []
        return inbox

    def one_pass(self, inbox: list[Any]) -> None:
        """One pass of the loop with these requests; what it raises is raised here, and then the loop is over."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._live, name="event-loop", daemon=True)
            self._thread.start()
            self._held.acquire()
        if self._failure is None:
            self._inbox = inbox
            self._wanted.release()
            self._held.acquire()
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Leave the loop and its thread, also where a pass has not ended and never would."""
        if self._thread is None or not self._thread.is_alive():
            return
        self._ending = True
        self._wanted.release()
        self._thread.join(SECONDS_TO_END)
        if self._thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(_Ended)
            )
            self._thread.join(SECONDS_TO_END)

    def _live(self) -> None:
        try:
            self._run()
        except _Ended:
            return
        except BaseException as failure:
            self._failure = failure
        self._held.release()
