"""How a claim about a function of SGLang is made: where the function is, what is called, what is looked at, what is assumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.layout import CACHES, splits_at_cursor
from kvproof.conformance.adapters.sglang.code.session import KEEPS_LOCK, NO_EMPTY_SLOT, ON_BOUNDARY, SessionScene
from kvproof.model.code.claims import Claim, Rule
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.source import Sources
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import Action
from kvproof.spec.domain import is_aligned
from kvproof.spec.state import Ledger

Act = Callable[[Any], Any]
Shows = Callable[[Any, Any], Mapping[str, Any]]
"""Of a scene: a `SessionScene`, or the `kind` that the claim names."""
Given = Callable[[Symbols, Ledger], tuple[Any, ...]]
Places = Mapping[str, str]
"""Module to function, by release: the first that a tree has is meant."""

YES = z3.BoolVal(True)
RIGHT = dict.fromkeys(
    ("window pages are freed once", "unlocked as locked", KEEPS_LOCK, NO_EMPTY_SLOT, ON_BOUNDARY), YES
)
"""What is looked at wherever a slot is, beside the fields of the ledger."""
ASSUMED = (
    "a slot is in `slots` exactly while it holds a row; where a cache owns the sessions, also while a first turn runs",
    "slot and turn hold the lock of one tree node",
    "there is no pool for state spaces, and no second window",
    "no module that is not read changes a function or a class that is read",
)


@dataclass(frozen=True)
class Release:
    """A tree of SGLang with a session cache, and the rules that it must follow."""

    sources: Sources
    actions: Mapping[str, Action]
    module: str
    cache: str
    """The module and the class of the session cache."""
    splits_at_cursor: bool = False
    """It frees a row in two parts, below and above the window cursor."""

    @property
    def is_owned(self) -> bool:
        """The cache that owns the sessions asks the session cache first: its methods are named `try_`."""
        return not self.sources.has(self.module, f"{self.cache}.match_prefix")

    def given(self, d: Symbols, s: Ledger) -> tuple[Any, ...]:
        """What a release relies on. One that frees a row in two parts, below and above the window cursor, relies on a cursor
        that stands on a page boundary; that each function keeps it there is part of each claim."""
        if not self.splits_at_cursor:
            return ()
        return is_aligned(d, s.swa_evicted_seqlen), is_aligned(d, s.slot_swa_evicted_seqlen)

    def of_cache(self, function: str) -> Places:
        return {self.module: f"{self.cache}.{function}"}

    def claim(
        self,
        name: str,
        places: Places,
        rule: Rule,
        act: Act,
        shows: Shows,
        *,
        params: Mapping[str, str] | None = None,
        action: str = "",
        assumes: tuple[str, ...] = (),
        kind: type[SessionScene] = SessionScene,
    ) -> Claim:
        """`name` is its own among all claims. `action`: whose rule `rule` is, where the name is another."""
        module, function = self.place_of(places)
        scene = scene_of(act, shows, kind)
        return Claim(name, module, function, rule, params or {}, scene, (*ASSUMED, *assumes), action)

    def place_of(self, places: Places) -> tuple[str, str]:
        """The first that the tree has; where it has none, the first of all."""
        return next((place for place in places.items() if self.sources.has(*place)), next(iter(places.items())))

    def has_any(self, places: Places) -> bool:
        return any(self.sources.has(*place) for place in places.items())


def release_of(sources: Sources, actions: Mapping[str, Action]) -> Release | None:
    """None where the tree holds no session cache that is known."""
    found = next(((name, cache) for name, cache in CACHES.items() if sources.module(name) is not None), None)
    return Release(sources, actions, *found, splits_at_cursor(sources)) if found is not None else None


def scene_of(
    act: Act, shows: Shows, kind: type[SessionScene] = SessionScene
) -> Callable[[Interpreter, Ledger, SimpleNamespace], SessionScene]:
    class Shown(kind):  # type: ignore[misc, valid-type]
        def observed(self, result: Any) -> Mapping[str, Any]:
            return shows(self, result)

    return lambda run, s, p: Shown(run, s, p, act)
