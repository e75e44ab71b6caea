"""A rule as data: what it computes, written down once, so that another process can send it and it runs here without its code.

A rule is straight-line over its domain (`spec/domain.py`), so one run on terms (`model/tracing.py`) says all that it ever does.
What is written is a list of values, each an operation on values before it, and which of them the step is made of. It
runs over every domain as the rule itself does: symbols, integers, terms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, get_args

from kvproof.model.symbolic import Symbols
from kvproof.model.tracing import Term, Tracing
from kvproof.spec.actions import ACTIONS, Action, Guard, Step
from kvproof.spec.domain import Domain, Flag
from kvproof.spec.effects import Effect, apply_effects
from kvproof.spec.invariants import ALL_INVARIANTS, Invariant
from kvproof.spec.state import FIELD_NAMES, GHOSTS, Ledger

HELPER = re.compile(r"X[1-9]\d?")
MOST_VALUES = 20_000
"""Of one rule; the largest of the specification has a few hundred."""
MOST_CONSTANT = 2**31
"""It is compiled to a number of 64 bits."""
EFFECTS: dict[str, Callable[..., Effect]] = {kind.__name__: kind for kind in get_args(Effect)}
NUMBERS = ("zero", "one", "row_width", "drafts", "window", "overlap", "spec_v1", "spec_v2", "windowed", "tree")
"""What a rule may read of its domain."""
OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda d, a, b: a + b,
    "subtract": lambda d, a, b: a - b,
    "less": lambda d, a, b: a < b,
    "less_or_equal": lambda d, a, b: a <= b,
    "equal": lambda d, a, b: a == b,
    "not_equal": lambda d, a, b: d.no(a == b),
    "and": lambda d, *flags: d.every(*flags),
    "or": lambda d, *flags: d.some(*flags),
    "not": lambda d, flag: d.no(flag),
    "where": lambda d, flag, then, otherwise: d.where(flag, then, otherwise),
    "ceil_pages": lambda d, length: d.ceil_pages(length),
    "floor_pages": lambda d, length: d.floor_pages(length),
    "tokens": lambda d, pages: d.tokens(pages),
}

Argument = int | str | bool
Value = tuple[str, tuple[Argument, ...]]
"""An operation and the numbers of the values that it is applied to; or `read` and a name, `constant` and a number."""


class NotARuleError(ValueError):
    """Data that are no rule, or one that no rule may be; the message says what is wrong."""


@dataclass(frozen=True)
class WrittenFlag:
    """A statement about a state: when an action applies, or a helper."""

    values: tuple[Value, ...]
    holds: int

    def __call__(self, d: Domain, s: Ledger) -> Flag:
        flag: Flag = _values(self.values, d, s, SimpleNamespace())[self.holds]
        return flag


@dataclass(frozen=True)
class WrittenRule:
    """The step of an action. Numbers are those of `values`. `path` and `line`: where the rule was written by a person."""

    values: tuple[Value, ...]
    after: dict[str, int]
    guards: tuple[tuple[str, int], ...]
    effects: tuple[tuple[str, dict[str, int]], ...]
    path: str
    line: int | None

    def __call__(self, d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
        found = _values(self.values, d, s, p)
        return Step(
            Ledger(**{name: found[number] for name, number in self.after.items()}),
            tuple(Guard(sentence, found[number]) for sentence, number in self.guards),
            tuple(EFFECTS[kind](**{name: found[at] for name, at in parts.items()}) for kind, parts in self.effects),
        )


def _values(values: Sequence[Value], d: Any, s: Any, p: Any) -> list[Any]:
    spaces, found = {"d": d, "s": s, "p": p}, list[Any]()
    for operator, arguments in values:
        if operator == "read":
            space, name = arguments
            found.append(getattr(spaces[space], name))  # type: ignore[index,arg-type]
        elif operator == "constant":
            value = arguments[0]
            found.append(value if not isinstance(value, bool) else d.true if value else d.false)
        else:
            found.append(OPERATIONS[operator](d, *(found[number] for number in arguments)))  # type: ignore[index]
    return found


# --- writing --------------------------------------------------------------------------------------------------------


class Writing(Tracing):
    """Terms in which a length of no or of one token is not the count 0 or 1."""

    def __init__(self) -> None:
        super().__init__()
        self.zero, self.one = self.read("d.zero"), self.read("d.one")


def written_rule(run: Callable[..., Step], params: Mapping[str, str], path: str, line: int | None) -> WrittenRule:
    """Run a rule once and write down what it did. Raises whatever the rule raises."""
    d = Writing()
    step, book = run(d, d.arbitrary(Ledger), d.parameters(params)), _Book(d)
    return WrittenRule(
        after={name: book.number(getattr(step.after, name)) for name in FIELD_NAMES},
        guards=tuple((guard.sentence, book.number(guard.holds)) for guard in step.guards),
        effects=tuple((type(effect).__name__, dict(book.parts(effect))) for effect in step.effects),
        values=tuple(book.values),
        path=path,
        line=line,
    )


def written_flag(applies: Callable[..., Flag]) -> WrittenFlag:
    d = Writing()
    flag, book = applies(d, d.arbitrary(Ledger)), _Book(d)
    return WrittenFlag(holds=book.number(flag), values=tuple(book.values))


class _Book:
    """The values of a rule in an order in which each comes after those that it needs."""

    def __init__(self, d: Writing) -> None:
        self.values: list[Value] = []
        self._d, self._numbers = d, dict[Term, int]()

    def number(self, value: Any) -> int:
        waiting = [self._d.lift(value)]
        while waiting:
            term = waiting[-1]
            parts = [part for part in term.arguments if isinstance(part, Term)]
            if missing := [part for part in parts if part not in self._numbers]:
                waiting += missing
                continue
            waiting.pop()
            if term not in self._numbers:
                self._numbers[term] = len(self.values)
                self.values.append((term.operator, tuple(self._argument(term))))
        return self._numbers[self._d.lift(value)]

    def _argument(self, term: Term) -> Iterable[Argument]:
        if term.operator == "read":
            return str(term.arguments[0]).split(".", 1)
        return (self._numbers[part] if isinstance(part, Term) else part for part in term.arguments)

    def parts(self, effect: Any) -> Iterable[tuple[str, int]]:
        return ((field.name, self.number(getattr(effect, field.name))) for field in fields(effect))


@dataclass(frozen=True)
class WrittenHelper:
    """An auxiliary invariant, and where it was written."""

    statement: str
    holds: WrittenFlag
    path: str
    line: int | None


# --- reading --------------------------------------------------------------------------------------------------------


def action_of(name: str, rule: WrittenRule, applies: WrittenFlag | None) -> Action:
    """The built-in action with this step. Raises NotARuleError for data that are not one, whoever sent them."""
    action = ACTIONS[name]
    _check_values(rule.values, action.params)
    _check_numbers(rule.values, [*rule.after.values(), *(number for _, number in rule.guards)])
    if rule.after.keys() != set(FIELD_NAMES):
        raise NotARuleError("the state after the step has other fields than a ledger")
    for ghost in sorted(GHOSTS):
        if rule.values[rule.after[ghost]] != ("read", ("s", ghost)):
            raise NotARuleError(f"{ghost} is a ghost field: only effects write it")
    for kind, parts in rule.effects:
        _check_effect(rule.values, kind, parts)
    of_fields = (number for name, number in rule.after.items() if name not in GHOSTS)
    of_effects = (number for _, parts in rule.effects for number in parts.values())
    _check_reads(rule.values, [*of_fields, *of_effects, *(number for _, number in rule.guards)])
    if applies is not None:
        _check_flag(applies)
        _check_reads(applies.values, [applies.holds])
    found = Action(
        name,
        action.event,
        action.summary,
        applies or action.applies,
        rule,
        action.params,
        action.source,
        action.of_another,
    )
    _check_run(found)
    return found


def helper_of(name: str, helper: WrittenHelper) -> Invariant:
    """The auxiliary invariant. It may read ghost fields. Raises NotARuleError for data that are not one."""
    if not HELPER.fullmatch(name):
        raise NotARuleError(f"HELPERS: the id of a helper is X and a number, not {name!r}")
    _check_flag(helper.holds)
    d = Symbols()
    try:
        d.every(helper.holds(d, d.arbitrary(Ledger)))
    except Exception as error:
        raise NotARuleError(f"it does not run: {type(error).__name__}: {error}") from error
    return Invariant(name, helper.statement, helper.path, "", helper.holds)


def _check_flag(flag: WrittenFlag) -> None:
    _check_values(flag.values, {})
    _check_numbers(flag.values, [flag.holds])


def _check_values(values: Sequence[Value], params: Mapping[str, str]) -> None:
    known = {"d": set(NUMBERS), "s": set(FIELD_NAMES), "p": set(params)}
    if len(values) > MOST_VALUES:
        raise NotARuleError(f"the rule has {len(values):,} values, more than {MOST_VALUES:,}")
    for number, (operator, arguments) in enumerate(values):
        if operator == "read":
            space, name = arguments if len(arguments) == 2 else ("", "")
            if name not in known.get(str(space), ()):
                raise NotARuleError(f"nothing to read is named {space}.{name}")
        elif operator == "constant":
            if len(arguments) != 1 or not isinstance(arguments[0], int) or abs(arguments[0]) > MOST_CONSTANT:
                raise NotARuleError(f"a constant is a flag or a number up to {MOST_CONSTANT:,}")
        elif operator not in OPERATIONS:
            raise NotARuleError(f"no operation is named {operator!r}")
        else:
            _check_numbers(values[:number], arguments)


def _check_reads(values: Sequence[Value], results: Iterable[int]) -> None:
    """No implementation has the ghost fields, so none could follow a rule that reads one. They are handed on as they were."""
    used: set[Any] = {
        number for operator, numbers in values if operator not in ("read", "constant") for number in numbers
    }
    for number in sorted({*results, *used}):
        operator, arguments = values[number]
        if operator == "read" and arguments[1] in GHOSTS:
            raise NotARuleError(f"{arguments[1]} is a ghost field: no server has it, so no rule reads it")


def _check_numbers(values: Sequence[Value], numbers: Iterable[Any]) -> None:
    for number in numbers:
        if type(number) is not int or not 0 <= number < len(values):
            raise NotARuleError(f"{number!r} is not the number of a value")


def _check_effect(values: Sequence[Value], kind: str, parts: Mapping[str, int]) -> None:
    if kind not in EFFECTS:
        raise NotARuleError(f"no effect is named {kind}; valid: {', '.join(EFFECTS)}")
    if parts.keys() != {field.name for field in fields(EFFECTS[kind])}:  # type: ignore[arg-type]
        raise NotARuleError(f"{kind} has other parts than these: {', '.join(parts)}")
    _check_numbers(values, parts.values())


def _check_run(action: Action) -> None:
    """Counts, lengths and flags are not mixed: on symbols that is an error."""
    d = Symbols()
    try:
        s = d.arbitrary(Ledger)
        d.every(action.applies(d, s))
        step = action.run(d, s, d.parameters(action.params))
        after, _ = apply_effects(d, step.after, step.effects)
        d.every(*(guard.holds for guard in step.guards), *(i.holds(d, after) for i in ALL_INVARIANTS.values()))
    except Exception as error:
        raise NotARuleError(f"it does not run: {type(error).__name__}: {error}") from error
