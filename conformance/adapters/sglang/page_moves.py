"""Which pages a call gave back, and to which action of the scheduler that belongs.

What moves pages is opened as an *action*: every page that the allocator is handed meanwhile belongs to it, whether the
allocator frees at once or collects for the end of a free group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .notes import Notes
from .page_ids import PageIds
from .releases import full_pool

# Methods of an allocator that take pages back, as far as a release has them. One may call another: the outermost counts.
TAKES_BACK = (
    "free",
    "free_segment",
    "free_segments",
    "free_page_ids",
    "free_full",
    "free_full_segment",
    "free_full_segments",
)
EVICTS = ("evict", "evict_for_alloc")
RETRACTS = "release_req"


@dataclass
class Action:
    """What is being done, and the pages that it freed so far. `inserted` is the tree's answer if it was asked to insert."""

    name: str
    free: list[int] = field(default_factory=list)
    inserted: Any | None = None
    evicted_after: list[list[int]] = field(default_factory=list)


class PageMoves:
    """The actions that are open, and the handlers of what an allocator and a tree are asked to take back."""

    def __init__(self, scheduler: Any, page_ids: PageIds, notes: Notes) -> None:
        self._scheduler = scheduler
        self._page_ids = page_ids
        self._notes = notes
        self._actions: list[Action] = []
        self._full_pool = full_pool(scheduler.token_to_kv_pool_allocator)
        self._freeing = False
        self._closing_free_group = False
        self.strays: list[int] = []
        """pages freed outside every action"""

    def allocators(self) -> set[type]:
        return {type(self._scheduler.token_to_kv_pool_allocator), type(self._full_pool)}

    @contextmanager
    def action(self, name: str) -> Iterator[Action]:
        action = Action(name)
        self._actions.append(action)
        try:
            yield action
        finally:
            self._actions.pop()

    def is_in(self, name: str) -> bool:
        return bool(self._actions) and self._actions[-1].name == name

    # -- what the allocator is asked to do --

    def free(self, name: str, free: Callable[..., Any], allocator: Any, *args: Any, **kwargs: Any) -> Any:
        if self._freeing or self._closing_free_group or not self._is_of_full_pool(allocator):
            return free(allocator, *args, **kwargs)
        into = self._actions[-1].free if self._actions else self.strays
        if name == "free_page_ids":
            self._page_ids.read(args[0] * self._scheduler.page_size, into, once=True)
        elif name.endswith("segments"):
            for indices, _ in args[0]:
                self._page_ids.read(indices, into, once=True)
        else:
            self._page_ids.read(args[0], into, once=True)
        self._freeing = True
        try:
            return free(allocator, *args, **kwargs)
        finally:
            self._freeing = False

    def _is_of_full_pool(self, allocator: Any) -> bool:
        return allocator is self._full_pool or allocator is self._scheduler.token_to_kv_pool_allocator

    def free_group_ends(self, _allocator: Any) -> None:
        # What the group collected was counted when it was handed in; the end frees the whole of it in one call.
        self._closing_free_group = True

    def free_group_ended(self, _allocator: Any) -> None:
        self._closing_free_group = False

    # -- what the tree is asked to do --

    def insert(self, insert: Callable[..., Any], tree: Any, params: Any) -> Any:
        result = insert(tree, params)
        # A release may insert a shorter key once more, only to have a node end there: the first answer counts.
        if self._actions and self._actions[-1].inserted is None:
            self._actions[-1].inserted = result
        return result

    def evict(self, evict: Callable[..., Any], tree: Any, params: Any, **kwargs: Any) -> Any:
        if self.is_in("evict"):
            return evict(tree, params, **kwargs)
        with self.action("evict") as action:
            result = evict(tree, params, **kwargs)
        if self.is_in(RETRACTS):
            # A retract evicts after it released: what it unlocked may go at once. So its own event comes first.
            self._actions[-1].evicted_after.append(action.free)
        else:
            self.write_evict(action.free)
        return result

    def write_evict(self, pages: list[int]) -> None:
        if pages:
            self._notes.event("evict", free=pages)
