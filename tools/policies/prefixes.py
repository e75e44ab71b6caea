"""What the tree gives and gives up: a request finds the longest prefix that is there; what goes is the least recently
used, no more than is missing, and nothing while nothing is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from policies.broken import require, tap

if TYPE_CHECKING:
    from kvproof.impl.pools import KVIndices
    from kvproof.impl.radix import TreeMatch, TreeNode
    from kvproof.impl.request import Request
    from kvproof.impl.state import EngineState


class Prefixes:
    """Keeps for each page of the tree when it was last matched or inserted, by a clock of its own."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._page_size = state.config.page_size
        self._clock = 0
        self._is_asked = False
        """Whether the tree was asked what it has for the request that is being matched."""
        self._used_at: dict[int, int] = {}
        self._wanted = 0
        """Pages that are asked for just now."""
        self._tree = tree = state.prefixes.tree
        if not state.config.radix_cache:
            return
        tap(state.prefixes, "match_prefix", self._match_prefix)
        tap(state.cache, "match_prefix", self._match_for_cache)
        tap(tree, "match", self._match)
        tap(tree, "insert", self._insert)
        tap(tree, "evict", self._evict)
        if state.window_pool is not None:
            tap(tree, "evict_window", self._evict_window)
        tap(state, "make_available", self._make_available)

    def _match_for_cache(self, inner: Callable[[Request], Any], req: Request) -> Any:
        self._is_asked = False
        left = inner(req)
        require(req.lent or self._is_asked, f"{req.rid} has no slot, and the tree is not asked what it has")
        return left

    def _match_prefix(self, inner: Callable[[Request, int], None], req: Request, key_len: int) -> None:
        """One token is kept back, for its logits."""
        self._is_asked = True
        longest = self._longest(req.fill_ids[: len(req.fill_ids) - 1])
        inner(req, key_len)
        has_all = self._state.window_pool is not None or req.prefix_len == longest
        require(has_all, f"{req.rid} finds {req.prefix_len} tokens in the tree, which has {longest}")

    def _longest(self, tokens: Sequence[int]) -> int:
        """Whole pages of these tokens that the tree has. With a window not all of them can be built on."""
        node, done, size = self._tree.root, 0, self._page_size
        while (child := node.children.get(tuple(tokens[done : done + size]))) is not None:
            node, key = child, child.key
            for start in range(0, len(key), size):
                if tuple(tokens[done : done + size]) != key[start : start + size]:
                    return done
                done += size
        return done

    def _match(self, inner: Callable[[Sequence[int]], TreeMatch], token_ids: Sequence[int]) -> TreeMatch:
        found = inner(token_ids)
        self._clock += 1
        self._use(found.indices)
        return found

    def _insert(self, inner: Callable[..., int], token_ids: Sequence[int], kv_indices: KVIndices) -> int:
        had = inner(token_ids, kv_indices)
        self._use(kv_indices[had : len(token_ids) - len(token_ids) % self._page_size])
        return had

    def _use(self, indices: KVIndices) -> None:
        self._used_at.update(dict.fromkeys((indices[:: self._page_size] // self._page_size).tolist(), self._clock))

    def _make_available(self, inner: Callable[[int], None], pages: int) -> None:
        self._wanted = pages
        inner(pages)

    def _evict(self, inner: Callable[[int], None], num_tokens: int) -> None:
        self._require_is_missing(num_tokens, self._state.allocator.available_pages)
        sizes = {node: len(node.key) for node in self._tree.nodes()}
        unlocked_leaves = [node for node in sizes if not node.children and node.lock_ref == 0]
        inner(num_tokens)
        left = set(self._tree.nodes())
        gone = {node: size for node, size in sizes.items() if node not in left}
        self._require_least_recently_used(gone, [node for node in unlocked_leaves if node in left], num_tokens)

    def _evict_window(self, inner: Callable[[int], None], num_tokens: int) -> None:
        pool = self._state.window_pool
        assert pool is not None  # else this was not put around it
        self._require_is_missing(num_tokens, pool.available_window_pages)
        sizes = {
            node: size for node in self._tree.nodes() if not node.window_lock_ref and (size := self._window_len(node))
        }
        inner(num_tokens)
        there = set(self._tree.nodes())
        left = [node for node in sizes if node in there and self._window_len(node)]
        gone = {node: size for node, size in sizes.items() if node not in set(left)}
        self._require_least_recently_used(gone, left, num_tokens)

    def _require_is_missing(self, num_tokens: int, available: int) -> None:
        missing = (self._wanted - available) * self._page_size
        require(num_tokens == missing, f"the tree is asked for {num_tokens} tokens, and {missing} are missing")

    def _require_least_recently_used(self, gone: dict[TreeNode, int], left: Iterable[TreeNode], wanted: int) -> None:
        if not gone:
            return
        latest = max(map(self._last_use, gone))
        earlier = [node for node in left if self._last_use(node) < latest]
        require(not earlier, "the tree gives up a prefix, and keeps one that was last used before it")
        last = max(size for node, size in gone.items() if self._last_use(node) == latest)
        total = sum(gone.values())
        require(total - last < wanted, f"the tree gives up {total} tokens where {wanted} are missing")

    def _last_use(self, node: TreeNode) -> int:
        return self._used_at.get(int(node.value[0]) // self._page_size, 0)

    def _window_len(self, node: TreeNode) -> int:
        pool: Any = self._state.window_pool
        return int((pool.window_pages_of(node.value) != 0).sum()) * self._page_size
