"""The way of a turn or a request through the cache: it is matched, prefilled, kept, and in the end released or retracted.

Pages that were allocated for a prefill are read back from the row table, request by request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvproof.conformance.errors import UserError

from ..actions import RETRACT, Actions
from ..live.readings import Values
from .arrivals import Arrivals
from .notes import Notes
from .observe import Observer, session_of
from .releases import Release
from .steps import Steps


class Turns:
    def __init__(
        self, release: Release, observe: Observer, notes: Notes, actions: Actions, arrivals: Arrivals, steps: Steps
    ) -> None:
        self._release = release
        self._observe = observe
        self._notes = notes
        self._actions = actions
        self._arrivals = arrivals
        self._steps = steps

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
            self._notes.turn_event("match", req, before, params=params, after=detached)
            self._arrivals.detach(req)
        if session is None:
            self._arrivals.arrive_if_due(req)
        lent = self._observe.runs_on_slot_row(req)
        self._observe.borrows(req)
        self._notes.turn_event(
            "match",
            req,
            session,
            row=self._release.row(req) if lent else None,
            params=params,
            **action.freed,
            after={
                "attached": session is not None,
                "lent": lent,
                "prefix_len": self._release.prefix_len(req),
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
            shared = self._observe.pages_of_row(row, 0, prefix_len) if req in without_row else None
            self._notes.turn_event(
                "extend",
                req,
                session_of(req),
                row=row,
                params={"seq_len": seq_len, "last": seq_len >= len(req.origin_input_ids) + len(req.output_ids)},
                alloc=self._observe.new_pages(row, prefix_len, seq_len),
                window_alloc=self._observe.new_window_pages(row, prefix_len, seq_len),
                shared=shared,
                after=self._observe.turn(req, prefix=True),
            )
        return result

    def cache_unfinished_req(
        self, cache: Callable[..., Any], tree_cache: Any, req: Any, *args: Any, **kwargs: Any
    ) -> Any:
        return self._keep(req, kwargs, lambda: cache(tree_cache, req, *args, **kwargs))

    def keep_unfinished(self, keep: Callable[..., Any], req: Any, *args: Any, **kwargs: Any) -> Any:
        return self._keep(req, kwargs, lambda: keep(req, *args, **kwargs))

    def _keep(self, req: Any, kwargs: dict[str, Any], keep: Callable[[], Any]) -> Any:
        """A request that goes on: its KV goes into the tree, or its chunk is kept by its row alone."""
        self._steps.write_results_up_to(req)
        if parts := self._parts(req, self._release.kept_len(req)):
            raise parts  # what it does meanwhile would be told before it
        release, session = self._release, session_of(req)
        row, is_chunk = release.row(req), release.is_chunk(req, kwargs)
        with self._actions.open("keep") as action:
            result = keep()
        if action.inserted is not None:
            params = {"dup_len": action.inserted.prefix_len}
            committed_len, _, protected_len = release.lengths_of(req)
            if release.kept_len(req) != committed_len:  # with overlap the next step is prepared already
                params["key_len"] = release.kept_len(req)
            self._notes.turn_event(
                "insert",
                req,
                session,
                row=row,
                params=params,
                **action.freed,
                shared=self._observe.pages_of_row(row, 0, protected_len),
                after=self._observe.turn(req, prefix=True),
            )
        elif is_chunk:
            self._notes.turn_event("stash", req, session, row=row, after=self._observe.turn(req, prefix=True))
        return result

    def _parts(self, req: Any, key_len: int) -> UserError | None:
        """Why the tree would take less of this request than its whole pages, if it would."""
        parts_at, protected_len = self._release.parts_at(req), self._release.lengths_of(req)[2]
        if parts_at is None or parts_at <= protected_len or parts_at + self._observe.page_size > key_len:
            return None
        return UserError(
            f"the tree takes {req.rid} up to token {parts_at} of {key_len} only, where it parts from a prefix that has lost its "
            "window pages: a trace has no event for that yet"
        )

    def evict_swa(
        self, evict: Callable[..., Any], batch: Any, req: Any, pre_len: int, *args: Any, **kwargs: Any
    ) -> Any:
        return self._window(req, pre_len, lambda: evict(batch, req, pre_len, *args, **kwargs))

    def evict_window(self, evict: Callable[..., Any], req: Any, pre_len: int, *args: Any, **kwargs: Any) -> Any:
        return self._window(req, pre_len, lambda: evict(req, pre_len, *args, **kwargs))

    def _window(self, req: Any, pre_len: int, evict: Callable[[], Any]) -> Any:
        """Slots behind the window are freed; most calls find none to free, and those are no event."""
        before = self._release.window_cursor(req)
        with self._actions.open("window") as action:
            result = evict()
        if self._release.window_cursor(req) != before or action.window_free:
            self._notes.turn_event(
                "window",
                req,
                session_of(req),
                row=self._release.row(req),
                params={"pre_len": pre_len},
                window_free=action.window_free,
                after=self._observe.lengths(req),
            )
        return result

    # -- ends --

    def release(self, release: Callable[..., Any], req: Any, *args: Any, **kwargs: Any) -> Any:
        if self._actions.is_in(RETRACT):
            return release(req, *args, **kwargs)
        self._steps.write_results_up_to(req)
        session, parts = session_of(req), self._parts(req, self._release.lengths_of(req)[0])
        params: Values = {"finished_len": _finished_len(req)}
        with self._actions.open("release_kv_cache") as action:
            result = release(req, *args, **kwargs)
        if parts and action.inserted is not None:
            raise parts
        if session is None or action.inserted is not None:
            params["inserted"] = action.inserted is not None
            params["dup_len"] = action.inserted.prefix_len if action.inserted is not None else 0
        if session is not None and _is_aborted(req):
            self._notes.turn_event("abort", req, session, turn_ended=True, params=params, **action.freed)
            return result
        self._notes.turn_event("finish", req, session, turn_ended=True, params=params, **action.freed)
        return result

    def retract(
        self, release: Callable[..., Any], batch: Any, idx: int, remaining_req_count: int, *args: Any, **kwargs: Any
    ) -> Any:
        """A running request gives its pages back: retracted, or given up when it does not even fit alone."""
        req = batch.reqs[idx]
        session = session_of(req)
        with self._actions.open(RETRACT) as action:
            result = release(batch, idx, remaining_req_count, *args, **kwargs)
        if remaining_req_count:
            after = self._observe.lengths_after_retract(req)
            self._notes.turn_event("retract", req, session, **action.freed, after=after)
        elif session is not None:
            self._notes.turn_event("abort", req, session, turn_ended=True, **action.freed)
        else:
            params = {"finished_len": len(req.output_ids), "inserted": False, "dup_len": 0}
            self._notes.turn_event("finish", req, None, params=params, **action.freed)
        self._actions.write_evicted_after(action)
        return result


def _finished_len(req: Any) -> int:
    return int(req.finished_len) if req.finished_len is not None else len(req.output_ids)


def _is_aborted(req: Any) -> bool:
    from sglang.srt.managers.schedule_batch import FINISH_ABORT

    return isinstance(req.finished_reason, FINISH_ABORT)
