"""Stand-ins for what SGLang's functions work on: token lists, rows of `req_to_token`, the allocator, the tree, the row pool.

They record what is done to pages, rows and locks as effects of the specification. A use of them that is not described here is
"not understood".
"""

from __future__ import annotations

import itertools
from typing import Any

import z3

from kvproof.model.code import arithmetic
from kvproof.model.code.errors import NotUnderstoodError, RaisedError
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.values import Elements, Instance, Known, Library, Opaque, Record, StandIn
from kvproof.model.symbolic import PagedLength
from kvproof.spec.domain import larger
from kvproof.spec.effects import DropRow, Effect, Free, FreeWindow, Unlock
from kvproof.spec.effects import Lock as LockEffect
from kvproof.spec.state import Ledger


class Tokens(StandIn):
    """A list of token ids, of which only the length matters."""

    members = frozenset({"extend"})
    classes = frozenset({"list"})

    def __init__(self, run: Interpreter, count: Any) -> None:
        self.run, self.count = run, count

    def extend(self, more: Any) -> None:
        self.count = arithmetic.add(self.run.d, self.count, _tokens_in(more))

    def added_in_place(self, right: Any) -> Tokens:
        self.extend(right)
        return self

    def delete_item(self, key: Any) -> None:
        """`del tokens[a:]`"""
        if not isinstance(key, slice) or key.stop is not None:
            raise NotUnderstoodError("tokens are taken out of a list")
        self.count = bounds(self.run, key, self.count)[0]

    def length(self) -> Any:
        return self.count

    def item(self, key: Any) -> Any:
        if not isinstance(key, slice):
            d = self.run.d
            index = arithmetic.add(d, key, self.count) if self.run.paths.decide(arithmetic.less(d, key, 0)) else key
            is_in = arithmetic.less(d, index, self.count)
            if self.run.paths.decide(arithmetic.less(d, index, 0)) or not self.run.paths.decide(is_in):
                raise RaisedError("IndexError")
            return Opaque("a token")
        start, stop = bounds(self.run, key, self.count)
        return type(self)(self.run, arithmetic.largest(self.run.d, [arithmetic.subtract(self.run.d, stop, start), 0]))

    def operated(self, operator: str, right: Any) -> Any:
        if operator != "Add" or not isinstance(right, (Tokens, list)):
            return NotImplemented
        return Tokens(self.run, arithmetic.add(self.run.d, self.count, _tokens_in(right)))


def _tokens_in(tokens: Any) -> Any:
    if not isinstance(tokens, (Tokens, list)):
        raise NotUnderstoodError("something other than tokens is appended")
    return tokens.count if isinstance(tokens, Tokens) else len(tokens)


def bounds(run: Interpreter, key: slice, count: Any) -> tuple[Any, Any]:
    """Start and stop of a slice of something with `count` items, as Python clamps them."""
    if key.step is not None:
        raise NotUnderstoodError("a slice with a step")
    start = 0 if key.start is None else _clamped(run, key.start, count)
    return start, count if key.stop is None else _clamped(run, key.stop, count)


def _clamped(run: Interpreter, bound: Any, count: Any) -> Any:
    d = run.d
    if not arithmetic.is_number(bound):
        raise NotUnderstoodError("a slice whose bound is no number")
    if run.paths.decide(arithmetic.less(d, bound, 0)):
        bound = arithmetic.largest(d, [arithmetic.add(d, bound, count), 0])
    return arithmetic.smallest(d, [bound, count])


class Row(Opaque):
    """The index of the ledger's row of `req_to_token`: one row, whether the slot names it or the turn."""

    def __init__(self) -> None:
        super().__init__("the row")


class Indices(StandIn):
    """KV indices of the row's positions [start, end), read from `req_to_token`."""

    members = frozenset({"to", "clone", "numel", "contiguous", "long", "int"})

    def __init__(self, run: Interpreter, start: Any, end: Any) -> None:
        self.run, self.start, self.end = run, start, end

    def to(self, dtype: Any = None, copy: Any = False, non_blocking: Any = False) -> Indices:
        if dtype is not None and dtype not in (TORCH.members["int32"], TORCH.members["int64"]):
            raise NotUnderstoodError("KV indices as another type")
        return self

    def clone(self) -> Indices:
        return self

    contiguous = long = int = clone

    def numel(self) -> Any:
        return self.length()

    def length(self) -> Any:
        d = self.run.d
        return arithmetic.largest(d, [arithmetic.subtract(d, self.end, self.start), 0])

    def truth(self) -> Any:
        raise NotUnderstoodError("the truth of a tensor")

    def item(self, key: Any) -> Any:
        if not isinstance(key, slice):
            raise NotUnderstoodError("one KV index")
        start, stop = bounds(self.run, key, self.length())
        d = self.run.d
        return self.at(arithmetic.add(d, self.start, start), arithmetic.add(d, self.start, stop))

    def at(self, start: Any, end: Any) -> Indices:
        """Other positions of the same row."""
        return Indices(self.run, start, end)


