"""Records what SGLang's scheduler does with KV pages as events of `docs/events.md`, by wrapping the real methods.

`Recorder._watched` is the table of what is wrapped and which handler writes about it. A handler calls the real method
exactly once and changes nothing. What moves pages is opened as an *action*: every page that `allocator.free` is handed
meanwhile belongs to it, whether the allocator frees at once or collects for the end of a free group. Pages that were
allocated for a prefill are read back from the row table, request by request; those of a decode step are what the
allocator returned.

What was seen is put down as plain values and goes to `put`: events that are rare with their names, the decode steps and
results of a whole batch as tuples that `assembly.py` makes events of. Nothing is formatted or written here.

A recorder shows what happened, also where that was wrong; it decides nothing.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

from .assembly import DECODE, RESULT
from .observe import Observer, Values, session_of
from .page_ids import PageIds
from .releases import Release, full_pool, layers_of, read_terms
from .watch import OnError, Watch

# Methods of an allocator that take pages back, as far as a release has them. One may call another: the outermost counts.
TAKES_BACK = (
    "free",
    "free_segment",
    "free_segments",
    "free_page_ids",
    "free_full",
    "free_full_segment",
    "free_full_segments",
)
EVICTS = ("evict", "evict_for_alloc")
RID = attrgetter("rid")


@dataclass
class Action:
    """What is being done, and the pages that it freed so far. `inserted` is the tree's answer if it was asked to insert."""

    name: str
    free: list[int] = field(default_factory=list)
    inserted: Any | None = None
    evicted_after: list[list[int]] = field(default_factory=list)


