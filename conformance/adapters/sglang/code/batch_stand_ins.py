"""Stand-ins for what a batch works on beside the session's: the allocator that hands out pages, and the prefix cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.layout import BATCH, EAGLE
from kvproof.conformance.adapters.sglang.code.stand_ins import (
    TORCH,
    Allocator,
    Indices,
    InnerCache,
    ReqToToken,
    Row,
    RowPool,
)
from kvproof.model.code import arithmetic
from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.values import Instance, Known, Library, Opaque, Record, StandIn
from kvproof.spec.actions.prefill import take
from kvproof.spec.effects import Effect, Share, TakeRow
from kvproof.spec.state import Ledger


def known(value: Any) -> Known:
    """A function without arguments that gives a value."""
    return Known("given", lambda: value)


def known_of_any(value: Any) -> Known:
    """A function that gives a value whatever it is given."""
    return Known("given", lambda *_, **__: value)


def switched(**values: Any) -> Record:
    """Variables of the environment, as `environ.py` has them."""
    return Record(**{name: Record(get=known(value)) for name, value in values.items()})


class Mode(Record):
    """A mode of the forward pass."""

    def __init__(self, name: str) -> None:
        super().__init__(**{f"is_{other}": known(other == name) for other in MODES})


MODES = ("decode", "extend")
FORWARD_MODES = {name: Mode(name) for name in MODES}
NOTHING = Known("nothing", lambda *_, **__: None)
DEVICES = ("cuda", "hip", "npu", "cpu", "xpu")
COMMON, ALLOCATION = "sglang.srt.mem_cache.common", "sglang.srt.mem_cache.allocation"
SERVER = {
    "sglang.srt.environ.envs": switched(
        SGLANG_OPT_SWA_EVICT_DROP_PAGE_MARGIN=False,
        SGLANG_OPT_SWA_RELEASE_LEAF_LOCK_AFTER_WINDOW=False,
        SGLANG_OPT_RELEASE_PREFILL_SWA=False,
        SGLANG_SWA_EVICTION_INTERVAL=1,
        SGLANG_SWA_EVICTION_INTERVAL_MULTIPLIER=1,
        SGLANG_RETRACT_DECODE_STEPS=1,
        SGLANG_ENABLE_RANK_CONSENSUS_CHECKER=False,
        SGLANG_OPT_UNIFIED_CACHE_FREE_OUT_OF_WINDOW_SLOTS=True,
        SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK=False,
    ),
    f"{BATCH}._is_hip": False,
    f"{BATCH}.maybe_evict_dsv4_state": NOTHING,
    "sglang.srt.model_executor.forward_batch_info.ForwardMode": Record(
        **{name.upper(): mode for name, mode in FORWARD_MODES.items()}
    ),
    **{
        f"{module}.is_pin_memory_available": Known("is_pin_memory_available", lambda *_: False)
        for module in (COMMON, ALLOCATION)
    },
    "sglang.srt.mem_cache.memory_pool.HybridReqToTokenPool": Known("HybridReqToTokenPool", lambda *_: None),
    f"{ALLOCATION}._device_type": NOTHING,
    "sglang.srt.server_args.get_global_server_args": known(Record(speculative_eagle_topk=1)),
    f"{EAGLE}_utils.get_spec": known(Record(speculative_eagle_topk=1)),
    **{f"{module}._is_{name}": name == "cuda" for module in (COMMON, ALLOCATION) for name in DEVICES},
    "sglang.srt.runtime_context.get_parallel": known(Record(dcp_enabled=False)),
    "sglang.srt.runtime_context.get_server_args": known(Record(enable_mamba_extra_buffer=known(False), dcp_size=1)),
    "sglang.srt.runtime_context.mamba_extra_buffer_enabled": known(False),
    "sglang.srt.runtime_context.get_exec": known(Record(mamba=Record(enable_mamba_extra_buffer=False))),
}
"""What functions of a batch ask of the server."""


OF_TENSORS: Mapping[str, Callable[..., Any]] = {
    "Add": arithmetic.add,
    "Sub": arithmetic.subtract,
    "FloorDiv": arithmetic.floor_divide,
    "Mod": arithmetic.remainder,
}


class PerRequest(StandIn):
    """A tensor with one entry for each request of a batch of `count`: `value` is that of the one that is looked at."""

    members = frozenset({"shape", "clone", "to", "add_", "tolist", "pin_memory", "cpu", "sum", "int", "device"})

    def __init__(self, run: Interpreter, value: Any, count: Any) -> None:
        self.run, self.value, self.count = run, value, count
        self.shape, self.device = (count,), "cpu"

    def clone(self) -> PerRequest:
        return PerRequest(self.run, self.value, self.count)

    def to(self, *_: Any, **__: Any) -> PerRequest:
        return self.clone()

    def pin_memory(self) -> PerRequest:
        return self.clone()

    def add_(self, more: Any) -> PerRequest:
        self.value = arithmetic.add(self.run.d, self.value, more)
        return self

    def tolist(self) -> list[Any]:
        return [self.value]

    def item(self, key: Any) -> Any:
        if key != 0:
            raise NotUnderstoodError("an entry for another request")
        return self.value

    def cpu(self) -> PerRequest:
        return self.clone()

    def sum(self) -> Record:
        """Of a batch of one request it is that one's."""
        return Total(self.value if isinstance(self.count, int) and self.count == 1 else Opaque("a sum over the batch"))

    def int(self) -> PerRequest:
        is_flag = arithmetic.is_flag(self.value)
        return PerRequest(self.run, z3.If(self.value, 1, 0) if is_flag else self.value, self.count)

    def equals(self, other: Any) -> Any:
        if not arithmetic.is_number(other):
            return NotImplemented
        return PerRequest(self.run, arithmetic.equal(self.run.d, self.value, other), self.count)

    def length(self) -> Any:
        return self.count

    def truth(self) -> Any:
        raise NotUnderstoodError("the truth of a tensor")

    def operated(self, operator: str, right: Any) -> Any:
        operation = OF_TENSORS.get(operator)
        other = right.value if isinstance(right, PerRequest) else right
        if operation is None or not arithmetic.is_number(other):
            return NotImplemented
        return PerRequest(self.run, operation(self.run.d, self.value, other), self.count)


