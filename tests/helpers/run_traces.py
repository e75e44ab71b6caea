"""Traces of runs of the model, what a replay finds in a trace first, and a trace with something else in its records."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from model_runs import of_one_ledger, some_walk
from trace_events import write_records

from kvproof.conformance.drive.counterexample import write_witness
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replay import replay
from kvproof.conformance.replay.verdict import Finding

Records = list[dict[str, Any]]


def trace_of_walk(
    path: Path, length: int, seed: int, *, page_size: int = 2, row_width: int = 9, ledgers: int = 3, **config: Any
) -> Path:
    """A trace of a random run, by the rules: it conforms."""
    write_witness(some_walk(page_size, row_width, length, ledgers, seed, **config), path, {})
    return path


def trace_of_draw(path: Path, *, pages: int, beside: int, config: dict[str, Any], **walk: Any) -> Path:
    """A trace of the random run that `model_runs.OF_A_WALK` drew."""
    row_width = pages * walk["page_size"] + beside % walk["page_size"] + 1
    return trace_of_walk(path, row_width=row_width, **walk, **config)


def trace_of_steps(
    path: Path, page_size: int, row_width: int, *steps: tuple[str, dict[str, Any]], **config: Any
) -> Path:
    """A trace of these actions of one ledger, which the rules allow."""
    write_witness(of_one_ledger(page_size, row_width, *steps, **config), path, {})
    return path


def records_of(path: Path) -> Records:
    return [json.loads(line) for line in path.read_text().splitlines()]


def edited(path: Path, change: Callable[[Records], object], out: Path | None = None) -> Path:
    """The trace with something else in its records; in its place, if `out` is not given."""
    records = records_of(path)
    change(records)
    return write_records(out or path, records)


NAMED = ("scenario", "session", "turn")


def renamed(path: Path, name: Callable[[str], str], out: Path | None = None, fields: Sequence[str] = NAMED) -> Path:
    """The trace with other names of its scenario, its sessions and its turns."""

    def change(records: Records) -> None:
        for record in records:
            record.update({field: name(record[field]) for field in fields if record.get(field)})

    return edited(path, change, out)


def first_finding(path: Path, **options: Any) -> Finding:
    """What a replay finds first in a trace that violates a rule."""
    first = replay(path, **options).first
    assert first is not None, "it conforms"
    return first


def refused(read: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """The sentence with which something is refused."""
    with pytest.raises(UserError) as caught:
        read(*arguments, **options)
    return caught.value.message