def joined(parts: Any) -> Indices:
    """Indices of neighbouring positions, one behind the other."""
    if not (isinstance(parts, list) and parts and all(isinstance(part, Indices) for part in parts)):
        raise NotUnderstoodError("something other than parts of a row is joined")
    for one, other in itertools.pairwise(parts):
        if not one.run.paths.decide(arithmetic.equal(one.run.d, one.end, other.start)):
            raise NotUnderstoodError("parts of a row that are no neighbours are joined")
    return parts[0].at(parts[0].start, parts[-1].end)


class ReqToToken(StandIn):
    """The page table: `req_to_token[row, a:b]`, or `req_to_token[row][a:b]`."""

    members = frozenset({"shape"})

    def __init__(self, run: Interpreter, row: Row) -> None:
        self.run, self.row = run, row

    def item(self, key: Any) -> Any:
        row, positions = key if isinstance(key, tuple) and len(key) == 2 else (key, slice(None))
        if row is not self.row:
            raise NotUnderstoodError("a row other than the turn's and its slot's")
        if not isinstance(positions, slice):
            raise NotUnderstoodError("one position of a row")
        start, stop = bounds(self.run, positions, self.run.d.row_width)
        return Indices(self.run, start, stop)


class ActiveRows(StandIn):
    """The set of the rows that requests of a batch use. `is_active`: whether the ledger's row is one."""

    def __init__(self, row: Row, is_active: Any) -> None:
        self.row, self.is_active = row, is_active

    def contains(self, item: Any) -> Any:
        if not isinstance(item, Row):
            raise NotUnderstoodError("something other than a row among the rows of a batch")
        return self.is_active if item is self.row else False


class FreeRows(StandIn):
    """`free_slots` of the row pool: a row that is appended to it is returned."""

    members = frozenset({"append", "extend"})

    def __init__(self, row: Row, effects: list[Effect]) -> None:
        self.row, self.effects = row, effects

    def append(self, row: Any) -> None:
        if row is not self.row:
            raise NotUnderstoodError("another row than the turn's is returned")
        self.effects.append(DropRow(z3.BoolVal(True)))

    def extend(self, rows: Any) -> None:
        for row in rows if isinstance(rows, list) else [None]:
            self.append(row)


class Allocator(StandIn):
    """The KV allocator: `free` gives back the whole pages that the indices touch; `free_swa` those of the window pool.

    `free_segments` learns where in the row its indices stand. `free_full` and `free_full_segments` leave the window pool alone.
    """

    members = frozenset({"free", "free_swa", "free_segments", "free_full", "free_full_segments", "page_size"})

    def __init__(self, run: Interpreter, effects: list[Effect], before: Ledger | None = None) -> None:
        self.run, self.effects, self.before = run, effects, before
        self.page_size = arithmetic.page_size_of(run.d)
        self.window_is_right: Any = z3.BoolVal(True)
        """Window pages that were evicted are not freed again, and others are freed with their pages."""
        self.last: Free | None = None

    def free_segments(self, segments: Any) -> None:
        for start, end in self._positions(segments):
            evicted = self._evicted()
            rest_is_there = evicted <= self.run.d.floor_pages(start)
            self.window_is_right = z3.And(self.window_is_right, z3.Or(z3.Not(self.run.d.windowed), rest_is_there))
            self._free_also(start, end)

    def free_full_segments(self, segments: Any) -> None:
        for start, end in self._positions(segments):
            self.window_is_right = z3.And(self.window_is_right, self.run.d.ceil_pages(end) <= self._evicted())
            self._free_also(start, end)

    def free_full(self, indices: Any) -> None:
        row = of_the_row(indices)
        self.free_full_segments([(row, row.start)])

    def _evicted(self) -> Any:
        if self.before is None:
            raise NotUnderstoodError("segments that are freed of a row that is not described")
        return larger(self.run.d, self.before.window_start, self.before.tree_end)

    def _positions(self, segments: Any) -> list[tuple[PagedLength, PagedLength]]:
        d, found = self.run.d, []
        for indices, position in self.run.elements(segments):
            row = of_the_row(indices)
            start, end = arithmetic.as_length(d, row.start), arithmetic.as_length(d, row.end)
            if not self.run.paths.decide(arithmetic.equal(d, position, start)):
                raise NotUnderstoodError("a segment that stands elsewhere in the row than is said")
            if self.run.paths.decide(start < end):
                found.append((start, end))
        return found

    def _free_also(self, start: PagedLength, end: PagedLength) -> None:
        """One release in several calls is one free: a page at a seam is not freed twice if the seam is aligned."""
        d, last = self.run.d, self.last
        if last is not None and self.effects and self.effects[-1] is last and self.run.paths.decide(last.end == start):
            if not self.run.paths.decide(d.tokens(d.floor_pages(start)) == start):
                raise NotUnderstoodError("a page that two calls free")
            self.effects.pop()
            start = arithmetic.as_length(d, last.start)
        self.last = Free(start, end)
        self.effects.append(self.last)

    def free(self, indices: Any) -> None:
        d = self.run.d
        found = of_the_row(indices)
        self.effects.append(Free(arithmetic.as_length(d, found.start), arithmetic.as_length(d, found.end)))

    def free_swa(self, indices: Any) -> None:
        """Positions [start, end) lose their window slots. Whole pages do: others are not understood."""
        d = self.run.d
        found = of_the_row(indices)
        start, end = arithmetic.as_length(d, found.start), arithmetic.as_length(d, found.end)
        some = self.run.paths.decide(start < end)
        if some:
            self.effects.append(FreeWindow(d.ceil_pages(start), d.floor_pages(end)))


