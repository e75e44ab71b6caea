"""Stand-ins for what a batch works on beside the session's: the allocator that hands out pages, and the prefix cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.stand_ins import Allocator, InnerCache
from kvproof.model.code import arithmetic
from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.values import Known, Record


def known(value: Any) -> Known:
    """A function without arguments that gives a value."""
    return Known("given", lambda: value)


def switched(**values: Any) -> Record:
    """Variables of the environment, as `environ.py` has them."""
    return Record(**{name: Record(get=known(value)) for name, value in values.items()})


SERVER = {
    "sglang.srt.environ.envs": switched(SGLANG_OPT_SWA_EVICT_DROP_PAGE_MARGIN=False),
}
"""Settings of the server that functions of a batch ask for: none that has to do with lengths."""


class BatchAllocator(Allocator):
    """The KV allocator as a batch uses it."""

    members = Allocator.members | {"free_swa_segment"}

    def has(self, name: str) -> bool:
        """State spaces and compressed caches have allocators of their own, which this server has not."""
        return False if name in OTHER_ALLOCATORS else super().has(name)

    def free_swa_segment(self, indices: Any, start_pos: Any) -> None:
        if not self.run.paths.decide(arithmetic.equal(self.run.d, start_pos, indices.start)):
            raise NotUnderstoodError("a segment that stands elsewhere in the row than is said")
        self.free_swa(indices)


OTHER_ALLOCATORS = ("c4_state_attn_allocator", "c128_attn_allocator")


class BatchTree(InnerCache):
    """The prefix cache as a batch asks it, up to the release that gave it the sessions."""

    members = InnerCache.members | {"swa_retain_floor", "swa_transient_size"}

    def swa_retain_floor(self, req: Any) -> None:
        """Only a cache that has states of state spaces, too, keeps more than the window."""

    def swa_transient_size(self) -> int:
        return 0


class Batch(Record):
    """Another batch than the one that is worked on, or one of which only the requests matter."""

    def __init__(self, *reqs: Any, is_empty: Any) -> None:
        super().__init__(reqs=list(reqs), is_empty=known(is_empty))

    def equals(self, other: Any) -> Any:
        """Batches compare their requests first, and no request is in two of them."""
        return self is other if isinstance(other, Batch) else NotImplemented


Decide = Callable[[Any], bool]


def places_of_a_turn(decide: Decide, req: Any, *, may_be_parked: bool) -> tuple[Any, Any, Any]:
    """The last batch, the running batch, and the request whose next chunk waits, for a turn that stands in one of them."""
    if may_be_parked and decide(z3.Bool("the turn is parked between chunks")):
        return Batch(is_empty=False), Batch(is_empty=decide(z3.Bool("nothing runs"))), req
    chunked = req if may_be_parked and decide(z3.Bool("the turn is chunked")) else None
    last = Batch(req, is_empty=False)
    if decide(z3.Bool("the last batch is the running batch")):
        return last, last, chunked
    if decide(z3.Bool("the turn is in the running batch alone")):
        return Batch(is_empty=False), last, chunked
    if decide(z3.Bool("no batch runs")):
        return last, None, chunked
    return last, Batch(is_empty=decide(z3.Bool("nothing runs"))), chunked
