"""Names, pages and rows numbered anew, in the order in which a trace first says them: nothing of who sent it is left."""

from __future__ import annotations

from collections.abc import Sequence

from kvproof.spec.trace import Event


class _Numbers:
    """Each name gets the next number."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._numbers: dict[object, int] = {}

    def __getitem__(self, name: object) -> int:
        return self._numbers.setdefault(name, self._first + len(self._numbers))


def renamed(events: Sequence[Event]) -> list[Event]:
    """The events with new names. Page 0 stays: it is the padding page. Lists of free pages are left out."""
    sessions, turns, rows = _Numbers(0), _Numbers(0), _Numbers(0)
    pages, windows = _Numbers(1), _Numbers(1)
    told = []
    for event in events:
        new: dict[str, object] = {
            "session": None if event.session is None else f"s{sessions[event.session]}",
            "turn": None if event.turn is None else f"r{turns[event.turn]}",
            "row": None if event.row is None else rows[event.row],
            "free_list": None,
            "window_free_list": None,
        }
        for names, numbers in ((("alloc", "free", "shared"), pages), (("window_alloc", "window_free"), windows)):
            for name in names:
                said = getattr(event, name)
                new[name] = said and tuple(page and numbers[page] for page in said)
        told.append(event.model_copy(update=new))
    return told
