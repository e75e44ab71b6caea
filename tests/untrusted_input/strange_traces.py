"""Hostile trace files: what an input of the fuzzer becomes, and what is promised of it.

The first byte of an input says what the rest becomes: a file of lines, of packed lines or of columns as it stands, lines behind a
good header, or the payload of a block whose checksums are right. Whatever it is, the promise is the same:

- it is judged, or refused with one sentence that names the file; nothing else is raised, and no file takes much memory;
- the compiled checker says what the interpreted one says (`--compiled`: slower, and starts with compiling it);
- the batches in which a trace is judged hold the events that one reads one by one;
- a file that grows piece by piece gives the records that the whole file gives.

`fuzz_by_coverage.py` looks for files that break it, `test_fuzz_by_coverage.py` tries those of the corpus.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from both_readings import read_by_records, read_in_batches

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay import replay as replays
from kvproof.conformance.traces.columnar_blocks import Kind, packed
from kvproof.conformance.traces.columnar_schema import ACTIONS, FLAG_PARAMS, NUMBER_PARAMS
from kvproof.conformance.traces.records import line_of
from kvproof.conformance.watch.growing_trace import GrowingFile, source_of
from kvproof.spec.trace import Config, End, Event, Header, Observed, Producer, Terms

FOLDER = Path(tempfile.mkdtemp(prefix="kvproof-fuzz-"))
HEADER = line_of(
    Header(
        spec="1",
        producer=Producer(name="fuzz", version="0", target="none"),
        config=Config(page_size=2, pool_pages=64, rows=16, row_width=7),
    )
)
CHECKERS = ["interpreted"]
NO_HEADER = "no header"


def as_a_payload(data: bytes) -> bytes:
    """Two bytes say how many events the head of the block claims."""
    events = int.from_bytes(data[:2], "little") % 64
    return (
        packed(0, Kind.HEADER, 0, 0, HEADER)
        + packed(1, Kind.EVENTS, 0, events, pa.py_buffer(data[2:]))
        + packed(2, Kind.END, events, 0, line_of(End(events=events)))
    )


def as_a_header_in_columns(data: bytes) -> bytes:
    return packed(0, Kind.HEADER, 0, 0, data) + packed(1, Kind.END, 0, 0, line_of(End(events=0)))


FORMS: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("t.jsonl", bytes),
    ("t.jsonl", lambda data: HEADER + b"\n" + data),
    ("t.kvtrace", bytes),
    ("t.kvtrace", as_a_payload),
    ("t.jsonl.gz", bytes),
    ("t.jsonl.gz", lambda data: gzip.compress(HEADER + b"\n" + data, 1, mtime=0)),
    ("t.kvtrace", as_a_header_in_columns),
)
"""The name of the file that an input becomes, and what is in it."""


def answer(path: Path, checker: str) -> Any:
    """What a user would be told: the report, or the sentence."""
    try:
        report = replays.replay(path, checker=Chosen(checker))
    except UserError as error:
        assert str(path) in error.message and "\n" not in error.message, error.message
        return error.message
    return report


def grown(path: Path, data: bytes, pieces: int) -> tuple[list[Event], str]:
    """The events of a file that comes piece by piece, and the error after them, if there is one."""
    seen: list[Event] = []
    path.write_bytes(b"")
    file = GrowingFile(path)
    source = None
    step = max(1, len(data) // pieces)
    try:
        for end in (*range(step, len(data), step), len(data)):
            path.write_bytes(data[:end])  # the same inode: what was there stays
            for _ in range(3):
                source = source_of(file) if source is None else source
                for part in source.new(False) if source is not None else ():
                    seen += [] if isinstance(part, End) else part.events
    except UserError as error:
        return seen, error.message
    finally:
        file.close()
    if source is None:
        return seen, NO_HEADER
    assert source.broken_off is None or source.broken_off.startswith(str(path))
    return seen, ""


def check_growing(path: Path, data: bytes) -> None:
    events, how = read_by_records(path)
    in_pieces, error = grown(path, data, 3)
    is_refused = isinstance(how, str)
    assert in_pieces == events[: len(in_pieces)]
    if error == NO_HEADER:  # there is less than a header: a reader refuses that, a follower waits
        assert is_refused
        return
    if path.suffix == ".jsonl" and not data.endswith(b"\n"):
        return  # whoever follows the file waits for the rest of the line, whatever it is
    assert len(in_pieces) == len(events), (how, error)
    assert is_refused == bool(error), (how, error)


def refused_for_size(said: Any) -> bool:
    """The compiled checker keeps a configuration in 32 bits, and says so of a larger one; the interpreted one takes it."""
    return isinstance(said, str) and said.endswith("takes no configuration this large: --checker interpreted")


def try_input(data: bytes) -> None:
    name, made_of = FORMS[data[0] % len(FORMS)] if data else FORMS[0]
    (path := FOLDER / name).write_bytes(made_of(data[1:]))
    answers = [answer(path, checker) for checker in CHECKERS]
    assert all(a == answers[0] for a in answers if not refused_for_size(a)), answers
    assert read_in_batches(path) == read_by_records(path)
    if path.suffix != ".gz":
        check_growing(path, path.read_bytes())


def dictionary() -> Path:
    """The words of a trace, so that they need not be found by chance."""
    words = {
        *(
            f'"{name}":'
            for model in (Header, Producer, Config, Event, Observed, Terms, End)
            for name in model.model_fields
        ),
        *(f'"{action}"' for action in ACTIONS),
        *(f'"{name}":' for name in (*FLAG_PARAMS, *NUMBER_PARAMS)),
        *("true", "false", "null", "[]", "{}", str(2**31), str(2**63), "-1", "1e3", "\\u0000", "}\n{"),
    }
    escaped = sorted("".join(f"\\x{byte:02x}" for byte in word.encode()) for word in words)
    (path := FOLDER / "words.dict").write_text("".join(f'"{word}"\n' for word in escaped))
    return path
