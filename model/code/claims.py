"""Claims: a function of the code does what a rule says, in every state that the invariants allow.

Each path of the function is compared with the rule: the fields after it, the pages, rows and locks that it gave back or took (as
the specification's effects), and the conditions under which those effects are safe. Paths cover all states that the claim
assumes, and each is asked of the solver, so agreement holds both ways: no path does what the rule does not say, and where the
rule applies some path does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Protocol

import z3

from kvproof.model.code import arithmetic
from kvproof.model.code.errors import InfeasibleError, NotUnderstoodError, Place, RaisedError
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.library import LIBRARY
from kvproof.model.code.objects import Definitions
from kvproof.model.code.paths import Branch, Paths
from kvproof.model.code.source import Sources
from kvproof.model.code.values import Library
from kvproof.model.questions import checked, z3_solver
from kvproof.model.symbolic import PagedLength, Symbols
from kvproof.spec.actions import Action
from kvproof.spec.effects import Condition, Effect, apply_effects
from kvproof.spec.machine import LEDGER
from kvproof.spec.state import GHOSTS, NONE, RUNNING, Ledger

PROVED, DIFFERS, NOT_UNDERSTOOD, UNKNOWN, ABSENT = "proved", "differs", "not understood", "unknown", "absent"

CONFIGURATION = ("overlap", "spec_v1", "spec_v2", "windowed", "window", "tree", "row_width")
"""Of the server: with the page size, what a state stands in."""


@dataclass(frozen=True)
class Expected:
    """What a rule says of one arbitrary state: what it assumes, and the state and the effects after it."""

    assumptions: tuple[Any, ...]
    after: Ledger
    effects: tuple[Effect, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    """What the scene observes beside fields of the ledger: a result, say."""


Rule = Callable[[Symbols, Ledger, SimpleNamespace], Expected]


class Scene(Protocol):
    """The objects that a function works on, and what they show when it is done."""

    effects: list[Effect]

    def call(self) -> Any:
        """Calls the function and gives its result."""
        ...

    def observed(self, result: Any) -> Mapping[str, Any]:
        """Fields of the ledger, or names of `Expected.values`, with what the objects say of them."""
        ...


@dataclass(frozen=True)
class Claim:
    """`function` of `module` does what the rule `name` says. `scene` arranges its objects from the symbols of the state."""

    name: str
    module: str
    function: str
    rule: Rule
    params: Mapping[str, str]
    scene: Callable[[Interpreter, Ledger, SimpleNamespace], Scene]
    assumes: tuple[str, ...] = ()
    """What the scene takes for granted, as sentences."""
    action: str = ""
    """The action of the specification that the rule is made from, where its name is another than the claim's."""

    @property
    def rests_on(self) -> str:
        return self.action or self.name


def follows(
    action: Action,
    *,
    values: Callable[[Symbols, Ledger, Ledger], Mapping[str, Any]] | None = None,
    given: Callable[[Symbols, Ledger], tuple[Any, ...]] = lambda d, s: (),
) -> Rule:
    """The rule of an action: its step wherever it applies, its guards hold, and so does what is `given`."""

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        step = action.run(d, s, p)
        assumptions = (action.applies(d, s), *(guard.holds for guard in step.guards), *given(d, s))
        return Expected(assumptions, step.after, step.effects, values(d, s, step.after) if values else {})

    return rule


@dataclass(frozen=True)
class Difference:
    """Where a path differs from the rule: a sentence and, once it is shown (`Failing.difference`), the numbers of a state."""

    sentence: str
    verdict: str
    state: Mapping[str, int | bool] = field(default_factory=dict)
    code: str = ""
    rule: str = ""
    values: tuple[tuple[int, str, str], ...] = ()
    """What the path set in that state: the number of the line in `Path.lines`, the name, the value."""
    failing: Failing | None = None
    """In which states it is so; None where the solver gave up."""


