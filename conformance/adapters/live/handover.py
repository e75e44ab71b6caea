"""Hands what the scheduler's recorder put down to a process that writes it: a bounded buffer before a pipe.

Nothing here waits. What was put down is packed in batches (`marshal`, the fastest packing that Python has) and given to the
pipe as far as it takes it; the rest stays in the buffer. When the buffer is full, or the other process is gone, recording
is over: `TraceLost` says why. A thread would not do instead of a process: it would take the interpreter from the scheduler
for as long as it formats.

Every event that was put is counted: what of them the file does not hold in the end is what was dropped.
"""

from __future__ import annotations

import itertools
import marshal
import os
import select
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any

from kvproof.conformance.adapters.live.assembly import events_of
from kvproof.conformance.adapters.live.page_ids import PageIds

# A batch is sent when it holds so many records: half as many decode steps, each with its results.
RECORDS_OF_A_BATCH = 64
# What the buffer may hold in bytes: seconds of a busy server, in case the disk stalls.
BUFFER_BYTES = 64 << 20
# How many batches may wait for page ids of a device, minutes of a busy server: they are not packed, so have no bytes yet.
BATCHES_WITHOUT_IDS = 1000
# How long the end of a run waits for the last bytes to be taken.
PATIENCE_SECONDS = 10.0

# What a frame says beside "here are records". A frame is four bytes of length and a packed value.
IDLE, END = "idle", "end"
LENGTH_BYTES = 4


class TraceLost(Exception):
    """The trace cannot go on; the message is the reason, for its end record and the log."""


def frame(value: Any) -> bytes:
    packed = marshal.dumps(value)
    return len(packed).to_bytes(LENGTH_BYTES, "little") + packed


