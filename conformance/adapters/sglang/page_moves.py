"""Which pages an allocator is handed back: they belong to the action that is going on (`adapters/actions.py`), whether the
allocator frees at once or collects for the end of a free group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..actions import Actions
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


class PageMoves:
    """Handlers of what an allocator is asked to take back; `actions`: what the scheduler is doing meanwhile."""

    def __init__(self, scheduler: Any, page_ids: PageIds, actions: Actions) -> None:
        self._scheduler = scheduler
        self._page_ids = page_ids
        self._actions = actions
        self._full_pool = full_pool(scheduler.token_to_kv_pool_allocator)
        self._freeing = False
        self._closing_free_group = False
        self.strays: list[int] = []
        """pages freed outside every action"""

    def allocators(self) -> set[type]:
        return {type(self._scheduler.token_to_kv_pool_allocator), type(self._full_pool)}

    def free(self, name: str, free: Callable[..., Any], allocator: Any, *args: Any, **kwargs: Any) -> Any:
        if self._freeing or self._closing_free_group or not self._is_of_full_pool(allocator):
            return free(allocator, *args, **kwargs)
        action = self._actions.innermost
        into = action.free if action is not None else self.strays
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
