"""What a hostile trace may hold, item by item, in both forms and for both checkers: named, refused or judged, within bounds.

Found by hand; what a fuzzer looks for beyond it is in tests/fuzz. Damage of blocks has its own file, test_columnar_damage.py.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

from command_line import run
from trace_events import HEADER, written

from kvproof.conformance.compiled.choose import COMPILED, INTERPRETED, Chosen
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replay import VIOLATES, replay
from kvproof.conformance.traces import columnar_blocks, columnar_check, json_lines
from kvproof.conformance.traces.columnar import stream_of_batch
from kvproof.conformance.traces.columnar_blocks import Kind, packed
from kvproof.conformance.traces.columnar_events import batches_of
from kvproof.conformance.traces.json_lines import TraceWriter
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.conformance.traces.records import LARGEST_LENGTH, LARGEST_POOL, line_of
from kvproof.spec.trace import End, Event

CHECKERS = [INTERPRETED, COMPILED]
OPEN = {"record": "event", "seq": 0, "action": "open", "session": "s"}


def header(**config: Any) -> bytes:
    fields = json.loads(line_of(HEADER))
    fields["config"].update(config)
    return json.dumps(fields).encode()


def lines(*records: Any, head: bytes | None = None, end: int | None = None) -> bytes:
    """A file of lines. `end`: how many events its end record counts, those that there are if not given."""
    texts = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
    last = json.dumps({"record": "end", "events": len(records) if end is None else end}).encode()
    return b"\n".join([header() if head is None else head, *texts, last, b""])


def answer(path: Path, checker: str) -> str:
    """The sentence that it is refused with, or its verdict and first finding."""
    try:
        report = replay(path, checker=Chosen(checker))
    except UserError as error:
        assert "\n" not in error.message
        return error.message
    return f"{report.verdict} {report.why} {report.first.differences if report.first else ''}"


OUT_OF_ORDER = {**OPEN, "seq": 5}
DEEP = b"[" * 100_000
GZIP = b"\x1f\x8b"


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize(
    ("data", "line", "said"),
    [
        (lines(DEEP), 2, "recursion limit exceeded"),
        (lines(head=DEEP), 1, "maximum recursion depth exceeded"),
        (lines(b'{"record":"event","seq":0,"action":"open","params":' + b'{"a":' * 50_000), 2, "recursion limit"),
        (lines(OPEN, OUT_OF_ORDER), 3, "event seq 5, expected 1: lines lost or reordered"),
        (lines(OPEN, OPEN), 3, "event seq 0, expected 1"),
        (lines({**OPEN, "seq": 2**63}), 2, "event seq 9223372036854775808, expected 0"),
        (lines({**OPEN, "seq": -1}), 2, "field 'seq': Input should be greater than or equal to 0"),
        (lines({**OPEN, "row": 2.5}), 2, "field 'row'"),
        (lines({**OPEN, "alloc": [1e300]}), 2, "field 'alloc.0'"),
        (lines(OPEN, end=2**63), 3, "the end record counts 9223372036854775808 events, the file holds 1"),
        (lines(OPEN, end=-1), 3, "field 'events'"),
        (lines(head=header(pool_pages=2**63)), 1, f"'config.pool_pages': {2**63} is out of range, the largest is"),
        (lines(head=header(pool_pages=LARGEST_POOL + 1)), 1, "'config.pool_pages': 67108865 is out of range"),
        (lines(head=header(window_pages=2**40)), 1, "'config.window_pages': 1099511627776 is out of range"),
        (lines(head=header(rows=2**40)), 1, "'config.rows': 1099511627776 is out of range"),
        (lines(head=header(page_size=LARGEST_LENGTH + 1)), 1, "'config.page_size': 1099511627777 is out of range"),
        (lines(head=header(row_width=2**63)), 1, "'config.row_width': 9223372036854775808 is out of range"),
        (lines(head=header(pool_pages=-3)), 1, "field 'config.pool_pages'"),
        (lines(head=header().replace(b'"format": 1', b'"format": 2')), 1, "format 2; this kvproof reads format 1"),
        (lines(b'{"record":"event","seq":0,"action":"open","session":"\xff"}'), 2, "invalid unicode"),
        (lines(b"\0" * 500), 2, "not JSON"),
        (lines(OPEN) + lines(OPEN), 4, "a record after the end record"),
        (lines(OPEN) + b"junk", 4, "a record after the end record"),
        (lines(OPEN) + b"\n", 4, "a record after the end record"),
    ],
)
def test_lines_that_cannot_be_are_refused_by_both_checkers_with_their_place(
    tmp_path: Path, data: bytes, line: int, said: str, checker: str
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(data)
    found = answer(path, checker)
    assert found.startswith(f"{path}:{line}: ") and said in found


FAR = [
    {"alloc": [2**63]},
    {"alloc": [9]},
    {"free": [-5]},
    {"free": [2**31]},
    {"window_free": [1, 2]},
    {"after": {"checkpoint_len": -5}},
    {"after": {"checkpoint_len": 2**63}},
    {"after": {"slot_held": True}},
]


@pytest.mark.parametrize("columns", [False, True], ids=["lines", "columns"])
@pytest.mark.parametrize("fields", FAR, ids=json.dumps)
def test_ids_and_lengths_out_of_range_are_judged_alike(tmp_path: Path, fields: dict[str, Any], columns: bool) -> None:
    """They are what a server said: the verdict is that it cannot be so."""
    path = tmp_path / ("t.kvtrace" if columns else "t.jsonl")
    written(path, [{"action": "open", "session": "s", **fields}])
    found = {answer(path, checker) for checker in CHECKERS}
    assert len(found) == 1
    verdict = found.pop()
    assert verdict.startswith(VIOLATES) or fields == {"window_free": [1, 2]}, "a trace without a window pool names none"


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_lost_end_and_a_torn_line_are_incomplete(tmp_path: Path, checker: str) -> None:
    path = tmp_path / "t.jsonl"
    for torn in (b"", DEEP, b"\0" * 100, b'{"a":' * 50_000, b'{"record":"event"'):
        path.write_bytes(b"\n".join([header(), json.dumps(OPEN).encode(), torn]))
        assert answer(path, checker).startswith("incomplete")


# --- long lines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
@pytest.mark.parametrize("ended", [b"\n", b""])
def test_a_line_that_is_too_long_is_refused_before_it_is_whole(
    tmp_path: Path, suffix: str, ended: bytes, checker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "LONGEST_RECORD", 1000)
    path = tmp_path / f"t{suffix}"
    data = b"\n".join([header(), json.dumps(OPEN).encode(), b"x" * 1001]) + ended
    path.write_bytes(gzip.compress(data) if suffix == ".jsonl.gz" else data)
    assert answer(path, checker) == f"{path}:3: the line is longer than 1000 bytes: no recorder writes one so long"


def test_a_writer_writes_no_line_that_no_reader_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "LONGEST_RECORD", 1000)
    with TraceWriter(tmp_path / "t.jsonl", HEADER) as writer:
        with pytest.raises(UserError, match=r"event 0 is a line of \d+ bytes, the longest is 1000: write columns"):
            writer.event(action="evict", free=tuple(range(1000)))
        writer.close()
    assert read_trace(tmp_path / "t.jsonl").header == HEADER


IN_A_PROCESS = """
import resource, sys
from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replay import replay
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    replay(sys.argv[1], checker=Chosen(sys.argv[2]))
except UserError:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start)
"""


def peak(path: Path, checker: str) -> float:
    """MiB that a replay takes."""
    process = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, str(path), checker], capture_output=True, text=True, check=True
    )
    return int(process.stdout) / 1024


@pytest.mark.parametrize(
    ("make", "at_most"),
    [
        (lambda: b"\n".join([header(), b"x" * 2**28]), 200),
        (lambda: lines(b'{"record":"event","seq":0,"action":"open","session":"' + b"x" * 2**26 + b'"}'), 200),
        (lambda: lines(OPEN, head=header(pool_pages=LARGEST_POOL, window_pages=LARGEST_POOL, rows=LARGEST_POOL)), 50),
        (lambda: lines({**OPEN, "action": "check", "free_list": []}, head=header(pool_pages=LARGEST_POOL)), 50),
        (lambda: gzip.compress(header() + b"\n" + bytes(2**28), 9), 200),
    ],
    ids=["no-newline", "long-name", "large-pools", "free-list-of-a-large-pool", "packed-bomb"],
)
def test_memory_is_bounded_whatever_a_file_asks_for(tmp_path: Path, make: Callable[[], bytes], at_most: int) -> None:
    data = make()
    path = tmp_path / ("t.jsonl.gz" if data.startswith(GZIP) else "t.jsonl")
    path.write_bytes(data)
    assert peak(path, INTERPRETED) < at_most


# --- packed lines ---------------------------------------------------------------------------------------------------------


def packed_lines(events: int = 400) -> bytes:
    return gzip.compress(lines(*({**OPEN, "seq": n, "session": f"s{n}"} for n in range(events))), 6, mtime=0)


@pytest.mark.parametrize("checker", CHECKERS)
def test_damage_of_a_packed_file_is_no_torn_end(tmp_path: Path, checker: str) -> None:
    path, data = tmp_path / "t.jsonl.gz", packed_lines()
    for place in (len(data) // 3, len(data) // 2, len(data) - 6):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        found = answer(path, checker)
        assert found.startswith(f"{path}:"), found
    path.write_bytes(data[:-6] + bytes([data[-6] ^ 1]) + data[-5:])
    assert f"{path}:403: the packed file is damaged behind line 402: CRC check failed" in answer(path, checker)
    path.write_bytes(data + b"junk")
    assert "the packed file is damaged behind line 402" in answer(path, checker)


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_packed_file_that_lost_its_last_bytes_is_incomplete(tmp_path: Path, checker: str) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(packed_lines()[:-4])
    assert answer(path, checker).startswith("incomplete")


# --- columns --------------------------------------------------------------------------------------------------------------


def in_blocks(path: Path, *events: Event, head: bytes | None = None) -> Path:
    (batch,) = batches_of(events)
    path.write_bytes(
        packed(0, Kind.HEADER, 0, 0, header() if head is None else head)
        + packed(1, Kind.EVENTS, events[0].seq, len(events), stream_of_batch(batch))
        + packed(2, Kind.END, 0, 0, line_of(End(events=len(events))))
    )
    return path


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize(
    ("head", "said"),
    [
        (header(pool_pages=2**63), "'config.pool_pages': 9223372036854775808 is out of range"),
        (header().replace(b'"format": 1', b'"format": 7'), "trace format 7; this kvproof reads format 1"),
        (DEEP, "maximum recursion depth exceeded"),
        (b"\xff\xfe", "not JSON"),
        (json.dumps(OPEN).encode(), "the header is missing"),
    ],
)
def test_a_header_in_columns_is_held_to_the_same(tmp_path: Path, head: bytes, said: str, checker: str) -> None:
    path = in_blocks(tmp_path / "t.kvtrace", Event(seq=0, action="open", session="s"), head=head)
    found = answer(path, checker)
    assert found.startswith(f"{path}: block 0 at byte 0: ") and said in found


@pytest.mark.parametrize("kind", [Kind.HEADER, Kind.END])
def test_a_record_of_a_block_is_no_longer_than_a_line(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar_blocks, "LONGEST_RECORD", 2000)
    path = tmp_path / "t.kvtrace"
    first = b"" if kind is Kind.HEADER else packed(0, Kind.HEADER, 0, 0, header())
    path.write_bytes(first + packed(1 if first else 0, kind, 0, 0, b"{" + b" " * 2000 + b"}"))
    found = answer(path, INTERPRETED)
    assert found.endswith(f"at byte {len(first)}: claims a record of 2002 bytes; one has at most 2000")


def test_a_verbatim_event_is_no_longer_than_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = Event(seq=0, action="open", session="s" * 3000, params={"origin_len": None})
    path = in_blocks(tmp_path / "t.kvtrace", event)
    assert answer(path, INTERPRETED).startswith("conforms")
    monkeypatch.setattr(columnar_check, "LONGEST_RECORD", 2000)
    assert "a verbatim event of 3" in answer(path, INTERPRETED)


# --- the command line -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["replay", "watch", "info", "convert", "slice"])
def test_no_command_ends_in_a_traceback(tmp_path: Path, command: str) -> None:
    path = tmp_path / "t.jsonl"
    rest = {"convert": [tmp_path / "o.kvtrace"], "slice": ["--out", tmp_path / "o.jsonl"]}
    for data in (lines(DEEP), lines(head=DEEP), lines(head=header(pool_pages=2**63)), lines(OPEN) + b"junk\n"):
        path.write_bytes(data)
        result = run(command, path, *rest.get(command, []))
        assert result.exit_code == 2, (command, result.output)
        assert "Traceback" not in result.output and str(path) in result.stderr