class Total(Record):
    """A tensor with one value."""

    def __init__(self, value: Any) -> None:
        super().__init__(item=known(value), to=Known("to", lambda *_: self))


class Requests(StandIn):
    """The requests of a batch of `count`: a loop over them runs on one, which may be any."""

    def __init__(self, req: Any, count: Any) -> None:
        self.req, self.count = req, count

    def elements(self) -> list[Any]:
        return [self.req]

    def length(self) -> Any:
        return self.count


class NewSlots(StandIn):
    """KV slots that the allocator handed out for row positions [first, last) of each of `count` requests.

    Where pages have one slot, they fit any position: `first` is None.
    """

    members = frozenset({"to"})

    def __init__(self, total: Any, first: Any = None, last: Any = None) -> None:
        self.total, self.first, self.last = total, first, last

    def to(self, *_: Any, **__: Any) -> NewSlots:
        return self


class Rounds(StandIn):
    """How many steps a request has made, of which only a remainder is asked."""

    def operated(self, operator: str, right: Any) -> Any:
        return z3.Int("steps since the last eviction") if operator == "Mod" else NotImplemented


class Matched(Indices):
    """KV indices of a prefix that the tree matched: they stand in no row yet."""


def has_entries(shape: Any, number: int) -> bool:
    """Whether a shape is that of a list with a known number of entries."""
    return isinstance(shape, tuple) and len(shape) == 1 and isinstance(shape[0], int) and shape[0] == number


def torch_of(run: Interpreter, count: Any) -> Library:
    """torch, where lists over the requests of a batch become tensors."""

    def tensor(values: Any, **_: Any) -> PerRequest:
        found = run.elements(values)
        if len(found) != 1:
            raise NotUnderstoodError("a tensor of other than one value for each request")
        return found[0] if isinstance(found[0], PerRequest) else PerRequest(run, found[0], count)

    def full(shape: Any, value: Any, **_: Any) -> PerRequest:
        return tensor([value] if has_entries(shape, 1) else [])

    def empty(shape: Any, **_: Any) -> Any:
        return Matched(run, 0, 0) if has_entries(shape, 0) else Opaque("an empty tensor")

    known_functions: dict[str, Callable[..., Any]] = {"tensor": tensor, "cat": tensor, "full": full, "empty": empty}
    return Library(
        "torch", {**TORCH.members, **{name: Known(f"torch.{name}", f) for name, f in known_functions.items()}}
    )


