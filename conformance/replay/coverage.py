"""What a replay exercised: how often each action, each branch of a guard, and each invariant. docs/coverage.md is the page.

Nothing here knows a rule. Guards, side conditions and invariants are run once on terms (`model/tracing.py`), and what can be
told apart in them is counted: which alternative of a guard decided, and whether an invariant had anything to say. The
compiled checker prints the same terms into its loop, so both count the same.

A *branch* of a guard is one of its alternatives, in the order in which the rule names them; the first that holds decides. So
each time an action is judged, each of its guards takes one branch.

An invariant is *exercised* by an event if one of its sentences was not empty: the premise held, and what it compares was not all
zero; or an effect happened that carries one of its side conditions.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from kvproof.conformance.replay.kept_types import Counts
from kvproof.conformance.replay.term_printer import Printer
from kvproof.model.integers import Integers
from kvproof.model.oracle import Value
from kvproof.model.tracing import Term, Tracing
from kvproof.spec.actions import ACTIONS, Action, Guard
from kvproof.spec.effects import Condition, apply_effects
from kvproof.spec.invariants import INVARIANTS, Invariant
from kvproof.spec.state import PHASE_NAMES, Ledger
from kvproof.spec.trace import Event

OF_THE_WINDOW = ("I9", "I10")
"""Invariants about the window pool: without a window they say nothing, whatever their sentences compare."""
OF_LATE_RESULTS = "I17"
LATE_RESULTS = ("late_result", "result_of_ended")
"""That these change nothing is the invariant itself; its sentence on the ledger only ever compares zeros."""
OF_A_CHECK = ("I2", "I13")
OF_EVICTED_PAGES, OF_EVICTED_WINDOW_PAGES = ("I1", "I11"), ("I6", "I10")
"""What the page book checks beside the rules: at a memory check with terms, and where the tree evicts."""


COUNTED = (*INVARIANTS, "I13")
"""All that a replay can exercise: the invariants of ledgers, and that of the tree's counters, which a memory check reads."""


@dataclass(frozen=True)
class Decision:
    """A guard with alternatives: what each is called, and when the first holds, the second, ...; else it is the last."""

    action: str
    sentence: str
    branches: tuple[str, ...]
    taken: tuple[Any, ...]

    def key(self, branch: int) -> str:
        """What a branch is called in a report."""
        return f"{self.action}: {self.sentence}: {self.branches[branch]}"


def decisions_of(d: Tracing, action: str, guards: Iterable[Guard]) -> Iterator[Decision]:
    """The guards of an action that have alternatives."""
    for guard in guards:
        for part in _conjuncts(guard.holds):
            alternatives = list(_alternatives(d, part))
            if len(alternatives) > 1:
                labels, flags = zip(*alternatives, strict=True)
                yield Decision(action, guard.sentence, labels, tuple(_first_of(d, flags)))


def _conjuncts(flag: Any) -> Iterator[Term]:
    if isinstance(flag, Term):
        yield from (part for a in flag.arguments for part in _conjuncts(a)) if flag.operator == "and" else (flag,)


def _alternatives(d: Tracing, flag: Term) -> Iterator[tuple[str, Any]]:
    match flag.operator:
        case "or":
            yield from ((in_words(a), a) for a in flag.arguments)
        case "where":
            condition = flag.arguments[0]
            yield in_words(condition), condition
            yield in_words(d.no(condition)), d.no(condition)
        case "equal" if all(a.is_flag for a in flag.arguments):
            both, neither = flag.arguments[0], d.no(flag.arguments[0])
            yield in_words(both), both
            yield in_words(neither), neither


def _first_of(d: Tracing, flags: Sequence[Any]) -> Iterator[Any]:
    """When each flag but the last is the first that holds."""
    for place, flag in enumerate(flags[:-1]):
        yield d.every(flag, *(d.no(earlier) for earlier in flags[:place]))


def in_words(value: Any) -> str:
    """A term as a reader of the rules would write it."""
    if not isinstance(value, Term):
        return str(value)
    match value.operator:
        case "constant":
            return str(value.arguments[0])
        case "read":
            return value.arguments[0].partition(".")[2]
        case "not":
            return f"not {in_words(value.arguments[0])}"
        case "and" | "or":
            return f" {value.operator} ".join(map(in_words, value.arguments))
        case "less" | "less_or_equal" | "equal" | "add" | "subtract":
            sign = {"less": "<", "less_or_equal": "<=", "equal": "=", "add": "+", "subtract": "-"}[value.operator]
            left, right = value.arguments
            return f"{in_words(left)} {sign} {_phase(left, right) or in_words(right)}"
    return f"{value.operator}({', '.join(map(in_words, value.arguments))})"


