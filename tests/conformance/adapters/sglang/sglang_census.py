"""Counts pages from a trace alone: who holds each page, by the row it was taken for. Independent of spec and model.

It knows four owners: the free list, the tree, a row, and nobody. Nobody is a leak. It believes the page ids of the events
and nothing else, so it also tells whether the recorder saw every page move: its free pages must be the free list of every
`check`, and its tree pages as many as the tree says it has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kvproof.spec.trace import Event, Header


@dataclass
class Census:
    pool_pages: int
    free: set[int] = field(default_factory=set)
    tree: set[int] = field(default_factory=set)
    rows: dict[int, set[int]] = field(default_factory=dict)
    row_of: dict[str, int] = field(default_factory=dict)
    """turn -> its row"""
    leaked: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    own_checks: Counter[bool] = field(default_factory=Counter)

    @classmethod
    def of(cls, header: Header, events: list[Event]) -> Census:
        census = cls(header.config.pool_pages, free=set(range(1, header.config.pool_pages + 1)))
        for event in events:
            census.add(event)
        return census

    def add(self, event: Event) -> None:
        self._take(event)
        self._free(event)
        match event.action:
            case "insert":
                self._give_to_tree(event.row, set(event.shared or ()))
            case "finish" if event.session is None:
                row = self.row_of.pop(str(event.turn))
                if event.params["inserted"]:
                    self._give_to_tree(row, set(self.rows.get(row, ())))
                self._drop(row)
            case "retract" | "abort" | "finish" if event.turn in self.row_of:
                row = self.row_of.pop(str(event.turn))
                if event.params.get("inserted"):
                    self._give_to_tree(row, set(self.rows.get(row, ())))
                if not event.after.slot_held:
                    self._drop(row)
            case "close" if event.row is not None and not event.after.slot_held:
                self._drop(event.row)
            # With idle_passes it says that nothing was found to run, and no more.
            case "check" if "idle_passes" not in event.params:
                self._compare(event)

    def _take(self, event: Event) -> None:
        if event.row is not None and event.turn is not None:
            self.row_of[event.turn] = event.row
        for page in event.alloc:
            if page not in self.free:
                self._complain(event, f"page {page} was taken, but it is not free")
            self.free.discard(page)
            self.rows.setdefault(int(event.row or 0), set()).add(page)

    def _free(self, event: Event) -> None:
        for page in event.free:
            if page in self.free:
                self._complain(event, f"page {page} was freed twice")
            self.free.add(page)
            self.tree.discard(page)
            self.leaked.discard(page)
            for pages in self.rows.values():
                pages.discard(page)

    def _give_to_tree(self, row: int | None, pages: set[int]) -> None:
        self.tree |= pages
        self.rows.get(int(row or 0), set()).difference_update(pages)

    def _drop(self, row: int) -> None:
        self.leaked |= self.rows.pop(row, set())

    def _compare(self, event: Event) -> None:
        self.own_checks[bool(event.params["own_check_ok"])] += 1
        if sorted(event.free_list or ()) != sorted(self.free):
            self._complain(event, f"free list differs by {Counter(event.free_list) - Counter(self.free)}")
        if event.terms is not None and event.terms.evictable + event.terms.protected != len(self.tree):
            self._complain(event, f"the tree has {event.terms.evictable + event.terms.protected}, not {len(self.tree)}")

    def _complain(self, event: Event, what: str) -> None:
        self.wrong.append(f"event {event.seq} ({event.action} {event.turn or event.session or ''}): {what}")

    def summary(self) -> dict[str, Any]:
        held = {row: len(pages) for row, pages in self.rows.items() if pages}
        return {
            "leaked": len(self.leaked),
            "held": held,
            "wrong": self.wrong[:3],
            "n_wrong": len(self.wrong),
            "own_failed": self.own_checks[False],
        }
