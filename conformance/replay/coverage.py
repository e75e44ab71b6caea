"""What a replay exercised: how often each action, each branch of a guard, and each invariant. docs/replaying.md is the page.

Nothing here knows a rule. Guards, side conditions and invariants are run once on terms (`model/tracing.py`), and what can be
told apart in them is counted: which alternative of a guard decided, and whether an invariant had anything to say. The
compiled checker prints the same terms into its loop, so both count the same.

A *branch* of a guard is one of its alternatives, in the order in which the rule names them; the first that holds decides. So
each time an action is judged, each of its guards takes one branch.

An invariant is *checked* by an event if a value of the trace could have shown that it is broken. Either a sentence of it about
the ledger was not empty (its premise held, and what it compares was not all zero), and the event shows a value of a field that
the invariant reads. Or an effect happened that carries one of its side conditions, and the event lists the pages that the effect
moved, or gives a parameter that the condition reads. What holds of the model's own state alone checks nothing.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from kvproof.conformance.replay.compared_fields import (
    BUSY,
    OF_A_SESSION,
    TERMS,
    invariants_about,
    traced_comparisons,
)
from kvproof.conformance.replay.judge import LATE_RESULTS, SHOWN_BY, Judgement
from kvproof.conformance.replay.kept_types import Counts
from kvproof.conformance.replay.term_printer import Printer
from kvproof.model.integers import Integers
from kvproof.model.oracle import Value
from kvproof.model.tracing import Term, Tracing, reads_of
from kvproof.spec.actions import ACTIONS, Action, Guard, Step
from kvproof.spec.effects import Condition, Effect, Free, FreeByLoc, FreeWindow, Share, Take, TakeRow, apply_effects
from kvproof.spec.invariants import INVARIANTS, Invariant
from kvproof.spec.state import PHASE_NAMES, Ledger
from kvproof.spec.trace import Event, Observed

OF_THE_WINDOW = ("I9", "I10")
"""Invariants about the window pool: without a window they say nothing, whatever their sentences compare."""
OF_LATE_RESULTS = "I17"
"""That late results change nothing is the invariant itself; its sentence on the ledger only ever compares zeros."""
WITHOUT_RULE = ("evict", "ask_abort")
"""Events that no action of the specification judges: they are counted by their own names."""
OF_A_CHECK = ("I2", "I13")
OF_EVICTED_PAGES, OF_EVICTED_WINDOW_PAGES = ("I1", "I11", "I13"), ("I6", "I10")
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
        case "less_or_equal" if flag.arguments[0].constant == 0:  # no trace shows a number below 0
            return d.constant(False)
        case "less" | "less_or_equal" | "equal":
            compared = [a for a in flag.arguments if a.operator != "constant"]
            return d.some(*(a if a.is_flag else d.no(d.operation("equal", a, 0)) for a in compared))
    return d.constant(True)


def _implication(flag: Term) -> tuple[list[Any], list[Any]]:
    """Premises and conclusions of a chain of alternatives: what is negated is a premise."""
    premises = [a.arguments[0] for a in flag.arguments if a.operator == "not"]
    return premises, [a for a in flag.arguments if a.operator != "not"]


WINDOW_PAGES = "window_free"
IsShown = Callable[[str], Any]
"""When the trace shows what a rule reads by this name; never (False) where it is no value of the trace."""


def checked_by_step(d: Tracing, action: Action, step: Step, is_shown: IsShown) -> dict[str, Any]:
    """For each invariant that an action's side conditions name, when one of their effects happens and the trace shows of it.

    `is_shown` is asked for each name that a side condition reads, for `after_NAME` of what is compared, and for `WINDOW_PAGES`.
    """
    happens: dict[str, list[Any]] = {}
    for effect, condition in _with_their_effects(d, step):
        holds: Any = condition.holds
        is_implied = isinstance(holds, Term) and holds.operator == "or"
        premises = _implication(holds)[0] if is_implied else []
        if isinstance(holds, Term) and holds.constant is None:
            shown = d.some(_lists_pages(d, effect, is_shown), *map(is_shown, sorted(reads_of(holds))))
            happens.setdefault(condition.invariant, []).append(d.every(*premises, shown))
    if action.name in LATE_RESULTS:
        always = (name for name, c in traced_comparisons(Tracing(), action).items() if c.is_due is True)
        happens[OF_LATE_RESULTS] = [is_shown(f"after_{name}") for name in always if name in SHOWN_AFTER]
    return {name: d.some(*flags) for name, flags in happens.items()}


SHOWN_AFTER = frozenset(Observed.model_fields)


def _with_their_effects(d: Tracing, step: Step) -> Iterator[tuple[Effect, Condition]]:
    """Each side condition of a step with the effect that it belongs to."""
    known = 0
    for place, effect in enumerate(step.effects, 1):
        _, conditions = apply_effects(d, step.after, step.effects[:place])
        yield from ((effect, condition) for condition in conditions[known:])
        known = len(conditions)


def _lists_pages(d: Tracing, effect: Effect, is_shown: IsShown) -> Any:
    """When an event has to list pages, or a row, that this effect moves: if they are others, that is seen."""
    match effect:
        case TakeRow(when=when):
            return when
        case Share(when=when, pages=pages):
            return d.every(when, d.no(d.operation("equal", pages, 0)))
        case Take(first=first, last=last):
            return first < last
        case Free(start=start, end=end) | FreeByLoc(start=start, end=end):
            return start < end
        case FreeWindow(first=first, last=last):
            return d.every(first < last, is_shown(WINDOW_PAGES))
    return d.false


@dataclass
class Coverage:
    """How often each action was judged, each branch of its guards taken, each invariant checked, each value shown.

    `shown` and `not_shown` count values by `ACTION.NAME`: how often an event of this action showed one, and how often it could
    have and did not.
    """

    actions: Counts = field(default_factory=Counter)
    branches: Counts = field(default_factory=Counter)
    invariants: Counts = field(default_factory=Counter)
    shown: Counts = field(default_factory=Counter)
    not_shown: Counts = field(default_factory=Counter)

    @property
    def fields(self) -> Counter[str]:
        """How often each value was shown, by its name."""
        total: Counter[str] = Counter()
        for key, times in self.shown.items():
            total[key.partition(".")[2]] += times
        return total

    def add(self, other: Coverage) -> None:
        for mine, its in zip(vars(self).values(), vars(other).values(), strict=True):
            mine.update(its)


Points = Callable[[Any, Ledger, Mapping[str, Value], frozenset[str]], tuple[list[str], list[str]]]


@dataclass(frozen=True)
class Told:
    """What events of one kind tell: the names that rules may ask for, invariants that it is about, and keys to be counted."""

    names: frozenset[str]
    invariants: frozenset[str]
    shown: tuple[str, ...]
    not_shown: tuple[str, ...]


class Counting:
    """Counts what events check, for the checker that judges them one by one."""

    def __init__(self, d: Integers, coverage: Coverage, window_is_followed: bool) -> None:
        self._d, self._coverage, self._window_is_followed = d, coverage, window_is_followed
        self._of_actions: dict[int, Points] = {}
        self._told: dict[tuple[Any, ...], Told] = {}
        self._of_states = self._run(_code_of_states(tuple(INVARIANTS.values())))

    def step(self, event: Event, before: Ledger, given: Mapping[str, Value], judgement: Judgement) -> None:
        """An event was judged by an action: from `before`, with these parameters, to what the rule says is after it."""
        action, after = judgement.outcome.action, judgement.outcome.after
        if id(action) not in self._of_actions:
            self._of_actions[id(action)] = self._run(_traced(action)[2])
        told = self._told_by(event, judgement)
        branches, checked = self._of_actions[id(action)](self._d, before, given, told.names)
        coverage = self._coverage
        coverage.actions[action.name] += 1
        for branch in branches:  # a third of the price of `Counter.update`, at every event
            coverage.branches[branch] += 1
        for name in {*checked, *told.invariants.intersection(self._of_states(self._d, after, given, told.names)[1])}:
            coverage.invariants[name] += 1
        for key in told.shown:
            coverage.shown[key] += 1
        for key in told.not_shown:
            coverage.not_shown[key] += 1

    def _told_by(self, event: Event, judgement: Judgement) -> Told:
        action = judgement.outcome.action
        seen = tuple([(name, value is not None) for name, _, _, value in judgement.compared])
        given = tuple([name for name, value in event.params.items() if value is not None])
        key = id(action), event.session is None, seen, given
        if key not in self._told:
            self._told[key] = _told(action, event.session is not None, dict(seen), given, self._window_is_followed)
        return self._told[key]

    def beside_the_rules(self, event: Event) -> None:
        """The tree evicts, or the memory is checked."""
        self._coverage.actions[event.action] += 1
        if event.action == "check" and event.params.get("idle_passes") is None:
            for name, seen in ((TERMS, event.terms), (BUSY, event.params.get("busy"))):
                counts = self._coverage.not_shown if seen is None else self._coverage.shown
                counts[f"check.{name}"] += 1
        exercised = [
            *(OF_A_CHECK if event.action == "check" and event.terms is not None else ()),
            *(OF_EVICTED_PAGES if event.action == "evict" and event.free else ()),
            *(
                OF_EVICTED_WINDOW_PAGES
                if event.action == "evict" and event.window_free and self._window_is_followed
                else ()
            ),
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


def _told(
    action: Action, of_session: bool, seen: Mapping[str, bool], given: Iterable[str], window_is_followed: bool
) -> Told:
    comparisons = traced_comparisons(Tracing(), action)
    shown = [name for name, is_seen in seen.items() if is_seen]
    hidden = [n for n, is_seen in seen.items() if not is_seen and (of_session or n not in OF_A_SESSION)]
    fields = {field for name in shown for field in comparisons[name].fields}
    chosen = [name for name, by in SHOWN_BY.items() if by in shown]
    names = [
        *(f"p.{n}" for n in (*given, *chosen)),
        *(f"after_{n}" for n in shown),
        *([WINDOW_PAGES] * window_is_followed),
    ]
    return Told(
        frozenset(names),
        frozenset(invariants_about(fields, INVARIANTS.values())),
        tuple(f"{action.name}.{name}" for name in shown),
        tuple(f"{action.name}.{name}" for name in hidden),
    )


_steps: dict[int, tuple[Action, tuple[Decision, ...], CodeType]] = {}
"""Traced once. The action stays there too, so that no other one gets its place."""


def _traced(action: Action) -> tuple[Action, tuple[Decision, ...], CodeType]:
    if id(action) not in _steps:
        decisions, checked = points_of(Tracing(), action)
        code = compile(_source_of_step(decisions, checked), "<coverage>", "exec")
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
    return "\n    ".join(["def points(d, s, p, told):", *body])


def _reads(term: Term) -> str:
    kind, _, name = term.arguments[0].partition(".")
    if kind == "told":
        return f"({name!r} in told)"
    return f"p[{name!r}]" if kind == "p" else f"{kind}.{name}"


def points_of(d: Tracing, action: Action) -> tuple[list[Decision], dict[str, Any]]:
    """What is counted where an action is judged: its decisions, and when its step checks which invariants."""
    step = action.run(d, d.arbitrary(Ledger), d.parameters(action.params))

    def is_shown(name: str) -> Any:
        return d.false if name.startswith(("s.", "d.")) else d.read(f"told.{name}", is_flag=True)

    return list(decisions_of(d, action.name, step.guards)), checked_by_step(d, action, step, is_shown)


def all_branches(tables: Iterable[Mapping[str, Action]] = (ACTIONS,)) -> dict[str, tuple[str, ...]]:
    """The branches of all guards, by action; of several tables of rules, each branch once."""
    found: dict[str, dict[str, None]] = {}
    for table in tables:
        for name, action in table.items():
            keys = (d.key(place) for d in decisions_in(action) for place in range(len(d.branches)))
            found.setdefault(name, {}).update(dict.fromkeys(keys))
    return {name: tuple(branches) for name, branches in found.items()}
