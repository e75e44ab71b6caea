"""An ordinary request of sglang-jax and the cache that it ends in. The KV pool and the row pool are described as SGLang's are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.plain_scene import ReleasingAllocator, prefilled
from kvproof.conformance.adapters.sglang.code.stand_ins import Indices, ReqToToken, Row, RowPool, Tokens, joined
from kvproof.model.code import arithmetic
from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.source import MENTIONS
from kvproof.model.code.values import Class, Function, Instance, Known, Library, Opaque, Record, StandIn
from kvproof.spec.effects import Effect, Insert, Lock, Unlock
from kvproof.spec.state import Ledger

SRT = "sgl_jax.srt"
BATCH, MEM_CACHE = f"{SRT}.managers.schedule_batch", f"{SRT}.mem_cache"
RADIX, CHUNK = (f"{MEM_CACHE}.radix_cache", "RadixCache"), (f"{MEM_CACHE}.chunk_cache", "ChunkCache")


class ZeroMask(StandIn):
    """Which indices are 0, that of no slot, or which are not: `indices != 0`."""

    def __init__(self, of: JaxIndices, *, is_zero: bool) -> None:
        self.of, self.is_zero = of, is_zero

    def opposite(self) -> ZeroMask:
        return ZeroMask(self.of, is_zero=not self.is_zero)


class JaxIndices(Indices):
    """KV indices in numpy. Positions of the row that have a slot are not 0: a mask of them keeps all. `has_slots`: up to here."""

    members = frozenset({"copy"})

    def __init__(self, run: Interpreter, start: Any, end: Any, has_slots: Any) -> None:
        super().__init__(run, start, end)
        self.has_slots = has_slots

    def copy(self) -> JaxIndices:
        return self

    def equals(self, other: Any) -> Any:
        return ZeroMask(self, is_zero=True) if isinstance(other, int) and other == 0 else NotImplemented

    def item(self, key: Any) -> Any:
        if isinstance(key, ZeroMask):
            return self._masked(key)
        return super().item(key)

    def at(self, start: Any, end: Any) -> JaxIndices:
        return JaxIndices(self.run, start, end, self.has_slots)

    def _masked(self, mask: ZeroMask) -> JaxIndices:
        if mask.of is not self or mask.is_zero:
            raise NotUnderstoodError("a mask of other indices, or of those without a slot")
        if self.run.paths.decide(arithmetic.less(self.run.d, self.has_slots, self.end)):
            raise NotUnderstoodError("a mask of positions that may have no slot")
        return self


class JaxRowPool(RowPool):
    """`read` gives the leading positions of a row."""

    members = RowPool.members | {"read"}

    def __init__(self, run: Interpreter, row: Row, effects: list[Effect], has_slots: Any) -> None:
        super().__init__(run, row, effects)
        self.req_to_token = JaxTable(run, row, has_slots)

    def read(self, row: Any, length: Any) -> Any:
        return self.req_to_token.item((row, slice(None, length)))

    def free(self, req: Any) -> None:
        """Of a request; before #1008 it gets the row alone, and the request still names it."""
        if isinstance(req, Row):
            self.free_slots.append(req)
        else:
            super().free(req)


class JaxTable(ReqToToken):
    """The page table as an array of numpy. `has_slots`: up to here positions of the row have a slot."""

    def __init__(self, run: Interpreter, row: Row, has_slots: Any) -> None:
        super().__init__(run, row)
        self.has_slots = has_slots

    def item(self, key: Any) -> JaxIndices:
        found = super().item(key)
        return JaxIndices(self.run, found.start, found.end, self.has_slots)


class JaxAllocator(ReleasingAllocator):
    """One rank's: `free` gets the number of the rank."""

    def free(self, indices: Any, dp_rank: Any = 0) -> None:
        if dp_rank != 0:
            raise NotUnderstoodError("another rank's slots")
        super().free(indices)


