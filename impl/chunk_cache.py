"""How an ordinary request uses the pools: match, keep what was prefilled, and the one entry that releases.

`ChunkCache` is that without a tree: nothing is shared, so a match finds nothing and the end of a request frees all of its
pages. `radix_cache.py` shares prefixes behind the same face.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvproof.impl.pools import NO_INDICES, KVAllocator, KVIndices, RowPool
from kvproof.impl.radix import RadixTree, TreeNode
from kvproof.impl.request import Request
from kvproof.impl.window_pool import WindowAllocator
from kvproof.impl.window_tree import WindowTree


def ceil_align(length: int, page_size: int) -> int:
    """The length in tokens rounded up to whole pages."""
    return -(-length // page_size) * page_size


def floor_align(length: int, page_size: int) -> int:
    return length - length % page_size


@dataclass(frozen=True)
class Inserted:
    """Tokens that went into the tree, and how many of them it had already."""

    key_len: int
    dup_len: int


class ChunkCache:
    def __init__(self, allocator: KVAllocator, rows: RowPool) -> None:
        self.allocator = allocator
        self.rows = rows
        self.page_size = allocator.page_size
        self.tree = WindowTree(allocator) if isinstance(allocator, WindowAllocator) else RadixTree(allocator)
        """Without a radix cache it stays empty."""

    def match_prefix(self, req: Request, key_len: int) -> None:
        """Find the KV of the leading `key_len` tokens. Nothing is locked yet: the request may be rejected."""
        req.prefix_indices = NO_INDICES
        req.last_node = None
        req.cache_protected_len = 0
        req.lent = False

    def lock(self, node: TreeNode | None) -> None:
        """Keep the path to a node from eviction."""
        if node is not None:
            self.tree.inc_lock_ref(node)

    def unlock(self, node: TreeNode | None) -> None:
        """Undo one lock."""
        if node is not None:
            self.tree.dec_lock_ref(node)

    def cache_unfinished_req(self, req: Request) -> Inserted | None:
        """Keep what was prefilled for the next chunk; tell what the tree took, if anything was inserted."""
        req.prefix_indices = self.rows.read(self._row_of(req), 0, prefilled_len(req))
        return None

    def cache_finished_req(self, req: Request, *, is_insert: bool) -> Inserted | None:
        """The one release of an ordinary request; nothing else may free its pages (#12224)."""
        row = self._row_of(req)
        self.allocator.free(self.rows.read(row, 0, req.kv_allocated_len))
        self._return_row(req, row)
        return None

    def _return_row(self, req: Request, row: int) -> None:
        self.rows.free(row)
        req.req_pool_idx = None

    def _row_indices(self, req: Request) -> KVIndices:
        return self.rows.read(self._row_of(req), 0, req.kv_allocated_len)

    @staticmethod
    def _row_of(req: Request) -> int:
        assert req.req_pool_idx is not None, f"{req.rid} holds no row"  # only requests that ran come here
        return req.req_pool_idx


def prefilled_len(req: Request) -> int:
    """Tokens whose KV prefill wrote. With overlap a decode is prepared already, so that C is one more."""
    return min(req.kv_committed_len, len(req.fill_ids))