@dataclass(frozen=True)
class Failing:
    """A statement that does not hold in all states that take a path: those in which it fails, and what to show of each."""

    sentence: str
    d: Symbols
    before: Ledger
    assumed: Sequence[Any]
    """Of every path."""
    branches: tuple[Any, ...]
    goal: Any
    code: Any
    rule: Any
    values: Sequence[tuple[int, str, Any]]

    @cached_property
    def condition(self) -> Any:
        """Holds in the states that take the path and in which the statement fails, of those that are assumed."""
        return z3.And(*self.branches, z3.Not(self.goal))

    @cached_property
    def small_model(self) -> z3.ModelRef:
        """A state with a small page size and short rows, where there is one."""
        solver = z3_solver()
        solver.add(*self.assumed, self.condition)
        for bound in (1, 2, 3, 4, None):
            solver.push()
            if bound is not None:
                solver.add(self.d.page_size <= bound, self.d.row_width.pages <= 4)
            if checked(solver) == "sat":
                break
            solver.pop()
        return solver.model()

    def small_difference(self) -> Difference:
        return self.difference(self.small_model)

    def difference(self, model: z3.ModelRef) -> Difference:
        """In the state of a model."""
        state = {name: _number(model, value) for name, value in vars(self.before).items() if name not in GHOSTS}
        state["P"] = _number(model, self.d.page_size)
        state |= {name: _number(model, getattr(self.d, name)) for name in CONFIGURATION}
        was_set = tuple((at, name, _shown(model, value)) for at, name, value in self.values)
        return Difference(
            self.sentence, DIFFERS, state, _shown(model, self.code), _shown(model, self.rule), was_set, self
        )


@dataclass(frozen=True)
class Done:
    """What a run did: what its objects show after it and the effects, or what it raised; and what it set on its way."""

    observed: Mapping[str, Any] = field(default_factory=dict)
    effects: tuple[Effect, ...] = ()
    raised: str = ""
    values: Sequence[tuple[int, str, Any]] = ()


@dataclass(frozen=True)
class Path:
    """One path: its branches, the lines that ran, how it ended, what it did and in what that differs from the rule."""

    branches: tuple[Branch, ...]
    lines: tuple[Place, ...]
    ended: str
    place: Place | None = None
    done: Done | None = None
    """None: it is not understood."""
    differences: tuple[Difference, ...] = ()

    @property
    def understood(self) -> bool:
        return self.done is not None


@dataclass(frozen=True)
class Verdict:
    """What was found out about one claim."""

    claim: Claim
    place: Place | None
    paths: tuple[Path, ...]
    cut: int
    questions: int
    seconds: float

    @property
    def verdict(self) -> str:
        """As bad as the worst path. No path at all is not understood: nothing was checked."""
        if self.place is None:
            return ABSENT
        found = {difference.verdict for path in self.paths for difference in path.differences}
        if DIFFERS in found:
            return DIFFERS
        if not self.paths or self.cut or not all(path.understood for path in self.paths):
            return NOT_UNDERSTOOD
        return UNKNOWN if UNKNOWN in found else PROVED


@dataclass(frozen=True)
class Posed:
    """A claim about one arbitrary state: the state, the claim's parameters, what its rule says, and what is assumed."""

    d: Symbols
    before: Ledger
    params: SimpleNamespace
    expected: Expected
    assumptions: Sequence[Any]


def pose(claim: Claim) -> Posed:
    d = Symbols()
    before = d.arbitrary(Ledger)
    params = d.parameters(claim.params)
    expected = claim.rule(d, before, params)
    invariants = [invariant.holds(d, before) for invariant in LEDGER.all_invariants.values()]
    phases = (before.phase >= NONE, before.phase <= RUNNING)  # no action leaves another one
    facts = d.domain_facts(before, params, claim.params)
    return Posed(d, before, params, expected, [*facts, *phases, *invariants, *expected.assumptions])


