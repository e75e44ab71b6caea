"""A trace that is written while a server serves: its file, the process that writes it, and what happens when it breaks off.

Nothing here stops whoever is recorded or makes it wait. What goes wrong is said once in the log and ends the recording.
"""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kvproof.conformance.adapters.live.handover import Handover, TraceLost, frame
from kvproof.conformance.adapters.live.lines_file import beginning, header_line
from kvproof.conformance.adapters.live.page_ids import PageIds
from kvproof.conformance.adapters.live.unfinished_trace import close_what_was_left
from kvproof.conformance.errors import UserError
from kvproof.conformance.traces.columnar_blocks import COLUMNAR_SUFFIX
from kvproof.conformance.traces.columnar_schema import INSTALL
from kvproof.conformance.traces.file_names import of_rank, with_word
from kvproof.conformance.traces.json_lines import is_being_written
from kvproof.spec.trace import Header

PATH_VARIABLE = "KVPROOF_TRACE"
# What the pipe holds beside the buffer, where the system allows it.
PIPE_BYTES = 1 << 20
# How long the process that writes may take to start; a server does not wait longer for it.
START_SECONDS = 60.0
# How long a server that ends waits for what it had to say when the recording was stopped.
LAST_SECONDS = 5.0
# Runs into one name that are all kept. Who starts as many wants `{pid}` in the name, or another folder.
MOST_NAMES = 100
# The process that writes leaves its parent at once: SGLang kills its children and theirs when it stops.
WRITER = "kvproof.conformance.adapters.live.writer"
START_WRITER = f"import os; os.fork() and os._exit(0); from {WRITER} import main; main()"

logger = logging.getLogger("kvproof")

__all__ = ["PATH_VARIABLE", "LiveTrace", "is_being_written", "new_file", "sentence", "start_writer"]


class LiveTrace:
    """One trace of this process. `put` takes what was seen, until `end` or `stop`; only `put` raises.

    A fork of this process is not recorded: there nothing may reach the pipe, which is the parent's.
    """

    def __init__(self, wanted: str, rank: str | None, header: Header) -> None:
        """Raises OSError or RuntimeError with the reason why nothing can be recorded."""
        if Path(wanted).suffix == COLUMNAR_SUFFIX and find_spec("pyarrow") is None:
            raise RuntimeError(f"columns ({COLUMNAR_SUFFIX}) need pyarrow, which is not installed: {INSTALL}")
        self.path, file = new_file(wanted, rank)
        page_size, line = header.config.page_size, header_line(header)
        try:
            # At once: whatever becomes of the process that writes, the trace says what it is one of.
            os.write(file, beginning(self.path.suffix, line))
            pipe = start_writer(file)
        finally:
            os.close(file)
        os.write(pipe, frame((file, self.path.suffix, page_size, line)))
        self.handover = Handover(pipe)
        self.handover.page_ids = PageIds(page_size, device_is_host=True)
        self.has_ended = False
        # Why, and after how many events.
        self._stopped: tuple[str, int] | None = None
        _of_this_process.add(self)
        logger.info("kvproof records %s into %s", header.producer.target, self.path)

    def put(self, record: Any) -> None:
        self.handover.put(record)

    def end(self, reason: str, *, dropped: int = 0) -> None:
        """The server is done. `dropped`: events that were seen and never put. Waits for the last bytes, some seconds at most."""
        if self.has_ended:
            with suppress(Exception):
                if (
                    self._stopped is not None
                    and not self.handover.last_words(LAST_SECONDS)
                    and not self.handover.is_stuck
                ):
                    self._close_what_was_left(*self._stopped)
            return
        self.has_ended = True
        try:
            seen = self.handover.seen + dropped
            if self.handover.end(reason, dropped=dropped):
                return
            if self.handover.is_stuck:
                logger.warning("kvproof: %s is written too slowly to be ended; %d events were seen", self.path, seen)
            else:
                self._close_what_was_left(reason, seen)
        except Exception as error:
            logger.warning("kvproof could not close %s: %s", self.path, sentence(error))

    def stop(self, reason: str, *, dropped: int = 0) -> None:
        """Give up for good, at once: a trace with a hole in the middle would judge nothing."""
        if self.has_ended:
            return
        self.has_ended = True
        seen, was_sent = 0, False
        with suppress(Exception):
            seen = self.handover.seen + dropped
        with suppress(Exception):
            logger.warning("kvproof stops recording into %s: %s; %d events were seen so far", self.path, reason, seen)
        with suppress(Exception):
            was_sent = self.handover.end(reason, dropped=dropped, patience=0)
        if not was_sent:
            self._stopped = reason, seen
            with suppress(Exception):
                threading.Thread(target=self._close_what_was_left, args=self._stopped, daemon=True).start()

    def leave_to_the_parent(self) -> None:
        self.has_ended = True
        self.handover.abandon()

    def _close_what_was_left(self, reason: str, seen: int) -> None:
        """If the process that writes is gone, the trace gets its end record from here."""
        try:
            left = close_what_was_left(self.path, reason, seen)
            if left is not None:
                logger.warning("kvproof: %s holds %d events, %d were dropped", self.path, left.events, left.dropped)
        except Exception as error:
            logger.warning("kvproof could not close %s: %s", self.path, sentence(error))


_of_this_process: weakref.WeakSet[LiveTrace] = weakref.WeakSet()


def _leave_all_to_the_parent() -> None:
    for trace in list(_of_this_process):
        with suppress(Exception):
            trace.leave_to_the_parent()
    _of_this_process.clear()


os.register_at_fork(after_in_child=_leave_all_to_the_parent)


def new_file(wanted: str, rank: str | None) -> tuple[Path, int]:
    """Make the file; its path and descriptor. A name that is taken, by an earlier run or another server, gets words into it."""
    named = of_rank(wanted.replace("{pid}", str(os.getpid())), rank)
    named.parent.mkdir(parents=True, exist_ok=True)
    for path in (named, *_other_names(named)):
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            continue
        if path != named:
            logger.warning("kvproof: %s is there already and stays as it is; this server's trace is %s", named, path)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held by the process that writes: see `is_being_written`
        return path, file
    raise FileExistsError(f"{named} is there already, and so are all names that could stand for it")


def _other_names(named: Path) -> Iterator[Path]:
    """With the process id; in containers a server started again has the one that it had before, so then with a number too."""
    for number in range(1, MOST_NAMES):
        yield with_word(named, str(os.getpid()) if number == 1 else f"{os.getpid()}-{number}")


def start_writer(file: int) -> int:
    """Start the process that writes; the descriptor of the pipe to it."""
    environment = {name: value for name, value in os.environ.items() if name != PATH_VARIABLE}
    reading, writing = os.pipe()
    try:
        subprocess.run(
            [sys.executable, "-c", START_WRITER],
            stdin=reading,
            pass_fds=(file,),
            env=environment,
            start_new_session=True,
            check=True,
            timeout=START_SECONDS,
        )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    with suppress(OSError):
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return writing


def sentence(error: Exception) -> str:
    message = str(error).strip().partition("\n")[0]
    return (
        message
        if isinstance(error, TraceLost | UserError | OSError | RuntimeError)
        else f"{type(error).__name__}: {message}"
    )
