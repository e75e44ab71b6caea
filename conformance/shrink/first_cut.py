"""The first cut into a long trace: the life of the session or request that the finding is about, and the lives that it rests on.

A life rests on another where it reads pages of the tree that the other one took from the pool. What happened to other pages does
not matter to it: to a replay that never heard of them they are free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kvproof.conformance.replay.replayer import own_ledger
from kvproof.spec.trace import Event

_BEGINS, _ENDS = ("open", "arrive"), ("finish", "abort", "close")


@dataclass
class Lives:
    """Who lived when, and who rests on whom, as events come in order."""

    owner_of: dict[int, int] = field(default_factory=dict)
    """Of each page the life that took it last."""
    window_owner_of: dict[int, int] = field(default_factory=dict)
    rests_on: dict[int, set[int]] = field(default_factory=dict)
    last_seq: list[int] = field(default_factory=list)
    """Of each life its last event."""
    open: set[int] = field(default_factory=set)
    """Lives that did not end so far."""
    _life_of: dict[str, int] = field(default_factory=dict)
    _key_of_turn: dict[str, str] = field(default_factory=dict)

    def tell(self, event: Event) -> int | None:
        """The life that an event belongs to; None for one of the tree, or a memory check."""
        life = self._life(event)
        if life is None:
            return None
        rests_on = {self.owner_of[page] for page in event.shared or () if page in self.owner_of} - {life}
        if rests_on:
            self.rests_on.setdefault(life, set()).update(rests_on)
        self.owner_of.update(dict.fromkeys(event.alloc, life))
        self.window_owner_of.update(dict.fromkeys(event.window_alloc, life))
        self.last_seq[life] = event.seq
        is_over = event.action in _ENDS and (event.session is None or event.action == "close")
        (self.open.discard if is_over else self.open.add)(life)
        return life

    def concerned_by(self, event: Event) -> set[int]:
        """Those that had the pages of an event before it."""
        pages = (*event.alloc, *event.free, *(event.shared or ()))
        windows = (*event.window_alloc, *event.window_free)
        of_windows = {self.window_owner_of[page] for page in windows if page in self.window_owner_of}
        return {self.owner_of[page] for page in pages if page in self.owner_of} | of_windows

    def with_what_they_rest_on(self, lives: Iterable[int]) -> set[int]:
        found: set[int] = set()
        left = list(lives)
        while left:
            life = left.pop()
            if life not in found:
                found.add(life)
                left += self.rests_on.get(life, ())
        return found

    def _life(self, event: Event) -> int | None:
        if event.session is not None:
            key = f"session {event.session}"
            if event.turn is not None:
                self._key_of_turn.setdefault(event.turn, key)
        elif event.turn is not None:
            key = own_ledger(event.turn)
            if event.action != "arrive":
                key = self._key_of_turn.get(event.turn, key)
            self._key_of_turn[event.turn] = key
        else:
            return None
        if event.action in _BEGINS or key not in self._life_of:
            self._life_of[key] = len(self.last_seq)
            self.last_seq.append(event.seq)
        return self._life_of[key]


def kept(events: Iterable[Event], lives: set[int]) -> Iterator[tuple[int | None, Event]]:
    """The events of some lives, each with its life, and what the tree evicts of their pages. Memory checks are left out."""
    told = Lives()
    for event in events:
        life = told.tell(event)
        if life is not None and life in lives:
            yield life, event
        elif event.action == "evict":
            pages = tuple(page for page in event.free if told.owner_of.get(page) in lives)
            windows = tuple(page for page in event.window_free if told.window_owner_of.get(page) in lives)
            if pages or windows:
                yield None, event.model_copy(update={"free": pages, "window_free": windows})
