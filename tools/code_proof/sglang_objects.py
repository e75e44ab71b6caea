"""Stand-ins for what SGLang's functions work on: token lists, rows of `req_to_token`, the allocator, the tree, the row pool.

They record what is done to pages, rows and locks as effects of the specification. A use of them that is not described here is
"not understood".
"""

from __future__ import annotations

from typing import Any

import z3

from code_proof import arithmetic
from code_proof.errors import NotUnderstoodError
from code_proof.interpreter import Interpreter
from code_proof.values import Known, Library, Opaque, StandIn
from kvproof.spec.effects import DropRow, Effect, Free, FreeWindow, Lock, Unlock


class Tokens(StandIn):
    """A list of token ids, of which only the length matters."""

    classes = frozenset({"list"})

    def __init__(self, run: Interpreter, count: Any) -> None:
        self.run, self.count = run, count

    def length(self) -> Any:
        return self.count

    def item(self, key: Any) -> Any:
        if not isinstance(key, slice):
            return Opaque("a token")
        start, stop = bounds(self.run, key, self.count)
        return Tokens(self.run, arithmetic.largest(self.run.d, [arithmetic.subtract(self.run.d, stop, start), 0]))

    def operated(self, operator: str, right: Any) -> Any:
        if operator != "Add" or not isinstance(right, (Tokens, list)):
            return NotImplemented
        more = right.count if isinstance(right, Tokens) else len(right)
        return Tokens(self.run, arithmetic.add(self.run.d, self.count, more))


def bounds(run: Interpreter, key: slice, count: Any) -> tuple[Any, Any]:
    """Start and stop of a slice of something with `count` items, as Python clamps them."""
    if key.step is not None:
        raise NotUnderstoodError("a slice with a step")
    start = 0 if key.start is None else _clamped(run, key.start, count)
    return start, count if key.stop is None else _clamped(run, key.stop, count)


def _clamped(run: Interpreter, bound: Any, count: Any) -> Any:
    d = run.d
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

    def to(self, *_: Any, **__: Any) -> Indices:
        return self

    clone = contiguous = long = int = to

    def numel(self) -> Any:
        return self.length()

    def length(self) -> Any:
        d = self.run.d
        return arithmetic.largest(d, [arithmetic.subtract(d, self.end, self.start), 0])

    def item(self, key: Any) -> Any:
        if not isinstance(key, slice):
            raise NotUnderstoodError("one KV index")
        start, stop = bounds(self.run, key, self.length())
        d = self.run.d
        return Indices(self.run, arithmetic.add(d, self.start, start), arithmetic.add(d, self.start, stop))


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


class FreeRows(StandIn):
    """`free_slots` of the row pool: a row that is appended to it is returned."""

    members = frozenset({"append"})

    def __init__(self, row: Row, effects: list[Effect]) -> None:
        self.row, self.effects = row, effects

    def append(self, row: Any) -> None:
        if row is not self.row:
            raise NotUnderstoodError("another row than the turn's is returned")
        self.effects.append(DropRow(z3.BoolVal(True)))


class Allocator(StandIn):
    """The KV allocator: `free` gives back the whole pages that the indices touch; `free_swa` those of the window pool."""

    members = frozenset({"free", "free_swa"})

    def __init__(self, run: Interpreter, effects: list[Effect]) -> None:
        self.run, self.effects = run, effects

    def free(self, indices: Any) -> None:
        d = self.run.d
        found = _of_the_row(indices)
        self.effects.append(Free(arithmetic.as_length(d, found.start), arithmetic.as_length(d, found.end)))

    def free_swa(self, indices: Any) -> None:
        """Positions [start, end) lose their window slots. Whole pages do: others are not understood."""
        d = self.run.d
        found = _of_the_row(indices)
        start, end = arithmetic.as_length(d, found.start), arithmetic.as_length(d, found.end)
        some = self.run.paths.decide(start < end)
        if some:
            self.effects.append(FreeWindow(d.ceil_pages(start), d.floor_pages(end)))


def _of_the_row(indices: Any) -> Indices:
    if not isinstance(indices, Indices):
        raise NotUnderstoodError("indices that are not read from the row are freed")
    return indices


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
            "sliding_window_size",
            "disable",
        }
    )

    def __init__(self, run: Interpreter, pool: StandIn, allocator: Allocator, node: Any, effects: list[Effect]) -> None:
        self.run, self.effects, self.node = run, effects, node
        self.req_to_token_pool, self.token_to_kv_pool_allocator = pool, allocator
        self.page_size = arithmetic.page_size_of(run.d)
        self.sliding_window_size = run.d.window
        self.disable = False
        self.asked: list[str] = []

    def dec_lock_ref(self, node: Any, params: Any = None) -> Any:
        if node is not self.node:
            raise NotUnderstoodError("another node than the turn's is unlocked")
        self.effects.append(Unlock(z3.BoolVal(True)))
        return Opaque("the result of an unlock")

    def inc_lock_ref(self, node: Any) -> Any:
        if node is not self.node:
            raise NotUnderstoodError("another node than the turn's is locked")
        self.effects.append(Lock(z3.BoolVal(True)))
        return Opaque("the result of a lock")

    def match_prefix(self, params: Any) -> Any:
        self.asked.append("match_prefix")
        return Opaque("a match of the tree")

    def cache_finished_req(self, req: Any, is_insert: Any = True, **_: Any) -> None:
        self.asked.append("cache_finished_req")

    def cache_unfinished_req(self, req: Any, **_: Any) -> None:
        self.asked.append("cache_unfinished_req")

    def supports_swa(self) -> Any:
        return self.run.d.windowed

    def supports_mamba(self) -> bool:
        return False

    def is_chunk_cache(self) -> Any:
        return z3.Not(self.run.d.tree)


class RowPool(StandIn):
    """`req_to_token_pool`, without a pool for state spaces."""

    members = frozenset({"req_to_token", "free_slots", "free"})

    def __init__(self, run: Interpreter, row: Row, effects: list[Effect]) -> None:
        self.run = run
        self.req_to_token = ReqToToken(run, row)
        self.free_slots = FreeRows(row, effects)

    def has(self, name: str) -> bool:
        return False if name in ("mamba_pool", "mamba_allocator") else super().has(name)

    def free(self, req: Any) -> None:
        self.free_slots.append(self.run.attribute(req, "req_pool_idx"))
        self.run.set_attribute(req, "req_pool_idx", None)


class Slots(StandIn):
    """`slots` of the session cache: the session's own slot, and those of other sessions, which nothing here touches."""

    members = frozenset({"get", "pop", "values", "items"})

    def __init__(self, session_id: Opaque, slot: Any) -> None:
        self.session_id, self.slot = session_id, slot

    def _own(self, key: Any) -> None:
        if key is not self.session_id:
            raise NotUnderstoodError("the slot of another session")

    def get(self, key: Any, default: Any = None) -> Any:
        self._own(key)
        return self.slot if self.slot is not None else default

    def pop(self, key: Any, default: Any = None) -> Any:
        found = self.get(key, default)
        self.slot = None
        return found

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
        "empty": Known("empty", lambda *_, **__: Opaque("an empty tensor")),
    },
)
"""What of torch the functions name beside tensors that stand-ins describe."""
