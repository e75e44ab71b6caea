"""What a copy of the specification says, as Z3 terms; and whether two copies say the same.

Terms of both copies are built over the same symbols, so what did not change is the same term. Where terms differ, the solver
says whether there is a state in which their values do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.spec.state import Ledger
from rule_mutation.mutant_spec import SpecCopy

RLIMIT = 5_000_000
"""Z3's resource units for one check: no machine is too slow for a verdict."""
Flat = tuple[Any, ...]
WRONG_RULE = "wrong rule"
ARBITRARY = {"Flag": "flag", "Length": "length", "Count": "count"}


@dataclass(frozen=True)
class RuleTerms:
    """One action: when it applies, its guards, the successor, the side conditions by invariant, and what moves pages."""

    facts: Flat
    applies: Any
    guards: Any
    after: Flat
    conditions: Flat
    moves: tuple[tuple[str, Any, Flat], ...]

    def parts(self) -> Iterator[Any]:
        yield from (self.applies, self.guards, *self.after, *self.conditions)
        for name, active, arguments in self.moves:
            yield from (name, active, *arguments)


@dataclass(frozen=True)
class CheckTerms:
    """One effect on arbitrary arguments, or one invariant: what it demands, and what it makes of the ghosts."""

    facts: Flat
    demands: Flat
    result: Flat


