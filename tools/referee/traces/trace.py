"""A trace as its records, to be edited: found, removed, inserted, renamed, and written as lines again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Event = dict[str, Any]
Test = Callable[[Event], bool]

PAGES_OF_EVENT = ("alloc", "free", "shared", "free_list")
WINDOW_PAGES_OF_EVENT = ("window_alloc", "window_free", "window_free_list")


def anything(event: Event) -> bool:
    return True


class Trace:
    """Header, events and end record. What is written counts its events anew, unless an edit turns `is_counted` off.

    The end record states nothing of its contents: who alters a trace leaves the digest out, and must be found all the same.
    """

    def __init__(self, text: str) -> None:
        self.header, *rest = map(json.loads, text.splitlines())
        self.events: list[Event] = [record for record in rest if record["record"] == "event"]
        self.end: dict[str, Any] | None = next((record for record in rest if record["record"] == "end"), None)
        if self.end is not None:
            self.end = {name: value for name, value in self.end.items() if name not in ("actions", "sha256")}
        self.is_counted = True
        self.behind: list[dict[str, Any]] = []
        """Records behind the end record."""

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.header["config"]
        return config

    def all(self, *actions: str, where: Test = anything) -> list[Event]:
        """Events of these actions, of any where none is named. Raises LookupError if there is none."""
        found = [e for e in self.events if (not actions or e["action"] in actions) and where(e)]
        if not found:
            raise LookupError(f"the trace has no such event: {', '.join(actions)}")
        return found

    def first(self, action: str, where: Test = anything) -> Event:
        return self.all(action, where=where)[0]

    def last(self, action: str, where: Test = anything) -> Event:
        return self.all(action, where=where)[-1]

    def place(self, event: Event) -> int:
        return next(place for place, other in enumerate(self.events) if other is event)

    def after(self, event: Event) -> list[Event]:
        return self.events[self.place(event) + 1 :]

    def next_of(self, event: Event, *actions: str, where: Test = anything) -> Event:
        """The next event of these actions behind this one."""
        return next(e for e in self.after(event) if e["action"] in actions and where(e))

    def next_of_turn(self, event: Event, *actions: str) -> Event:
        return self.next_of(event, *actions, where=lambda e: e.get("turn") == event.get("turn"))

    def remove(self, *events: Event) -> None:
        gone = {id(event) for event in events}
        self.events = [event for event in self.events if id(event) not in gone]

    def insert_after(self, event: Event, *new: Event) -> None:
        place = self.place(event) + 1
        self.events[place:place] = [{"record": "event", "seq": -1, "step": event.get("step"), **one} for one in new]

    def append(self, *new: Event) -> None:
        self.insert_after(self.events[-1], *new)

    def repeat(self, event: Event) -> None:
        self.insert_after(event, json.loads(json.dumps(event)))

    def swap(self, one: Event, other: Event) -> None:
        here, there = self.place(one), self.place(other)
        self.events[here], self.events[there] = other, one

    def cut_behind(self, event: Event) -> None:
        """The events behind this one were never written."""
        self.events = self.events[: self.place(event) + 1]

    def forget(self, *names: str, where: Test = anything) -> None:
        """These fields of `after` were never observed. Raises LookupError if none of them was."""
        gone = [
            event["after"].pop(name, None)
            for event in self.events
            if where(event) and "after" in event
            for name in names
        ]
        if all(value is None for value in gone):
            raise LookupError(f"no event has {', '.join(names)}")

    def rename_pages(self, names: dict[int, int], events: Iterable[Event] | None = None) -> None:
        _rename(self.events if events is None else events, PAGES_OF_EVENT, names)

    def rename_window_pages(self, names: dict[int, int], events: Iterable[Event] | None = None) -> None:
        _rename(self.events if events is None else events, WINDOW_PAGES_OF_EVENT, names)

    def text(self) -> str:
        return "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in self._records())

    def _records(self) -> Iterator[dict[str, Any]]:
        yield self.header
        if self.is_counted:
            self._count()
        yield from self.events
        if self.end is not None:
            yield self.end
        yield from self.behind

    def _count(self) -> None:
        numbers = {event["seq"]: number for number, event in enumerate(self.events)}
        for number, event in enumerate(self.events):
            event["seq"] = number
            if event.get("cause") in numbers:
                event["cause"] = numbers[event["cause"]]
        if self.end is not None:
            self.end["events"] = len(self.events)


def _rename(events: Iterable[Event], fields: tuple[str, ...], names: dict[int, int]) -> None:
    for event in events:
        for name in fields:
            if event.get(name):
                event[name] = [names.get(page, page) for page in event[name]]


def has(name: str) -> Test:
    """Events with something in this field."""
    return lambda event: bool(event.get(name))


def of_session(event: Event) -> bool:
    return "session" in event


def of_no_session(event: Event) -> bool:
    return "session" not in event and "turn" in event
