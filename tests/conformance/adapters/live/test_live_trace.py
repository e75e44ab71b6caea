"""What a server's recorder does when it has to stop: nothing that the server could notice."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import live_traces
import pytest
from live_traces import CHECK, OPEN, a_decode, handover_to

from kvproof.conformance.adapters.live.assembly import RESULT, events_of
from kvproof.conformance.adapters.live.handover import Handover, TraceLost
from kvproof.conformance.adapters.live.lines import Lines


@pytest.fixture
def handover() -> Any:
    reading, writing = os.pipe()
    yield handover_to(writing, buffer_bytes=1 << 16)
    os.close(reading)


def test_what_is_put_after_the_end_waits_for_nobody(handover: Handover, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler around one that ended the recording still runs, and puts its own event: the pipe takes nothing any more."""
    with pytest.raises(TraceLost):
        for step in range(1_000_000):
            handover.put(a_decode(step))
    last_words_wait, wait = threading.Event(), handover._wait_for_room

    def wait_for_room() -> None:
        last_words_wait.set()
        wait()

    monkeypatch.setattr(handover, "_wait_for_room", wait_for_room)
    handover.end("written too slowly", patience=0)
    assert last_words_wait.wait(5)

    def go_on() -> None:
        for _ in range(100):
            handover.put(CHECK)
        handover.flush()
        handover.idle()

    server = threading.Thread(target=go_on, daemon=True)
    server.start()
    server.join(5)
    assert not server.is_alive(), "the server waits for a disk"


def test_a_count_of_what_was_put_is_that_of_its_lines() -> None:
    """What is missing is named in events: those that the records would have been."""
    records = [
        OPEN,
        {"action": "evict", "free": []},
        {"action": "evict", "free": [3]},
        a_decode(1),
        (RESULT, 3, ["a", "b"], [3, 3], [3, 4]),
        a_decode(4),
    ]
    lines = Lines(4)
    for record in records:
        assert events_of(record) == len(lines.of([record])), record


def test_what_there_is_no_memory_for_is_counted(handover: Handover, monkeypatch: pytest.MonkeyPatch) -> None:
    handover.put(OPEN)
    for _ in range(5):
        handover.put(a_decode(1))

    pack = marshal.dumps

    def no_memory(value: Any) -> bytes:
        if isinstance(value, list):
            raise MemoryError
        return pack(value)

    monkeypatch.setattr(marshal, "dumps", no_memory)
    with pytest.raises(TraceLost, match="there is no memory"):
        handover.flush()
    seen = handover.seen
    assert handover.end("no memory", dropped=1, patience=0) and handover.seen == seen == 11


def test_a_buffer_that_cannot_grow_ends_the_recording_and_nothing_else() -> None:
    """With a real limit on memory, a pipe that nobody reads and a buffer far above the limit."""
    script = f"""
import os, resource, sys
sys.path.insert(0, {str(Path(live_traces.__file__).parent)!r})
from live_traces import a_decode, handover_to
from kvproof.conformance.adapters.live.handover import TraceLost
reading, writing = os.pipe()
handover = handover_to(writing, buffer_bytes=1 << 40)
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.getrlimit(resource.RLIMIT_AS)[1]))
steps = 0
try:
    while True:
        handover.put(a_decode(steps))
        steps += 1
except TraceLost as error:
    handover.end("no memory", patience=0)
    resource.setrlimit(resource.RLIMIT_AS, resource.getrlimit(resource.RLIMIT_AS)[1:] * 2)
    print(error, handover.seen == 2 * (steps + 1))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "there is no memory for what was recorded True\n", done.stderr[-2000:]
