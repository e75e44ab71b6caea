"""What comes in from clients: sessions that are opened and closed, turns and requests that arrive, aborts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvproof.conformance.adapters.method_hooks import code_of, is_called_by
from kvproof.conformance.adapters.scheduler_actions import SchedulerAction, SchedulerActions
from kvproof.conformance.adapters.sglang.event_records import EventRecords
from kvproof.conformance.adapters.sglang.observe import Observer, session_of
from kvproof.conformance.adapters.sglang.releases import Release


class Arrivals:
    def __init__(self, release: Release, observe: Observer, events: EventRecords, actions: SchedulerActions) -> None:
        self._release = release
        self._observe = observe
        self._events = events
        self._actions = actions
        self._reaper = (code_of(release.load("session_controller"), "maybe_reap"),)
        self._refused_at_create: set[str] = set()
        self._not_arrived: set[str] = set()
        self._released: dict[str, SchedulerAction] | None = None
        """while an abort is running: what slots of sessions gave back, by the session's id"""

    # -- sessions --

    def open(self, open_: Callable[..., Any], controller: Any, request: Any) -> Any:
        known = request.session_id in controller.sessions
        output = open_(controller, request)
        session = controller.sessions.get(request.session_id)
        if not known and session is not None and session.streaming:
            self._events.session_event("open", session)
        return output

    def close(self, close: Callable[..., Any], controller: Any, session_id: str) -> Any:
        session, slot = controller.sessions[session_id], self._observe.held_slot(session_id)
        if not session.streaming:
            return close(controller, session_id)
        row = self._release.row(slot) if slot is not None else None
        with self._actions.open("close") as action:
            result = close(controller, session_id)
        # The reaper tries every waiting close at every round; only the round that carries it out is an event.
        if session_id not in controller.sessions or not is_called_by(self._reaper):
            self._events.session_event("close", session, turn_ended=True, row=row, **action.freed)
        return result

    def release(self, release: Callable[..., Any], cache: Any, session_id: str) -> Any:
        """A session gives up its slot: with its close, or because its retracted turn is aborted in the queue."""
        if self._released is None:
            return release(cache, session_id)
        with self._actions.open("release") as action:
            self._released[session_id] = action
            return release(cache, session_id)

    # -- turns and requests --

    def create(self, create: Callable[..., Any], session: Any, *args: Any, **kwargs: Any) -> Any:
        req = create(session, *args, **kwargs)
        if req.to_finish is not None or req.finished_reason is not None:
            self._refused_at_create.add(req.rid)
        return req

    def generate(self, handle: Callable[..., Any], scheduler: Any, message: Any) -> Any:
        named = message.session_params.id if message.session_params is not None else None
        session = scheduler.session_controller.get(named) if named is not None else None
        result = handle(scheduler, message)
        req = next((req for req in reversed(scheduler.waiting_queue) if req.rid == message.rid), None)
        if req is None:
            return result
        if session is None or not session.streaming:
            self._arrive(req)
            return result
        admitted = session_of(req) is session and req.rid not in self._refused_at_create
        if not admitted:
            self._not_arrived.add(req.rid)
        self._events.session_event(
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

    def detach(self, req: Any) -> None:
        """The turn lost its session: what becomes of it is a new request."""
        self._not_arrived.add(req.rid)

    def arrive_if_due(self, req: Any) -> bool:
        """A turn that its session refused or cut off continues as an ordinary request when the scheduler takes it up."""
        if req.rid not in self._not_arrived:
            return False
        self._not_arrived.remove(req.rid)
        self._arrive(req)
        return True

    def _arrive(self, req: Any) -> None:
        self._events.event("arrive", turn=req.rid, params={"origin_len": len(req.origin_input_ids)})

    def _pass_by(self, req: Any, session: Any) -> None:
        """How the session stands after the end of a turn that it had refused."""
        params = {"fill_len": len(req.origin_input_ids)}
        self._events.turn_event("match", req, session, params=params, after={"attached": False, "lent": False})

    def abort(self, abort: Callable[..., Any], scheduler: Any, message: Any) -> Any:
        """What waits is gone at once. What runs ends later: that it is to end is an event of its own."""
        queued = [(req, session_of(req)) for req in scheduler.waiting_queue]
        self._released = {}
        try:
            result = abort(scheduler, message)
        finally:
            released, self._released = self._released, None
        still_queued = set(scheduler.waiting_queue)
        for req, session in reversed(queued):
            if req not in still_queued:
                # A refused turn that the scheduler never took up was never a turn of its session.
                refused = self.arrive_if_due(req)
                slot = released.get(session.session_id) if session is not None else None
                freed = slot.freed if slot is not None else {}
                self._events.turn_event("abort", req, None if refused else session, turn_ended=True, **freed)
                if refused and session is not None and session.session_id in scheduler.session_controller.sessions:
                    self._pass_by(req, session)
        for req in _not_over(scheduler):
            if getattr(message, "abort_all", False) or req.rid.startswith(message.rid):
                session = session_of(req)
                self._events.event(
                    "ask_abort", session=session.session_id if session is not None else None, turn=req.rid
                )
        return result


def _not_over(scheduler: Any) -> list[Any]:
    """Requests that run, whether the scheduler finds them when it has to abort them or not."""
    batches = (scheduler.running_batch, scheduler.last_batch)
    reqs = [req for batch in batches if batch is not None for req in batch.reqs]
    reqs += [scheduler.chunked_req] if scheduler.chunked_req is not None else []
    return [req for req in dict.fromkeys(reqs) if not req.finished()]