class Meaning:
    """All terms of one copy, each built once when asked for."""

    def __init__(self, copy: SpecCopy) -> None:
        self.copy = copy
        self.d = copy.symbolic.Symbols()

    @cached_property
    def rules(self) -> dict[str, RuleTerms]:
        machines = self.copy.machines
        return {name: self.rule(action, m.state) for m in machines for name, action in m.actions.items()}

    @cached_property
    def faults(self) -> dict[str, dict[str, RuleTerms]]:
        """Each fault's deviating actions."""
        return {
            name: {action: self.rule(rule, fault.machine.state) for action, rule in fault.deviations.items()}
            for name, fault in self.copy.faults.items()
        }

    @cached_property
    def checks(self) -> dict[str, CheckTerms]:
        """What effects demand: a rule that is right meets it always, so only wrong ones tell a weaker demand."""
        return {name: self._effect(cls) for name, cls in _effect_classes(self.copy).items()}

    @cached_property
    def invariants(self) -> dict[str, dict[str, CheckTerms]]:
        """Of each machine, by id."""
        return {m.name: self._of_machine(m) for m in self.copy.machines}

    def _of_machine(self, machine: Any) -> dict[str, CheckTerms]:
        s = self.d.arbitrary(machine.state)
        facts = self._facts(s, SimpleNamespace(), {})
        found = machine.all_invariants.values()
        return {i.id: CheckTerms(facts, flat(i.holds(self.d, s)), ()) for i in found}

    @cached_property
    def others(self) -> dict[str, CheckTerms]:
        """What else a proof asks about ledgers: the stages of a turn with their ways on, the rank, situations, wrong rules."""
        s, facts = self.d.arbitrary(Ledger), self._facts(self.d.arbitrary(Ledger), SimpleNamespace(), {})
        found = {"rank": flat(self.copy.liveness_of_spec.rank(self.d, s))}
        for stage in self.copy.liveness_of_spec.STAGES:
            found[stage.waits_for] = flat(stage.holds(self.d, s))
            for name, params in stage.ways.items():
                given = params(self.d, s)
                asked = [given[param] for param in self.copy.actions[name].params if param in given]
                found[f"{stage.waits_for}: {name}"] = tuple(part for value in asked for part in flat(value))
        of_configurations = self.copy.expectations.CONFIGURED.values()
        for situation in dict.fromkeys(e for of in of_configurations for e in of):
            found[situation.name] = flat(situation.holds(self.d, s))
        for number, twin in enumerate(self.copy.condition_twins.TWINS):
            found[f"{WRONG_RULE} {number}"] = self.rule(twin.action, self.copy.state.Ledger).conditions
        return {name: CheckTerms(facts, terms, ()) for name, terms in found.items()}

    @cached_property
    def start(self) -> Flat:
        return tuple(part for m in self.copy.machines for part in _fields(m.start(self.d)))

    @cached_property
    def allowed(self) -> dict[str, Any]:
        """For each action, the states of its machine that all invariants allow."""
        of = {name: z3.And(*(p for t in terms.values() for p in t.demands)) for name, terms in self.invariants.items()}
        return {action: of[m.name] for m in self.copy.machines for action in m.actions}

    @cached_property
    def _ids(self) -> list[str]:
        return sorted({i for m in self.copy.machines for i in m.all_invariants})

    @cached_property
    def moving(self) -> frozenset[str]:
        """Effects that move pages, rows or locks; the others only say or check something."""
        s = self.d.arbitrary(Ledger)
        return frozenset(
            name
            for name, cls in _effect_classes(self.copy).items()
            if any(
                not same(flat(getattr(s, f.name)), flat(getattr(after, f.name)))
                for after in [self._applied(cls, s)[0]]
                for f in self.copy.state.FIELDS
                if f.metadata["sort"] == "count"
            )
        )

    def rule(self, action: Any, state: type) -> RuleTerms:
        d = self.d
        before, params = d.arbitrary(state), d.parameters(action.params)
        step = action.run(d, before, params)
        after, conditions = self.copy.events.take(d, action, before, step, params)
        return RuleTerms(
            self._facts(before, params, action.params),
            _flag(action.applies(d, before)),
            z3.And(*(_flag(g.holds) for g in step.guards)),
            (*_fields(step.after), *_fields(after)),
            _by_invariant(conditions, self._ids),
            tuple(self._move(e) for e in step.effects if type(e).__name__ in self.moving),
        )

    def _move(self, effect: Any) -> tuple[str, Any, Flat]:
        """An effect's name, whether it does anything, and its arguments in pages."""
        values = {f.name: getattr(effect, f.name) for f in dataclasses.fields(effect)}
        active = z3.BoolVal(True)
        if "when" in values:
            active = _flag(values.pop("when"))
        elif bounds := [values[name] for name in ("first", "last", "start", "end") if name in values]:
            active = _flag(bounds[0] < bounds[1])
        in_pages = (self._pages(v, at_end=i > 0) for i, v in enumerate(values.values()))
        return type(effect).__name__, active, tuple(v for value in in_pages for v in value)

    def _pages(self, value: Any, at_end: bool) -> Flat:
        if not hasattr(value, "pages"):
            return flat(value)
        return flat(self.d.ceil_pages(value) if at_end else self.d.floor_pages(value))

    def _facts(self, before: Any, params: SimpleNamespace, sorts: dict[str, str]) -> Flat:
        return tuple(self.d.domain_facts(before, params, sorts))

    def _effect(self, cls: Any) -> CheckTerms:
        s = self.d.arbitrary(Ledger)
        after, conditions = self._applied(cls, s)
        facts = (
            *self._facts(s, SimpleNamespace(), {}),
            *self._facts(self.d.arbitrary(Ledger, "'"), SimpleNamespace(), {}),
        )
        return CheckTerms(facts, _by_invariant(conditions, self._ids), _fields(after))

    def _applied(self, cls: Any, s: Any) -> Any:
        sorts = {f.name: ARBITRARY.get(str(f.type)) for f in dataclasses.fields(cls)}
        given = {name: self.d.variable(sort, f"@{name}") if sort else "" for name, sort in sorts.items()}
        return cls(**given).apply(self.d, s, self.d.arbitrary(Ledger, "'"))


def _effect_classes(copy: SpecCopy) -> dict[str, Any]:
    classes = (v for v in vars(copy.effects).values() if isinstance(v, type) and hasattr(v, "apply"))
    return {cls.__name__: cls for cls in classes}


def _by_invariant(conditions: Iterable[Any], invariants: Iterable[str]) -> Flat:
    """For each invariant, all conditions that name it."""
    found = list(conditions)
    return tuple(z3.And(*(_flag(c.holds) for c in found if c.invariant == i)) for i in invariants)


def _fields(s: Any) -> Flat:
    return tuple(part for f in dataclasses.fields(s) for part in flat(getattr(s, f.name)))


def flat(value: Any) -> Flat:
    """A value as Z3 terms: a length is two."""
    if hasattr(value, "pages") and hasattr(value, "offset"):
        return (*flat(value.pages), *flat(value.offset))
    if isinstance(value, bool):
        return (z3.BoolVal(value),)
    return (z3.IntVal(value) if isinstance(value, int) else value,)