class Handover:
    """`pipe`: the file descriptor to write to; it is made not to block. One thread puts, the scheduler's.

    `page_ids`: what fills the lists of page ids that records hold. It is set before the first record is put.
    """

    page_ids: PageIds

    def __init__(self, pipe: int, *, buffer_bytes: int | None = None) -> None:
        """`buffer_bytes`: BUFFER_BYTES, unless it is given."""
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self._is_open = True
        self._buffer_bytes = BUFFER_BYTES if buffer_bytes is None else buffer_bytes
        # Events that were packed, and those that could not be at the end.
        self._packed = self._lost = 0
        self._is_over = self._says_its_end = False
        self._last: threading.Thread | None = None
        self._batch: list[Any] = []
        # Batches whose page ids may still be on their way, each with how many copies must have arrived.
        self._sealed: deque[tuple[int, list[Any]]] = deque()
        self._frames: deque[bytes | memoryview] = deque()
        self.waiting_bytes = 0
        self._complete_records = 0
        """of the batches that are complete"""
        self.is_idle = True
        """everything is handed over, and the scheduler said that nothing is in flight"""
        # The first record of a busy period goes at once: from then on the end of the process is not the end of the trace.
        self._records_of_this_batch = 1

    @property
    def seen(self) -> int:
        """How many events were put so far."""
        waiting = itertools.chain(*(batch for _, batch in self._sealed), self._batch)
        return self._packed + self._lost + sum(map(events_of, waiting))

    @property
    def records(self) -> int:
        """How many were put so far."""
        return self._complete_records + len(self._batch)

    def put(self, record: Any) -> None:
        self._batch.append(record)
        if len(self._batch) >= self._records_of_this_batch:
            self._batch_is_full()

    def _batch_is_full(self) -> None:
        if self._is_over:  # around the handler in which the recording ended there may be one that still runs
            self._batch = []
            return
        self.is_idle, self._records_of_this_batch = False, RECORDS_OF_A_BATCH
        self.flush()

    def flush(self) -> None:
        """Send what is complete, as far as the pipe takes it."""
        if self._is_over:
            return
        try:
            self._seal()
            self._pack(self.page_ids.settle())
            self._send()
        except MemoryError as error:
            raise TraceLost("there is no memory for what was recorded") from error

    def idle(self) -> None:
        """The scheduler has nothing in flight: what was recorded so far is a whole trace."""
        if not self.is_idle and not self._is_over:
            self.page_ids.settle(wait=True)
            self.flush()
            self._add(frame(IDLE))
            self.is_idle, self._records_of_this_batch = True, 1
            self._send()

    def end(self, reason: str, *, dropped: int = 0, patience: float = PATIENCE_SECONDS) -> bool:
        """Close the trace; whether all of it was taken. `dropped`: events that were seen and never put.

        What the pipe does not take at once a thread sends, which this waits for: `patience` seconds.
        """
        self._is_over = True
        # A device that fails, or no memory, is a reason for the end and not an obstacle to it.
        with suppress(Exception):
            self.page_ids.settle(wait=True)
            self._seal()
            self._pack(self.page_ids.settled)
        self._lost = self.seen - self._packed
        self._sealed.clear()
        self._batch, self._records_of_this_batch = [], 1
        with suppress(Exception):  # nobody reads it, or there is no memory
            self._frames.append(frame((END, reason, dropped + self._lost)))
            self._says_its_end = True
            self._send_some()
        if not self._frames:
            self._close()
            return self._says_its_end
        self._last = threading.Thread(target=self._send_all, name="kvproof-last-words", daemon=True)
        try:
            self._last.start()
        except RuntimeError:  # not even a thread can be had: `last_words` tries once more
            self._last = None
        return self.last_words(patience) if patience else False

    def last_words(self, patience: float = PATIENCE_SECONDS) -> bool:
        """After `end`: wait until all was taken; whether it was."""
        if self._last is not None:
            self._last.join(patience)
        elif self._is_open and self._frames:
            deadline = time.monotonic() + patience
            with suppress(Exception):
                while self._frames and time.monotonic() < deadline:
                    self._wait_for_room(deadline - time.monotonic())
                    self._send_some()
            self._close()
        return self._says_its_end and not self._frames and not self.is_stuck

    @property
    def is_stuck(self) -> bool:
        """Last words wait for a reader that is there and does not read."""
        return self._last is not None and self._last.is_alive()

    def abandon(self) -> None:
        """In a child of this process: the trace is the parent's."""
        self._close()
        self._batch = []
        self._sealed.clear()
        self._frames.clear()

    def _seal(self) -> None:
        """The batch is complete; it can be packed once the page ids that it names have come from the device."""
        if self._batch:
            self._sealed.append((self.page_ids.mark(), self._batch))
            self._complete_records += len(self._batch)
            self._batch = []

    def _pack(self, settled: int) -> None:
        while self._sealed and self._sealed[0][0] <= settled:
            batch = self._sealed[0][1]
            self._add(frame(batch))  # if there is no memory for it, it stays, and is counted as what was lost
            self._packed += sum(map(events_of, batch))
            self._sealed.popleft()
        if len(self._sealed) > BATCHES_WITHOUT_IDS:
            raise TraceLost(f"page ids do not come from the device: {len(self._sealed)} batches wait for them")

    def _add(self, data: bytes) -> None:
        self._frames.append(data)
        self.waiting_bytes += len(data)

    def _send(self) -> None:
        try:
            self._send_some()
        except OSError as error:
            raise TraceLost(f"the process that writes the trace is gone: {error.strerror}") from error
        if self.waiting_bytes > self._buffer_bytes:
            raise TraceLost(f"the trace is written too slowly: {self.waiting_bytes} bytes wait")

    def _send_some(self) -> None:
        """As much as the pipe takes."""
        frames = self._frames
        while frames:
            try:
                taken = os.write(self._pipe, frames[0])
            except BlockingIOError:
                break
            self.waiting_bytes -= taken
            if taken == len(frames[0]):
                frames.popleft()
            else:
                frames[0] = memoryview(frames[0])[taken:]

    def _send_all(self) -> None:
        """In a thread of its own. The pipe stays as it is, one that does not block."""
        with suppress(OSError):  # nobody is left to tell
            while self._frames:
                self._wait_for_room()
                self._send_some()
        self._close()

    def _wait_for_room(self, seconds: float | None = None) -> None:
        poll = select.poll()
        poll.register(self._pipe, select.POLLOUT)
        poll.poll(None if seconds is None else 1e3 * max(0.0, seconds))

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            with suppress(OSError):
                os.close(self._pipe)
