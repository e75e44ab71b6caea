"""Hands what the scheduler's recorder put down to a process that writes it: a bounded buffer before a pipe.

Nothing here waits. What was put down is packed in batches (`marshal`, the fastest packing that Python has) and given to the
pipe as far as it takes it; the rest stays in the buffer. When the buffer is full, or the other process is gone, recording
is over: `TraceLost` says why. A thread would not do instead of a process: it would take the interpreter from the scheduler
for as long as it formats.
"""

from __future__ import annotations

import marshal
import os
import threading
from collections import deque
from contextlib import suppress
from typing import Any

from .page_ids import PageIds

# A batch is sent when it holds so many records: as many decode steps with the results before them.
RECORDS_OF_A_BATCH = 32
# What the buffer may hold in bytes: seconds of a busy server, in case the disk stalls.
BUFFER_BYTES = 64 << 20
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

    def __init__(self, pipe: int, *, buffer_bytes: int = BUFFER_BYTES) -> None:
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self._buffer_bytes = buffer_bytes
        self._batch: list[Any] = []
        # Batches whose page ids may still be on their way, each with how many copies must have arrived.
        self._sealed: deque[tuple[int, list[Any]]] = deque()
        self._frames: deque[bytes | memoryview] = deque()
        self._waiting_bytes = 0
        self.is_idle = True
        """everything is handed over, and the scheduler said that nothing is in flight"""

    def put(self, record: Any) -> None:
        self._batch.append(record)
        # The first record of a busy period goes at once: from then on the end of the process is not the end of the trace.
        if self.is_idle or len(self._batch) >= RECORDS_OF_A_BATCH:
            self.is_idle = False
            self.flush()

    def flush(self) -> None:
        """Send what is complete, as far as the pipe takes it."""
        self._seal()
        self._pack(self.page_ids.settle())
        self._send()

    def idle(self) -> None:
        """The scheduler has nothing in flight: what was recorded so far is a whole trace."""
        if not self.is_idle:
            self.page_ids.settle(wait=True)
            self.flush()
            self._add(frame(IDLE))
            self.is_idle = True
            self._send()

    def end(self, reason: str, *, dropped: int = 0, patience: float = PATIENCE_SECONDS) -> None:
        """Close the trace. What the pipe does not take at once a thread sends, which this waits for: `patience` seconds."""
        with suppress(Exception):  # a device that fails is a reason for the end, not an obstacle to it
            self.page_ids.settle(wait=True)
        self._seal()
        self._pack(self.page_ids.settled)
        lost = sum(len(batch) for _, batch in self._sealed)
        self._sealed.clear()
        self._frames.append(frame((END, reason, dropped + lost)))
        last = threading.Thread(target=self._send_all, name="kvproof-last-words", daemon=True)
        last.start()
        last.join(patience)

    def _seal(self) -> None:
        """The batch is complete; it can be packed once the page ids that it names have come from the device."""
        if self._batch:
            self._sealed.append((self.page_ids.started, self._batch))
            self._batch = []

    def _pack(self, settled: int) -> None:
        while self._sealed and self._sealed[0][0] <= settled:
            self._add(frame(self._sealed.popleft()[1]))

    def _add(self, data: bytes) -> None:
        self._frames.append(data)
        self._waiting_bytes += len(data)

    def _send(self) -> None:
        frames = self._frames
        while frames:
            try:
                taken = os.write(self._pipe, frames[0])
            except BlockingIOError:
                break
            except OSError as error:
                raise TraceLost(f"the process that writes the trace is gone: {error.strerror}") from error
            self._waiting_bytes -= taken
            if taken == len(frames[0]):
                frames.popleft()
            else:
                frames[0] = memoryview(frames[0])[taken:]
        if self._waiting_bytes > self._buffer_bytes:
            raise TraceLost(f"the trace is written too slowly: {self._waiting_bytes} bytes wait")

    def _send_all(self) -> None:
        with suppress(OSError):  # nobody is left to tell
            os.set_blocking(self._pipe, True)
            while self._frames:
                rest = memoryview(self._frames.popleft())
                while rest:
                    rest = rest[os.write(self._pipe, rest) :]
        with suppress(OSError):
            os.close(self._pipe)
