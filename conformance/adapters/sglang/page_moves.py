"""Which pages an allocator is handed back, whether it frees at once or collects for the end of a free group.

They belong to the action that is going on (`adapters/scheduler_actions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any

from kvproof.conformance.adapters.method_hooks import code_of, is_called_by
from kvproof.conformance.adapters.row_pages import full_pool
from kvproof.conformance.adapters.scheduler_actions import SchedulerAction, SchedulerActions
from kvproof.conformance.adapters.sglang.observe import Observer

# Methods of an allocator that take pages back, as far as a release has them. One may call another: the outermost counts.
# Of two pools those of the first line take back pages of both, of the second line of the full pool, of the third of the window's.
OF_BOTH = ("free", "free_segment", "free_segments")
OF_FULL = ("free_page_ids", "free_full", "free_full_segment", "free_full_segments")
OF_WINDOW = ("free_swa", "free_swa_segment")
TAKES_BACK = (*OF_BOTH, *OF_FULL, *OF_WINDOW)
EVICTS = ("evict", "evict_for_alloc")
REMAPS = "set_full_to_swa_mapping"
RELEASE = "release_kv_cache"


class PageMoves:
    """Handlers of what an allocator is asked to take back; `actions`: what the scheduler is doing meanwhile."""

    def __init__(self, scheduler: Any, observe: Observer, actions: SchedulerActions) -> None:
        self._scheduler = scheduler
        self._page_ids = observe.page_ids
        self._actions = actions
        self._allocator = scheduler.token_to_kv_pool_allocator
        self._full_pool = full_pool(self._allocator)
        self._window = observe.window_pool
        self._freeing = False
        self._group: Any = None
        """The list of the last free group in which window pages went back."""
        self._handed_in_group: tuple[list[Any], list[Any]] = ([], [])
        """What was handed in there: for both pools, for the window's alone."""
        # The end of a free group frees the whole of it in one call, which was counted piece by piece when it was handed in.
        self._ends_of_free_groups = tuple(code_of(allocator, "free_group_end") for allocator in self.allocators())
        self.strays = SchedulerAction("outside")
        """pages freed outside every action"""

    def allocators(self) -> set[type]:
        return {type(self._allocator), type(self._full_pool)}

    def renew_bound_methods(self, holders: Iterable[Any]) -> None:
        """A method of an allocator that an object keeps is the one that its class had then."""
        for holder in holders:
            for name, kept in list(vars(holder).items()):
                if isinstance(kept, MethodType) and type(kept.__self__) in self.allocators():
                    setattr(holder, name, getattr(kept.__self__, kept.__name__))

    def free(self, name: str, free: Callable[..., Any], allocator: Any, *args: Any, **kwargs: Any) -> Any:
        if self._freeing or not self._is_of_full_pool(allocator) or is_called_by(self._ends_of_free_groups):
            return free(allocator, *args, **kwargs)
        action = self._actions.innermost or self.strays
        action.asked_to_free = True
        for indices in self._handed_in(name, args[0]):
            if name not in OF_WINDOW:
                self._page_ids.read(indices, action.free, once=True)
            if self._window is not None and name not in OF_FULL and allocator is self._allocator:
                self._window.go_back(indices, action.window_free, self._gone_in_this_group(name, indices))
        self._freeing = True
        try:
            return free(allocator, *args, **kwargs)
        finally:
            self._freeing = False

    def _gone_in_this_group(self, name: str, indices: Any) -> Any:
        """The indices whose window pages went back by the other list of this free group; None: there are none.

        The map loses its entries when the group ends. Of an index that stands in both lists the second then finds none (0.5.18).
        """
        if getattr(self._allocator, "is_not_in_free_group", True):
            return None
        if self._group is not self._allocator.free_group:
            self._group, self._handed_in_group = self._allocator.free_group, ([], [])
        of_window = name in OF_WINDOW
        self._handed_in_group[of_window].append(indices.clone())  # a row may be written anew before the group ends
        others = self._handed_in_group[not of_window]
        if not others:
            return None
        import torch

        return torch.cat(others)

    def remap(
        self, remap: Callable[..., Any], allocator: Any, full: Any, window: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Full pages get window pages. Where a request ends nothing is allocated: then these are pages of the tree, which lost
        theirs and take those of the request's duplicates."""
        if self._window is not None and allocator is self._allocator and self._actions.is_in(RELEASE):
            pages = self._page_ids.read(full, once=True), self._page_ids.read(window, once=True, set_only=True)
            self._actions.innermost.remapped.append(pages)  # type: ignore[union-attr]  # it is in one
        return remap(allocator, full, window, *args, **kwargs)

    def _handed_in(self, name: str, argument: Any) -> Iterable[Any]:
        """The indices of the full pool that a call is about."""
        if name == "free_page_ids":
            return [argument * self._scheduler.page_size]
        return [indices for indices, _ in argument] if name.endswith("segments") else [argument]

    def _is_of_full_pool(self, allocator: Any) -> bool:
        return allocator is self._full_pool or allocator is self._allocator