def check(
    claim: Claim,
    sources: Sources,
    library: Mapping[str, Library],
    given: Mapping[str, Any],
    *,
    to_the_first_difference: bool = False,
) -> Verdict:
    """Runs the function of a claim on every path and compares each with the rule. `given`: values of imported names."""
    begin = time.perf_counter()
    try:
        module = sources.module(claim.module)
        definition = module.definition(claim.function) if module is not None else None
    except NotUnderstoodError as unread:
        nowhere = Place(claim.module.replace(".", "/") + ".py", 0)
        path = Path((), (), f"not understood: {unread}: ", nowhere)
        return Verdict(claim, nowhere, (path,), 0, 0, time.perf_counter() - begin)
    if module is None or definition is None:
        return Verdict(claim, None, (), 0, 0, time.perf_counter() - begin)
    place = Place(module.path, definition.lineno)
    posed = pose(claim)
    paths = Paths(posed.assumptions)
    comparison = Comparison(posed.d, posed.before, posed.expected, paths)
    definitions = Definitions()

    def run() -> Path | None:
        interpreter = Interpreter(posed.d, sources, paths, given, {**LIBRARY, **library}, definitions)
        return comparison.path(interpreter, lambda: claim.scene(interpreter, posed.before, posed.params))

    is_empty = not paths.is_possible()  # of a rule that applies in no state, nothing is proved
    found: tuple[Path, ...] = ()
    for _, taken in () if is_empty else paths.all(run):
        found += (taken,) if taken is not None else ()
        if to_the_first_difference and taken is not None and taken.differences:
            paths.cut += 1
            break
    patched = sources.patched()
    if patched is not None:
        found += (Path((), (), f"not understood: {patched}: ", place),)
    return Verdict(claim, place, found, paths.cut, paths.questions, time.perf_counter() - begin)


def follows_instead(differs: Verdict, other: Claim) -> bool | None:
    """Whether the paths that were run for one claim do what another says of the same function.

    Nothing is run again. None: they do, but the other claim is about more states, and for these the function has to be run.
    """
    assumed, posed = pose(differs.claim).assumptions, pose(other)
    paths = Paths(posed.assumptions)
    comparison = Comparison(posed.d, posed.before, posed.expected, paths)
    try:
        if not paths.is_possible():
            return False
        are_all = not differs.cut and paths.must(z3.And(*assumed))
        # Those that differ from the first rule are the most likely to differ from another one.
        agree = all(comparison.agrees(path) for path in sorted(differs.paths, key=lambda path: not path.differences))
    except NotUnderstoodError:
        return False
    return agree and (are_all or None)


OF_ANOTHER_KIND = (AttributeError, LookupError, TypeError, ValueError, AssertionError, z3.Z3Exception)
"""What a scene or a stand-in raises where the code left, or handed on, another kind of value than is described."""


def _seen(scene: Scene, result: Any) -> Mapping[str, Any]:
    """What is looked at after the call. What is raised here is no doing of the code: it left something else than is described."""
    try:
        return scene.observed(result)
    except RaisedError as raised:
        raise NotUnderstoodError(f"a value of another kind than is described: {raised.name}") from raised


