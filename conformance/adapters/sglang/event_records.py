"""Puts events down: what is seen of the session and the turn that an event is about, under the event's name.

Events that are rare come with their names, as dicts; the decode steps and results of a whole batch are put down as tuples
(`steps.py`). `live/assembly.py` makes events of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvproof.conformance.adapters.live.readings import Values
from kvproof.conformance.adapters.sglang.observe import Observer

Put = Callable[[Any], Any]


class EventRecords:
    """`put` takes what was seen; `step` tells the number of the scheduler's step, for people."""

    def __init__(self, observe: Observer, put: Put, step: Callable[[], int]) -> None:
        self._observe = observe
        self.put = put
        self.step = step
        self.sessions_are_known = False
        """While batches only decode, nothing touches a session: its values are read again after every other event."""

    def event(self, action: str, **fields: Any) -> None:
        self.sessions_are_known = False
        self.put({"action": action, "step": self.step(), **fields})

    def session_event(
        self, action: str, session: Any, *, turn_ended: bool = False, after: Values | None = None, **fields: Any
    ) -> None:
        seen = {**self._observe.session(session, turn_ended=turn_ended), **(after or {})}
        self.event(action, session=session.session_id, after=seen, **fields)

    def turn_event(
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
            self.event(action, turn=req.rid, after=after or {}, **fields)
        else:
            self.session_event(action, session, turn_ended=turn_ended, turn=req.rid, after=after, **fields)
