"""The specification as LLVM assembly: each rule, its conditions and what the replay compares, traced and printed.

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

from kvproof.conformance.compiled import layout
from kvproof.conformance.compiled.assembly import PARAMETERS, Assembly
from kvproof.conformance.compiled.layout import FIELDS, MOVES, WITHOUT_PAGES
from kvproof.conformance.compiled.weighing import Weigher
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.compared_fields import (
    OF_A_SESSION,
    TracedComparison,
    invariants_about,
    traced_comparisons,
)
from kvproof.conformance.replay.coverage import COUNTED, WINDOW_PAGES, checked_by_step, decisions_of
from kvproof.conformance.replay.judge import check_terms, parameters
from kvproof.conformance.replay.memory_check import wrong_terms
from kvproof.conformance.replay.page_book import FREE, TREE
from kvproof.conformance.replay.replayer import still_needs
from kvproof.conformance.traces.columnar_schema import (
    ABSENT,
    ACTIONS,
    FLAG_PARAMS,
    NUMBER_PARAMS,
    NUMBERS_AFTER,
)
from kvproof.model.compiled.assembly import PRELUDE
from kvproof.model.oracle import Outcome
from kvproof.model.tracing import Path, Term, Tracing
from kvproof.spec.actions import Action, Step
from kvproof.spec.effects import (
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

FUNCTIONS = ("judge_ledger", "weigh_invariants", "report_ledger", "terms_are_right", "still_needs")
"""What the loop calls, in the order of their addresses (`layout.py`)."""
LEDGER_EVENTS = tuple(name for name in ACTIONS if name not in ("evict", "check"))


@dataclass
class TracedOracle:
    """Takes the oracle's place in the replay's own code: a step on terms. `must_hold` are its guards and side conditions."""

    d: Tracing
    actions: Mapping[str, Action]
    must_hold: tuple[Any, ...] = ()
    taken: Step | None = None

    def step(self, action: Action, s: Ledger, params: Mapping[str, Any]) -> Outcome:
        step = action.run(self.d, s, SimpleNamespace(**params))
        after, conditions = apply_effects(self.d, step.after, step.effects)
        self.taken = step
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


def agreement(d: Tracing, compared: Mapping[str, TracedComparison]) -> str:
    """What `judge` compares of lengths and flags, as the lines of a function: what was seen is what the successor says.

    It is the same whatever the successor is, so it is traced on an arbitrary one, and most actions share one text. It also
    writes which values the event shows, and which it could show and does not.
    """
    written = Assembly()
    here = written.value(d.read("shown"))
    shown = written.put(f"and i64 {here}, {_bits({name: c.is_due for name, c in compared.items()}, written)}")
    # One that names no session has nothing to show of it.
    names_one = d.read("session") >= 0
    due = {name: d.every(c.is_due, names_one) if name in OF_A_SESSION else c.is_due for name, c in compared.items()}
    hidden = written.put(f"and i64 {_bits(due, written)}, {written.put(f'xor i64 {here}, -1')}")
    moved_up = written.put(f"shl i64 {hidden}, {len(layout.SHOWN_BITS)}")
    written.store_text(written.put(f"or i64 {shown}, {moved_up}"), "answer", layout.SHOWS)
    judged = (c for c in compared.values() if c.seen is not c.expected)  # else only whether it is shown is of interest
    agrees = d.every(*(d.some(d.no(c.is_due), c.seen == ABSENT, c.seen == c.expected) for c in judged))
    return written.function(AGREES, "i1", written.value(agrees))


AGREES = "agrees"


def _bits(flags: Mapping[str, Any], written: Assembly) -> str:
    """The bits of the values whose flag holds."""
    masks: dict[Any, int] = {}
    for name, flag in flags.items():
        masks[flag] = masks.get(flag, 0) | 1 << layout.SHOWN_BITS[name]
    return written.union((mask, flag) for flag, mask in masks.items())


def about(compared: Mapping[str, TracedComparison], invariants: Mapping[str, Invariant]) -> list[int]:
    """Of each value that an event of an action may show, the invariants that it is about, as bits."""
    names = {name: invariants_about(c.fields, invariants.values()) for name, c in compared.items()}
    return [sum(1 << COUNTED.index(i) for i in names.get(name, ())) for name in layout.SHOWN_BITS]


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


def seen_of(d: Tracing, action: Action, oracle: TracedOracle) -> list[tuple[int, Any]]:
    """What a step checks, as bits and when they are set: invariants, then the branches of guards but the last."""
    assert oracle.taken is not None

    def is_shown(name: str) -> Any:
        if name == WINDOW_PAGES:  # a clean event lists those that moved
            return d.read("d.window_followed", is_flag=True)
        return is_there(d, name) if name.startswith(("param_", "after_")) else False

    bits = {name: bit for bit, name in enumerate(COUNTED)}
    decisions = list(decisions_of(d, action.name, oracle.taken.guards))
    seen = [(bits[name], flag) for name, flag in checked_by_step(d, action, oracle.taken, is_shown).items()]
    seen += enumerate((flag for decision in decisions for flag in decision.taken), len(bits))
    assert len(seen) < layout.PLANES
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


def rule_source(rule: TracedRule, number: int, agrees: str, weigher: Weigher) -> str:
    """`take_NAME`: the number of the rule if an event is clean by it, pages apart; else -1.

    It writes the ledger after the event, the page moves (the first 0 ends them), what the step exercised and what the ledger
    exercises then. All of that is computed before the first question is answered, and worth nothing where the answer is -1.
    """
    must_hold, written = list(rule.must_hold), Assembly()
    for name, value in rule.changed.items():
        written.store(value, "new", FIELDS[name])
    count: str | int = 0
    for effect in rule.outcome.effects:
        if isinstance(effect, FreeByLoc):
            # No right rule frees beside the release: an event that does is not clean.
            must_hold.append(rule.d.no(effect.start < effect.end))
        elif not isinstance(effect, WITHOUT_PAGES):
            when, arguments = moved(rule.d, effect)
            first = written.put(f"mul i64 {count}, {layout.NUMBERS_OF_A_MOVE}")
            for place, value in enumerate((MOVES[type(effect)], *arguments)):
                written.store(value, "moves", written.put(f"add i64 {first}, {place}"))
            count = written.put(f"add i64 {count}, {written.number(when)}")
    written.store(0, "moves", written.put(f"mul i64 {count}, {layout.NUMBERS_OF_A_MOVE}"))
    written.store_text(written.bits(seen_of(rule.d, rule.action, rule.oracle)), "answer", layout.CHECKED)
    clean = [
        written.value(rule.d.every(*must_hold)),
        written.call(agrees, "i1"),
        weigher.weighed_behind(rule.changed, written),
    ]
    is_clean = written.folded("and", clean)
    result = written.put(f"select i1 {is_clean}, i64 {number}, i64 -1")
    return written.function(f"take_{rule.action.name}", "i64", result)


def applies_source(action: Action) -> str:
    d, written = Tracing(), Assembly()
    return written.function(f"applies_{action.name}", "i1", written.value(action.applies(d, d.arbitrary(Ledger))))


def dispatch_source(actions: Mapping[str, Action]) -> str:
    """`judge_ledger`: the number of the rule that an event is judged by if the event is clean by it; else -1.

    `number` is the event's, twice, and 1 more if its turn is another than the session's.
    """
    cases: dict[int, list[str]] = {}
    for action in actions.values():
        if action.event in LEDGER_EVENTS:
            cases.setdefault(2 * ACTIONS.index(action.event) + bool(action.of_another), []).append(action.name)
    targets = " ".join(f"i64 {case}, label %case_{case}_0" for case in cases)
    lines = [f"switch i64 %number, label %none [{targets}]"]
    for case, names in cases.items():
        for place, name in enumerate(names):
            following = f"case_{case}_{place + 1}" if place + 1 < len(names) else "none"
            lines += [
                f"case_{case}_{place}:",
                f"%applies_{name} = call i1 @applies_{name}({PARAMETERS})",
                f"br i1 %applies_{name}, label %{name}, label %{following}",
                f"{name}:",
                f"%rule_{name} = call i64 @take_{name}({PARAMETERS})",
                f"ret i64 %rule_{name}",
            ]
    body = "\n".join([*lines, "none:", "ret i64 -1"])
    return f"define i64 @judge_ledger({PARAMETERS}) {{\n{body}\n}}\n"


def report_source(actions: Mapping[str, Action]) -> str:
    """`report_ledger`: the four terms of the memory check of one ledger, by the rule of the check."""
    d, written = Tracing(), Assembly()
    oracle: Any = TracedOracle(d, actions)
    terms = check_terms(oracle, {"": d.arbitrary(Ledger)}, frozenset())
    for place, field in enumerate(dataclasses.fields(Report)):
        written.store(getattr(terms, field.name), "answer", place)
    return written.function("report_ledger", "i64", "0", linkage="")


def check_source() -> str:
    """`terms_are_right`: whether the terms that a check read are the true counts, as `memory_check` compares them."""
    d = Tracing()
    counted = {FREE: d.read("c.FREE_COUNT"), TREE: d.read("c.TREE_COUNT")}
    window = SimpleNamespace(
        is_followed=d.read("d.window_followed", is_flag=True),
        free_count=lambda: d.read("c.WINDOW_FREE_COUNT"),
    )
    book: Any = SimpleNamespace(
        count=counted.get,
        protected=d.read("c.PROTECTED_COUNT"),
        window=window,
        windows_of_tree=lambda: (d.read("c.WINDOW_TREE_COUNT"), d.read("c.WINDOW_PROTECTED_COUNT")),
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
    written = Assembly()
    return written.function("terms_are_right", "i64", written.number(right), linkage="")


def window_source() -> str:
    """`still_needs`: whether the window of a ledger's next token reaches the page at a position, `number`, of its row."""
    d, written = Tracing(), Assembly()
    needs = d.merged(d.every_path(lambda: still_needs(d, d.arbitrary(Ledger), d.read("number"))))  # type: ignore[arg-type]
    return written.function("still_needs", "i64", written.number(needs), linkage="")