def _flag(value: Any) -> Any:
    return z3.BoolVal(value) if isinstance(value, bool) else value


def same(a: Iterable[Any], b: Iterable[Any]) -> bool:
    """The very same terms."""
    one, other = list(a), list(b)
    return len(one) == len(other) and all(
        x == y if isinstance(x, str) else x.eq(y) for x, y in zip(one, other, strict=True)
    )


def rules_that_differ(right: Meaning, wrong: Meaning, where: Mapping[str, Any] | None = None) -> dict[str, RuleTerms]:
    """Actions whose step is another one, in some well-formed state; `where` narrows the states of each action."""
    return {
        name: rule
        for name, rule in wrong.rules.items()
        if not same(right.rules[name].parts(), rule.parts())
        and _can_be(right.rules[name].facts, where and where[name], _another_step(right.rules[name], rule))
    }


def effects_that_differ(right: Meaning, wrong: Meaning) -> list[str]:
    """Effects that demand something else. What an effect makes of ghosts counts where its demands are met."""
    found = []
    for name, check in wrong.checks.items():
        known = right.checks[name]
        if same((*known.demands, *known.result), (*check.demands, *check.result)):
            continue
        demand, other = z3.And(*known.demands), z3.And(*check.demands)
        result = z3.And(demand, _differ(known.result, check.result))
        if _can_be(known.facts, None, z3.Or(demand != other, result)):
            found.append(name)
    return found


def invariants_that_differ(right: Meaning, wrong: Meaning) -> list[str]:
    """Invariants that say something else, if all of their machine together allow other states; else none."""
    found = []
    for machine, checks in wrong.invariants.items():
        known = right.invariants[machine]
        changed = [i for i, check in checks.items() if not same(known[i].demands, check.demands)]
        if changed:
            before, after = (z3.And(*(p for c in of.values() for p in c.demands)) for of in (known, checks))
            found += changed if _can_be(next(iter(known.values())).facts, None, before != after) else []
    return found


def checks_that_differ(right: Mapping[str, CheckTerms], wrong: Mapping[str, CheckTerms]) -> list[str]:
    """Those that say something else in some well-formed state."""
    return [
        name
        for name, check in wrong.items()
        if not same(right[name].demands, check.demands)
        and _can_be(check.facts, None, _differ(right[name].demands, check.demands))
    ]


def _another_step(right: RuleTerms, wrong: RuleTerms) -> Any:
    """Another choice of rule, other guards, or, where both allow the step, another outcome."""
    outcome = z3.Or(
        _differ(right.after, wrong.after), _differ(right.conditions, wrong.conditions), _other_moves(right, wrong)
    )
    return z3.Or(
        right.applies != wrong.applies,
        z3.And(right.applies, z3.Or(right.guards != wrong.guards, z3.And(right.guards, outcome))),
    )


def _other_moves(right: RuleTerms, wrong: RuleTerms) -> Any:
    """Page moves, side by side: one that the other lacks must do nothing; equal ones must be of the same pages."""
    parts = [z3.BoolVal(False)]
    matcher = SequenceMatcher(None, [m[0] for m in right.moves], [m[0] for m in wrong.moves], autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            for (_, active, of_right), (_, also, of_wrong) in zip(right.moves[i:j], wrong.moves[k:m], strict=True):
                parts += [active != also, z3.And(active, _differ(of_right, of_wrong))]
        else:
            parts += [active for _, active, _ in (*right.moves[i:j], *wrong.moves[k:m])]
    return z3.Or(*parts)


def _differ(a: Flat, b: Flat) -> Any:
    return z3.Or(*(x != y for x, y in zip(a, b, strict=True)))


def _can_be(facts: Flat, where: Any, difference: Any) -> bool:
    """There may be such a state: also where the solver does not know."""
    return bool(solved(*facts, difference, *(() if where is None else (where,))) != z3.unsat)


def solved(*formulas: Any) -> Any:
    """Whether all of them can hold, as the solver says within its limit."""
    solver = z3.Solver()
    solver.set("rlimit", RLIMIT)
    solver.add(*formulas)
    return solver.check()
