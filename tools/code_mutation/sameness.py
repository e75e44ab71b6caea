"""Whether a mutant does the same as the function as it is, in every state that a claim assumes.

Both run on one path, one after the other, each on objects of its own that are made from the same symbols. Afterwards the solver
is asked whether all that they left is the same: every attribute of every object that can be reached, what was done to pages, rows
and locks, what was returned or raised, and what stand-ins were asked. What is printed is not compared.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

import z3

import kvproof.spec.effects
from kvproof.conformance.adapters.sglang.code.functions import LIBRARIES
from kvproof.conformance.adapters.sglang.code.request_claims import taken
from kvproof.conformance.adapters.sglang.code.stand_ins import Allocator
from kvproof.model.code import arithmetic
from kvproof.model.code.claims import GHOST_SENTENCES, OF_ANOTHER_KIND, Claim, Posed, Scene, pose, with_ghosts_of
from kvproof.model.code.errors import InfeasibleError, NotUnderstoodError, RaisedError
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.library import LIBRARY
from kvproof.model.code.paths import Paths
from kvproof.model.code.source import Module, Sources
from kvproof.model.code.values import Bound, Class, Function, Instance, Known, Library, Opaque
from kvproof.model.symbolic import Symbols
from kvproof.spec.effects import apply_effects
from kvproof.spec.state import Ledger

MISSING = "the attribute is not there"
STAND_INS = "kvproof.conformance.adapters.sglang.code"
NOT_OF_THE_STATE = (Interpreter, Paths, Symbols, Ledger, Module, SimpleNamespace, FunctionType, MethodType)


def differing(claim: Claim, sources: Sources, mutated: Sources, given: Mapping[str, Any]) -> set[str]:
    """The places where the two differ in some state, or where it is not known that they do not. None: they always do the same."""
    posed = pose(claim)
    paths = Paths(posed.assumptions)

    def run() -> set[str]:
        try:
            first = _ended(claim, posed, paths, sources, given)
        except InfeasibleError:
            return set()
        try:
            return _compared(posed, paths, first, _ended(claim, posed, paths, mutated, given))
        except (InfeasibleError, NotUnderstoodError, *OF_ANOTHER_KIND) as unknown:
            return {f"not understood: {unknown}"}

    found = {place for _, places in paths.all(run) for place in places}
    return found | ({"paths that were not followed"} if paths.cut else set())


Call = tuple[str, Any, tuple[Any, ...], dict[str, Any]]
"""Of a stand-in: its function, its object, and the arguments."""


@dataclass(frozen=True)
class Ended:
    """What a run left. `asked`: the calls of stand-ins, by the function that made them."""

    scene: Scene | None
    result: Any
    raised: str | None
    asked: dict[str, list[Call]]


class Watched(Interpreter):
    """Notes what stand-ins are asked: what they do not look at leaves no trace in their state.

    What is freed is not noted. A stand-in looks at all of it, and it is compared by what it does: a free of no page is none.
    Nor is it noted that a setting is read.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked: dict[str, list[Call]] = {}

    def _call_described(self, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        receiver = getattr(function, "__self__", None)
        is_free = isinstance(receiver, Allocator) and function.__name__.startswith("free")
        asker = self.frame.function.name if self.frames and self.frame.function is not None else ""
        asked = (function.__qualname__, receiver, tuple(arguments), dict(keywords))
        result = super()._call_described(function, arguments, keywords)
        is_setting = result is not None and receiver is None and not inspect.signature(function).parameters
        if function.__module__.startswith(STAND_INS) and not is_free and not is_setting:
            self.asked.setdefault(asker, []).append(asked)
        return result


def _ended(
    claim: Claim,
    posed: Posed,
    paths: Paths,
    sources: Sources,
    given: Mapping[str, Any],
) -> Ended:
    run = Watched(posed.d, sources, paths, given, {**LIBRARY, **LIBRARIES})
    scene: Scene | None = None
    try:
        scene = claim.scene(run, posed.before, posed.params)
        return Ended(scene, scene.call(), None, run.asked)
    except RaisedError as raised:
        return Ended(scene, None, raised.name, run.asked)


def _compared(posed: Posed, paths: Paths, first: Ended, second: Ended) -> set[str]:
    if first.raised != second.raised or first.scene is None or second.scene is None:
        return set() if first.raised == second.raised else {"what is raised"}
    walk = Walk(posed.d)
    walk.effects(posed, first.scene, second.scene)
    walk.same("scene", vars(first.scene), vars(second.scene))
    walk.same("result", first.result, second.result)
    for asker in {**first.asked, **second.asked}:
        walk.same(f"what {asker} asks", first.asked.get(asker, []), second.asked.get(asker, []))
    if paths.must(z3.And(*(goal for _, goal in walk.goals))):
        return walk.places
    return walk.places | {where for where, goal in walk.goals if not paths.must(goal)}


class Walk:
    """Goes over what two runs left, side by side. What is the same in both only in some states becomes a goal."""

    def __init__(self, d: Symbols) -> None:
        self.d = d
        self.goals: list[tuple[str, Any]] = [("nothing", z3.BoolVal(True))]
        self.places: set[str] = set()
        """Where the two differ in every state."""
        self._partners: dict[int, tuple[Any, Any]] = {}
        self._taken: dict[int, Any] = {}

    def effects(self, posed: Posed, first: Scene, second: Scene) -> None:
        """By what they do: a free of no page is none. Those of the mutant must be as safe as the claim says of the others."""
        start = with_ghosts_of(posed.expected.after, posed.before)
        one, _ = apply_effects(self.d, start, tuple(first.effects))
        other, conditions = apply_effects(self.d, start, tuple(second.effects))
        self.goals += [(f"effects: {name}", getattr(one, name) == getattr(other, name)) for name in GHOST_SENTENCES]
        self.goals += [(f"effects: {condition.sentence}", condition.holds) for condition in conditions]
        pages = [taken(self.d, scene.effects) for scene in (first, second)]
        self.goals.append(("effects: pages for the tree", pages[0] == pages[1]))
        self._pair(first.effects, second.effects)

    def same(self, where: str, one: Any, other: Any) -> None:
        is_effect = type(one).__module__ == kvproof.spec.effects.__name__  # compared by what it does
        if type(one) is type(other) and (is_effect or isinstance(one, NOT_OF_THE_STATE)):
            return
        if arithmetic.is_flag(one) and arithmetic.is_flag(other):
            self._goal(where, one == other)
        elif arithmetic.is_number(one) and arithmetic.is_number(other):
            try:
                self._goal(where, arithmetic.equal(self.d, one, other))
            except NotUnderstoodError:
                self.places.add(where)
        elif type(one) is not type(other):
            self.places.add(where)
        elif one is None or isinstance(one, str):
            self._must(where, one == other)
        elif isinstance(one, (Known, Library, Class, Function)):
            self._must(where, one.name == other.name)
        elif isinstance(one, Bound):
            self.same(where, (one.function, one.receiver), (other.function, other.receiver))
        elif isinstance(one, tuple) or self._pair(one, other):
            self._inside(where, one, other)
        else:
            self._must(where, self._partners.get(id(one), (None, None))[1] is other)

    def _inside(self, where: str, one: Any, other: Any) -> None:
        if isinstance(one, (list, tuple)):
            self._must(where, len(one) == len(other))
            for pair in zip(one, other, strict=False):
                self.same(where, *pair)
        elif isinstance(one, dict):
            self._must(where, len(one) == len(other))
            for key, partner in zip(one, other, strict=False):
                self.same(where, key, partner)
                self.same(f"{where}.{key}" if isinstance(key, str) else where, one[key], other[partner])
        elif isinstance(one, Instance):
            self._must(where, one.kind.name == other.kind.name)
            for name in sorted({*one.fields, *other.fields}):
                self.same(f"{where}.{name}", one.fields.get(name, MISSING), other.fields.get(name, MISSING))
        elif isinstance(one, Opaque):
            self._must(where, one.what == other.what)
        elif isinstance(one, (set, frozenset)) and all(isinstance(each, str) for each in (*one, *other)):
            self._must(where, one == other)
        elif hasattr(one, "__dict__"):
            self.same(where, vars(one), vars(other))
        elif one is not other:
            self.places.add(where)

    def _pair(self, one: Any, other: Any) -> bool:
        """Whether the two are met for the first time."""
        if id(one) in self._partners or id(other) in self._taken:
            return False
        self._partners[id(one)], self._taken[id(other)] = (one, other), other
        return True

    def _goal(self, where: str, same: Any) -> None:
        if isinstance(same, bool):
            self._must(where, same)
        else:
            self.goals.append((where, same))

    def _must(self, where: str, is_same: bool) -> None:
        if not is_same:
            self.places.add(where)