@dataclass
class Comparison:
    """Compares what a path did with what the rule says."""

    d: Symbols
    before: Ledger
    expected: Expected
    paths: Paths
    _differs: bool = False
    """A path did. Then most do, and a question about all statements of a path together would be one more."""

    def path(self, run: Interpreter, arrange: Callable[[], Scene]) -> Path | None:
        """One path, from the arrangement of its objects to the comparison. None where no state takes it."""
        place: Place | None = None
        try:
            try:
                scene = arrange()
                done = Done(_seen(scene, scene.call()), tuple(scene.effects), values=run.values)
            except RaisedError as raised:
                done, place = Done(raised=raised.name, values=run.values), raised.place
            differences = self.differences(done)
        except InfeasibleError:
            return None
        except NotUnderstoodError as unknown:
            return self._not_understood(run, f"{unknown.reason}: {unknown.expression}", unknown.place)
        except OF_ANOTHER_KIND as wrong:
            place = run.lines[-1] if run.lines else None
            return self._not_understood(run, f"a value of another kind than is described: {wrong!r}", place)
        ended = f"{done.raised} is raised" if done.raised else "returns"
        return Path(tuple(self.paths.branches), tuple(run.lines), ended, place, done, tuple(differences))

    def agrees(self, path: Path) -> bool:
        """Whether a path that was run before does what the rule says, or is one of no state."""
        self.paths.along(path.branches)
        return not self.paths.is_possible() if path.done is None else not self.differences(path.done)

    def _not_understood(self, run: Interpreter, why: str, place: Place | None) -> Path:
        return Path(tuple(self.paths.branches), tuple(run.lines), f"not understood: {why}", place)

    def differences(self, done: Done) -> list[Difference]:
        """In what a run along the branches so far differs from the rule."""
        if done.raised:
            return self._asked({f"{done.raised} is raised": (z3.BoolVal(False), None, None)}, done.values)
        d, expected = self.d, self.expected
        goals: dict[str, tuple[Any, Any, Any]] = {}
        wanted = {**vars(expected.after), **expected.values}
        for name, value in done.observed.items():
            goals[f"{name} is as the rule has it"] = (self._same(value, wanted[name]), value, wanted[name])
        by_rule, (by_code, conditions) = self._by_rule, apply_effects(d, self._start, done.effects)
        for name, sentence in GHOST_SENTENCES.items():
            code, rule = getattr(by_code, name), getattr(by_rule, name)
            goals[sentence] = (code == rule, code, rule)
        for condition in conditions:
            goals[_sentence(condition)] = (condition.holds, None, None)
        return self._asked(goals, done.values)

    @cached_property
    def _start(self) -> Ledger:
        """From where the effects are counted: the rule's fields, so that code and rule differ by effects alone."""
        return with_ghosts_of(self.expected.after, self.before)

    @cached_property
    def _by_rule(self) -> Ledger:
        return apply_effects(self.d, self._start, self.expected.effects)[0]

    def _same(self, code: Any, rule: Any) -> Any:
        if isinstance(rule, PagedLength) or isinstance(code, PagedLength):
            return arithmetic.equal(self.d, code, rule)
        if isinstance(rule, (bool, z3.BoolRef)) and not isinstance(code, (bool, z3.BoolRef)):
            raise NotUnderstoodError("a flag that the code keeps in another form")
        same = code == rule
        return z3.BoolVal(same) if isinstance(same, bool) else same

    def _asked(
        self, goals: Mapping[str, tuple[Any, Any, Any]], values: Sequence[tuple[int, str, Any]]
    ) -> list[Difference]:
        if not self._differs and self._all_hold([goal for goal, _, _ in goals.values()]):
            return []
        found = []
        for sentence, (goal, code, rule) in goals.items():
            try:
                if self.paths.must(z3.simplify(goal)):
                    continue
            except NotUnderstoodError:
                found.append(Difference(sentence, UNKNOWN))
                continue
            taken = tuple(branch.condition for branch in self.paths.branches)
            failing = Failing(sentence, self.d, self.before, self.paths.assumptions, taken, goal, code, rule, values)
            found.append(Difference(sentence, DIFFERS, failing=failing))
        self._differs = self._differs or bool(found)
        return found

    def _all_hold(self, goals: Sequence[Any]) -> bool:
        """Asked as one question, which takes less than one for each. False as well where the solver gives up."""
        try:
            return self.paths.must(z3.simplify(z3.And(*goals)))
        except NotUnderstoodError:
            return False


def with_ghosts_of(after: Ledger, before: Ledger) -> Ledger:
    return after.but(**{name: getattr(before, name) for name in GHOSTS})


def _sentence(condition: Condition) -> str:
    return f"{condition.invariant}: {condition.sentence}"


def _number(model: z3.ModelRef, value: Any) -> Any:
    """A value in numbers: a length in tokens."""
    if isinstance(value, PagedLength):
        return _number(model, value.pages) * _number(model, value.size) + _number(model, value.offset)
    if isinstance(value, (bool, int)):
        return value
    found = model.eval(value, model_completion=True)
    return bool(z3.is_true(found)) if isinstance(found, z3.BoolRef) else found.as_long()


def _shown(model: z3.ModelRef, value: Any) -> str:
    return "" if value is None else str(_number(model, value))


GHOST_SENTENCES = {
    "locks": "the tree lock is as the rule has it",
    "orphans": "no page is lost",
    "row_end": "the same pages are left behind the row",
    "rows": "the row is taken or returned as the rule has it",
    "tree_end": "the tree owns the same pages of the row",
    "window_start": "the same pages of the window pool are freed",
}
"""Ghosts that functions of a cache write. The forward pass writes KV; who runs turns and sessions writes the others."""
