"""Known failures of the release of a request, of prefill, decode and results: the rules as they were before their fix.

session_faults.py says what the classes of a fault look like. A rule that was spread over two places has two classes.
"""

from __future__ import annotations

from kvproof.impl.chunk_cache import Inserted, ceil_align
from kvproof.impl.decode import Decode
from kvproof.impl.pools import KVIndices
from kvproof.impl.prefill import Prefill
from kvproof.impl.radix_cache import RadixCache
from kvproof.impl.request import Request
from kvproof.impl.request_exit import RequestExit
from kvproof.impl.results import Results
from kvproof.impl.state import EngineState


class ExtraSlotFreed(RadixCache):
    """F12224: the finish branch of the overlap scheduler infers the length with KV as input + max(output - 1, 0), takes what
    lies behind it for the slot of the step in flight, and frees it by itself; the release has it as well."""

    def cache_finished_req(self, req: Request, *, is_insert: bool) -> Inserted | None:
        inferred_len = len(req.origin_input_ids) + max(len(req.output_ids) - 1, 0)
        extra = self._row_indices(req)[inferred_len : req.kv_committed_len]
        inserted = super().cache_finished_req(req, is_insert=is_insert)
        if is_insert:
            self.allocator.free(extra)
        return inserted


class DuplicatesFromPrefix(RadixCache):
    """F994a: duplicates are freed from the end of prefix_indices on, whole pages of them; the page of its unaligned tail is
    the request's own, and freed by nobody."""

    def free_duplicates(self, req: Request, leading: KVIndices) -> None:
        self.allocator.free(leading[ceil_align(req.prefix_len, self.page_size) :])


class ReleaseMatchesAgain(RadixCache):
    """F22735: the release looks for its node by matching the tokens again: it finds, or cuts off, another node than the one
    that it locked, and takes the lock from that."""

    def release_lock(self, req: Request) -> None:
        if req.last_node is not None:
            tokens = (req.origin_input_ids + req.output_ids)[: req.kv_committed_len]
            req.last_node = self.tree.match(tokens).node
        super().release_lock(req)


class NothingClaimed(Decode):
    """F22651: nothing is claimed when a round is prepared, and the whole accept length is added when it is resolved: a turn
    that ends between the two hands on one token short."""

    def claim(self, req: Request) -> None:
        if self.state.config.speculation != 2:
            super().claim(req)


class WholeAcceptLenAdded(Results):
    __doc__ = NothingClaimed.__doc__

    def resolve(self, req: Request, accept_len: int) -> None:
        super().resolve(req, accept_len + (self.state.config.speculation == 2))


class RemembersItsSlot(Decode):
    """F994c: a result that comes for a request that ended frees the slot that its step was given, which the release has freed
    already."""

    def __init__(self, state: EngineState, exits: RequestExit) -> None:
        super().__init__(state, exits)
        self.out_cache_loc: dict[int, KVIndices] = {}

    def prepare_round(self, req: Request) -> None:
        super().prepare_round(req)
        assert req.req_pool_idx is not None  # only requests that run are prepared
        written = req.kv_committed_len - 1
        self.out_cache_loc[id(req)] = self.state.rows.read(req.req_pool_idx, written, written + 1)


class LateResultFreesSlot(Results):
    __doc__ = RemembersItsSlot.__doc__

    def late_result(self, req: Request, tokens: int) -> None:
        decode = self.prefill.decode
        if isinstance(decode, RemembersItsSlot) and id(req) in decode.out_cache_loc:
            self.state.allocator.free(decode.out_cache_loc.pop(id(req)))
        super().late_result(req, tokens)


class FirstChunkCounted(Prefill):
    """F994d: the chunk counter is raised for the first chunk only: the result of a later one looks final, so that the token it
    predicts is sampled and appended."""

    def __init__(self, state: EngineState, exits: RequestExit, decode: Decode) -> None:
        super().__init__(state, exits, decode)
        self._counted: set[str] = set()

    def count_chunk(self, req: Request) -> None:
        if req.rid not in self._counted:
            self._counted.add(req.rid)
            super().count_chunk(req)


class RetractOnEveryStep(Decode):
    """F994e: a retract is forced on every step, and prefill is allowed on each: a retracted request prefills again before it
    decodes, for ever."""

    def retract_at_interval(self) -> None:
        for req in list(self.state.running):
            self.retract(req)
