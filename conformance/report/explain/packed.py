"""A story as text that a page can hold: columns of differences, as JSON, packed, in letters that mean nothing to HTML."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

from kvproof.conformance.replay.verdict import Finding
from kvproof.conformance.report.explain.story import LENGTH_FIELDS, Change, Moment, Story
from kvproof.spec.state import PHASE_NAMES


def packed(story: Story) -> str:
    """A story as base64 of gzipped JSON. Deterministic: the time is not in it."""
    text = json.dumps(_as_data(story), separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(text, 9, mtime=0)).decode("ascii")


def _as_data(story: Story) -> Mapping[str, Any]:
    columns = _columns(Moment, story.events)
    del columns["seq"]  # one more from event to event
    return {
        "first_seq": story.events[0].seq if story.events else 0,
        "page_size": story.header.config.page_size,
        "config": story.header.config.model_dump(mode="json"),
        "owners": list(story.owners),
        "turns": list(story.turns),
        "actions": list(story.actions),
        "rules": list(story.rules),
        "phases": list(PHASE_NAMES),
        "events": columns,
        "pages": _columns(Change, story.pages),
        "window_pages": _columns(Change, story.window_pages),
        "bad": [_bad(story, index, finding) for index, finding in story.bad.items()],
    }


def _columns(kind: type[Moment] | type[Change], rows: Sequence[Moment] | Sequence[Change]) -> dict[str, list[int]]:
    return {name: _differences(row[place] for row in rows) for place, name in enumerate(kind._fields)}


def _differences(values: Iterable[int]) -> list[int]:
    return [after - before for before, after in pairwise(chain((0,), values))]


def _bad(story: Story, index: int, finding: Finding) -> Mapping[str, Any]:
    """What the charts mark. `expected`: lengths by the rule, of those that the chart of the row shows."""
    expected: dict[str, object] = {}
    for letter, name in LENGTH_FIELDS.items():
        for d in finding.differences:
            if d.name in (name, f"slot_{name}"):
                expected.setdefault(letter, d.expected)
    return {
        "index": index,
        "action": finding.action,
        "who": story.events[index].who,
        "pages": [wrong.page for wrong in finding.wrong],
        "expected": expected,
    }
