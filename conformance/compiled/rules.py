"""The specification as source: each rule, its conditions and what the replay compares, traced and printed.

Nothing here knows a rule. Actions, effects and invariants are run on terms (`model/tracing.py`), and so is the code of the
interpreted replay that reads parameters off an event and compares what was seen (`judge.py`, `memory_check.py`): what it
computes is what is printed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from kvproof.conformance.compiled.layout import FIELDS, LARGEST_MOVES, MOVES, RULE_BITS, WITHOUT_PAGES
from kvproof.conformance.compiled.printing import bits_set, preamble, predicate, reads, taken
from kvproof.conformance.compiled.source import Printer, function, is_flag
from kvproof.conformance.compiled.weighing import invariants_source
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.coverage import COUNTED, decisions_of, exercised_by_step
from kvproof.conformance.replay.judge import check_terms, judge, parameters
from kvproof.conformance.replay.memory_check import wrong_terms
from kvproof.conformance.replay.page_book import FREE, TREE, Moves
from kvproof.conformance.replay.replayer import Replayer
from kvproof.conformance.traces.columnar_schema import (
    ABSENT,
    ACTIONS,
    FLAG_PARAMS,
    FLAGS_AFTER,
    NUMBER_PARAMS,
    NUMBERS_AFTER,
)
from kvproof.model.oracle import Outcome
from kvproof.model.tracing import Path, Term, Tracing
from kvproof.spec.actions import Action, Guard
from kvproof.spec.effects import (
    Condition,
    DropRow,
    Effect,
    Free,
    FreeByLoc,
    FreeWindow,
    Insert,
    Report,
    Share,
    Take,
    TakeRow,
    apply_effects,
)
from kvproof.spec.invariants import Invariant
from kvproof.spec.state import FIELD_NAMES, Ledger
from kvproof.spec.trace import Terms

LEDGER_EVENTS = tuple(name for name in ACTIONS if name not in ("evict", "check"))


class Seen(Term):
    """A value that an event may hold. Whoever compares it says what it has to be, and is told that it is that."""

    __slots__ = ("wanted",)

    def __init__(self, raw: Term, wanted: list[tuple[Term, Any]]) -> None:
        super().__init__(raw.domain, raw.operator, raw.arguments, raw.is_flag)
        self.wanted = wanted

    __hash__ = Term.__hash__

    def __ne__(self, other: Any) -> Any:
        self.wanted.append((column(self.domain, self.arguments[0]), other))
        return False

    def __eq__(self, other: Any) -> Any:
        return not self != other


@dataclass
class TracedOracle:
    """Takes the oracle's place in the replay's own code: a step on terms. `must_hold` are its guards and side conditions."""

    d: Tracing
    actions: Mapping[str, Action]
    must_hold: tuple[Any, ...] = ()
    guards: tuple[Guard, ...] = ()
    conditions: tuple[Condition, ...] = ()

    def step(self, action: Action, s: Ledger, params: Mapping[str, Any]) -> Outcome:
        step = action.run(self.d, s, SimpleNamespace(**params))
        after, conditions = apply_effects(self.d, step.after, step.effects)
        self.guards, self.conditions = step.guards, conditions
        self.must_hold = (*(g.holds for g in step.guards), *(c.holds for c in conditions))
        return Outcome(action, s, after, step.effects, (), ())


def column(d: Tracing, name: str) -> Term:
    """The number that stands in a column, ABSENT where the event has none."""
    return d.read(name)


def is_there(d: Tracing, name: str) -> Any:
    return column(d, name) != ABSENT


def _param(d: Tracing, name: str) -> Any:
    raw = d.read(f"param_{name}")
    return raw != 0 if name in FLAG_PARAMS else raw


def _after_or_nothing(d: Tracing, name: str) -> Any:
    """What was seen, or 0: code that asks for it with `or` treats the two alike."""
    raw = d.read(f"after_{name}")
    return d.where(raw != ABSENT, raw, 0)


def given_parameters(d: Tracing, action: Action, before: Ledger) -> tuple[dict[str, Any], list[Any]]:
    """The parameters of a rule as `judge.parameters` reads them, and what must be there for it.

    It is run on an event with all parameters, and for each on one without it: what it gives then is the default.
    """
    after = SimpleNamespace(**{name: _after_or_nothing(d, name) for name in NUMBERS_AFTER})
    all_of_them = {name: _param(d, name) for name in (*FLAG_PARAMS, *NUMBER_PARAMS)}

    def read(name: str, params: dict[str, Any]) -> Any:
        event: Any = SimpleNamespace(seq=0, action=action.event, params=params, after=after)
        return d.merged(d.every_path(lambda: parameters(event, action, before).get(name)))

    given, needed = {}, []
    for name in action.params:
        given[name] = read(name, all_of_them)
        if given[name] is all_of_them.get(name):
            try:
                default = read(name, {n: value for n, value in all_of_them.items() if n != name})
            except UserError:
                default = None
            if default is None:
                needed.append(is_there(d, f"param_{name}"))
            else:
                given[name] = d.where(is_there(d, f"param_{name}"), given[name], default)
    return given, needed


def agreement(action: Action) -> str:
    """What `judge` compares of lengths and flags, as the body of a function: what was seen is what the successor says.

    It is the same whatever the successor is, so it is traced on an arbitrary one, and most actions share one text.
    """
    d = Tracing()
    before, after = d.arbitrary(Ledger), d.arbitrary(Ledger, prefix="t")
    outcome = Outcome(action, before, after, (), (), ())

    def compared() -> dict[str, Any]:
        wanted: list[tuple[Term, Any]] = []
        params = {name: Seen(d.read(f"param_{name}"), wanted) for name in (*FLAG_PARAMS, *NUMBER_PARAMS)}
        seen = {name: Seen(d.read(f"after_{name}"), wanted) for name in (*FLAGS_AFTER, *NUMBERS_AFTER)}
        observed = SimpleNamespace(**seen, model_dump=lambda exclude_none: seen)
        event: Any = SimpleNamespace(
            action=action.event,
            params=params,
            after=observed,
            free=(),
            alloc=(),
            window_free=(),
            window_alloc=(),
            row=None,
        )
        oracle: Any = SimpleNamespace(d=d, step=lambda *_: outcome)
        book: Any = SimpleNamespace(foresee=lambda *_: Moves("", None), window=SimpleNamespace(is_followed=False))
        assert judge(oracle, book, "", action, before, event).agrees
        return {raw.arguments[0]: d.some(raw == ABSENT, raw == _number(d, expected)) for raw, expected in wanted}

    paths = d.every_path(compared)
    names = dict.fromkeys(name for path in paths for name in path.result)
    agrees = d.every(*(d.merged([Path(p.decisions, p.result.get(name, True)) for p in paths]) for name in names))
    printer = Printer(reads)
    printer.announce([agrees])
    text = printer.value(agrees)
    return "\n".join([*taken(printer), f"return {text}"])


def _number(d: Tracing, value: Any) -> Any:
    return d.where(value, 1, 0) if is_flag(value) else value


def moved(d: Tracing, effect: Effect) -> tuple[Any, tuple[Any, ...]]:
    """When an effect moves pages, and its arguments in pages; as `PageBook.foresee` takes them."""
    match effect:
        case TakeRow(when=when) | DropRow(when=when):
            return when, ()
        case Share(when=when, pages=pages):
            return when, (pages,)
        case Take(first=first, last=last) | FreeWindow(first=first, last=last):
            return first < last, (first, last)
        case Free(start=start, end=end):
            return start < end, (d.floor_pages(start), d.ceil_pages(end))
        case Insert(when=when, pages=pages, duplicates=duplicates, freed_from=freed_from):
            return when, (pages, duplicates, freed_from)
    raise TypeError(f"no page move is known for {effect}")


def seen_of(d: Tracing, action: Action, oracle: TracedOracle, bits: Mapping[str, int]) -> list[tuple[int, Any]]:
    """What a step exercises, as bits and when they are set: invariants, then the branches of guards but the last."""
    decisions = list(decisions_of(d, action.name, oracle.guards))
    seen = [(bits[name], flag) for name, flag in exercised_by_step(d, action.name, oracle.conditions).items()]
    seen += enumerate((flag for decision in decisions for flag in decision.taken), len(bits))
    assert len(seen) + RULE_BITS < 63
    return seen


@dataclass(frozen=True)
class TracedRule:
    """One action on an arbitrary ledger, with the parameters of an arbitrary event."""

    d: Tracing
    action: Action
    before: Ledger
    oracle: TracedOracle
    outcome: Outcome
    must_hold: tuple[Any, ...]

    @classmethod
    def of(cls, action: Action) -> TracedRule:
        d = Tracing()
        before = d.arbitrary(Ledger)
        given, needed = given_parameters(d, action, before)
        oracle = TracedOracle(d, {})
        outcome = oracle.step(action, before, given)
        return cls(d, action, before, oracle, outcome, (*needed, *oracle.must_hold))

    @property
    def changed(self) -> dict[str, Any]:
        """The fields that it may change, and what they are then."""
        after = {name: getattr(self.outcome.after, name) for name in FIELD_NAMES}
        return {name: value for name, value in after.items() if value is not getattr(self.before, name)}


def rule_source(rule: TracedRule, agrees: str, bits: Mapping[str, int]) -> str:
    """One action: fills in `new` and `moves` and returns what it exercises (`seen_of`) if the event is clean by it,
    invariants and pages apart; else -1.
    """
    d, changed, must_hold = rule.d, rule.changed, list(rule.must_hold)
    page_moves = []
    for effect in rule.outcome.effects:
        if isinstance(effect, FreeByLoc):
            # No right rule frees beside the release: an event that does is not clean.
            must_hold.append(d.no(effect.start < effect.end))
        elif not isinstance(effect, WITHOUT_PAGES):
            when, arguments = moved(d, effect)
            page_moves.append((MOVES[type(effect)], when, arguments))
    assert len(page_moves) < LARGEST_MOVES
    clean = d.every(*must_hold)
    printer = Printer(reads)
    seen = seen_of(d, rule.action, rule.oracle, bits)
    of_moves = (x for _, when, args in page_moves for x in (when, *args))
    printer.announce([clean, *changed.values(), *of_moves, *(flag for _, flag in seen)])
    lines = [*preamble(), *_clean_or_return(printer, clean), *bits_set(printer, "seen", seen)]
    for name, value in changed.items():
        text = printer.number(value)
        lines += [*taken(printer), f"new[{FIELDS[name]}] = {text}"]
    lines += [f"if not {agrees}(old, new, table, event, settings):", "    return -1", "n = 0"]
    for code, when, arguments in page_moves:
        condition, texts = printer.value(when), [printer.value(a) for a in arguments]
        lines += [*taken(printer), f"if {condition}:", f"    moves[n, 0] = {code}"]
        lines += [f"    moves[n, {place}] = {text}" for place, text in enumerate(texts, 1)]
        lines += ["    n += 1"]
    lines += ["moves[n, 0] = 0", "return seen"]
    return function(f"take_{rule.action.name}", "old, new, table, event, settings, moves", lines)


def _clean_or_return(printer: Printer, clean: Any) -> list[str]:
    text = printer.value(clean)
    return [*taken(printer), f"if not {text}:", "    return -1"]


def applies_source(action: Action) -> str:
    d = Tracing()
    return predicate(f"applies_{action.name}", "old, settings", action.applies(d, d.arbitrary(Ledger)))


def dispatch_source(actions: Mapping[str, Action]) -> str:
    """`judge_ledger`: the number of the rule that an event is judged by and, RULE_BITS higher, what that exercises, if the
    event is clean by it; else a negative number.
    """
    assert len(actions) <= 1 << RULE_BITS
    lines = []
    for name in LEDGER_EVENTS:
        lines += [f"if kind == {ACTIONS.index(name)}:"]
        for number, action in enumerate(actions.values()):
            if action.event == name:
                another = "is_another" if action.of_another else "not is_another"
                take = f"take_{action.name}(old, new, table, event, settings, moves)"
                lines += [
                    f"    if {another} and applies_{action.name}(old, settings):",
                    f"        return {take} << {RULE_BITS} | {number}",
                ]
        lines += ["    return -1"]
    return function("judge_ledger", "kind, is_another, old, new, table, event, settings, moves", [*lines, "return -1"])


def report_source(actions: Mapping[str, Action]) -> str:
    """`report_ledger`: the four terms of the memory check of one ledger, by the rule of the check."""
    d = Tracing()
    oracle: Any = TracedOracle(d, actions)
    terms = check_terms(oracle, {"": d.arbitrary(Ledger)}, frozenset())
    values = [getattr(terms, f.name) for f in dataclasses.fields(Report)]
    printer = Printer(reads)
    printer.announce(values)
    lines = preamble()
    for place, value in enumerate(values):
        text = printer.value(value)
        lines += [*taken(printer), f"report[{place}] = {text}"]
    return function("report_ledger", "old, settings, report", [*lines, "return None"])


class _OwnedByTree:
    """Answers for all pages that have a window page: how many of them belong to the tree."""

    def __init__(self, count: Term) -> None:
        self.count = count

    def __eq__(self, other: object) -> Any:
        assert other == TREE
        return self.count

    __hash__ = object.__hash__


def check_source() -> str:
    """`terms_are_right`: whether the terms that a check read are the true counts, as `memory_check` compares them."""
    d = Tracing()
    counted = {FREE: d.read("c.FREE_COUNT"), TREE: d.read("c.TREE_COUNT")}
    window = SimpleNamespace(
        is_followed=d.read("d.window_followed", is_flag=True),
        free_count=lambda: d.read("c.WINDOW_FREE_COUNT"),
        mapped=lambda: [None],
    )
    book: Any = SimpleNamespace(
        count=counted.get,
        protected=d.read("c.PROTECTED_COUNT"),
        window=window,
        owner=lambda _: _OwnedByTree(d.read("c.WINDOW_TREE_COUNT")),
    )
    true = Report(*(d.read(f"c.{f.name.upper()}") for f in dataclasses.fields(Report)))

    def first_wrong(with_window: bool) -> Any:
        def terms(kind: str) -> Any:
            return SimpleNamespace(**{name: d.read(f"{kind}_{name}") for name in Terms.model_fields})

        event: Any = SimpleNamespace(terms=terms("terms"), window_terms=terms("window_terms") if with_window else None)
        return d.merged(
            [
                Path(p.decisions, p.result is None)
                for p in d.every_path(lambda: next(wrong_terms(event, book, true), None))
            ]
        )

    right = d.where(is_there(d, "window_terms_total"), first_wrong(True), first_wrong(False))
    return predicate("terms_are_right", "table, event, counts, settings", right)


def window_source() -> str:
    """`still_needs`: whether the window of a ledger's next token reaches the page at a position of its row."""
    d = Tracing()
    stub: Any = SimpleNamespace(d=d, ledgers={"": d.arbitrary(Ledger)})
    position: Any = d.read("position")
    needs = d.merged(d.every_path(lambda: Replayer._still_needs(stub, "", position)))

    def reads_here(term: Term) -> str:
        return "position" if term.arguments[0] == "position" else reads(term)

    return predicate("still_needs", "old, position, settings", needs, reads_here)


def rules_source(actions: Mapping[str, Action], invariants: Mapping[str, Invariant]) -> str:
    """All functions that follow from the specification."""
    of_ledgers = [a for a in actions.values() if a.event in LEDGER_EVENTS]
    bits = {name: bit for bit, name in enumerate(COUNTED)}
    assert list(invariants) == list(COUNTED[: len(invariants)])
    bodies = {a.name: agreement(a) for a in of_ledgers}
    rules = {a.name: TracedRule.of(a) for a in of_ledgers}
    written = {number: frozenset(rules[name].changed) for number, name in enumerate(actions) if name in rules}
    agrees = {body: f"agrees_{number}" for number, body in enumerate(dict.fromkeys(bodies.values()))}
    parts = [
        *(
            function(name, "old, new, table, event, settings", [*preamble(), *body.splitlines()])
            for body, name in agrees.items()
        ),
        *(applies_source(a) for a in of_ledgers),
        *(rule_source(rule, agrees[bodies[name]], bits) for name, rule in rules.items()),
        dispatch_source(actions),
        invariants_source(invariants, written),
        report_source(actions),
        check_source(),
        window_source(),
    ]
    return "\n\n".join(parts)