class BatchTable(ReqToToken):
    """The page table; also read at one position of each request's row."""

    def item(self, key: Any) -> Any:
        if not (isinstance(key, tuple) and all(isinstance(part, PerRequest) for part in key)):
            return super().item(key)
        rows, positions = key
        return PerRequest(self.run, self.at(rows.value, positions.value), positions.count)

    def at(self, row: Any, position: Any) -> Any:
        """The KV index at a position."""
        return super().item((row, slice(position, arithmetic.add(self.run.d, position, 1))))


class BatchRowPool(RowPool):
    """`req_to_token_pool` as a batch writes into it."""

    members = RowPool.members | {"write", "alloc", "alloc_aux_to_lengths"}

    def __init__(self, run: Interpreter, row: Row, effects: list[Effect], pages: BatchAllocator) -> None:
        super().__init__(run, row, effects)
        self.effects, self.row, self.pages = effects, row, pages
        self.req_to_token = BatchTable(run, row)

    def alloc(self, reqs: Any) -> list[Any]:
        """A row for each request that has none."""
        for req in self.run.elements(reqs):
            if self.holder_of(req).fields["req_pool_idx"] is None:
                self.run.set_attribute(self.holder_of(req), "req_pool_idx", self.row)
                self.effects.append(TakeRow(z3.BoolVal(True)))
        return [self.holder_of(req).fields["req_pool_idx"] for req in self.run.elements(reqs)]

    def holder_of(self, req: Instance) -> Instance:
        """What names the row of a request: itself, or its record."""
        record = req.fields.get("kv")
        return record if isinstance(record, Instance) and "req_pool_idx" in record.fields else req

    def write(self, positions: Any, indices: Any) -> None:
        """One slot for each request, at one position of its row."""
        rows, places = positions
        if not isinstance(indices, NewSlots) or rows.value is not self.row:
            raise NotUnderstoodError("something other than new slots is written, or into other rows")
        d, start = self.run.d, places.value
        end = arithmetic.add(d, start, 1)
        self.pages.are_right(arithmetic.equal(d, indices.total, places.count))
        self.pages.written(indices, start, end)
        self.effects.append(take(d, start, end))

    def write_prefix(self, prefix: Any) -> None:
        """The leading positions of the row: its own indices once more, or those that the tree matched."""
        if not isinstance(prefix, Indices) or not self.run.paths.must(arithmetic.equal(self.run.d, prefix.start, 0)):
            raise NotUnderstoodError("a prefix that is neither the row's nor the tree's")
        if isinstance(prefix, Matched):
            self.effects.append(
                Share(z3.BoolVal(True), self.run.d.floor_pages(arithmetic.as_length(self.run.d, prefix.end)))
            )

    def write_extend(self, slots: Any, total: Any, start: Any, end: Any) -> None:
        """New slots behind the prefix. `total`: of all requests of the batch."""
        if not isinstance(slots, NewSlots):
            raise NotUnderstoodError("something other than new slots is written")
        d = self.run.d
        self.pages.are_right(arithmetic.equal(d, slots.total, total))
        self.pages.written(slots, start, end)
        self.effects.append(take(d, start, end))

    def alloc_aux_to_lengths(self, **_: Any) -> None:
        """Pools beside the KV pool: there are none."""