@dataclass(frozen=True)
class RulesSource:
    """What follows from the specification."""

    text: str
    """All functions."""
    about: tuple[tuple[int, ...], ...]
    """Of each action and value that its event may show, the invariants that it is about."""


def rules_source(actions: Mapping[str, Action], invariants: Mapping[str, Invariant]) -> RulesSource:
    assert list(invariants) == list(COUNTED[: len(invariants)])
    rules = {number: TracedRule.of(a) for number, a in enumerate(actions.values()) if a.event in LEDGER_EVENTS}
    d = Tracing()
    compared = {number: traced_comparisons(d, rule.action) for number, rule in rules.items()}
    bodies = {number: agreement(d, of_one) for number, of_one in compared.items()}
    agrees = {body: f"{AGREES}_{place}" for place, body in enumerate(dict.fromkeys(bodies.values()))}
    weigher = Weigher(invariants)
    text = "\n".join(
        [
            PRELUDE,
            *(body.replace(f"@{AGREES}(", f"@{name}(") for body, name in agrees.items()),
            *(applies_source(rule.action) for rule in rules.values()),
            *(rule_source(rule, number, agrees[bodies[number]], weigher) for number, rule in rules.items()),
            *weigher.functions(),
            dispatch_source(actions),
            report_source(actions),
            check_source(),
            window_source(),
        ]
    )
    return RulesSource(text, tuple(tuple(about(compared.get(n, {}), invariants)) for n in range(len(actions))))
