"""A story as text that a page can hold: columns of differences, as JSON, packed, in letters that mean nothing to HTML."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Any

from kvproof.conformance.replay.verdict import Finding
from kvproof.conformance.report.explain.story import Changes, Columns, Story
from kvproof.spec.state import PHASE_NAMES

LENGTH_FIELDS = {
    "kv_committed_len": "c",
    "kv_allocated_len": "a",
    "cache_protected_len": "r",
    "swa_evicted_seqlen": "e",
}


def packed(story: Story) -> str:
    """A story as base64 of gzipped JSON. Deterministic: the time is not in it."""
    text = json.dumps(_as_data(story), separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(text, 9, mtime=0)).decode("ascii")


def _as_data(story: Story) -> Mapping[str, Any]:
    columns = _columns(story.events)
    first = story.events.seq[0] if story.events.seq else 0
    del columns["seq"]  # one more from event to event
    return {
        "first_seq": first,
        "page_size": story.header.config.page_size,
        "config": story.header.config.model_dump(mode="json"),
        "owners": list(story.owners),
        "turns": list(story.turns),
        "actions": list(story.actions),
        "rules": list(story.rules),
        "phases": list(PHASE_NAMES),
        "events": columns,
        "pages": _columns(story.pages),
        "window_pages": _columns(story.window_pages),
        "bad": [_bad(story, index, finding) for index, finding in story.bad.items()],
    }


def _columns(told: Columns | Changes) -> dict[str, list[int]]:
    return {column.name: _differences(getattr(told, column.name)) for column in fields(told)}


def _differences(values: Iterable[int]) -> list[int]:
    return [after - before for before, after in pairwise((0, *values))]


def _bad(story: Story, index: int, finding: Finding) -> Mapping[str, Any]:
    """What the charts mark. `expected`: lengths by the rule, of those that the chart of the row shows."""
    expected: dict[str, object] = {}
    for name, letter in LENGTH_FIELDS.items():
        for d in finding.differences:
            if d.name in (name, f"slot_{name}"):
                expected.setdefault(letter, d.expected)
    return {
        "index": index,
        "action": finding.action,
        "who": story.events.who[index],
        "pages": [wrong.page for wrong in finding.wrong],
        "expected": expected,
    }
