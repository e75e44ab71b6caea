"""Prefixes shared through the radix tree, behind the face of `chunk_cache.py`."""

from __future__ import annotations

from kvproof.impl.chunk_cache import ChunkCache, Inserted, ceil_align, floor_align, prefilled_len
from kvproof.impl.pools import KVIndices
from kvproof.impl.request import Request


class RadixCache(ChunkCache):
    def match_prefix(self, req: Request, key_len: int) -> None:
        """The longest prefix of whole pages that the tree has, and that can be built on."""
        found = self.tree.match_reusable(req.fill_ids[:key_len])
        req.prefix_indices = found.indices
        req.last_node = found.node
        req.cache_protected_len = len(found.indices)
        req.lent = False

    def cache_unfinished_req(self, req: Request) -> Inserted | None:
        """Hand the whole pages of what was prefilled to the tree.

        The request's copies of those that the tree had are freed and its row points to the tree's pages; the lock moves to
        the new node.
        """
        tokens = req.fill_ids[: prefilled_len(req)]
        key_len = floor_align(len(tokens), self.page_size)
        row = self._row_of(req)
        indices = self.rows.read(row, 0, len(tokens))
        dup_len = self.tree.insert(tokens, indices)
        self.tree.heal(tokens[:dup_len], indices[:dup_len])
        self.allocator.free(indices[req.cache_protected_len : dup_len])

        found = self.tree.match(tokens[:key_len])
        self.rows.write(row, req.cache_protected_len, found.indices[req.cache_protected_len : dup_len])
        self.tree.inc_lock_ref(found.node)
        self.unlock(req.last_node)
        req.last_node = found.node
        req.cache_protected_len = key_len
        req.prefix_indices = self.rows.read(row, 0, len(tokens))
        return Inserted(len(tokens), dup_len)

    def cache_finished_req(self, req: Request, *, is_insert: bool) -> Inserted | None:
        """Committed whole pages go to the tree, or are freed on retract, where the space is needed at once.

        Duplicates are freed from cache_protected_len on. The over-allocated part is freed from the next page boundary on.
        """
        tokens = (req.origin_input_ids + req.output_ids)[: self.committed_len(req)]
        key_len = floor_align(len(tokens), self.page_size)
        indices = self._row_indices(req)
        dup_len = self.tree.insert(tokens, indices) if is_insert else 0
        self.free_duplicates(req, indices[: dup_len if is_insert else key_len])
        self.allocator.free(indices[key_len : len(tokens)])
        self.allocator.free(indices[ceil_align(len(tokens), self.page_size) :])
        self.release_lock(req)
        self._return_row(req, self._row_of(req))
        return Inserted(len(tokens), dup_len) if is_insert else None

    def committed_len(self, req: Request) -> int:
        """Tokens whose KV is kept: what is committed and known, as a step in flight may have claimed one more."""
        return min(req.kv_committed_len, len(req.origin_input_ids) + len(req.output_ids))

    def free_duplicates(self, req: Request, leading: KVIndices) -> None:
        """Free the request's own among the leading pages: from cache_protected_len on.

        Not from the end of the matched prefix: the request owns its unaligned tail (sglang-jax #994).
        """
        self.allocator.free(leading[req.cache_protected_len :])

    def release_lock(self, req: Request) -> None:
        """Undo the lock of a request that leaves, on the very node that it holds: a new match might find another (#22735)."""
        self.unlock(req.last_node)
        req.last_node = None