def _phase(compared: Term, value: Term) -> str | None:
    is_phase = compared.operator == "read" and compared.arguments[0] == "s.phase"
    return PHASE_NAMES[value.constant] if is_phase and value.constant is not None else None


def exercised_by_state(d: Tracing, s: Ledger, invariants: Mapping[str, Invariant]) -> dict[str, Any]:
    """For each invariant, when it says something about this ledger."""
    said = {i.id: _says_something(d, i.holds(d, s)) for i in invariants.values()}
    return {name: d.every(flag, d.windowed) if name in OF_THE_WINDOW else flag for name, flag in said.items()}


def _says_something(d: Tracing, flag: Any) -> Any:
    if not isinstance(flag, Term) or flag.operator == "constant":
        return d.constant(False)
    match flag.operator:
        case "and":
            return d.some(*(_says_something(d, a) for a in flag.arguments))
        case "or":
            premises, conclusions = _implication(flag)
            return d.every(*premises, d.some(*(_says_something(d, c) for c in conclusions)))
        case "where":
            condition, yes, no = flag.arguments
            return d.where(condition, _says_something(d, yes), _says_something(d, no))
        case "less" | "less_or_equal" | "equal":
            compared = [a for a in flag.arguments if a.operator != "constant"]
            return d.some(*(a if a.is_flag else d.no(d.operation("equal", a, 0)) for a in compared))
    return d.constant(True)


def _implication(flag: Term) -> tuple[list[Any], list[Any]]:
    """Premises and conclusions of a chain of alternatives: what is negated is a premise."""
    premises = [a.arguments[0] for a in flag.arguments if a.operator == "not"]
    return premises, [a for a in flag.arguments if a.operator != "not"]


def exercised_by_step(d: Tracing, action: str, conditions: Iterable[Condition]) -> dict[str, Any]:
    """For each invariant that an action's side conditions name, when one of their effects happens."""
    happens: dict[str, list[Any]] = {OF_LATE_RESULTS: [d.constant(True)]} if action in LATE_RESULTS else {}
    for condition in conditions:
        holds: Any = condition.holds
        is_implied = isinstance(holds, Term) and holds.operator == "or"
        premises = _implication(holds)[0] if is_implied else []
        if isinstance(holds, Term) and holds.constant is None:
            happens.setdefault(condition.invariant, []).append(d.every(*premises))
    return {name: d.some(*flags) for name, flags in happens.items()}


@dataclass
class Coverage:
    """How often each action was judged, each branch of its guards taken, each invariant exercised."""

    actions: Counts = field(default_factory=Counter)
    branches: Counts = field(default_factory=Counter)
    invariants: Counts = field(default_factory=Counter)

    def add(self, other: Coverage) -> None:
        for mine, its in zip(vars(self).values(), vars(other).values(), strict=True):
            mine.update(its)


Points = Callable[[Any, Ledger, Mapping[str, Value]], tuple[list[str], list[str]]]


class Counting:
    """Counts what events exercise, for the checker that judges them one by one."""

    def __init__(self, d: Integers, coverage: Coverage) -> None:
        self._d, self._coverage = d, coverage
        self._of_actions: dict[int, Points] = {}
        self._of_states = self._run(_code_of_states(tuple(INVARIANTS.values())))

    def step(self, action: Action, before: Ledger, given: Mapping[str, Value], after: Ledger) -> None:
        """An event was judged by an action: from `before`, with these parameters, to what the rule says is after it."""
        if id(action) not in self._of_actions:
            self._of_actions[id(action)] = self._run(_traced(action)[2])
        branches, exercised = self._of_actions[id(action)](self._d, before, given)
        coverage = self._coverage
        coverage.actions[action.name] += 1
        for branch in branches:  # a third of the price of `Counter.update`, at every event
            coverage.branches[branch] += 1
        for name in {*exercised, *self._of_states(self._d, after, given)[1]}:
            coverage.invariants[name] += 1

    def beside_the_rules(self, event: Event, window_is_followed: bool) -> None:
        """The tree evicts, or the memory is checked."""
        self._coverage.actions[event.action] += 1
        exercised = [
            *(OF_A_CHECK if event.action == "check" and event.terms is not None else ()),
            *(OF_EVICTED_PAGES if event.action == "evict" and event.free else ()),
            *(OF_EVICTED_WINDOW_PAGES if event.action == "evict" and event.window_free and window_is_followed else ()),
        ]
        self._coverage.invariants.update(exercised)

    def _run(self, code: CodeType) -> Points:
        d = self._d
        namespace: dict[str, Any] = {
            "where": d.where,
            "ceil_pages": lambda length, *_: d.ceil_pages(length),
            "floor_pages": lambda length, *_: d.floor_pages(length),
        }
        exec(code, namespace)
        return namespace["points"]


