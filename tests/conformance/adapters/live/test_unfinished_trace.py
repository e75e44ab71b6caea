"""What the process that writes leaves behind, in either form: readable up to the last whole block, and closed by the server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import live_traces
import pytest
from live_traces import CHECK
from trace_events import HEADER

from kvproof.conformance.adapters.live.lines_file import LinesFile, header_line
from kvproof.conformance.adapters.live.unfinished_trace import close_what_was_left
from kvproof.conformance.adapters.live.writer import open_in_form
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.conformance.traces.records import event_line
from kvproof.spec.trace import End, Event

FORMS = (".jsonl", ".kvtrace")


def new_file(path: Path) -> LinesFile:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    return open_in_form(file, path.suffix, header_line(HEADER))


def checks(first: int, count: int) -> list[bytes]:
    return [event_line(seq, CHECK) + b"\n" for seq in range(first, first + count)]


def read(path: Path) -> tuple[int, End | None, str | None]:
    """Events, end record, what is torn."""
    reader = read_trace(path)
    return sum(isinstance(record, Event) for _, record in reader), reader.end, reader.torn


@pytest.mark.parametrize("form", FORMS)
def test_the_end_of_an_idle_server_is_taken_back_in_either_form(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"t{form}"
    file = new_file(path)
    for busy_period in range(3):
        file.add(checks(3 * busy_period, 3))
        file.idle()
        file.idle()
        events, end, torn = read(path)
        assert (events, torn) == (3 * busy_period + 3, None) and end == End(events=events)
    file.add(checks(9, 2))
    file.close()
    assert read(path) == (11, None, None)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", [0, 1, 40])
def test_a_torn_tail_is_cut_off_and_what_is_missing_counted(tmp_path: Path, form: str, cut: int) -> None:
    path = tmp_path / f"t{form}"
    file = new_file(path)
    file.add(checks(0, 5))
    file.idle()
    file.add(checks(5, 4))
    file.close()
    os.truncate(path, path.stat().st_size - cut)
    whole = {".jsonl": 9 - bool(cut), ".kvtrace": 5 if cut else 9}[form]
    left = close_what_was_left(path, "the writer is gone", 20)
    assert left == (whole, 20 - whole)
    assert read(path) == (whole, End(events=whole, dropped=20 - whole, reason="the writer is gone"), None)
    assert close_what_was_left(path, "asked again", 20) == left
    assert read(path)[1] == End(events=whole, dropped=20 - whole, reason="the writer is gone")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("events", [0, 2])
def test_an_end_that_is_no_longer_true_is_taken_back_and_a_header_alone_gets_one(
    tmp_path: Path, form: str, events: int
) -> None:
    """The process that writes may die while the server is idle, and the server continues."""
    path = tmp_path / f"t{form}"
    file = new_file(path)
    if events:
        file.add(checks(0, events))
        file.idle()
    file.close()
    assert close_what_was_left(path, "gone", 3) == (events, 3 - events)
    assert read(path) == (events, End(events=events, dropped=3 - events, reason="gone"), None)


@pytest.mark.parametrize("form", FORMS)
def test_on_a_full_disk_the_last_events_make_room_for_the_end(tmp_path: Path, form: str) -> None:
    """Whatever the last byte is that fits: there is an end record, and it counts all that is not there."""
    script = f"""
import resource, sys
from pathlib import Path
sys.path += [{str(Path(__file__).parent)!r}, {str(Path(live_traces.__file__).parent)!r}]
from test_unfinished_trace import checks, new_file, read
for size in range(20000, 20400, 13):
    path = Path({str(tmp_path)!r}) / f"{{size}}{form}"
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    file, given = new_file(path), 0
    try:
        while True:
            given += 7
            file.add(checks(given - 7, 7))
            if given % 2:
                file.idle()
    except OSError:
        pass
    events, end, torn = read(path)
    assert torn is None and end is not None, (size, events, end, torn)
    assert end.events == events and events + end.dropped == given, (size, events, end, given)
    assert events and "could not be written on: File too large" in end.reason
print("all")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "all\n", done.stderr
