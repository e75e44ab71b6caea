"""Rounds of speculation, version 1: drafted and verified in one pass, with nothing in flight.

The drafts' slots are taken, written into the rows and put back by restoring the free list; then the target verifies, on slots
that are taken anew, and those of the rejected drafts are freed. The first leaves no trace, the second is the event `verify`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvproof.conformance.adapters.scheduler_actions import SchedulerActions
from kvproof.conformance.adapters.sglang.event_records import EventRecords
from kvproof.conformance.adapters.sglang.observe import Observer, session_of
from kvproof.conformance.adapters.sglang.releases import Release

VERIFY = "verify"


@dataclass(frozen=True)
class _Taken:
    """What a request took for its round, page by page; `output_len`: of before."""

    output_len: int
    pages: list[int]
    window_pages: list[int]


class Verifying:
    """Handlers of `EAGLEWorker.verify` and of `EagleVerifyInput.prepare_for_verify`, which it calls."""

    def __init__(self, release: Release, observe: Observer, events: EventRecords, actions: SchedulerActions) -> None:
        self._release, self._observe, self._events, self._actions = release, observe, events, actions
        self._taken: dict[str, _Taken] = {}

    def prepare(self, prepare: Callable[..., Any], drafts: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        result = prepare(drafts, batch, *args, **kwargs)
        room = drafts.draft_token_num
        for req, (_, allocated, _) in zip(batch.reqs, self._release.lengths(batch.reqs), strict=True):
            row = self._release.row(req)
            self._taken[req.rid] = _Taken(
                len(req.output_ids),
                self._observe.new_pages(row, allocated, allocated + room),
                self._observe.new_window_pages(row, allocated, allocated + room),
            )
        return result

    def verify(self, verify: Callable[..., Any], worker: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        reqs = list(batch.reqs)
        with self._actions.open(VERIFY) as action:
            result = verify(worker, batch, *args, **kwargs)
        self._observe.page_ids.settle(wait=True)
        free = _shared_out(action.free, {rid: taken.pages for rid, taken in self._taken.items()})
        window_free = _shared_out(action.window_free, {rid: taken.window_pages for rid, taken in self._taken.items()})
        for req in reqs:
            taken = self._taken.pop(req.rid)
            self._events.turn_event(
                VERIFY,
                req,
                session_of(req),
                row=self._release.row(req),
                params={"tokens": len(req.output_ids) - taken.output_len},
                alloc=taken.pages,
                window_alloc=taken.window_pages,
                free=free.get(req.rid, []),
                window_free=window_free.get(req.rid, []),
                after=self._observe.turn(req, prefix=False),
            )
        return result


def _shared_out(freed: list[int], taken: dict[str, list[int]]) -> dict[str, list[int]]:
    """A batch frees in one call. A page that nobody took for this round goes to the first, so that its free is not lost."""
    owner = {page: rid for rid, pages in taken.items() for page in pages}
    somebody = next(iter(taken), "")
    shares: dict[str, list[int]] = {}
    for page in freed:
        shares.setdefault(owner.get(page, somebody), []).append(page)
    return shares