def of_the_row(indices: Any) -> Indices:
    if not isinstance(indices, Indices):
        raise NotUnderstoodError("indices that are not read from the row are freed")
    return indices


class Lock:
    """The tree lock of a session, which goes through `pages`. `fields`: what a holder keeps to undo it, by attribute."""

    def __init__(self, node: Any, fields: dict[str, Any], pages: Any) -> None:
        self.node, self.fields, self.pages = node, fields, pages

    def is_undone_by(self, params: Any, skip_swa: Any) -> bool:
        """Whether an unlock gives back what the lock took: the tree node alone, or the window's lock with it."""
        if "lock" in self.fields:
            return (
                params is self.fields["lock"].fields["receipt"]
                and skip_swa is self.fields["lock"].fields["swa_released"]
            )
        if "lock_receipt" in self.fields:
            return params is self.fields["lock_receipt"] and skip_swa is self.fields.get(
                "swa_prefix_lock_released", False
            )
        given = params.fields if isinstance(params, Instance) else {}
        if given.get("swa_uuid_for_lock") is not self.fields.get("swa_uuid_for_lock") or skip_swa is not False:
            return False
        return "skip_lock_node_ids" not in self.fields or (
            given.get("skip_lock_node_ids") is self.fields["skip_lock_node_ids"]
        )


class InnerCache(StandIn):
    """The prefix cache around which sessions are kept. What a session hands on to it is noted in `asked`."""

    members = frozenset(
        {
            "page_size",
            "req_to_token_pool",
            "token_to_kv_pool_allocator",
            "dec_lock_ref",
            "inc_lock_ref",
            "match_prefix",
            "cache_finished_req",
            "cache_unfinished_req",
            "supports_swa",
            "supports_mamba",
            "is_chunk_cache",
            "release_radix_session",
            "sliding_window_size",
            "disable",
        }
    )

    def __init__(
        self, run: Interpreter, pool: StandIn, allocator: Allocator, lock: Lock, effects: list[Effect]
    ) -> None:
        self.run, self.effects, self.lock = run, effects, lock
        self.is_undone = True
        """Each unlock gave back what the lock took."""
        self.req_to_token_pool, self.token_to_kv_pool_allocator = pool, allocator
        self.page_size = arithmetic.page_size_of(run.d)
        self.sliding_window_size = run.d.window
        self.disable = False
        self.asked: list[str] = []

    def dec_lock_ref(self, node: Any, params: Any = None, skip_swa: Any = False) -> Any:
        if node is not self.lock.node:
            raise NotUnderstoodError("another node than the turn's is unlocked")
        self.is_undone = self.is_undone and self.lock.is_undone_by(params, skip_swa)
        self.effects.append(Unlock(z3.BoolVal(True)))
        return Opaque("the result of an unlock")

    def inc_lock_ref(self, node: Any) -> Any:
        if node is not self.lock.node:
            raise NotUnderstoodError("another node than the turn's is locked")
        self.effects.append(LockEffect(z3.BoolVal(True), self.lock.pages))
        return Opaque("the result of a lock")

    def match_prefix(self, params: Any) -> Any:
        self.asked.append("match_prefix")
        return Opaque("a match of the tree")

    def cache_finished_req(self, req: Any, is_insert: Any = True, **_: Any) -> None:
        self.asked.append("cache_finished_req")

    def cache_unfinished_req(self, req: Any, **_: Any) -> None:
        self.asked.append("cache_unfinished_req")

    def release_radix_session(self, session_id: Any) -> int:
        """Gives back the nodes that a session of the other kind pinned: this one has none."""
        return 0

    def supports_swa(self) -> Any:
        return self.run.d.windowed

    def supports_mamba(self) -> bool:
        return False

    def is_chunk_cache(self) -> Any:
        return z3.Not(self.run.d.tree)


