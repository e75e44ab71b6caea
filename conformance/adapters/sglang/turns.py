"""The way of a turn or a request through the cache: it is matched, prefilled, kept, and in the end released or retracted.

Pages that were allocated for a prefill are read back from the row table, request by request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvproof.conformance.adapters.live.assembly import ONLY_IF_IT_FREES, TAKEN_OVER
from kvproof.conformance.adapters.live.readings import Values
from kvproof.conformance.adapters.scheduler_actions import KEEP, RETRACT, SchedulerAction, SchedulerActions
from kvproof.conformance.adapters.sglang.arrivals import Arrivals
from kvproof.conformance.adapters.sglang.event_records import EventRecords
from kvproof.conformance.adapters.sglang.observe import Observer, session_of
from kvproof.conformance.adapters.sglang.page_moves import RELEASE
from kvproof.conformance.adapters.sglang.releases import Release
from kvproof.conformance.adapters.sglang.steps import Steps


class Turns:
    def __init__(
        self,
        release: Release,
        observe: Observer,
        events: EventRecords,
        actions: SchedulerActions,
        arrivals: Arrivals,
        steps: Steps,
    ) -> None:
        self._release = release
        self._observe = observe
        self._events = events
        self._actions = actions
        self._arrivals = arrivals
        self._steps = steps
        self._windows_behind: list[_Window] = []
        """Evictions behind an insert that is not written yet."""

    # -- prefill --

    def match(self, init: Callable[..., Any], req: Any, tree_cache: Any = None, *args: Any, **kwargs: Any) -> Any:
        """`Req.init_next_round_input`."""
        if tree_cache is None:  # the next chunk: nothing is matched
            return init(req, tree_cache, *args, **kwargs)
        before = session_of(req)
        with self._actions.open("match") as action:
            result = init(req, tree_cache, *args, **kwargs)
        session, params = session_of(req), {"fill_len": self._release.fill_len(req)}
        if before is not None and session is None:
            # Looking for its slot, the release cut the turn off its session; what was matched then is a new request.
            detached = {"attached": False, "lent": False}
            self._events.turn_event("match", req, before, params=params, after=detached)
            self._arrivals.detach(req)
        if session is None:
            self._arrivals.arrive_if_due(req)
        lent = self._observe.runs_on_slot_row(req)
        self._observe.borrows(req)
        self._events.turn_event(
            "match",
            req,
            session,
            row=self._release.row(req) if lent else None,
            params=params,
            **action.freed,
            after={
                "attached": session is not None,
                "lent": lent,
                "prefix_len": self._observe.prefix_len(req),
                **self._observe.lengths(req),
            },
        )
        return result

    def extend(self, prepare: Callable[..., Any], batch: Any) -> Any:
        row_of = self._release.row
        without_row = {req for req in batch.reqs if row_of(req) is None}
        result = prepare(batch)
        for req, prefix_len, seq_len in zip(batch.reqs, batch.prefix_lens, batch.seq_lens_cpu.tolist(), strict=True):
            row = row_of(req)
            self._observe.borrows(req)
            is_first = req in without_row
            shared = self._observe.pages_of_row(row, 0, prefix_len) if is_first else None
            last = seq_len >= len(req.origin_input_ids) + len(req.output_ids)
            told = self._observe.prefix_id(req, prefix_len) if is_first else {}
            self._events.turn_event(
                "extend",
                req,
                session_of(req),
                row=row,
                params={"seq_len": seq_len, "last": last, **told},
                alloc=self._observe.new_pages(row, prefix_len, seq_len),
                window_alloc=self._observe.new_window_pages(row, prefix_len, seq_len),
                shared=shared,
                after=self._observe.turn(req, prefix=True),
            )
        return result

    def keep(self, keep: Callable[..., Any], req: Any, *args: Any, **kwargs: Any) -> Any:
        """A request that continues: its KV goes into the tree, or its chunk is kept by its row alone."""
        self._steps.write_results_up_to(req)
        release, session = self._release, session_of(req)
        row, is_chunk = release.row(req), release.is_chunk(req, kwargs)
        self._windows_behind = []
        with self._actions.open(KEEP) as action:
            result = keep(req, *args, **kwargs)
        windows, self._windows_behind = self._windows_behind, []
        if action.inserted is not None:
            params = {"dup_len": action.inserted.prefix_len}
            after = self._observe.turn(req, prefix=True)
            key_len = self._key_len(action, release.kept_len(req))
            if key_len != after["kv_committed_len"]:  # with overlap the next step is prepared already
                params["key_len"] = key_len
            if not is_chunk:  # the whole prompt comes
                params.update(self._observe.prefix_id(req, after["cache_protected_len"]))
            if windows:  # behind the insert: it left the cursor where the first of them found it
                after["swa_evicted_seqlen"] = windows[0].cursor_before
            self._events.turn_event(
                "insert",
                req,
                session,
                row=row,
                params=params,
                **action.freed,
                shared=self._observe.pages_of_row(row, 0, after["cache_protected_len"]),
                after=after,
            )
        elif is_chunk:
            self._events.turn_event("stash", req, session, row=row, after=self._observe.turn(req, prefix=True))
        for window in windows:
            self._write_window(window)
        return result

    def _key_len(self, action: SchedulerAction, whole: int) -> int:
        """How many tokens the tree was asked to take: all, or up to where the prompt parts from one that lost its window."""
        may_be_less = self._release.parts or self._observe.has_drafts
        key_len = len(action.asked[0].key) if may_be_less and action.asked else whole
        page_size = self._observe.page_size
        return key_len if key_len // page_size < whole // page_size else whole

    def evict_window(self, evict: Callable[..., Any], req: Any, pre_len: int, *args: Any, **kwargs: Any) -> Any:
        """Slots behind the window are freed; most calls find none to free, and those are no event."""
        before = self._release.window_cursor(req)
        with self._actions.open("window") as action:
            result = evict(req, pre_len, *args, **kwargs)
        has_moved = self._release.window_cursor(req) != before
        if has_moved or action.asked_to_free:
            window = _Window(req, pre_len, action.window_free, before, has_moved, self._observe.lengths(req))
            around = self._actions.innermost
            if around is not None and around.name == KEEP and around.inserted is not None:
                self._windows_behind.append(window)
            else:
                self._write_window(window)
        return result

    def _write_window(self, window: _Window) -> None:
        self._events.turn_event(
            "window",
            window.req,
            session_of(window.req),
            row=self._release.row(window.req),
            params={"pre_len": window.pre_len},
            window_free=window.freed,
            **({} if window.has_moved else {ONLY_IF_IT_FREES: True}),
            after=window.after,
        )

    # -- ends --

    def release(self, release: Callable[..., Any], req: Any, *args: Any, **kwargs: Any) -> Any:
        if self._actions.is_in(RETRACT):
            return release(req, *args, **kwargs)
        self._steps.write_results_up_to(req)
        session, whole = session_of(req), self._observe.lengths(req)["kv_committed_len"]
        kept = req.finished_len if req.finished_len is not None else len(req.output_ids)
        params: Values = {"finished_len": int(kept)}
        windows = self._observe.window_pages_of_row(self._release.row(req), 0, whole)
        with self._actions.open(RELEASE) as action:
            result = release(req, *args, **kwargs)
        self._steps.over(req)
        fields: Values = action.freed
        if session is None or action.inserted is not None:
            params["inserted"] = action.inserted is not None
            params["dup_len"] = action.inserted.prefix_len if action.inserted is not None else 0
            if action.inserted is not None:
                if (key_len := self._key_len(action, whole)) != whole:
                    params["key_len"] = key_len
                params.update(self._observe.prefix_id(req, key_len))
                if action.remapped:
                    fields[TAKEN_OVER] = action.remapped, windows, key_len // self._observe.page_size
        if session is not None and _is_aborted(req):
            self._events.turn_event("abort", req, session, turn_ended=True, params=params, **fields)
            return result
        self._events.turn_event("finish", req, session, turn_ended=True, params=params, **fields)
        return result

    def retract(
        self, release: Callable[..., Any], batch: Any, idx: int, remaining_req_count: int, *args: Any, **kwargs: Any
    ) -> Any:
        """A running request gives its pages back: retracted, or given up when it does not even fit alone."""
        req = batch.reqs[idx]
        session = session_of(req)
        with self._actions.open(RETRACT) as action:
            result = release(batch, idx, remaining_req_count, *args, **kwargs)
        self._steps.over(req)
        if remaining_req_count:
            after = self._observe.lengths_after_retract(req)
            self._events.turn_event("retract", req, session, **action.freed, after=after)
        elif session is not None:
            self._events.turn_event("abort", req, session, turn_ended=True, **action.freed)
        else:
            params = {"finished_len": len(req.output_ids), "inserted": False, "dup_len": 0}
            self._events.turn_event("finish", req, None, params=params, **action.freed)
        self._actions.write_evicted_after(action)
        return result


@dataclass(frozen=True)
class _Window:
    """An eviction that is not written yet: of whom, and what was seen right behind it."""

    req: Any
    pre_len: int
    freed: list[int]
    cursor_before: int
    has_moved: bool
    after: Values


def _is_aborted(req: Any) -> bool:
    from sglang.srt.managers.schedule_batch import FINISH_ABORT

    return isinstance(req.finished_reason, FINISH_ABORT)
