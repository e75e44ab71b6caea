"""Whether an evict that came before explains a bad event: it gave up a page that the tree still has, or left one out.

No rule says which of its pages a tree evicts, so a wrong evict shows only at the next event that meets its consequence. The trace
is read again for the pages of that event: whoever judges it keeps no history.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvproof.conformance.replay.memory_check import OF_THE_TREE, PROTECTED
from kvproof.conformance.replay.page_book import FREE, TREE
from kvproof.conformance.replay.verdict import Finding
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.trace import Event

MOST_EVENTS = 500_000
"""Events before a finding up to which the trace is read again: some seconds."""


@dataclass
class _Place:
    line: int
    event: Event

    def __str__(self) -> str:
        return f"event {self.event.seq} (line {self.line}), evict,"


@dataclass
class _History:
    """What happened before a finding: who freed each page last, the last event, the evicts since the last memory check."""

    freed_by: dict[int, _Place] = field(default_factory=dict)
    last: _Place | None = None
    since_check: list[_Place] = field(default_factory=list)


def with_evicts_blamed(findings: Sequence[Finding], path: Path) -> list[Finding]:
    """The findings, each with the evict that it is the consequence of as its cause, where there is one."""
    return [_blamed(finding, path) for finding in findings]


def _blamed(finding: Finding, path: Path) -> Finding:
    given_up = [w.page for w in finding.wrong if w.owner == FREE]
    kept = [w.page for w in finding.wrong if w.owner == TREE]
    is_of_pages = finding.wrong and len(given_up) + len(kept) == len(finding.wrong)
    counted = 0 if is_of_pages else _counted_too_many(finding)
    if finding.event.seq > MOST_EVENTS or not (is_of_pages or counted):
        return finding
    history = _history(path, finding.event.seq)
    cause = _cause(finding, history, given_up, kept) if is_of_pages else _cause_of_counts(history, counted)
    return dataclasses.replace(finding, cause=cause, explained_by=()) if cause else finding


def _cause(finding: Finding, history: _History, given_up: list[int], kept: list[int]) -> str:
    freed_by = {place.event.seq: place for page in given_up if (place := history.freed_by.get(page)) is not None}
    if given_up and len(freed_by) == 1 and all(map(_is_evict, freed_by.values())):
        gave_up = f"{next(iter(freed_by.values()))} gave up {_pages(given_up)}"
        is_again = finding.event.action == "evict"
        return f"{gave_up}, too: one of the two is wrong" if is_again else f"{gave_up}, which the tree still has"
    if given_up or (finding.differences and finding.event.action != "check"):
        return ""
    evict = _evict_for(finding.event, history)
    if evict is not None:
        return f"{evict} left out {_pages(kept)}, which the tree gave up"
    return f"an event is missing before event {finding.event.seq}, probably evict of {_pages(kept)}"


def _evict_for(event: Event, history: _History) -> _Place | None:
    """The evict that freed pages for an event: directly before it, or the last one in the same step of the scheduler."""
    if history.last is not None and _is_evict(history.last):
        return history.last
    last = history.since_check[-1] if history.since_check else None
    return last if last is not None and event.step is not None and last.event.step == event.step else None


def _counted_too_many(finding: Finding) -> int:
    """Pages that the tree has beyond the true count, where as many are missing in the free list; negative: too few."""
    off = {
        d.name: d.seen - d.expected
        for d in finding.differences
        if isinstance(d.seen, int) and isinstance(d.expected, int)
    }
    off.pop(PROTECTED, None)
    is_of_the_tree = finding.event.action == "check" and off.keys() == {"available", OF_THE_TREE}
    return off[OF_THE_TREE] if is_of_the_tree and off["available"] == -off[OF_THE_TREE] else 0


def _cause_of_counts(history: _History, too_many: int) -> str:
    if len(history.since_check) != 1:
        return ""
    pages = "1 page" if abs(too_many) == 1 else f"{abs(too_many)} pages"
    did = f"gave up {pages} that the tree still has" if too_many > 0 else f"left out {pages} that the tree gave up"
    return f"{history.since_check[0]} {did}"


def _history(path: Path, until: int) -> _History:
    history = _History()
    for line, event in read_trace(path):
        if not isinstance(event, Event):
            continue
        if event.seq >= until:
            break
        place = _Place(line, event)
        history.freed_by.update(dict.fromkeys(event.free, place))
        history.last = place
        if _is_evict(place):
            history.since_check.append(place)
        elif event.action == "check" and event.terms is not None:
            history.since_check.clear()
    return history


def _is_evict(place: _Place) -> bool:
    return place.event.action == "evict"


def _pages(pages: list[int]) -> str:
    return f"page {pages[0]}" if len(pages) == 1 else f"pages {', '.join(map(str, pages))}"