class Recorder:
    """Records one scheduler. `put` takes what was seen; `step` tells the number of the scheduler's step, for people.

    Without `on_error` an error of the recorder is raised where it happens. With it the first one is handed over, nothing is
    recorded from then on, and the scheduler never notices.
    """

    def __init__(
        self,
        release: Release,
        scheduler: Any,
        put: Callable[[Any], Any],
        *,
        step: Callable[[], int],
        on_error: OnError | None = None,
    ) -> None:
        self.release = release
        self.watch = Watch(on_error)
        self._scheduler = scheduler
        self._put = put
        self._step = step
        self._observe = Observer(release, scheduler)
        self._actions: list[Action] = []
        self._full_pool = full_pool(scheduler.token_to_kv_pool_allocator)
        self._freeing = False
        self._closing_free_group = False
        self._reaping = False
        self._refused_at_create: set[str] = set()
        self._not_arrived: set[str] = set()
        # Requests of the batch whose result is being processed, their output lengths before it, and how many are written.
        self._awaiting_result: list[Any] = []
        self._lens_before: list[int] = []
        self._results_written = 0
        # While batches only decode, nothing touches a session: its values are read again after every other event.
        self._sessions_are_known = False
        self._strays: list[int] = []

    @property
    def stray_frees(self) -> int:
        """Pages freed outside every known action: the trace names them as dropped."""
        self.page_ids.settle(wait=True)
        return len(self._strays)

    @property
    def page_ids(self) -> PageIds:
        """Where ids of pages come from; lists of what was put down fill when it settles."""
        return self._observe.page_ids

    def start(self) -> None:
        for owner, name, handler in self._watched():
            self.watch.around(owner, name, handler)
        for owner, name, before, after in self._listened():
            self.watch.between(owner, name, before, after)
        self._rebuild_dispatcher()

    def stop(self) -> None:
        self.watch.take_away()
        self._rebuild_dispatcher()

    def _rebuild_dispatcher(self) -> None:
        """The scheduler's dispatcher keeps bound methods; built anew it finds the watched ones, or the originals."""
        self._scheduler.init_request_dispatcher()

    def _watched(self) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
        """The table of watched methods: (class or module, name, handler)."""
        release, scheduler = self.release, self._scheduler
        schedule_batch = importlib.import_module("sglang.srt.managers.schedule_batch")
        batch, request, the_scheduler = schedule_batch.ScheduleBatch, schedule_batch.Req, type(scheduler)
        controller, tree = release.load("session_controller"), type(layers_of(scheduler.tree_cache)[0])
        for allocator in self._allocators():
            for name in TAKES_BACK:
                if hasattr(allocator, name):
                    yield allocator, name, partial(self._free, name)
        for name in EVICTS:
            if hasattr(tree, name):
                yield tree, name, self._tree_evict
        yield tree, "insert", self._tree_insert
        yield controller, "open", self._open
        yield controller, "_close", self._close
        yield release.load("session"), "create_req", self._create_req
        yield the_scheduler, "handle_generate_request", self._handle_generate_request
        yield the_scheduler, "abort_request", self._abort_request
        yield request, "init_next_round_input", self._init_next_round_input
        yield batch, "prepare_for_extend", self._prepare_for_extend
        yield batch, "release_req", self._release_req
        if release.keeps_unfinished is None:
            yield type(scheduler.tree_cache), "cache_unfinished_req", self._cache_unfinished_req
        else:
            for module in _callers_of(release.keeps_unfinished):
                yield module, release.keeps_unfinished, self._keep_unfinished
        if self._observe.has_window:
            if release.evicts_window is None:
                yield batch, "_evict_swa", self._evict_swa
            else:
                for module in _callers_of(release.evicts_window):
                    yield module, release.evicts_window, self._evict_window
        for module in _callers_of("release_kv_cache"):
            yield module, "release_kv_cache", self._release_kv_cache

    def _listened(self) -> Iterator[tuple[Any, str, Callable[..., None] | None, Callable[..., None]]]:
        """What every step calls, with listeners, which cost less: (class, name, before a call, after it)."""
        schedule_batch = importlib.import_module("sglang.srt.managers.schedule_batch")
        for allocator in self._allocators():
            yield allocator, "free_group_end", self._free_group_ends, self._free_group_ended
        yield self.release.load("session_controller"), "maybe_reap", self._reap_begins, self._reap_ended
        yield schedule_batch.ScheduleBatch, "prepare_for_decode", None, self._prepared_for_decode
        yield type(self._scheduler), "process_batch_result", self._results_come, self._results_came

    def _allocators(self) -> set[type]:
        return {type(self._scheduler.token_to_kv_pool_allocator), type(self._full_pool)}

    # -- pages --

    @contextmanager
    def _action(self, name: str) -> Iterator[Action]:
        action = Action(name)
        self._actions.append(action)
        try:
            yield action
        finally:
            self._actions.pop()

    def _in_action(self, name: str) -> bool:
        return bool(self._actions) and self._actions[-1].name == name

    def _free(self, name: str, free: Callable[..., Any], allocator: Any, *args: Any, **kwargs: Any) -> Any:
        if self._freeing or self._closing_free_group or not self._is_of_full_pool(allocator):
            return free(allocator, *args, **kwargs)
        into = self._actions[-1].free if self._actions else self._strays
        if name == "free_page_ids":
            self.page_ids.read(args[0] * self._scheduler.page_size, into, once=True)
        elif name.endswith("segments"):
            for indices, _ in args[0]:
                self.page_ids.read(indices, into, once=True)
        else:
            self.page_ids.read(args[0], into, once=True)
        self._freeing = True
        try:
            return free(allocator, *args, **kwargs)
        finally:
            self._freeing = False

    def _is_of_full_pool(self, allocator: Any) -> bool:
        return allocator is self._full_pool or allocator is self._scheduler.token_to_kv_pool_allocator

    def _free_group_ends(self, _allocator: Any) -> None:
        # What the group collected was counted when it was handed in; the end frees the whole of it in one call.
        self._closing_free_group = True

    def _free_group_ended(self, _allocator: Any) -> None:
        self._closing_free_group = False

    def _tree_insert(self, insert: Callable[..., Any], tree: Any, params: Any) -> Any:
        result = insert(tree, params)
        # A release may insert a shorter key once more, only to have a node end there: the first answer counts.
        if self._actions and self._actions[-1].inserted is None:
            self._actions[-1].inserted = result
        return result

    def _tree_evict(self, evict: Callable[..., Any], tree: Any, params: Any, **kwargs: Any) -> Any:
        if self._in_action("evict"):
            return evict(tree, params, **kwargs)
        with self._action("evict") as action:
            result = evict(tree, params, **kwargs)
        if self._in_action("release_req"):
            # A retract evicts after it released: what it unlocked may go at once. So its own event comes first.
            self._actions[-1].evicted_after.append(action.free)
        else:
            self._write_evict(action.free)
        return result

    def _write_evict(self, pages: list[int]) -> None:
        if pages:
            self._event("evict", free=pages)

    # -- sessions --

    def _open(self, open_: Callable[..., Any], controller: Any, request: Any) -> Any:
        known = request.session_id in controller.sessions
        output = open_(controller, request)
        session = controller.sessions.get(request.session_id)
        if not known and session is not None and session.streaming:
            self._session_event("open", session)
        return output

    def _reap_begins(self, *_args: Any, **_kwargs: Any) -> None:
        self._reaping = True

    def _reap_ended(self, *_args: Any, **_kwargs: Any) -> None:
        self._reaping = False

    def _close(self, close: Callable[..., Any], controller: Any, session_id: str) -> Any:
        session, slot = controller.sessions[session_id], self._observe.held_slot(session_id)
        if not session.streaming:
            return close(controller, session_id)
        row = self.release.row(slot) if slot is not None else None
        with self._action("close") as action:
            result = close(controller, session_id)
        # The reaper tries every waiting close at every round; only the round that carries it out is an event.
        if not self._reaping or session_id not in controller.sessions:
            self._session_event("close", session, turn_ended=True, row=row, free=action.free)
        return result

    # -- arrival --

    def _create_req(self, create: Callable[..., Any], session: Any, *args: Any, **kwargs: Any) -> Any:
        req = create(session, *args, **kwargs)
        if req.to_finish is not None or req.finished_reason is not None:
            self._refused_at_create.add(req.rid)
        return req

    def _handle_generate_request(self, handle: Callable[..., Any], scheduler: Any, message: Any) -> Any:
        named = message.session_params.id if message.session_params is not None else None
        session = scheduler.session_controller.get(named) if named is not None else None
        result = handle(scheduler, message)
        req = next((req for req in reversed(scheduler.waiting_queue) if req.rid == message.rid), None)
        if req is None:
            return result
        if session is None or not session.streaming:
            self._event("arrive", turn=req.rid, params={"origin_len": len(req.origin_input_ids)})
            return result
        admitted = session_of(req) is session and req.rid not in self._refused_at_create
        if not admitted:
            self._not_arrived.add(req.rid)
        self._session_event(
            "create",
            session,
            turn=req.rid,
            params={
                "origin_len": len(req.origin_input_ids),
                "admitted": admitted,
                "too_long": admitted and req.to_finish is not None,
                "logprob": bool(message.return_logprob and message.logprob_start_len == 0),
            },
            after={"attached": admitted},
        )
        return result

    def _arrive_if_due(self, req: Any) -> bool:
        """A turn that its session refused or cut off goes on as an ordinary request when the scheduler takes it up."""
        if req.rid not in self._not_arrived:
            return False
        self._not_arrived.remove(req.rid)
        self._event("arrive", turn=req.rid, params={"origin_len": len(req.origin_input_ids)})
        return True

    def _abort_request(self, abort: Callable[..., Any], scheduler: Any, message: Any) -> Any:
        queued = [(req, session_of(req)) for req in scheduler.waiting_queue]
        result = abort(scheduler, message)
        still_queued = set(scheduler.waiting_queue)
        for req, session in reversed(queued):
            if req not in still_queued:
                # A refused turn that the scheduler never took up was never a turn of its session.
                refused = self._arrive_if_due(req)
                self._turn_event("abort", req, None if refused else session, turn_ended=True)
        return result

    # -- prefill --

    def _init_next_round_input(
        self, init: Callable[..., Any], req: Any, tree_cache: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        if tree_cache is None:  # the next chunk: nothing is matched
            return init(req, tree_cache, *args, **kwargs)
        before = session_of(req)
        with self._action("match") as action:
            result = init(req, tree_cache, *args, **kwargs)
        session, params = session_of(req), {"fill_len": self.release.fill_len(req)}
        if before is not None and session is None:
            # Looking for its slot, the release cut the turn off its session; what was matched then is a new request.
            detached = {"attached": False, "lent": False}
            self._turn_event("match", req, before, params=params, after=detached)
            self._not_arrived.add(req.rid)
        if session is None:
            self._arrive_if_due(req)
        lent = self._observe.runs_on_slot_row(req)
        self._observe.borrows(req)
        self._turn_event(
            "match",
            req,
            session,
            row=self.release.row(req) if lent else None,
            params=params,
            free=action.free,
            after={
                "attached": session is not None,
                "lent": lent,
                "prefix_len": self.release.prefix_len(req),
                **self._observe.lengths(req),
            },
        )
        return result

    def _prepare_for_extend(self, prepare: Callable[..., Any], batch: Any) -> Any:
        row_of = self.release.row
        without_row = {req for req in batch.reqs if row_of(req) is None}
        result = prepare(batch)
        for req, prefix_len, seq_len in zip(batch.reqs, batch.prefix_lens, batch.seq_lens_cpu.tolist(), strict=True):
            row = row_of(req)
            self._observe.borrows(req)
            shared = self._observe.pages_of_row(row, 0, prefix_len) if req in without_row else None
            self._turn_event(
                "extend",
                req,
                session_of(req),
                row=row,
                params={"seq_len": seq_len, "last": seq_len >= len(req.origin_input_ids) + len(req.output_ids)},
                alloc=self._observe.new_pages(row, prefix_len, seq_len),
                shared=shared,
                after=self._observe.turn(req, prefix=True),
            )
        return result

    def _cache_unfinished_req(
        self, cache: Callable[..., Any], tree_cache: Any, req: Any, *args: Any, **kwargs: Any
    ) -> Any:
        return self._keep(req, kwargs, lambda: cache(tree_cache, req, *args, **kwargs))

    def _keep_unfinished(self, keep: Callable[..., Any], req: Any, *args: Any, **kwargs: Any) -> Any:
        return self._keep(req, kwargs, lambda: keep(req, *args, **kwargs))

    def _keep(self, req: Any, kwargs: dict[str, Any], keep: Callable[[], Any]) -> Any:
        """A request that goes on: its KV goes into the tree, or its chunk is kept by its row alone."""
        self._write_results_up_to(req)
        release, session = self.release, session_of(req)
        row, is_chunk = release.row(req), release.is_chunk(req, kwargs)
        with self._action("keep") as action:
            result = keep()
        if action.inserted is not None:
            params = {"dup_len": action.inserted.prefix_len}
            committed_len, _, protected_len = release.lengths(req)
            if release.kept_len(req) != committed_len:  # with overlap the next step is prepared already
                params["key_len"] = release.kept_len(req)
            self._turn_event(
                "insert",
                req,
                session,
                row=row,
                params=params,
                free=action.free,
                shared=self._observe.pages_of_row(row, 0, protected_len),
                after=self._observe.turn(req, prefix=True),
            )
        elif is_chunk:
            self._turn_event("stash", req, session, row=row, after=self._observe.turn(req, prefix=True))
        return result

    def _evict_swa(
        self, evict: Callable[..., Any], batch: Any, req: Any, pre_len: int, *args: Any, **kwargs: Any
    ) -> Any:
        return self._window(req, pre_len, lambda: evict(batch, req, pre_len, *args, **kwargs))

    def _evict_window(self, evict: Callable[..., Any], req: Any, pre_len: int, *args: Any, **kwargs: Any) -> Any:
        return self._window(req, pre_len, lambda: evict(req, pre_len, *args, **kwargs))

    def _window(self, req: Any, pre_len: int, evict: Callable[[], Any]) -> Any:
        """Slots behind the window are freed; most calls find none to free, and those are no event."""
        before = self.release.window_cursor(req)
        result = evict()
        if self.release.window_cursor(req) != before:
            self._turn_event(
                "window",
                req,
                session_of(req),
                row=self.release.row(req),
                params={"pre_len": pre_len},
                after=self._observe.lengths(req),
            )
        return result

    # -- decode and results --

    def _prepared_for_decode(self, batch: Any) -> None:
        reqs, observe, release = batch.reqs, self._observe, self.release
        seq_lens = batch.seq_lens_cpu.tolist()
        sessions = None if self._sessions_are_known else observe.sessions_of(reqs)
        self._sessions_are_known = True
        self._put(
            (
                DECODE,
                self._step(),
                list(map(RID, reqs)),
                list(map(release.row, reqs)),
                list(map(release.lengths, reqs)),
                [len(req.output_ids) for req in reqs],
                sessions,
                seq_lens,
                observe.pages_opened(batch.out_cache_loc, seq_lens),
            )
        )

    def _results_come(self, _scheduler: Any, batch: Any, *_args: Any) -> None:
        self._awaiting_result = batch.reqs
        self._lens_before = [len(req.output_ids) for req in batch.reqs]
        self._results_written = 0

    def _results_came(self, _scheduler: Any, _batch: Any, *_args: Any) -> None:
        self._write_results_up_to(None)
        self._awaiting_result = []

    def _write_results_up_to(self, last: Any | None) -> None:
        """Write `result` for the requests of the batch, in its order, through `last`: it is about to be cached or released.

        Only what a result can change is read: the lengths and the session are seen again when the next step is prepared,
        or at the event that follows.
        """
        reqs, start = self._awaiting_result, self._results_written
        if last is not None:
            if last not in reqs[start:]:
                return
            reqs = reqs[: reqs.index(last, start) + 1]
        self._results_written = len(reqs)
        if start:
            reqs = reqs[start:]
        output_lens, before = [len(req.output_ids) for req in reqs], self._lens_before[start : self._results_written]
        if output_lens != before:
            self._put((RESULT, self._step(), list(map(RID, reqs)), before, output_lens))

    # -- ends --

    def _release_kv_cache(self, release: Callable[..., Any], req: Any, *args: Any, **kwargs: Any) -> Any:
        if self._in_action("release_req"):
            return release(req, *args, **kwargs)
        self._write_results_up_to(req)
        session = session_of(req)
        params: Values = {"finished_len": _finished_len(req)}
        with self._action("release_kv_cache") as action:
            result = release(req, *args, **kwargs)
        if session is None or action.inserted is not None:
            params["inserted"] = action.inserted is not None
            params["dup_len"] = action.inserted.prefix_len if action.inserted is not None else 0
        if session is not None and _is_aborted(req):
            self._turn_event("abort", req, session, turn_ended=True, params=params, free=action.free)
            return result
        self._turn_event("finish", req, session, turn_ended=True, params=params, free=action.free)
        return result

    def _release_req(
        self, release: Callable[..., Any], batch: Any, idx: int, remaining_req_count: int, *args: Any, **kwargs: Any
    ) -> Any:
        """A running request gives its pages back: retracted, or given up when it does not even fit alone."""
        req = batch.reqs[idx]
        session = session_of(req)
        with self._action("release_req") as action:
            result = release(batch, idx, remaining_req_count, *args, **kwargs)
        given_up = remaining_req_count == 0
        self._turn_event(
            "abort" if given_up else "retract",
            req,
            session,
            turn_ended=given_up,
            free=action.free,
            after={} if given_up else self._observe.lengths_after_retract(req),
        )
        for pages in action.evicted_after:
            self._write_evict(pages)
        return result

    # -- the memory check --

    def check(self, *, busy: bool, passed: bool, free_list: bool = True) -> None:
        """The terms of the release's own memory check as they are now; `passed`: what its check said."""
        page_size = self._scheduler.page_size
        try:
            terms = read_terms(self.release, self._scheduler, busy=busy)
        except AssertionError:  # the release's own counting refuses; `own_check_ok` says so
            terms = {}
        in_pages = {
            pool: {name: tokens // page_size for name, tokens in vars(of_pool).items()}
            for pool, of_pool in terms.items()
        }
        params = {"busy": busy, "own_check_ok": passed}
        self._event(
            "check",
            params=params,
            terms=in_pages.get("full"),
            window_terms=in_pages.get("window"),
            free_list=self._observe.free_pages() if free_list else None,
        )

    # -- writing --

    def _session_event(
        self, action: str, session: Any, *, turn_ended: bool = False, after: Values | None = None, **fields: Any
    ) -> None:
        seen = {**self._observe.session(session, turn_ended=turn_ended), **(after or {})}
        self._event(action, session=session.session_id, after=seen, **fields)

    def _turn_event(
        self,
        action: str,
        req: Any,
        session: Any | None,
        *,
        turn_ended: bool = False,
        after: Values | None = None,
        **fields: Any,
    ) -> None:
        """An event of a turn; `session` is the one it belonged to when the step began."""
        if session is None:
            self._event(action, turn=req.rid, after=after or {}, **fields)
        else:
            self._session_event(action, session, turn_ended=turn_ended, turn=req.rid, after=after, **fields)

    def _event(self, action: str, **fields: Any) -> None:
        self._sessions_are_known = False
        self._put({"action": action, "step": self._step(), **fields})


def _callers_of(function: str) -> list[Any]:
    """SGLang's modules that imported this function of the cache by name."""
    original = getattr(importlib.import_module("sglang.srt.mem_cache.common"), function)
    modules = [module for name, module in sys.modules.items() if name.startswith("sglang.") and module is not None]
    return [module for module in modules if vars(module).get(function) is original]


def _finished_len(req: Any) -> int:
    return int(req.finished_len) if req.finished_len is not None else len(req.output_ids)


def _is_aborted(req: Any) -> bool:
    from sglang.srt.managers.schedule_batch import FINISH_ABORT

    return isinstance(req.finished_reason, FINISH_ABORT)
