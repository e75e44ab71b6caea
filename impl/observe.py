"""What an onlooker gets: one event when a step of a request's life is complete. No event decides anything.

The field names are those of docs/events.md. Lengths are in tokens, pages are page ids.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

from kvproof.impl.chunk_cache import Inserted
from kvproof.impl.page_moves import Moved, PageMoves, Pages
from kvproof.impl.request import Request, Session
from kvproof.impl.session import StreamingSessionCache

Observed = dict[str, int | bool]


@dataclass(frozen=True)
class Event:
    action: str
    step: int
    session: str | None = None
    turn: str | None = None
    row: int | None = None
    params: Observed = field(default_factory=dict)
    alloc: Pages = ()
    free: Pages = ()
    shared: Pages | None = None
    window_alloc: Pages = ()
    window_free: Pages = ()
    after: Observed = field(default_factory=dict)
    terms: dict[str, int] | None = None
    free_list: Pages | None = None
    window_terms: dict[str, int] | None = None
    window_free_list: Pages | None = None


class Observer(Protocol):
    def on_event(self, event: Event) -> None: ...


class Reporter:
    """Describes each step to the observer: reads the state as it is after the step, and takes the pages that moved."""

    step = 0

    def __init__(self, observer: Observer, cache: StreamingSessionCache, moves: PageMoves) -> None:
        self._observer = observer
        self._cache = cache
        self._moves = moves
        self._prefixes: dict[bytes, int] = {}
        """Digest of the tokens of a prefix -> its number, in order of appearance."""

    def open(self, session: Session) -> None:
        self._report("open", session)

    def create(self, session: Session, req: Request, *, admitted: bool) -> None:
        params: Observed = {
            "origin_len": len(req.origin_input_ids),
            "admitted": admitted,
            "too_long": req.is_too_long,
            "logprob": req.logprob_start_len is not None,
        }
        self._report("create", session, req, params=params, after={"attached": admitted})

    def arrive(self, req: Request) -> None:
        self._report("arrive", None, req, params={"origin_len": len(req.origin_input_ids)})

    def detached(self, session: Session, req: Request) -> None:
        """The match of a turn that left its session: it reused nothing, so the turn has no lengths to show."""
        self._report("match", session, req, params={"fill_len": len(req.fill_ids)}, after={"attached": False})

    def match(self, req: Request) -> None:
        found = {"attached": req.session is not None, "lent": req.lent, "prefix_len": req.prefix_len}
        row = req.req_pool_idx if req.lent else None
        params: Observed = {"fill_len": len(req.fill_ids)}
        self._report("match", req.session, req, row=row, params=params, after={**found, **_kv_lengths(req)})

    def extend(self, req: Request, *, seq_len: int, shared: Pages | None) -> None:
        params: Observed = {"seq_len": seq_len, "last": seq_len == len(req.fill_ids)}
        if shared:
            params["prefix_id"] = self._prefix_id(req.fill_ids[: req.cache_protected_len])
        self._report_row("extend", req, _prefill_lengths(req), params, shared)

    def stash(self, req: Request) -> None:
        self._report_row("stash", req, _prefill_lengths(req))

    def insert(self, req: Request, inserted: Inserted, *, shared: Pages) -> None:
        """`key_len` is said where a decode was prepared already, so that C is more than what was inserted."""
        params: Observed = {"dup_len": inserted.dup_len}
        if inserted.key_len != req.kv_committed_len:
            params["key_len"] = inserted.key_len
        if req.cache_protected_len:
            params["prefix_id"] = self._prefix_id(req.fill_ids[: req.cache_protected_len])
        self._report_row("insert", req, _prefill_lengths(req), params, shared)

    def decode(self, req: Request) -> None:
        self._report_row("decode", req, _run_lengths(req))

    def result(self, req: Request, tokens: int) -> None:
        self._report("result", req.session, req, params={"tokens": tokens}, after=_run_lengths(req))

    def late_result(self, req: Request, tokens: int) -> None:
        """The request does not run any more: it has no lengths to show."""
        self._report("result", req.session, req, params={"tokens": tokens})

    def take_draft_pages(self) -> Moved:
        """The pages that were just taken for a request's drafts: its `verify` reports them."""
        return self._moves.take()

    def verify(self, req: Request, tokens: int, draft_pages: Moved) -> None:
        self._moves.alloc[:0] = draft_pages.alloc
        self._moves.window_alloc[:0] = draft_pages.window_alloc
        self._report_row("verify", req, _run_lengths(req), {"tokens": tokens})

    def finish_turn(self, session: Session, req: Request) -> None:
        self._report("finish", session, req, params={"finished_len": len(req.output_ids)})

    def finish_ordinary(self, req: Request, inserted: Inserted | None) -> None:
        params: Observed = {
            "finished_len": len(req.output_ids),
            "dup_len": 0 if inserted is None else inserted.dup_len,
            "inserted": inserted is not None,
        }
        key_len = 0 if inserted is None else inserted.key_len - inserted.key_len % self._cache.page_size
        tokens = req.origin_input_ids + req.output_ids
        if 0 < key_len <= len(tokens):  # more: a round overshot, and that was cut off
            params["prefix_id"] = self._prefix_id(tokens[:key_len])
        self._report("finish", None, req, params=params)

    def retract(self, req: Request) -> None:
        self._report("retract", req.session, req, after=_kv_lengths(req))

    def abort(self, session: Session | None, req: Request) -> None:
        self._report("abort", session, req)

    def close(self, session: Session, row: int | None) -> None:
        self._report("close", session, row=row)

    def window(self, req: Request, pre_len: int) -> None:
        self._report_row("window", req, _kv_lengths(req), {"pre_len": pre_len})

    def evict(self) -> None:
        self._report("evict")

    def check(self, *, busy: bool, **found: Any) -> None:
        """`found`: terms and free lists of both pools, by their names in `Event`."""
        self._observer.on_event(Event("check", self.step, params={"busy": busy}, **found))

    def _report_row(
        self,
        action: str,
        req: Request,
        after: Observed,
        params: Observed | None = None,
        shared: Pages | None = None,
    ) -> None:
        """What a request did on its row."""
        self._report(action, req.session, req, row=req.req_pool_idx, params=params, shared=shared, after=after)

    def _report(
        self,
        action: str,
        session: Session | None = None,
        req: Request | None = None,
        *,
        row: int | None = None,
        params: Observed | None = None,
        shared: Pages | None = None,
        after: Observed | None = None,
    ) -> None:
        moved = self._moves.take()
        seen = self._session_state(session) if session is not None else {}
        self._observer.on_event(
            Event(
                action,
                self.step,
                session=session.session_id if session is not None else None,
                turn=req.rid if req is not None else None,
                row=row,
                params=params or {},
                alloc=moved.alloc,
                free=moved.free,
                shared=shared,
                window_alloc=moved.window_alloc,
                window_free=moved.window_free,
                after={**seen, **(after or {})},
            )
        )

    def _prefix_id(self, token_ids: Sequence[int]) -> int:
        """The same number for the same tokens: an onlooker gets no token."""
        digest = blake2b(array("q", token_ids).tobytes(), digest_size=16).digest()
        return self._prefixes.setdefault(digest, len(self._prefixes) + 1)

    def _session_state(self, session: Session) -> Observed:
        state: Observed = {
            "inflight": session.inflight,
            "closing": session.close_on_finish,
            "checkpoint_len": len(session.checkpoint_ids),
        }
        slot = self._cache.slots.get(session.session_id)
        state["slot_held"] = slot is not None and slot.is_holding_kv
        if slot is not None and slot.is_holding_kv:
            state["slot_kv_committed_len"] = slot.kv_committed_len
            state["slot_kv_allocated_len"] = slot.kv_allocated_len
            state["slot_cache_protected_len"] = slot.cache_protected_len
            state["slot_swa_evicted_seqlen"] = slot.swa_evicted_seqlen
        return state


class Unheard(Reporter):
    """Nobody listens: no event is made."""

    def __init__(self) -> None:
        pass

    def finish_ordinary(self, req: Request, inserted: Inserted | None) -> None:
        pass

    def decode(self, req: Request) -> None:
        pass

    def result(self, req: Request, tokens: int) -> None:
        pass

    def take_draft_pages(self) -> Moved:
        return Moved()

    def verify(self, req: Request, tokens: int, draft_pages: Moved) -> None:
        pass

    def check(self, **_: object) -> None:
        pass

    def _report(self, action: str, *_: object, **__: object) -> None:
        pass

    def _prefix_id(self, token_ids: Sequence[int]) -> int:
        return 0


def _kv_lengths(req: Request) -> Observed:
    return {
        "kv_committed_len": req.kv_committed_len,
        "kv_allocated_len": req.kv_allocated_len,
        "cache_protected_len": req.cache_protected_len,
        "swa_evicted_seqlen": req.swa_evicted_seqlen,
    }


def _run_lengths(req: Request) -> Observed:
    return {**_kv_lengths(req), "output_len": len(req.output_ids)}


def _prefill_lengths(req: Request) -> Observed:
    return {"prefix_len": req.prefix_len, **_run_lengths(req)}