class RowPool(StandIn):
    """`req_to_token_pool`, without a pool for state spaces."""

    members = frozenset({"req_to_token", "free_slots", "free", "write"})

    def __init__(self, run: Interpreter, row: Row, effects: list[Effect]) -> None:
        self.run = run
        self.req_to_token = ReqToToken(run, row)
        self.free_slots = FreeRows(row, effects)
        self.written: tuple[Any, Any] | None = None
        """The positions that were given indices of the tree."""

    def has(self, name: str) -> bool:
        return False if name in ("mamba_pool", "mamba_allocator") else super().has(name)

    def write(self, positions: Any, indices: Any) -> None:
        """Positions of the row are given the indices of the tree for the same positions."""
        row, part = positions
        if row is not self.free_slots.row or not isinstance(indices, Indices) or not isinstance(part, slice):
            raise NotUnderstoodError("what is written into a row")
        same = [
            self.run.paths.decide(arithmetic.equal(self.run.d, *pair))
            for pair in ((part.start, indices.start), (part.stop, indices.end))
        ]
        if not all(same):
            raise NotUnderstoodError("indices that are written to other positions than their own")
        self.written = part.start, part.stop

    def has_pages_of_tree(self, owned: Any, pages: Any) -> Any:
        """What was written begins no later than what the tree owned before, and ends with the pages that it owns now."""
        if self.written is None:
            return z3.BoolVal(False)
        start, end = (arithmetic.as_length(self.run.d, bound) for bound in self.written)
        return z3.And(start <= owned, arithmetic.equal(self.run.d, end, self.run.d.tokens(pages)))

    def free(self, req: Any) -> None:
        """Of a request or a slot: the row that it names itself, or that its record names."""
        record = req.fields.get("kv") if isinstance(req, Instance) else None
        holder = record if isinstance(record, Instance) and "req_pool_idx" in record.fields else req
        self.free_slots.append(self.run.attribute(holder, "req_pool_idx"))
        self.run.set_attribute(holder, "req_pool_idx", None)


class Slots(StandIn):
    """`slots` of the session cache: the session's own slot, and those of other sessions, which none but a sum touches."""

    members = frozenset({"get", "pop", "items", "values"})

    def __init__(self, session_id: Opaque, slot: Any) -> None:
        self.session_id, self.slot = session_id, slot
        self.others: list[tuple[Opaque, Any]] = []
        """Empty where what a function does to one slot is claimed: then going over all of them is not understood."""

    def _own(self, key: Any) -> None:
        if key is not self.session_id:
            raise NotUnderstoodError("the slot of another session")

    def get(self, key: Any, default: Any = None) -> Any:
        self._own(key)
        return self.slot if self.slot is not None else default

    def pop(self, key: Any, *default: Any) -> Any:
        self._own(key)
        if self.slot is None and not default:
            raise RaisedError("KeyError")
        found, self.slot = self.get(key, *default), None
        return found

    def items(self) -> Elements:
        if not self.others:
            raise NotUnderstoodError("all slots are looked at")
        own = [(self.session_id, self.slot)] if self.slot is not None else []
        return Elements([*own, *self.others])

    def values(self) -> Elements:
        return Elements([slot for _, slot in self.items().values])

    def delete_item(self, key: Any) -> None:
        self.pop(key)

    def contains(self, item: Any) -> bool:
        self._own(item)
        return self.slot is not None

    def item(self, key: Any) -> Any:
        self._own(key)
        if self.slot is None:
            raise NotUnderstoodError("the slot of a session that has none")
        return self.slot

    def set_item(self, key: Any, value: Any) -> None:
        self._own(key)
        self.slot = value


TORCH = Library(
    "torch",
    {
        **{name: Opaque(f"torch.{name}") for name in ("int32", "int64", "float32", "bool")},
        "iinfo": Known("iinfo", lambda _: Record(max=z3.Int("the largest integer"))),
        "empty": Known("empty", lambda *_, **__: Opaque("an empty tensor")),
    },
)
"""What of torch the functions name beside tensors that stand-ins describe."""
