"""A header, events as Hypothesis draws them, and traces of given events, for tests of whatever reads or writes traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

from hypothesis import strategies as st

from kvproof.conformance.traces.open_trace import read_trace, write_trace
from kvproof.spec import SPEC_VERSION
from kvproof.spec.trace import Config, End, Event, EventName, Header, Observed, Producer

HEADER = Header(
    spec=SPEC_VERSION,
    producer=Producer(name="test", version="0", target="none"),
    config=Config(page_size=4, pool_pages=8, rows=2, row_width=32),
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
COUNTS = st.integers(0, 2**40)
PAGES = st.lists(st.integers(0, 2**31), max_size=4).map(tuple)
EVENTS = st.fixed_dictionaries(
    {"action": st.sampled_from(get_args(EventName))},
    optional={
        "cause": COUNTS,
        "step": COUNTS,
        "session": NAMES,
        "turn": NAMES,
        "row": COUNTS,
        "params": st.dictionaries(NAMES, st.none() | st.booleans() | COUNTS, max_size=3),
        "alloc": PAGES,
        "free": PAGES,
        "shared": st.none() | PAGES,
        "after": st.builds(Observed, inflight=st.none() | st.booleans(), kv_committed_len=st.none() | COUNTS),
        "free_list": st.none() | PAGES,
    },
)


def bare(end: End | None) -> End | None:
    """The end record without what it states of the bytes before it."""
    return end and end.model_copy(update={"actions": None, "sha256": None})


def all_in(path: Path) -> list[tuple[int, Event | End | None]]:
    """The records of a trace with their lines, the end record bare: what is the same in lines and in columns."""
    return [(line, bare(record) if isinstance(record, End) else record) for line, record in read_trace(path)]


def written(path: Path, events: list[dict[str, Any]], header: Header = HEADER) -> Path:
    """A trace of these events, in the form that its name asks for."""
    with write_trace(path, header) as writer:
        for fields in events:
            writer.event(**fields)
    return path


def copied(source: Path, target: Path) -> Path:
    """The same records, in the form that the target's name asks for."""
    reader = read_trace(source)
    with write_trace(target, reader.header) as writer:
        for _, record in reader:
            if isinstance(record, Event):
                writer.write(record)
            elif isinstance(record, End):
                writer.close(record.reason, dropped=record.dropped, copied=record)
    return target


def events_of(path: Path, *actions: str) -> list[Event]:
    """All of a trace, or those of these actions."""
    events = [record for _, record in read_trace(path) if isinstance(record, Event)]
    return [event for event in events if not actions or event.action in actions]


def read_records(path: Path) -> list[dict[str, Any]]:
    """Header, events and end of a trace in lines, as they stand there."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_records(path: Path, records: list[dict[str, Any]]) -> Path:
    """The end record states nothing of its contents, as those of older recorders: what was changed must be found without."""
    for record in records[-1:]:
        record.pop("sha256", None)
        record.pop("actions", None)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
