"""What tests of several commands read."""

from __future__ import annotations

from pathlib import Path

import pytest
from many_traces import HEADER

from kvproof.conformance.traces.json_lines import TraceWriter


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Three events of a recorder that cannot see tree nodes, of a build with a known bug."""
    extra = {"engine": {"rows": 2, "faults": ["F994a"]}, "settings": {}}
    told = {"gaps": ("tree nodes",), "known_deviations": ("F994a",), "extra": extra}
    with TraceWriter(tmp_path / "t.jsonl", HEADER.model_copy(update=told)) as writer:
        writer.event(action="open", session="s")
        writer.event(action="extend", session="s", turn="a", alloc=(1, 2), after={"kv_committed_len": 7})
        writer.event(action="finish", session="s", turn="a", free=(2,), after={"kv_committed_len": 3})
    return tmp_path / "t.jsonl"
