"""The radix tree of shared prefixes: it owns whole pages, and a lock keeps a path from eviction.

Keys are cut to whole pages. A node is evictable when nobody locks it, protected otherwise; both totals are running
counters, in tokens. Locks go from a node up to the root, so a locked leaf protects its whole prefix.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kvproof.impl.pools import NO_INDICES, KVAllocator, KVIndices


class TreeNode:
    """A run of tokens, whole pages, with the KV index of each token."""

    def __init__(self, key: tuple[int, ...], value: KVIndices, parent: TreeNode | None) -> None:
        self.key = key
        self.value = value
        self.parent = parent
        self.children: dict[tuple[int, ...], TreeNode] = {}
        self.lock_ref = 0
        self.window_lock_ref = 0
        """Holders whose window reaches into this node; 0 without a window pool."""
        self.last_access = 0


@dataclass(frozen=True)
class TreeMatch:
    indices: KVIndices
    """KV indices of the matched tokens: whole pages."""
    node: TreeNode


class RadixTree:
    def __init__(self, allocator: KVAllocator) -> None:
        self.page_size = allocator.page_size
        self.root = TreeNode((), NO_INDICES, None)
        self.evictable_size = 0
        self.protected_size = 0
        self.window_evictable_size = 0
        """Tokens with window pages in nodes that no window lock protects; 0 without a window pool."""
        self.window_protected_size = 0
        self._allocator = allocator
        self._clock = 0

    def match(self, token_ids: Sequence[int]) -> TreeMatch:
        """The longest prefix of `token_ids` that the tree holds, in whole pages. A match inside a node splits it."""
        key = self._page_aligned(token_ids)
        now = self._tick()
        node, done, found = self.root, 0, []
        while done < len(key):
            child = node.children.get(self._first_page(key, done))
            if child is None:
                break
            common = self._common_len(child.key, key, done)
            if common < len(child.key):
                child = self._split(child, common)
            child.last_access = now
            found.append(child.value)
            node = child
            done += common
        return TreeMatch(np.concatenate(found) if found else NO_INDICES, node)

    def match_reusable(self, token_ids: Sequence[int]) -> TreeMatch:
        """The longest prefix that a request can build on."""
        return self.match(token_ids)

    def insert(self, token_ids: Sequence[int], kv_indices: KVIndices) -> int:
        """Hand whole pages to the tree; return how many leading tokens it had already.

        The tree keeps its own copy of those: the caller still owns its duplicates.
        """
        key = self._page_aligned(token_ids)
        held = self.match(key)
        had = len(held.indices)
        if had < len(key):
            leaf = TreeNode(key[had:], kv_indices[had : len(key)].copy(), held.node)
            leaf.last_access = self._clock
            held.node.children[self._first_page(leaf.key, 0)] = leaf
            self.evictable_size += len(leaf.key)
        return had

    def heal(self, token_ids: Sequence[int], duplicates: KVIndices) -> None:
        """Take over what the tree's pages of these tokens have lost and their duplicates still have: nothing, in one pool."""

    def inc_lock_ref(self, node: TreeNode) -> None:
        for step in self._up_from(node):
            if step.lock_ref == 0:
                self.evictable_size -= len(step.key)
                self.protected_size += len(step.key)
            step.lock_ref += 1

    def dec_lock_ref(self, node: TreeNode) -> None:
        for step in self._up_from(node):
            if step.lock_ref == 1:
                self.evictable_size += len(step.key)
                self.protected_size -= len(step.key)
            step.lock_ref -= 1

    def evict(self, num_tokens: int) -> None:
        """Free unlocked leaves, the least recently used first, until `num_tokens` are free or none is left.

        A parent that becomes an unlocked leaf by this is a candidate like the others.
        """
        # Leaves of one path carry the same access time. The order in which they are met decides then: ids of objects would
        # make it differ from run to run.
        met = itertools.count()
        heap = [(node.last_access, next(met), node) for node in self.nodes() if self._is_evictable_leaf(node)]
        heapq.heapify(heap)
        evicted = 0
        while evicted < num_tokens and heap:
            _, _, leaf = heapq.heappop(heap)
            parent = self._remove(leaf)
            self._allocator.free(leaf.value)
            evicted += len(leaf.key)
            if self._is_evictable_leaf(parent):
                heapq.heappush(heap, (parent.last_access, next(met), parent))

    def evict_window(self, num_tokens: int) -> None:
        """Take window pages for `num_tokens` from nodes that no window lock protects: there are none, in one pool."""

    def nodes(self) -> list[TreeNode]:
        """Every node but the root, as they are now."""
        found, pending = [], list(self.root.children.values())
        while pending:
            node = pending.pop()
            found.append(node)
            if node.children:
                pending.extend(node.children.values())
        return found

    def _up_from(self, node: TreeNode) -> Iterator[TreeNode]:
        step: TreeNode | None = node
        while step is not None and step is not self.root:
            yield step
            step = step.parent

    def _is_evictable_leaf(self, node: TreeNode) -> bool:
        return node is not self.root and not node.children and node.lock_ref == 0

    def _remove(self, leaf: TreeNode) -> TreeNode:
        assert leaf.parent is not None  # only the root has no parent, and the root is never evicted
        del leaf.parent.children[self._first_page(leaf.key, 0)]
        self.evictable_size -= len(leaf.key)
        return leaf.parent

    def _split(self, node: TreeNode, split_len: int) -> TreeNode:
        """Cut a node in two; return the upper half. Its lock count is the lower half's: every holder goes up through it."""
        parent = node.parent
        assert parent is not None  # the root has an empty key, so it is never split
        upper = TreeNode(node.key[:split_len], node.value[:split_len].copy(), parent)
        upper.lock_ref = node.lock_ref
        upper.window_lock_ref = node.window_lock_ref
        upper.last_access = node.last_access
        parent.children[self._first_page(upper.key, 0)] = upper
        node.key, node.value, node.parent = node.key[split_len:], node.value[split_len:].copy(), upper
        upper.children[self._first_page(node.key, 0)] = node
        return upper

    def _common_len(self, key: tuple[int, ...], other: tuple[int, ...], start: int) -> int:
        """Length of the common prefix of `key` and `other[start:]`, in whole pages."""
        if key == other[start : start + len(key)]:
            return len(key)
        limit = min(len(key), len(other) - start)
        common = 0
        while common < limit and key[common] == other[start + common]:
            common += 1
        return common - common % self.page_size

    def _page_aligned(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(token_ids[: len(token_ids) - len(token_ids) % self.page_size])

    def _first_page(self, key: tuple[int, ...], start: int) -> tuple[int, ...]:
        return key[start : start + self.page_size]

    def _tick(self) -> int:
        self._clock += 1
        return self._clock
