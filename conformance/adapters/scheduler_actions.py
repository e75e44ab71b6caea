"""What a driven scheduler is doing while pages move: every page that is freed meanwhile belongs to it.

The recorders open an action around each call that moves pages, and write its event when the call has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kvproof.conformance.adapters.live.assembly import ONLY_IF_IT_FREES

EVICT, KEEP, RETRACT = "evict", "keep", "retract"


@dataclass
class SchedulerAction:
    """What is being done, and the pages that it freed so far. `inserted` is the tree's answer if it was asked to insert, `asked`
    what it was asked."""

    name: str
    free: list[int] = field(default_factory=list)
    window_free: list[int] = field(default_factory=list)
    """pages of the window pool, where the recorder sees them"""
    asked_to_free: bool = False
    """whether an allocator was called to take something back, be it nothing"""
    inserted: Any | None = None
    asked: tuple[Any, ...] = ()
    remapped: list[tuple[list[int], list[int]]] = field(default_factory=list)
    """pages of the full pool that were given window pages which others had, and those"""
    evicted_after: list[SchedulerAction] = field(default_factory=list)

    @property
    def freed(self) -> dict[str, Any]:
        """The fields of its event. Ids of a device come later: a list that is empty now may be full when the event is written."""
        return {"free": self.free, "window_free": self.window_free}


class SchedulerActions:
    """Those that are open, innermost last. `write`: writes an event, given its name and fields."""

    def __init__(self, write: Callable[..., None]) -> None:
        self._write = write
        self._open: list[SchedulerAction] = []

    @property
    def innermost(self) -> SchedulerAction | None:
        return self._open[-1] if self._open else None

    def is_in(self, name: str) -> bool:
        return bool(self._open) and self._open[-1].name == name

    @contextmanager
    def open(self, name: str) -> Iterator[SchedulerAction]:
        action = SchedulerAction(name)
        self._open.append(action)
        try:
            yield action
        finally:
            self._open.pop()

    def insert(self, insert: Callable[..., Any], tree: Any, *args: Any, **kwargs: Any) -> Any:
        """The tree is asked to insert. A release may do so again, only to have a node end there: the first answer counts."""
        answer = insert(tree, *args, **kwargs)
        if self._open and self._open[-1].inserted is None:
            self._open[-1].inserted, self._open[-1].asked = answer, args
        return answer

    def evict(self, evict: Callable[..., Any], tree: Any, *args: Any, **kwargs: Any) -> Any:
        """The tree is asked to evict, maybe as a part of doing so."""
        if self.is_in(EVICT):
            return evict(tree, *args, **kwargs)
        with self.open(EVICT) as action:
            result = evict(tree, *args, **kwargs)
        if self.is_in(RETRACT):
            # A retract evicts after it released: what it unlocked may go at once. So its own event comes first.
            self._open[-1].evicted_after.append(action)
        else:
            self._write_evict(action)
        return result

    def write_evicted_after(self, action: SchedulerAction) -> None:
        """The event of a retract is written: now those of what it evicted."""
        for evicted in action.evicted_after:
            self._write_evict(evicted)

    def _write_evict(self, action: SchedulerAction) -> None:
        self._write(EVICT, **action.freed, **{ONLY_IF_IT_FREES: True})
