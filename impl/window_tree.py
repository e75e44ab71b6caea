"""The radix tree over two pools: its pages can lose their window pages and stay, as tombstones.

Which page has a window page, the map of the pool tells. A lock of a node protects its whole path in the full pool, but in
the window pool only what the next token behind the node looks back to. The tree is cut where that begins, so that the same
nodes are found when the lock is undone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvproof.impl.pools import KVIndices
from kvproof.impl.radix import RadixTree, TreeMatch, TreeNode
from kvproof.impl.window_pool import WindowAllocator


class WindowTree(RadixTree):
    def __init__(self, allocator: WindowAllocator) -> None:
        super().__init__(allocator)
        self._pool = allocator

    def match_reusable(self, token_ids: Sequence[int]) -> TreeMatch:
        """The longest prefix whose end has all the window pages that the next token looks back to."""
        found = self.match(token_ids)
        reusable_len = self._reusable_len(found.indices)
        return found if reusable_len == len(found.indices) else self.match(token_ids[:reusable_len])

    def insert(self, token_ids: Sequence[int], kv_indices: KVIndices) -> int:
        had = super().insert(token_ids, kv_indices)
        leaf = self.match(token_ids).node
        if had < self._depth(leaf):
            self.window_evictable_size += self._window_len(leaf)
        return had

    def heal(self, token_ids: Sequence[int], duplicates: KVIndices) -> None:
        """Pages of these tokens that have no window pages take those of the duplicates, which hold the same tokens.

        Where the tree's own pages stand among the duplicates, they stay as they are.
        """
        end = len(duplicates)
        for step in self._up_from(self.match(token_ids).node):
            start = end - len(step.key)
            healed = self._pool.heal(step.value, duplicates[start:end]) * self.page_size
            if step.window_lock_ref:
                self.window_protected_size += healed
            else:
                self.window_evictable_size += healed
            end = start

    def inc_lock_ref(self, node: TreeNode) -> None:
        super().inc_lock_ref(node)
        for step in self._within_window_of(node):
            if step.window_lock_ref == 0:
                self.window_evictable_size -= self._window_len(step)
                self.window_protected_size += self._window_len(step)
            step.window_lock_ref += 1

    def dec_lock_ref(self, node: TreeNode) -> None:
        super().dec_lock_ref(node)
        for step in self._within_window_of(node):
            if step.window_lock_ref == 1:
                self.window_evictable_size += self._window_len(step)
                self.window_protected_size -= self._window_len(step)
            step.window_lock_ref -= 1

    def evict_window(self, num_tokens: int) -> None:
        """Take window pages for `num_tokens` from nodes that no window lock protects, the least recently used first.

        Their pages of the full pool stay, with the prefixes that lead through them. But a leaf goes entirely: no match could
        end in it any more. So does a parent without window pages that becomes a leaf by this.
        """
        candidates = [node for node in self.nodes() if node.window_lock_ref == 0 and self._window_len(node)]
        taken = 0
        # Nodes of one path carry the same access time and are met from the top: the end of a prefix is what matches need.
        for node in sorted(candidates, key=lambda node: node.last_access):
            if taken >= num_tokens:
                return
            taken += self._window_len(node)
            if self._is_evictable_leaf(node):
                self._drop_leaf(node)
            else:
                self.window_evictable_size -= self._window_len(node)
                self._pool.free_window(node.value)

    def _drop_leaf(self, leaf: TreeNode) -> None:
        while True:
            parent = self._remove(leaf)
            self._pool.free(leaf.value)
            if not self._is_evictable_leaf(parent) or self._window_len(parent):
                return
            leaf = parent

    def _remove(self, leaf: TreeNode) -> TreeNode:
        self.window_evictable_size -= self._window_len(leaf)
        return super()._remove(leaf)

    def _reusable_len(self, indices: KVIndices) -> int:
        """The longest whole pages of a matched prefix that lack no page within the window of the token behind them."""
        page_size = self.page_size
        lacking = np.concatenate(([0], np.cumsum(self._pool.window_pages_of(indices) == 0)))
        ends = np.arange(len(lacking))
        starts = np.maximum(ends * page_size - self._pool.window, 0) // page_size
        return int(ends[lacking[starts] == lacking[ends]][-1]) * page_size

    def _within_window_of(self, node: TreeNode) -> list[TreeNode]:
        """The nodes, up from this one, that the window of the token behind it reaches; the last is cut where it begins."""
        depth = self._depth(node)
        first_seen = max(depth - self._pool.window, 0)
        missing = depth - (first_seen - first_seen % self.page_size)
        found: list[TreeNode] = []
        for step in self._up_from(node):
            if missing == 0:
                break
            if len(step.key) > missing:
                self._split(step, len(step.key) - missing)
            found.append(step)
            missing -= len(step.key)
        return found

    def _depth(self, node: TreeNode) -> int:
        """Tokens from the root to the end of the node."""
        return sum(len(step.key) for step in self._up_from(node))

    def _window_len(self, node: TreeNode) -> int:
        """Tokens of the node that have window pages."""
        return int(np.count_nonzero(self._pool.window_pages_of(node.value))) * self.page_size
