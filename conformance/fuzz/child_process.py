"""A process that answers one request after the other, and is ended with the one that began it."""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

HAS_FORK = sys.platform == "linux"  # elsewhere fork exists, but what was loaded does not survive it
CONTEXT: Any = multiprocessing.get_context("fork" if HAS_FORK else "spawn")
PR_SET_PDEATHSIG = 1
JOIN_SECONDS = 1.0


class Child:
    """In the process `serve` gets its end of a pipe and the arguments; it is over when nobody asks any more.

    Its temporary files are in a folder that is removed when it is ended: a process that is killed removes nothing.
    """

    def __init__(self, name: str, serve: Callable[..., None], *arguments: Any) -> None:
        self.connection, there = CONTEXT.Pipe()
        self._folder = tempfile.TemporaryDirectory(prefix=f"{name}-", ignore_cleanup_errors=True)
        self._process = CONTEXT.Process(target=_begin, args=(self._folder.name, serve, there, *arguments), name=name)
        self._process.start()
        there.close()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def is_alive(self) -> bool:
        return bool(self._process.is_alive())

    @property
    def exit_code(self) -> int | None:
        """Of one that is about to end."""
        self._process.join(JOIN_SECONDS)
        code: int | None = self._process.exitcode
        return code

    def end(self, grace: float = 0.0) -> None:
        """`grace`: seconds for what it has to put away, once it got SIGTERM."""
        if grace:
            self._process.terminate()
            self._process.join(grace)
        self._process.kill()
        self._process.join()
        self.connection.close()
        self._folder.cleanup()


def _begin(folder: str, serve: Callable[..., None], connection: Connection, *arguments: Any) -> None:
    tempfile.tempdir = folder
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's, who ends its children
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with suppress(EOFError, BrokenPipeError):
        serve(connection, *arguments)


def die_with_parent() -> None:
    """Let the system end this process with the one that forked it: a call that hangs would never notice that it is gone."""
    if HAS_FORK:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