_steps: dict[int, tuple[Action, tuple[Decision, ...], CodeType]] = {}
"""Traced once. The action stays there too, so that no other one gets its place."""


def _traced(action: Action) -> tuple[Action, tuple[Decision, ...], CodeType]:
    if id(action) not in _steps:
        decisions, exercised = points_of(Tracing(), action)
        code = compile(_source_of_step(decisions, exercised), "<coverage>", "exec")
        _steps[id(action)] = action, tuple(decisions), code
    return _steps[id(action)]


def decisions_in(action: Action) -> tuple[Decision, ...]:
    """The guards of an action that have alternatives."""
    return _traced(action)[1]


@functools.lru_cache(maxsize=8)
def _code_of_states(invariants: tuple[Invariant, ...]) -> CodeType:
    return compile(_source_of_states({i.id: i for i in invariants}), "<coverage>", "exec")


def _source_of_step(decisions: Sequence[Decision], exercised: Mapping[str, Any]) -> str:
    printer = Printer(_reads)
    printer.announce([*(flag for decision in decisions for flag in decision.taken), *exercised.values()])
    lines = []
    for decision in decisions:
        choice = repr(decision.key(len(decision.taken)))
        for place, flag in reversed(list(enumerate(decision.taken))):
            choice = f"{decision.key(place)!r} if {printer.value(flag)} else {choice}"
        lines.append(f"branches.append({choice})")
    return _function(printer, lines, exercised)


def _source_of_states(invariants: Mapping[str, Invariant]) -> str:
    d = Tracing()
    exercised = exercised_by_state(d, d.arbitrary(Ledger), invariants)
    printer = Printer(_reads)
    printer.announce(exercised.values())
    return _function(printer, [], exercised)


def _function(printer: Printer, lines: list[str], exercised: Mapping[str, Any]) -> str:
    flags = {name: printer.value(flag) for name, flag in exercised.items()}
    marks = [f"if {text}: exercised.append({name!r})" for name, text in flags.items() if text != "False"]
    head = ["branches, exercised = [], []", "page_size, page_shift = d.page_size, -1"]
    body = [*head, *printer.lines, *lines, *marks, "return branches, exercised"]
    return "\n    ".join(["def points(d, s, p):", *body])


def _reads(term: Term) -> str:
    kind, _, name = term.arguments[0].partition(".")
    return f"p[{name!r}]" if kind == "p" else f"{kind}.{name}"


def points_of(d: Tracing, action: Action) -> tuple[list[Decision], dict[str, Any]]:
    """What is counted where an action is judged: its decisions, and when it exercises which invariants."""
    step = action.run(d, d.arbitrary(Ledger), d.parameters(action.params))
    _, conditions = apply_effects(d, step.after, step.effects)
    return list(decisions_of(d, action.name, step.guards)), exercised_by_step(d, action.name, conditions)


def all_branches(tables: Iterable[Mapping[str, Action]] = (ACTIONS,)) -> dict[str, tuple[str, ...]]:
    """The branches of all guards, by action; of several tables of rules, each branch once."""
    found: dict[str, dict[str, None]] = {}
    for table in tables:
        for name, action in table.items():
            keys = (d.key(place) for d in decisions_in(action) for place in range(len(d.branches)))
            found.setdefault(name, {}).update(dict.fromkeys(keys))
    return {name: tuple(branches) for name, branches in found.items()}
