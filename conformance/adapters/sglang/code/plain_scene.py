"""An ordinary request and the prefix cache that it ends in: a tree whose insert is described, or a cache without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar

import z3

from kvproof.conformance.adapters.sglang.code.layout import PREFIX_CACHE, class_at
from kvproof.conformance.adapters.sglang.code.request_scene import COMMON, CountsAhead
from kvproof.conformance.adapters.sglang.code.session import SessionScene
from kvproof.conformance.adapters.sglang.code.stand_ins import Allocator, Indices, Tokens, bounds, joined, of_the_row
from kvproof.model.code import arithmetic
from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.source import MENTIONS
from kvproof.model.code.values import Deferred, Instance, Known, Library, Opaque, Record, StandIn
from kvproof.model.symbolic import PagedLength, Symbols
from kvproof.spec.effects import Free, Insert, Unlock
from kvproof.spec.state import PREFILL, Ledger, fill_len

RADIX = "sglang.srt.mem_cache.radix_cache"
REFRESH = "refresh_fill_ids"


class Pairs(Tokens):
    """Tokens as pairs of neighbours."""


class RadixKey(StandIn):
    """The key of a tree: tokens, or pairs of neighbours, of which there is one less."""

    members = frozenset({"token_ids", "extra_key", "is_bigram", "page_aligned"})

    def __init__(
        self, run: Interpreter, token_ids: Any, extra_key: Any = None, is_bigram: Any = False, cache_salt: Any = None
    ) -> None:
        if not isinstance(token_ids, Tokens):
            raise NotUnderstoodError("a key of something other than tokens")
        self.run, self.token_ids, self.extra_key, self.is_bigram = run, token_ids, extra_key, is_bigram

    def length(self) -> Any:
        d, count = self.run.d, self.token_ids.length()
        return arithmetic.largest(d, [arithmetic.subtract(d, count, 1), 0]) if self._makes_pairs else count

    @property
    def _makes_pairs(self) -> Any:
        return self.is_bigram and not isinstance(self.token_ids, Pairs)

    def page_aligned(self, page_size: Any) -> RadixKey:
        if not arithmetic.is_page_size(page_size):
            raise NotUnderstoodError("a key in pages of another size")
        pages = arithmetic.floor_divide(self.run.d, self.length(), page_size)
        return self.item(slice(None, arithmetic.multiply(self.run.d, pages, page_size)))

    def item(self, key: Any) -> RadixKey:
        if not isinstance(key, slice) or key.start is not None:
            raise NotUnderstoodError("a part of a key that is not its begin")
        _, stop = bounds(self.run, key, self.length())
        count = arithmetic.add(self.run.d, stop, 1) if self._makes_pairs else stop
        return RadixKey(self.run, type(self.token_ids)(self.run, count), self.extra_key, self.is_bigram)


class ReleasingAllocator(Allocator):
    """A release in several calls is one free, where the calls free neighbouring pages, whatever is unlocked in between.

    A free up to the end of what the tree had already is that of the copies of it.
    """

    members = Allocator.members | {"free_segment"}
    duplicates: Any = None
    """Tokens that the tree had before the insert, until their copies are freed."""

    def free(self, indices: Any) -> None:
        row = of_the_row(indices)
        start, end = arithmetic.as_length(self.run.d, row.start), arithmetic.as_length(self.run.d, row.end)
        if self.run.paths.decide(start < end):
            self._free_also(start, end)

    def free_segment(self, indices: Any, start_pos: Any) -> None:
        self.free_segments([(indices, start_pos)])

    def _free_also(self, start: PagedLength, end: PagedLength) -> None:
        d, decide = self.run.d, self.run.paths.decide
        if self.duplicates is not None and decide(end == self.duplicates):
            at = next(n for n, effect in enumerate(self.effects) if isinstance(effect, Insert))
            insert = self.effects[at]
            assert isinstance(insert, Insert)
            self.effects[at] = Insert(insert.when, insert.pages, insert.duplicates, d.floor_pages(start))
            self.duplicates = None
            return
        others = [effect for effect in self.effects if not isinstance(effect, Unlock)]
        last = others[-1] if others else None
        if isinstance(last, Free) and decide(d.ceil_pages(last.end) == d.floor_pages(start)):
            at = next(n for n, effect in enumerate(self.effects) if effect is last)
            self.effects[at] = Free(last.start, end)
        else:
            self.effects.append(Free(start, end))


class PlainScene(CountsAhead):
    """`tree_cache` is a cache of the class `kind`, without sessions around it."""

    allocator_kind = ReleasingAllocator
    kind: ClassVar[Mapping[str, str]] = {}
    frees_duplicates: ClassVar[bool] = False
    """The insert itself frees the copies of what the tree had, from `prev_prefix_len` on."""
    ends = False
    """All tokens with KV are those of a request that ends: the tree owns no more of its row than their key."""

    def __init__(self, run: Interpreter, s: Ledger, p: SimpleNamespace, act: Callable[[SessionScene], Any]) -> None:
        super().__init__(run, s, p, act)
        self.has_tree = run.paths.decide(run.d.tree)
        self.plain_cache = self._plain_cache()
        torch = {**run.library["torch"].members, "cat": Known("torch.cat", joined)}
        run.library = {**run.library, "torch": Library("torch", torch)}
        paired = {f"{RADIX}.convert_to_bigram_key": Known("convert_to_bigram_key", self._in_pairs)}
        run.given = {**run.given, **paired, f"{RADIX}.RadixKey": Known("RadixKey", self._key)}

    def _request(self) -> Instance:
        req = super()._request()
        if req.kind.member(REFRESH) is not None:
            req.fields[REFRESH] = Known(REFRESH, self._refresh)
        return req

    def _refresh(self) -> None:
        """What the claim about the function itself says of it."""
        fields = self.req.fields
        count = arithmetic.add(self.d, fields["origin_input_ids"].length(), fields["output_ids"].length())
        fields["full_untruncated_fill_ids"] = Tokens(self.run, count)

    def _key(self, token_ids: Any, extra_key: Any = None, is_bigram: Any = False, cache_salt: Any = None) -> RadixKey:
        return RadixKey(self.run, token_ids, extra_key, is_bigram, cache_salt)

    def _in_pairs(self, tokens: Tokens) -> Tokens:
        """Of none or one there is no pair."""
        d = self.d
        count = arithmetic.largest(d, [arithmetic.subtract(d, tokens.length(), 1), 0])
        return Pairs(self.run, count) if self.pairs else tokens

    def _lock_fields(self) -> dict[str, Any]:
        self.run.paths.assume(z3.Implies(z3.Bool("the lock covers the window"), self.d.windowed))
        fields = super()._lock_fields()
        fields.pop("skip_lock_node_ids", None)  # only a tree of several components skips nodes
        return fields

    @cached_property
    def pairs(self) -> bool:
        """Whether the keys of the tree are pairs of neighbours, as some speculative algorithms ask."""
        may_pair = hasattr(self.p, "key_len") and self.has_tree and self.drafts
        pairs = may_pair and self.run.paths.decide(z3.Bool("keys are pairs"))
        if pairs and self.ends:
            self.run.paths.assume(self.s.cache_protected_len <= self.s.kv_committed_len - self.d.one)
        return pairs

    def _plain_cache(self) -> Instance:
        fields = {
            "disable": not self.has_tree,
            "disable_finished_insert": False,
            "is_eagle": Deferred(lambda: self.pairs),
            "page_size": self.allocator.page_size,
            "req_to_token_pool": self.pool,
            "token_to_kv_pool_allocator": self.allocator,
            "sliding_window_size": self.d.window,
            "match_prefix": Known("match_prefix", self._match),
            "key_convert_fn": Known("key_convert_fn", self._in_pairs),
            **self._described(),
        }
        kind = class_at(self.run, self.kind)
        is_property = {name for name in fields if kind.member(name) and name == "disable"}
        return Instance(kind, {name: value for name, value in fields.items() if name not in is_property})

    def _described(self) -> dict[str, Known]:
        """What a cache does with the nodes of its tree."""
        return {
            "insert": Known("insert", self._insert),
            "dec_lock_ref": Known("dec_lock_ref", self._unlock),
            "inc_lock_ref": Known("inc_lock_ref", self._lock_of),
            "path_device_indices": Known("path_device_indices", self._path),
            "lock": Known("lock", self._lock_anew),
        }

    @property
    def tree_cache(self) -> Instance:
        return self.plain_cache

    def _unlock(self, node: Any, params: Any = None, skip_swa: Any = False) -> Any:
        """Without a tree there is nothing to unlock."""
        if not self.has_tree:
            return Opaque("the result of an unlock")
        if self.frees_duplicates:
            return self.inner.dec_lock_ref(node, params, skip_swa)
        if node is not self.node:
            raise NotUnderstoodError("another node than the request's is unlocked")
        self.effects.append(Unlock(z3.BoolVal(True)))
        return Opaque("the result of an unlock")

    def _match(self, params: Any) -> Any:
        """Of a key that was just inserted: all of it."""
        if not any(isinstance(effect, Insert) for effect in self.effects):
            raise NotUnderstoodError("a match before the insert")
        self.matched = params.fields["key"].length()
        return Record(device_indices=Indices(self.run, self.d.zero, self.matched), last_device_node=self.node)

    def _path(self, node: Any) -> Indices:
        if node is not self.node:
            raise NotUnderstoodError("the indices of another node than the last one that was matched")
        return Indices(self.run, self.d.zero, self.matched)

    def _lock_anew(self, node: Any, skip_lock_components: Any = ()) -> Any:
        """The same node stands for the one that was matched and for the one that was locked before."""
        if skip_lock_components != ():
            raise NotUnderstoodError("a lock of a part of the tree")
        self.inner.inc_lock_ref(node)
        return self.lock.fields["lock"]

    def _lock_of(self, node: Any) -> Any:
        """What it gives back undoes it, as what the request had did."""
        self.inner.inc_lock_ref(node)
        kept = self.lock.fields
        receipt = Known("to_dec_params", lambda: kept["lock_receipt"])
        return Record(swa_uuid_for_lock=kept.get("swa_uuid_for_lock"), to_dec_params=receipt)

    def _insert(self, params: Any) -> Any:
        """Pages of the row go to the tree, which had `dup_len` tokens of them. The begin of what it took goes in once more."""
        d, key, values = self.d, params.fields["key"], params.fields["value"]
        if not isinstance(values, Indices) or not self.run.paths.decide(
            arithmetic.equal(d, values.length(), key.length())
        ):
            raise NotUnderstoodError("an insert of other indices than the key's")
        if not self.run.paths.decide(arithmetic.equal(d, values.start, 0)):
            raise NotUnderstoodError("an insert that does not begin with the row")
        dup_len = getattr(self.p, "dup_len", self.s.cache_protected_len)
        pages, had = d.floor_pages(arithmetic.as_length(d, key.length())), d.floor_pages(dup_len)
        earlier = [effect for effect in self.effects if isinstance(effect, Insert)]
        if earlier:
            if not self.run.paths.decide(pages <= earlier[0].pages):
                raise NotUnderstoodError("a second insert of more than the first")
        elif self.frees_duplicates:
            start = arithmetic.as_length(d, params.fields["prev_prefix_len"])
            self.effects.append(Insert(z3.BoolVal(True), pages, had, d.floor_pages(start)))
        else:
            self.effects.append(Insert(z3.BoolVal(True), pages, had, had))
            assert isinstance(self.allocator, ReleasingAllocator)
            self.allocator.duplicates = dup_len
        return self.run.construct(class_at(self.run, {PREFIX_CACHE: "InsertResult"}), [], {"prefix_len": dup_len})

    @property
    def _may_skip(self) -> bool:
        """Whether a request can ask that nothing of it is inserted."""
        return bool(self.run.sources.fact(MENTIONS, COMMON, "skip_radix_cache_insert"))

    @property
    def _asks_again(self) -> bool:
        """Whether the cache has a setting of its own by which it inserts no request that ends."""
        return any(self.run.sources.fact(MENTIONS, module, "disable_finished_insert") for module in self.kind)

    def keeps(self) -> bool:
        """Whether the release is asked to insert. What the rule has as `inserted` and `key_len` follows from it."""
        self.ends = True
        assume, decide = self.run.paths.assume, self.run.paths.decide
        is_asked = decide(z3.Bool("is_insert"))
        inserts = self.has_tree and is_asked
        if inserts and self._may_skip:
            self.req.fields["skip_radix_cache_insert"] = decide(z3.Bool("skip_radix_cache_insert"))
            inserts = not self.req.fields["skip_radix_cache_insert"]
        if inserts and self._asks_again:
            self.plain_cache.fields["disable_finished_insert"] = decide(z3.Bool("disable_finished_insert"))
            inserts = not self.plain_cache.fields["disable_finished_insert"]
        assume(self.p.inserted if inserts else z3.Not(self.p.inserted))
        if inserts and hasattr(self.p, "key_len"):
            assume(arithmetic.equal(self.d, self.p.key_len, self._key_len_of(self.s.kv_committed_len)))
            assume(self.s.cache_protected_len <= self.p.key_len)
        return is_asked

    def _key_len_of(self, count: Any) -> Any:
        """How far the tree takes so many tokens of the request."""
        return arithmetic.subtract(self.d, count, 1 if self.pairs else 0)

    def has_filled(self) -> None:
        """The request stands behind the chunk that was prefilled; all of that goes into the tree, in pairs one less."""
        end, fields = prefilled(self.d, self.s), self.req.fields
        self.run.paths.assume(end <= fields["full_untruncated_fill_ids"].count)
        fields |= {"fill_ids": Tokens(self.run, end), "fill_len": end, "extend_end": end}
        fields["extend_range"] = Record(start=self.s.prefix_len, end=end)
        if hasattr(self.p, "key_len"):
            self.run.paths.assume(arithmetic.equal(self.d, self.p.key_len, self._key_len_of(end)))

    def row_is_the_trees(self) -> Any:
        return self.pool.has_pages_of_tree(self.s.cache_protected_len, self.d.floor_pages(self.p.key_len))

    def unlocks_nothing(self) -> None:
        """Where there is no tree, the lock of the specification is nothing, and goes with the row."""
        if not self.has_tree:
            self.effects.append(Unlock(z3.BoolVal(True)))


def prefilled(d: Symbols, s: Ledger) -> PagedLength:
    """Up to where the last chunk of a live request ran."""
    return d.where(s.phase == PREFILL, s.kv_committed_len, fill_len(s) - d.one)


def in_cache(places: Mapping[str, str], *, frees: bool = False) -> type[PlainScene]:
    class InCache(PlainScene):
        kind = places
        frees_duplicates = frees

    return InCache
