"""Records what sglang-jax's scheduler does with KV pages as events of `docs/events.md`, by wrapping its real functions.

The seams are those of the recorder for SGLang: the allocator's `free`, the tree's `insert` and `evict`, what keeps the KV of a
request that continues (`cache_unfinished_req`), what releases it (`release_kv_cache`, or `cache_finished_req` where a checkout
has no such entry yet), the preparation of batches and the processing of results. A handler calls the original once and
changes nothing. A recorder shows what happened, also where that was wrong; it decides nothing.

Two things are seen that the recorder for SGLang need not see. A row that the scheduler frees between two chunks: the event that
kept the chunk then names no row. And pages that the processing of a late result frees by itself: they stand in the `result` of
the request whose slot it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kvproof.conformance.adapters.live.idle_passes import idle_params
from kvproof.conformance.adapters.live.readings import TURN, Values
from kvproof.conformance.adapters.method_hooks import MethodHooks, importers_of, of_a_method
from kvproof.conformance.adapters.row_pages import RowPages, WindowPool, full_pool
from kvproof.conformance.adapters.scheduler_actions import RETRACT, SchedulerAction, SchedulerActions
from kvproof.spec.gaps import NO_LENGTHS, NO_PROTECTED_LEN


class Observer(RowPages):
    """Reads what can be seen of requests, rows and pools, in the field names of the trace. It changes nothing."""

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler, has_window=scheduler.is_hybrid)
        self.has_tree = hasattr(scheduler.tree_cache, "root_node") and not scheduler.tree_cache.disable
        if self.has_window:
            allocator = scheduler.token_to_kv_pool_allocator
            map_of_pages = allocator.full_to_swa_index_mapping
            self.window_pool = WindowPool(allocator.swa_attn_allocator, map_of_pages, self.page_ids)

    def gaps(self, req_class: type) -> tuple[str, ...]:
        kept = hasattr(req_class, "pop_committed_kv_cache")
        found = [] if kept else [NO_LENGTHS]
        return (*found, *([NO_PROTECTED_LEN] if kept and not self.has_tree else []))

    def lengths(self, req: Any) -> Values:
        """Those that the checkout keeps; before its pull request 994 it infers them from the tokens, where it needs them."""
        seen = {name: int(getattr(req, name)) for name in TURN if hasattr(req, name)}
        if not self.has_tree:
            seen.pop("cache_protected_len", None)
        if self.has_window:
            seen["swa_evicted_seqlen"] = int(req.swa_evicted_seqlen)
        return seen

    def free_lists(self) -> Values:
        """Every free page of each pool; one that was freed twice stands twice where the pool lets it."""
        lists = {"free_list": self._free_pages(full_pool(self._scheduler.token_to_kv_pool_allocator))}
        if self.window_pool is not None:
            lists["window_free_list"] = self._free_pages(self.window_pool.allocator)
        return lists

    def _free_pages(self, pool: Any) -> list[int]:
        if self.page_size == 1:
            return [int(slot) for slot in pool.free_slots[0]]
        return [int(page) for page in (*pool.free_pages[0], *pool.release_pages[0])]

    def terms(self) -> dict[str, Values]:
        """The terms of its idle memory check, pool by pool, in pages; nothing is running then."""
        tree, allocator = self._scheduler.tree_cache, self._scheduler.token_to_kv_pool_allocator
        if not self.has_window:
            seen = (allocator.available_size(), tree.evictable_size(), tree.protected_size())
            return {"terms": self._in_pages(*seen, allocator.size)}
        full = (allocator.full_available_size(), tree.full_evictable_size(), tree.full_protected_size())
        window = (allocator.swa_available_size(), tree.swa_evictable_size(), tree.swa_protected_size())
        return {
            "terms": self._in_pages(*full, allocator.size_full),
            "window_terms": self._in_pages(*window, allocator.size_swa),
        }

    def _in_pages(self, available: int, evictable: int, protected: int, total: int) -> Values:
        tokens = {"available": available, "evictable": evictable, "protected": protected, "total": total}
        return {**{name: int(of) // self.page_size for name, of in tokens.items()}, "session_held": 0, "uncached": 0}


Put = Callable[..., Any]


@dataclass
class Results:
    """The batch whose result is being processed: output lengths before it, and how many of its requests are written."""

    batch: Any
    reqs: list[Any]
    before: list[int]
    written: int = 0


class Recorder:
    """Records one scheduler of one data-parallel rank. `put` takes the fields of an event."""

    def __init__(self, scheduler: Any, put: Put, *, step: Callable[[], int]) -> None:
        self._scheduler = scheduler
        self._put = put
        self._step = step
        self._hooks = MethodHooks()
        self.observe = Observer(scheduler)
        self._actions = SchedulerActions(self._event)
        self._is_inside_free = False
        self._results: Results | None = None
        self._kept: Values | None = None
        """The event of a chunk that was kept: written when the next one comes, as its row may still be freed."""
        self._prefill_is_over: dict[str, bool] = {}
        self.stray_frees: list[int] = []
        """Pages that were freed outside every watched action."""

    def start(self) -> None:
        for owner, name, handler in self._watched():
            self._hooks.around(owner, name, handler)

    def stop(self) -> None:
        self._hooks.take_away()
        self._write_kept()

    def _watched(self) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
        """The table of watched functions: (class or module, name, handler)."""
        from sgl_jax.srt.managers.schedule_batch import Req, ScheduleBatch
        from sgl_jax.srt.mem_cache import common

        scheduler = self._scheduler
        allocator, tree = type(scheduler.token_to_kv_pool_allocator), type(scheduler.tree_cache)
        yield allocator, "free", self._free
        yield allocator, "free_group_end", self._free_group_end
        yield type(scheduler.req_to_token_pool), "free", self._free_row
        if hasattr(tree, "insert"):
            yield tree, "insert", self._actions.insert
        yield tree, "evict", self._actions.evict
        yield tree, "cache_unfinished_req", self._keep
        yield tree, "cache_finished_req", of_a_method(self._release)
        if hasattr(common, "release_kv_cache"):
            for module in importers_of("sgl_jax", common, "release_kv_cache"):
                yield module, "release_kv_cache", self._release
        yield type(scheduler), "process_batch_result", self._process_batch_result
        yield type(scheduler), "_add_request_to_queue", self._arrives
        yield Req, "init_next_round_input", self._match
        yield ScheduleBatch, "prepare_for_extend", self._prepare_for_extend
        yield ScheduleBatch, "prepare_for_decode", self._prepare_for_decode
        yield ScheduleBatch, "release_req", self._release_req
        if self.observe.has_window:
            yield allocator, "free_swa", self._free_window
            yield ScheduleBatch, "_evict_swa", self._evict_swa

    # -- pages --

    def _free(self, free: Callable[..., Any], allocator: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
        """Pages of both pools, where there are two."""
        return self._take_back(free, allocator, indices, *args, of_both=True, **kwargs)

    def _free_window(self, free: Callable[..., Any], allocator: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
        return self._take_back(free, allocator, indices, *args, of_both=False, **kwargs)

    def _take_back(
        self, free: Callable[..., Any], allocator: Any, indices: Any, *args: Any, of_both: bool, **kwargs: Any
    ) -> Any:
        if self._is_inside_free or allocator is not self._scheduler.token_to_kv_pool_allocator or not len(indices):
            return free(allocator, indices, *args, **kwargs)
        freed = SchedulerAction("free", self.observe.page_ids.read(indices, once=True) if of_both else [])
        if self.observe.window_pool is not None:
            self.observe.window_pool.go_back(indices, freed.window_free)
        if self._actions.innermost is not None:
            self._actions.innermost.free += freed.free
            self._actions.innermost.window_free += freed.window_free
        elif self._results is not None:
            self._freed_by_result(self._results, int(indices[0]), freed)
        else:
            self.stray_frees += freed.free + freed.window_free
        with self._inside_free():
            return free(allocator, indices, *args, **kwargs)

    def _free_group_end(self, end: Callable[..., Any], allocator: Any) -> Any:
        # What the group collected was counted when it was handed in; the end frees the whole of it in one call.
        with self._inside_free():
            return end(allocator)

    @contextmanager
    def _inside_free(self) -> Iterator[None]:
        outer, self._is_inside_free = self._is_inside_free, True
        try:
            yield
        finally:
            self._is_inside_free = outer

    def _free_row(self, free: Callable[..., Any], pool: Any, freed: Any) -> Any:
        """Older checkouts hand in the row, newer ones the request."""
        row = getattr(freed, "req_pool_idx", freed)
        if self._kept is not None and self._actions.innermost is None and self._kept["row"] == row:
            self._kept["row"] = None
        return free(pool, freed)

    # -- from the queue into the cache --

    def _arrives(self, add: Callable[..., Any], scheduler: Any, req: Any) -> Any:
        result = add(scheduler, req)
        self._event("arrive", turn=req.rid, params={"origin_len": len(req.origin_input_ids)})
        return result

    def _match(self, init: Callable[..., Any], req: Any, tree_cache: Any = None) -> Any:
        if tree_cache is None:  # the next chunk: nothing is matched
            return init(req, tree_cache)
        with self._actions.open("match") as action:
            result = init(req, tree_cache)
        after = {"attached": False, "lent": False, "prefix_len": len(req.prefix_indices)}
        self._event("match", turn=req.rid, params={"fill_len": len(req.fill_ids)}, **action.freed, after=after)
        return result

    def _prepare_for_extend(self, prepare: Callable[..., Any], batch: Any) -> Any:
        reqs = batch.reqs_info[0].reqs
        continued = {req.rid for req in reqs if req.rid in self._prefill_is_over}
        result = prepare(batch)
        info = batch.reqs_info[0]
        for req, prefix_len, seq_len in zip(reqs, info.prefix_lens, info.seq_lens.tolist(), strict=True):
            row = int(req.req_pool_idx)
            last = seq_len >= len(req.origin_input_ids) + len(req.output_ids)
            self._prefill_is_over[req.rid] = last
            self._event(
                "extend",
                turn=req.rid,
                row=row,
                params={"seq_len": seq_len, "last": last},
                alloc=self.observe.new_pages(row, prefix_len, seq_len),
                window_alloc=self.observe.new_window_pages(row, prefix_len, seq_len),
                shared=None if req.rid in continued else self.observe.pages_of_row(row, 0, prefix_len),
                after=self.observe.turn(req, prefix=True),
            )
        return result

    def _keep(self, keep: Callable[..., Any], tree: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        """A request that continues: its KV goes into the tree, or its chunk is kept by its row alone."""
        self._write_results_through(req)
        row = req.req_pool_idx
        with self._actions.open("keep") as action:
            result = keep(tree, req, *args, **kwargs)
        event: Values = {"turn": req.rid, "row": row, "after": self.observe.turn(req, prefix=True)}
        if action.inserted is not None:
            event["params"] = {"dup_len": int(action.inserted), "key_len": len(req.fill_ids)}
            if row is not None:  # a fault may have released it before
                event["shared"] = self.observe.pages_of_row(row, 0, req.last_matched_prefix_len)
            self._keep_event("insert", **action.freed, **event)
        elif not self._prefill_is_over.get(req.rid, True):
            self._keep_event("stash", **action.freed, **event)
        return result

    def _evict_swa(
        self, evict: Callable[..., Any], batch: Any, req: Any, pre_len: int, *args: Any, **kwargs: Any
    ) -> Any:
        before = req.swa_evicted_seqlen
        with self._actions.open("window") as action:
            result = evict(batch, req, pre_len, *args, **kwargs)
        if req.swa_evicted_seqlen != before or action.window_free:
            row, after = int(req.req_pool_idx), self.observe.lengths(req)
            params = {"pre_len": int(pre_len)}
            self._event("window", turn=req.rid, row=row, params=params, **action.freed, after=after)
        return result

    # -- decode and results --

    def _prepare_for_decode(self, prepare: Callable[..., Any], batch: Any) -> Any:
        result = prepare(batch)
        info, page_size = batch.reqs_info[0], self._scheduler.page_size
        for place, (req, seq_len) in enumerate(zip(info.reqs, info.seq_lens.tolist(), strict=True)):
            opens_page = (seq_len - 1) % page_size == 0
            opened = info.out_cache_loc[place : place + opens_page]
            self._event(
                "decode",
                turn=req.rid,
                row=int(req.req_pool_idx),
                alloc=self.observe.pages_of(opened),
                window_alloc=self.observe.window_pages_of(opened) or [],
                after=self.observe.turn(req, prefix=False),
            )
        return result

    def _process_batch_result(
        self, process: Callable[..., Any], scheduler: Any, batch: Any, *args: Any, **kwargs: Any
    ) -> Any:
        reqs = list(batch.reqs_info[0].reqs or [])
        self._results = Results(batch, reqs, [len(req.output_ids) for req in reqs])
        try:
            result = process(scheduler, batch, *args, **kwargs)
            self._write_results(self._results, len(reqs))
        finally:
            self._results = None
        return result

    def _write_results_through(self, req: Any) -> None:
        """Write `result` for the requests of the batch, in its order, through `req`: it is about to be kept or released."""
        results = self._results
        if results is not None and req in results.reqs[results.written :]:
            self._write_results(results, results.reqs.index(req, results.written) + 1)

    def _write_results(self, results: Results, end: int) -> None:
        for place in range(results.written, end):
            req, tokens = results.reqs[place], len(results.reqs[place].output_ids) - results.before[place]
            # Under overlap the result of a chunk is an event also without a token, until the last chunk is launched.
            is_of_chunk = self._scheduler.enable_overlap and not self._prefill_is_over.get(req.rid, True)
            if tokens or is_of_chunk:
                self._write_result(req, tokens, SchedulerAction("result"))
        results.written = max(results.written, end)

    def _write_result(self, req: Any, tokens: int, moved: SchedulerAction) -> None:
        # Of a request that is over nothing is left but what its result moves.
        after = {"output_len": len(req.output_ids)} if tokens or not req.finished() else {}
        self._event("result", turn=req.rid, params={"tokens": tokens}, **moved.freed, after=after)

    def _freed_by_result(self, results: Results, index: int, freed: SchedulerAction) -> None:
        """Pages that no release freed: of the request whose new slot in this batch it was. Decodes stand at a batch's end."""
        slots = [int(slot) for slot in results.batch.reqs_info[0].out_cache_loc]
        place = len(results.reqs) - (len(slots) - slots.index(index))
        self._write_results(results, place)
        self._write_result(results.reqs[place], 0, freed)
        results.written = place + 1

    # -- ends --

    def _release(self, release: Callable[..., Any], req: Any, *args: Any, **kwargs: Any) -> Any:
        """The outermost call releases; what it calls, or a retract that calls it, is part of one event."""
        if self._actions.innermost is not None:
            return release(req, *args, **kwargs)
        self._write_results_through(req)
        with self._actions.open("release") as action:
            result = release(req, *args, **kwargs)
        inserted = action.inserted is not None
        params = {"finished_len": len(req.output_ids), "inserted": inserted, "dup_len": int(action.inserted or 0)}
        self._prefill_is_over.pop(req.rid, None)
        self._event("finish", turn=req.rid, params=params, **action.freed)
        return result

    def _release_req(self, release: Callable[..., Any], batch: Any, idx: int, *args: Any, **kwargs: Any) -> Any:
        req = batch.reqs_info[0].reqs[idx]
        with self._actions.open(RETRACT) as action:
            result = release(batch, idx, *args, **kwargs)
        self._prefill_is_over.pop(req.rid, None)
        self._event("retract", turn=req.rid, **action.freed, after=self.observe.lengths(req))
        self._actions.write_evicted_after(action)
        return result

    # -- the memory check, and writing --

    def idle(self, passes: int) -> None:
        """So many passes of the event loop in a row found nothing to run."""
        self._event("check", params=idle_params(self._scheduler, passes))

    def check(self, passed: bool) -> None:
        """The terms of the checkout's own memory check as they are now; `passed`: what its check said."""
        params = {"busy": False, "own_check_ok": passed}
        self._event("check", params=params, **self.observe.free_lists(), **self.observe.terms())

    def _event(self, action: str, **fields: Any) -> None:
        self._write_kept()
        self._put(action=action, step=self._step(), **fields)

    def _keep_event(self, action: str, **fields: Any) -> None:
        self._write_kept()
        self._kept = {"action": action, "step": self._step(), **fields}

    def _write_kept(self) -> None:
        if self._kept is not None:
            kept, self._kept = self._kept, None
            self._put(**kept)
