"""Known failures of models with a sliding window. session_faults.py says what the classes of a fault look like."""

from __future__ import annotations

from kvproof.impl.chunk_cache import Inserted
from kvproof.impl.pools import KVIndices
from kvproof.impl.radix_cache import RadixCache
from kvproof.impl.request import Request
from kvproof.impl.request_exit import RequestExit
from kvproof.impl.session import StreamingSessionCache
from kvproof.impl.window_eviction import computed_len
from kvproof.impl.window_pool import WindowAllocator


class CursorStaysAtTrim(StreamingSessionCache):
    """F22900: the trim leaves E above T: slots written at [T, E) next turn are never evicted. E gets there where a round's
    overshoot has moved the window before it is trimmed."""

    def trim_overshoot(self, req: Request, target: int) -> None:
        evicted_len = req.swa_evicted_seqlen
        super().trim_overshoot(req, target)
        req.swa_evicted_seqlen = evicted_len


class OvershootMovesWindow(RequestExit):
    __doc__ = CursorStaysAtTrim.__doc__

    def kept_len(self, req: Request) -> int:
        return computed_len(self.state, req)


class StripsLastSlot(RadixCache):
    """F994b: the window cache strips the last slot of a request that ends ([:-1]) before it frees: that one is lost."""

    _strips = False

    def cache_finished_req(self, req: Request, *, is_insert: bool) -> Inserted | None:
        self._strips = is_insert and isinstance(self.allocator, WindowAllocator)
        inserted = super().cache_finished_req(req, is_insert=is_insert)
        self._strips = False
        return inserted

    def committed_len(self, req: Request) -> int:
        return min(super().committed_len(req), req.kv_allocated_len - self._strips)

    def _row_indices(self, req: Request) -> KVIndices:
        return super()._row_indices(req)[: req.kv_allocated_len - self._strips]
