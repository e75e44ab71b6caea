"""How an ordinary request uses the pools and the tree: match, keep a prompt, and the one entry that releases."""

from __future__ import annotations

from kvproof.impl.pools import KVAllocator, RowPool
from kvproof.impl.radix import RadixTree
from kvproof.impl.request import Request


def ceil_align(length: int, page_size: int) -> int:
    """The length in tokens rounded up to whole pages."""
    return -(-length // page_size) * page_size


def floor_align(length: int, page_size: int) -> int:
    return length - length % page_size


class RadixCache:
    def __init__(self, allocator: KVAllocator, rows: RowPool) -> None:
        self.allocator = allocator
        self.rows = rows
        self.tree = RadixTree(allocator)
        self.page_size = allocator.page_size

    def match_prefix(self, req: Request, key_len: int) -> None:
        """The longest prefix of whole pages that the tree has. Nothing is locked yet: the request may be rejected."""
        found = self.tree.match(req.fill_ids[:key_len])
        req.prefix_indices = found.indices
        req.last_node = found.node
        req.cache_protected_len = len(found.indices)
        req.lent = False

    def cache_unfinished_req(self, req: Request) -> int:
        """Hand the whole pages of what was prefilled to the tree; return how many tokens it had already.

        The request's copies of those are freed and its row points to the tree's pages; the lock moves to the new node.
        """
        tokens = req.fill_ids[: req.kv_committed_len]
        key_len = floor_align(len(tokens), self.page_size)
        row = self._row_of(req)
        indices = self.rows.read(row, 0, len(tokens))
        dup_len = self.tree.insert(tokens, indices)
        self.allocator.free(indices[req.cache_protected_len : dup_len])

        found = self.tree.match(tokens[:key_len])
        self.rows.write(row, 0, found.indices)
        self._unlock(req)
        self.tree.inc_lock_ref(found.node)
        req.last_node = found.node
        req.cache_protected_len = key_len
        req.prefix_indices = self.rows.read(row, 0, len(tokens))
        return dup_len

    def cache_finished_req(self, req: Request, *, is_insert: bool) -> int:
        """The one release of an ordinary request; return how many tokens the tree had already (0 if not inserted).

        Committed whole pages go to the tree, or are freed on retract, where the space is needed at once. Duplicates are
        freed from cache_protected_len on, not from the end of the matched prefix, whose unaligned tail the request owns.
        The over-allocated part is freed from the next page boundary on (#12224).
        """
        row = self._row_of(req)
        tokens = (req.origin_input_ids + req.output_ids)[: req.kv_committed_len]
        key_len = floor_align(len(tokens), self.page_size)
        indices = self.rows.read(row, 0, req.kv_allocated_len)
        dup_len = self.tree.insert(tokens, indices) if is_insert else 0
        self.allocator.free(indices[req.cache_protected_len : dup_len if is_insert else key_len])
        self.allocator.free(indices[key_len : len(tokens)])
        self.allocator.free(indices[ceil_align(len(tokens), self.page_size) :])
        self._unlock(req)
        self.rows.free(row)
        req.req_pool_idx = None
        return dup_len

    def _unlock(self, req: Request) -> None:
        if req.last_node is not None:
            self.tree.dec_lock_ref(req.last_node)
            req.last_node = None

    @staticmethod
    def _row_of(req: Request) -> int:
        assert req.req_pool_idx is not None, f"{req.rid} holds no row"  # only requests that ran come here
        return req.req_pool_idx