class JaxScene:
    """The request, its row, and a cache of the class `cache`. `act` is what the claim calls, `shows` what is looked at."""

    def __init__(
        self,
        run: Interpreter,
        s: Ledger,
        p: SimpleNamespace,
        cache: tuple[str, str],
        act: Callable[[JaxScene], Any],
        shows: Callable[[JaxScene, Any], Mapping[str, Any]],
    ) -> None:
        self.run, self.s, self.p, self.d = run, s, p, run.d
        self._act, self._shows = act, shows
        self.effects: list[Effect] = []
        self.row, self.node = Row(), Opaque("the tree node")
        self.has_tree = run.paths.decide(run.d.tree)
        self.pool = JaxRowPool(run, self.row, self.effects, s.kv_allocated_len)
        self.allocator = JaxAllocator(run, self.effects, s)
        run.library = {**run.library, "numpy": Library("numpy", {name: Known(name, joined) for name in JOINS})}
        self.req = Instance(self.class_at(BATCH, "Req"), self._fields())
        self.cache = Instance(self.class_at(*cache), self._cache_fields())

    def call(self) -> Any:
        return self._act(self)

    def observed(self, result: Any) -> Mapping[str, Any]:
        return self._shows(self, result)

    def class_at(self, module_name: str, name: str) -> Class:
        found = self.global_at(module_name, name)
        if not isinstance(found, Class):
            raise NotUnderstoodError(f"{name} of {module_name}, which is no class")
        return found

    def global_at(self, module_name: str, name: str) -> Any:
        module = self.run.sources.module(module_name)
        if module is None:
            raise NotUnderstoodError(f"there is no {module_name}")
        return self.run.global_name(module, name)

    # The objects.

    def _fields(self) -> dict[str, Any]:
        s, run = self.s, self.run
        return {
            "rid": Opaque("the request's id"),
            "dp_rank": None,
            "extra_key": None,
            "req_pool_idx": self.row,
            "origin_input_ids": Tokens(run, s.origin_len),
            "output_ids": Tokens(run, s.output_len),
            "fill_ids": Tokens(run, prefilled(self.d, self.s)),
            "prefix_indices": JaxIndices(run, self.d.zero, s.prefix_len, s.kv_allocated_len),
            "last_node": self.node,
            "last_matched_prefix_len": s.cache_protected_len,
            "cache_protected_len": s.cache_protected_len,
            "kv_committed_len": s.kv_committed_len,
            "kv_allocated_len": s.kv_allocated_len,
            "kv_committed_freed": False,
            "kv_overallocated_freed": False,
            "swa_evicted_seqlen": self.d.zero,
        }

    def _cache_fields(self) -> dict[str, Any]:
        described = {
            "insert": self._insert,
            "match_prefix": self._match,
            "dec_lock_ref": self._unlock,
            "inc_lock_ref": self._lock,
        }
        return {
            "disable": not self.has_tree,
            "is_eagle": False,
            "page_size": self.allocator.page_size,
            "req_to_token_pool": self.pool,
            "token_to_kv_pool_allocator": self.allocator,
            **{name: Known(name, call) for name, call in described.items()},
        }

    def _insert(self, params: Any, value: Any = None) -> Any:
        """Leading pages of the row go to the tree, which had `dup_len` tokens of them."""
        key = params
        if isinstance(params, Instance) and "key" in params.fields:
            key, value = params.fields["key"], params.fields["value"]
        length = self._length_of(key)
        if not isinstance(value, Indices) or not self._is_equal(value.length(), length):
            raise NotUnderstoodError("an insert of other indices than the key's")
        if not self._is_equal(value.start, self.d.zero):
            raise NotUnderstoodError("an insert that does not begin with the row")
        dup_len = getattr(self.p, "dup_len", self.s.cache_protected_len)
        pages, had = (self.d.floor_pages(arithmetic.as_length(self.d, n)) for n in (length, dup_len))
        self.effects.append(Insert(z3.BoolVal(True), pages, had, had))
        self.allocator.duplicates = dup_len
        return dup_len

    def _length_of(self, key: Any) -> Any:
        return self.run.attribute(key, "token_ids").length()

    def _is_equal(self, left: Any, right: Any) -> bool:
        return self.run.paths.decide(arithmetic.equal(self.d, left, right))

    def _match(self, params: Any) -> Record:
        """Of a key that was just inserted: all of it."""
        if not any(isinstance(effect, Insert) for effect in self.effects):
            raise NotUnderstoodError("a match before the insert")
        key = params.fields["key"] if isinstance(params, Instance) and "key" in params.fields else params
        found = JaxIndices(self.run, self.d.zero, self._length_of(key), self.s.kv_allocated_len)
        return Record(device_indices=found, last_device_node=self.node)

    def _unlock(self, node: Any) -> None:
        if node is not self.node:
            raise NotUnderstoodError("another node than the request's is unlocked")
        if self.has_tree:
            self.effects.append(Unlock(z3.BoolVal(True)))

    def _lock(self, node: Any) -> None:
        """The same node stands for the one that was matched and for the one that was locked before."""
        if node is not self.node:
            raise NotUnderstoodError("another node than the one that was matched is locked")
        self.effects.append(Lock(z3.BoolVal(True), self.d.floor_pages(self.s.cache_protected_len)))

    def unlocks_nothing(self) -> None:
        """Where there is no tree, the lock of the specification is nothing, and goes with the row."""
        if not self.has_tree:
            self.effects.append(Unlock(z3.BoolVal(True)))

    # What a claim calls and looks at.

    def ask(self, owner: Instance, name: str, *arguments: Any, **keywords: Any) -> Any:
        return self.run.call(self.run.attribute(owner, name), list(arguments), keywords)

    def release(self) -> Any:
        """By the one entry of all releases, where there is one; before that the cache itself gives all back."""
        module = self.run.sources.module(f"{MEM_CACHE}.common")
        found = self.run.global_name(module, RELEASE) if module is not None and module.binds(RELEASE) else None
        if isinstance(found, Function):
            return self.run.call(found, [self.req, self.cache], {})
        return self.ask(self.cache, "cache_finished_req", self.req)

    def retract(self) -> Any:
        info = Record(reqs=[self.req], seq_lens=[self.s.kv_committed_len])
        fields = {
            "reqs_info": [info],
            "tree_cache": self.cache,
            "req_to_token_pool": self.pool,
            "token_to_kv_pool_allocator": self.allocator,
            "is_hybrid": False,
            "_evict_tree_cache_if_needed": Known("_evict_tree_cache_if_needed", lambda _: None),
        }
        batch = Instance(self.class_at(BATCH, "ScheduleBatch"), fields)
        settings = Record(page_size=self.allocator.page_size)
        return self.ask(batch, "release_req", 0, 0, 1, settings)

    def keeps_lengths(self) -> bool:
        """From #994 on a request has lengths of its own."""
        return bool(self.run.sources.fact(MENTIONS, BATCH, "cache_protected_len"))

    def owned_by_tree(self) -> Any:
        """What the request takes the tree to own of its row: before #994 the length of what was matched last."""
        return self.req.fields["cache_protected_len" if self.keeps_lengths() else "last_matched_prefix_len"]

    def row_is_the_trees(self) -> Any:
        return self.pool.has_pages_of_tree(self.s.cache_protected_len, self.d.floor_pages(self.p.key_len))


RELEASE = "release_kv_cache"
JOINS = ("concat", "concatenate")
