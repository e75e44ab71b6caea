"""Traces of real runs that are kept: replayed ever after, with the verdict and the numbers that they had."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from repository import GOLDEN

from kvproof.conformance.replay.replay import CONFORMS, VIOLATES, replay
from kvproof.conformance.traces.open_trace import read_trace

# folder -> where it was recorded by `make test-sglang-gpu`; trace -> events and pages moved, window pages included.
ON_CPU = GOLDEN / "sglang-0.5.11-cpu"
ON_H100 = tuple(GOLDEN / f"sglang-{release}-cuda" for release in ("0.5.11", "0.5.23"))
KEPT: dict[Path, tuple[int, int]] = {
    ON_CPU / "basic.jsonl.gz": (62, 103),
    ON_CPU / "chunked.jsonl.gz": (154, 127),
    ON_CPU / "many-sessions.jsonl.gz": (317, 36),
    ON_CPU / "matrix-window-overlap.jsonl.gz": (317, 264),
    ON_CPU / "pressure.jsonl.gz": (526, 612),
    ON_CPU / "retract.jsonl.gz": (307, 99),
    ON_H100[0] / "pressure.jsonl.gz": (527, 612),
    ON_H100[1] / "matrix-window-overlap.jsonl.gz": (312, 250),
}


def test_each_trace_that_is_kept_is_replayed() -> None:
    """Those with a device in the name of their folder; the others are of `tests/helpers/golden.py`."""
    assert set(KEPT) == set(GOLDEN.glob("sglang-*-*/*.jsonl*"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_a_kept_trace_has_the_verdict_that_it_had_and_says_where_it_was_made(path: Path) -> None:
    """Of a real forward, and of the device that its folder is named after."""
    report, header = replay(path, profile="auto"), read_trace(path).header
    assert (report.verdict, report.events, report.pages_moved) == (CONFORMS, *KEPT[path])
    assert header.extra["real_forward"] is True
    assert path.parent.name == f"{header.producer.target.replace(' ', '-')}-{header.extra['device']}"


def test_a_kept_trace_with_another_page_in_it_violates(tmp_path: Path) -> None:
    lines = gzip.decompress((ON_CPU / "basic.jsonl.gz").read_bytes()).decode().splitlines()
    place = next(place for place, line in enumerate(lines) if '"action":"finish"' in line and '"alloc"' not in line)
    place = next(place for place in range(place, len(lines)) if '"free":[' in lines[place])
    event = json.loads(lines[place])
    event["free"][0] += 1
    spoilt = tmp_path / "spoilt.jsonl"
    spoilt.write_text("\n".join([*lines[:place], json.dumps(event), *lines[place + 1 :]]) + "\n")
    assert replay(spoilt).verdict == VIOLATES
