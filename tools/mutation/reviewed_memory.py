"""Mutants of sessions, caches, trees and pools that were read by hand."""

from __future__ import annotations

from mutation.review import EQUIVALENT, Review

SESSION = "impl/session.py"
REQUEST = "impl/request.py"
RADIX = "impl/radix.py"
RADIX_CACHE = "impl/radix_cache.py"
CHUNK_CACHE = "impl/chunk_cache.py"
TREE = "impl/window_tree.py"
EVICTION = "impl/window_eviction.py"
POOLS = "impl/pools.py"
WINDOW_POOL = "impl/window_pool.py"

OVER_OR_RESET = "The request is over, or `reset_for_retract` clears the field right behind this."
ONLY_ITS_LENGTH = "The prefix of a row that is kept is not written again: only its length is used."
NEVER_NONE = "The callee walks up from the node and stops at none at once: it asks itself."
PRIVATE_GUARD = "A guard against a mistake of the caller, which asks for no more than there is."

ON_MEMORY: tuple[Review, ...] = (
    Review(
        REQUEST,
        "Session._clear_marker",
        ("drop operand: self.turn_in_flight is not None -> (dropped)",),
        EQUIVALENT,
        "Whoever ends a turn ends the one in flight: there is one.",
    ),
    Review(
        SESSION,
        "StreamingSessionCache.find_active_slot",
        ("drop operand: slot.is_holding_kv -> (dropped)",),
        EQUIVALENT,
        "A slot in the table has a row: saving sets it, and release takes the slot out of the table.",
    ),
    Review(
        SESSION,
        "StreamingSessionCache.abort_turn",
        ("fix condition: slot is None -> True",),
        EQUIVALENT,
        "A later turn's lengths go into its slot before the release; they are never below the slot's, from which they began.",
    ),
    Review(
        SESSION,
        "SessionController.must_close_now",
        ("drop operand: not session.inflight -> (dropped)",),
        EQUIVALENT,
        "It is asked where a turn has just ended, so that none is in flight.",
    ),
    Review(
        CHUNK_CACHE,
        "ChunkCache.match_prefix",
        ("drop statement: req.last_node = None -> (dropped)",),
        EQUIVALENT,
        "Without a tree no request ever has a node.",
    ),
    Review(
        CHUNK_CACHE,
        "ChunkCache.match_prefix",
        ("drop statement: req.lent = False -> (dropped)",),
        EQUIVALENT,
        "A turn that was lent a row keeps it until it ends or is retracted, which clears the flag.",
    ),
    Review(
        CHUNK_CACHE,
        "ChunkCache.cache_unfinished_req",
        ("off by one: self._row_of(req) -> self._row_of(req) - 1",),
        EQUIVALENT,
        ONLY_ITS_LENGTH,
    ),
    Review(
        CHUNK_CACHE,
        "ChunkCache._return_row",
        ("drop statement: req.req_pool_idx = None -> (dropped)",),
        EQUIVALENT,
        OVER_OR_RESET,
    ),
    Review(CHUNK_CACHE, "ChunkCache.lock", ("fix condition: node is not None -> True",), EQUIVALENT, NEVER_NONE),
    Review(CHUNK_CACHE, "ChunkCache.unlock", ("fix condition: node is not None -> True",), EQUIVALENT, NEVER_NONE),
    Review(
        RADIX_CACHE,
        "RadixCache.cache_finished_req",
        ("off by one: 0 -> -1",),
        EQUIVALENT,
        "Where nothing is inserted the number is not looked at.",
    ),
    Review(
        RADIX_CACHE,
        "RadixCache.release_lock",
        ("drop statement: req.last_node = None -> (dropped)",),
        EQUIVALENT,
        OVER_OR_RESET,
    ),
    Review(
        RADIX,
        "RadixTree.match",
        ("flip comparison: done < len(key) -> done <= len(key)",),
        EQUIVALENT,
        "One round more looks for a child whose first page is empty: there is none.",
    ),
    Review(RADIX, "RadixTree.evict", ("drop operand: heap -> (dropped)",), EQUIVALENT, PRIVATE_GUARD),
    Review(
        RADIX,
        "RadixTree._up_from",
        ("drop operand: step is not None -> (dropped)",),
        EQUIVALENT,
        "Every way up ends at the root, which is asked for beside it.",
    ),
    Review(
        RADIX,
        "RadixTree._up_from",
        ("drop operand: step is not self.root -> (dropped)",),
        EQUIVALENT,
        "The root is met as well: it has no tokens, so that no total changes, and it is never evicted.",
    ),
    Review(
        TREE,
        "WindowTree.evict_window",
        ("drop operand: self._window_len(node) -> (dropped)",),
        EQUIVALENT,
        "A node without window pages gives none back, and is no leaf: such leaves are dropped with their last page.",
    ),
    Review(
        TREE,
        "WindowTree._reusable_len",
        ("swap arguments: ends * page_size - self._pool.window, 0 -> 0, ends * page_size - self._pool.window",),
        EQUIVALENT,
        "The larger of two is the same in either order.",
    ),
    Review(
        EVICTION,
        "evict_live_windows",
        ("fix condition: state.window_pool is not None -> True",),
        EQUIVALENT,
        "`evict_window` asks the same.",
    ),
    Review(
        POOLS,
        "KVAllocator._take",
        ("fix condition: count > len(self._free_pages) -> False",),
        EQUIVALENT,
        PRIVATE_GUARD,
    ),
    Review(
        POOLS,
        "RowPool.write",
        ("fix condition: len(kv_indices) == 0 -> False", "drop statement: return -> (dropped)"),
        EQUIVALENT,
        "To write nothing changes nothing.",
    ),
    Review(
        WINDOW_POOL,
        "WindowAllocator._take",
        ("fix condition: count > len(self._free_window_pages) -> False",),
        EQUIVALENT,
        PRIVATE_GUARD,
    ),
    Review(
        TREE,
        "WindowTree.heal",
        ("drop statement: self.window_protected_size += healed -> (dropped)",),
        EQUIVALENT,
        "A node that a window lock protects lacks no page: nobody builds on a match that lacks one.",
    ),
    Review(
        RADIX,
        "RadixTree._common_len",
        ("off by one: start + len(key) -> start + len(key) + 1",),
        EQUIVALENT,
        "A short cut is not taken; token by token comes to the same.",
    ),
    Review(
        SESSION,
        "SessionSlot.save_from_req",
        ("drop statement: req.req_pool_idx = None -> (dropped)",),
        EQUIVALENT,
        OVER_OR_RESET,
    ),
    Review(
        REQUEST,
        "Request.reset_for_retract",
        ("drop statement: self.lent = False -> (dropped)",),
        EQUIVALENT,
        "It is matched before it runs again, which sets the flag, and nobody asks for it in between.",
    ),
    Review(
        POOLS,
        "KVAllocator.free",
        ("drop statement: return -> (dropped)",),
        EQUIVALENT,
        "To free nothing changes nothing.",
    ),
    Review(
        POOLS,
        "RowPool.alloc",
        ("fix condition: not self._free_slots -> False",),
        EQUIVALENT,
        PRIVATE_GUARD,
    ),
)