class BatchAllocator(Allocator):
    """The KV allocator as a batch uses it: it has what is asked for."""

    members = Allocator.members | {
        "free_swa_segment",
        "alloc",
        "alloc_decode",
        "alloc_extend",
        "get_extend_allocation_demand",
        "free_group_begin",
        "free_group_end",
    }

    def __init__(self, run: Interpreter, effects: list[Effect], before: Ledger | None = None) -> None:
        super().__init__(run, effects, before)
        self.slots_are_right: Any = z3.BoolVal(True)
        """Each slot is asked for and written where its page stands in the row."""
        self.waiting: list[NewSlots] = []
        """Slots that were handed out and not written into a row."""
        self.evicted: Any = 0
        """Tokens that the tree was asked to evict."""
        self.evicts_enough: Any = z3.BoolVal(True)

    def evict(self, tree_cache: Any, num_tokens: Any) -> None:
        """`evict_from_tree_cache`. What the tree evicts has no owner: it is in no ledger."""
        self.evicted = num_tokens

    def needs(self, tokens: Any) -> None:
        enough = z3.Not(arithmetic.less(self.run.d, self.evicted, tokens))
        self.evicts_enough = z3.And(self.evicts_enough, enough)

    def pages_for(self, count: Any) -> Any:
        """Tokens of one page for each request."""
        return arithmetic.multiply(self.run.d, count, self.page_size)

    def are_right(self, flag: Any) -> None:
        self.slots_are_right = z3.And(self.slots_are_right, flag)

    def _has_pages(self) -> None:
        """Single slots have an allocator of their own, which knows of no pages."""
        if not self.run.paths.must(self.run.d.page_size > 1):
            raise NotUnderstoodError("pages that are asked of the allocator of single slots")

    def _hand_out(self, slots: NewSlots) -> NewSlots:
        self.waiting.append(slots)
        return slots

    def written(self, slots: NewSlots, start: Any, end: Any) -> None:
        d = self.run.d
        if slots not in self.waiting:
            raise NotUnderstoodError("slots that are written twice")
        self.waiting.remove(slots)
        if slots.first is not None:
            self.are_right(arithmetic.equal(d, start, slots.first))
            self.are_right(arithmetic.equal(d, end, slots.last))

    def alloc(self, count: Any) -> NewSlots:
        """Single slots. Pages of more would have to be taken whole."""
        if not self.run.paths.must(self.run.d.page_size == 1):
            raise NotUnderstoodError("single slots of pages that have more")
        self.needs(count)
        return self._hand_out(NewSlots(count))

    def get_extend_allocation_demand(self, *_: Any, conservative_num_tokens: Any, shard_size: Any) -> Any:
        return conservative_num_tokens

    def alloc_extend(
        self,
        prefix_lens: PerRequest,
        prefix_lens_cpu: PerRequest,
        seq_lens: PerRequest,
        seq_lens_cpu: PerRequest,
        last_loc: PerRequest,
        extend_num_tokens: Any,
    ) -> NewSlots:
        """The slots of positions [prefix, seq) of each request: the rest of the page of `last_loc`, then fresh pages."""
        self._has_pages()
        d, start = self.run.d, prefix_lens.value
        self.are_right(arithmetic.equal(d, start, prefix_lens_cpu.value))
        self.are_right(arithmetic.equal(d, seq_lens.value, seq_lens_cpu.value))
        last = last_loc.value if isinstance(last_loc, PerRequest) else last_loc
        if isinstance(last, Indices):
            self.are_right(arithmetic.equal(d, last.length(), 1))
        before = last.end if isinstance(last, Indices) else arithmetic.add(d, last, 1)
        self.are_right(arithmetic.equal(d, before, start))
        self.needs(arithmetic.add(d, extend_num_tokens, self.pages_for(prefix_lens.count)))
        return self._hand_out(NewSlots(extend_num_tokens, start, seq_lens.value))

    def alloc_decode(self, seq_lens: PerRequest, seq_lens_cpu: PerRequest, last_loc: PerRequest) -> NewSlots:
        """The slot of each request's last position: the one after `last_loc`, or the first of a fresh page."""
        self._has_pages()
        d, end = self.run.d, seq_lens.value
        start = arithmetic.subtract(d, end, 1)
        self.are_right(arithmetic.equal(d, end, seq_lens_cpu.value))
        self.are_right(arithmetic.equal(d, last_loc.value.end, start))
        self.needs(self.pages_for(seq_lens.count))
        return self._hand_out(NewSlots(seq_lens.count, start, end))

    def has(self, name: str) -> bool:
        """State spaces and compressed caches have allocators of their own, which this server has not."""
        return False if name in OTHER_ALLOCATORS else super().has(name)

    def free_group_begin(self) -> None:
        """Several frees are one from here on; here each is looked at by itself."""

    def free_group_end(self) -> None:
        """That many were one."""

    def free_swa_segment(self, indices: Any, start_pos: Any) -> None:
        if not self.run.paths.decide(arithmetic.equal(self.run.d, start_pos, indices.start)):
            raise NotUnderstoodError("a segment that stands elsewhere in the row than is said")
        self.free_swa(indices)


OTHER_ALLOCATORS = (
    "c4_state_attn_allocator",
    "c4_attn_allocator",
    "c128_attn_allocator",
    "compute_dsv4_state_lens_extend",
)


class BatchTree(InnerCache):
    """The prefix cache as a batch asks it, up to the release that gave it the sessions."""

    members = InnerCache.members | {"swa_retain_floor", "swa_transient_size"}

    def swa_retain_floor(self, req: Any) -> None:
        """Only a cache that has states of state spaces, too, keeps more than the window."""

    def swa_transient_size(self) -> int:
        return 0


class ByDevice(StandIn):
    """A table of functions by the device: `function` is CUDA's."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def item(self, key: Any) -> Any:
        return self.function


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
