"""Which events of a trace belong to a slice: a window of it, a session's events, the events around a page."""

from __future__ import annotations

from collections.abc import Iterator

from kvproof.conformance.traces.json_lines import TraceReader
from kvproof.conformance.traces.slices import Slice
from kvproof.spec.trace import Event

_ENDS_OF_A_REQUEST = ("finish", "abort", "retract")


def turns_in(reader: TraceReader, part: Slice) -> set[str]:
    """The turns that events of a slice name."""
    return {event.turn for event in Cut(reader, part) if event.turn is not None}


class SessionFollower:
    """Follows one session: its events, and those of its turns once they go on without it."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._turns: set[str] = set()

    def keeps(self, event: Event) -> bool:
        """Whether the event is the session's. To be asked of every event, in order."""
        if event.session == self._session:
            if event.turn is not None:
                self._turns.add(event.turn)
            return True
        return event.session is None and event.turn in self._turns


class PageFollower:
    """Follows one page of the full pool: the events that move it, and all events of who holds it meanwhile.

    Who took or shared the page holds it until the page is freed, or until the holder itself ends: an ordinary request at
    finish, abort or retract, a session at its close. What the tree keeps has no events of its own; evict names the page.
    A holder may be followed a little longer than it held the page (its slot may have been freed without it): a slice
    shows rather too much than too little.
    """

    def __init__(self, page: int) -> None:
        self._page = page
        # An event that names no session (or no turn) has None there, which never is a holder.
        self._sessions: set[str | None] = set()
        self._turns: set[str | None] = set()

    def keeps(self, event: Event) -> bool:
        """Whether the event moves the page or is of a holder. To be asked of every event, in order."""
        taken = self._page in event.alloc or self._page in (event.shared or ())
        freed = self._page in event.free
        kept = taken or freed or event.session in self._sessions or event.turn in self._turns
        if freed:
            self._sessions.clear()
            self._turns.clear()
        if event.action == "close":
            self._sessions.discard(event.session)
        if event.session is None and event.action in _ENDS_OF_A_REQUEST:
            self._turns.discard(event.turn)
        elif taken:
            self._sessions |= {event.session} - {None}
            self._turns |= {event.turn} - {None}
        return kept


class Cut:
    """The events of a trace that are in a slice, to be iterated over once."""

    def __init__(self, reader: TraceReader, part: Slice) -> None:
        self._reader, self._part = reader, part
        self._seen = -1

    def __iter__(self) -> Iterator[Event]:
        part = self._part
        followers: list[SessionFollower | PageFollower] = [
            *([SessionFollower(part.session)] if part.session is not None else []),
            *([PageFollower(part.page)] if part.page is not None else []),
        ]
        # A follower has to see what happened before the window: who held the page then.
        for event in self._reader.events_from(0 if followers else part.first):
            if part.last is not None and event.seq > part.last:
                return
            self._seen = event.seq
            kept = [follower.keeps(event) for follower in followers]
            if event.seq >= part.first and all(kept):
                yield event

    @property
    def whole(self) -> bool:
        """Whether the trace held all that the slice asks for; if not, it broke off before."""
        return self._reader.complete or (self._part.last is not None and self._seen >= self._part.last)

    @property
    def end(self) -> tuple[str, int]:
        """Reason and dropped events of the end record. Only what reaches the trace's own end may end as it does."""
        end = self._reader.end
        if end is not None and self._part.starts_from_nothing:
            return end.reason, end.dropped
        return f"a slice, cut after event {self._seen}", end.dropped if end is not None else 0
