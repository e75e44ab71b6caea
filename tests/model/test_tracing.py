"""Terms against the oracle: a rule that was run once on names computes what it computes on numbers, in every state."""

from __future__ import annotations

import dataclasses
import itertools
import operator
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from model_runs import CONFIGURATIONS

from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle
from kvproof.model.tracing import Tracing, evaluate
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.effects import apply_effects
from kvproof.spec.faults import FAULTS
from kvproof.spec.invariants import ALL_INVARIANTS
from kvproof.spec.machine import LEDGER
from kvproof.spec.state import FIELDS, Ledger

ALL_CONFIGURATIONS = [*CONFIGURATIONS, {"window": 5, "overlap": True}]


def any_value(chance: random.Random, sort: str) -> int | bool:
    if sort == "flag":
        return chance.random() < 0.5
    return chance.randrange(4) if sort in ("phase", "count") else chance.randrange(40)


def any_ledger(chance: random.Random) -> Ledger:
    return Ledger(**{f.name: any_value(chance, f.metadata["sort"]) for f in FIELDS})


def values_of(d: Integers, s: Ledger, params: dict[str, Any]) -> dict[str, Any]:
    config = ("row_width", "drafts", "window", "overlap", "spec_v1", "spec_v2", "windowed", "tree")
    return {
        **{f"d.{name}": getattr(d, name) for name in config},
        **{f"s.{name}": value for name, value in vars(s).items()},
        **{f"p.{name}": value for name, value in params.items()},
    }


def effect_values(effect: Any) -> list[Any]:
    return [getattr(effect, f.name) for f in dataclasses.fields(effect)]


def assert_same_step(action: Action, seed: int) -> None:
    """One action on terms, evaluated in states and configurations of all kinds, beside the oracle."""
    t = Tracing()
    traced = action.run(t, t.arbitrary(Ledger), t.parameters(action.params))
    after, conditions = apply_effects(t, traced.after, traced.effects)
    applies = action.applies(t, t.arbitrary(Ledger))
    chance = random.Random(seed)
    for n in range(60):
        oracle = Oracle.of(1 + n % 5, 30, {action.name: action}, **ALL_CONFIGURATIONS[n % len(ALL_CONFIGURATIONS)])
        d, s = oracle.d, any_ledger(chance)
        params = {name: any_value(chance, sort) for name, sort in action.params.items()}
        known = values_of(d, s, params)

        def now(value: Any, known: dict[str, Any] = known, page_size: int = d.page_size) -> Any:
            return value if isinstance(value, str) else evaluate(value, known, page_size)

        outcome = oracle.step(action, s, params)
        assert {name: now(value) for name, value in vars(after).items()} == vars(outcome.after)
        assert [c.sentence for c in conditions if not now(c.holds)] == [c.sentence for c in outcome.failed_conditions]
        assert [g.sentence for g in traced.guards if not now(g.holds)] == [g.sentence for g in outcome.failed_guards]
        for a, b in zip(traced.effects, outcome.effects, strict=True):
            assert [now(v) for v in effect_values(a)] == effect_values(b)
        assert now(applies) == action.applies(d, s)


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_on_terms_is_the_oracles(name: str) -> None:
    assert_same_step(ACTIONS[name], seed=1)


@pytest.mark.parametrize("fault_id", [f.id for f in FAULTS.values() if f.machine is LEDGER])
def test_a_faulty_action_on_terms_is_the_oracles(fault_id: str) -> None:
    for action in FAULTS[fault_id].deviations.values():
        assert_same_step(action, seed=2)


@pytest.mark.parametrize("name", ALL_INVARIANTS)
def test_an_invariant_on_terms_holds_where_it_holds(name: str) -> None:
    t, chance = Tracing(), random.Random(3)
    term = ALL_INVARIANTS[name].holds(t, t.arbitrary(Ledger))
    for n in range(60):
        oracle = Oracle.of(1 + n % 5, 30, **ALL_CONFIGURATIONS[n % len(ALL_CONFIGURATIONS)])
        s = any_ledger(chance)
        assert evaluate(term, values_of(oracle.d, s, {}), oracle.d.page_size) == ALL_INVARIANTS[name].holds(oracle.d, s)


@pytest.mark.parametrize(
    "compute", [getattr(operator, name) for name in ("add", "sub", "lt", "le", "gt", "ge", "eq", "ne")]
)
def test_an_operation_on_terms_is_that_of_numbers(compute: Callable[[Any, Any], Any]) -> None:
    t = Tracing()
    read = t.read("a")
    for a, b in itertools.product(range(3), repeat=2):
        assert evaluate(compute(read, t.read("b")), {"a": a, "b": b}, 1) == compute(a, b)
        assert evaluate(compute(read, b), {"a": a}, 1) == compute(a, b)
        assert evaluate(compute(b, read), {"a": a}, 1) == compute(b, a)


def test_equal_terms_are_one_object() -> None:
    t = Tracing()
    assert (t.read("a") + 1) is (t.read("a") + 1)
    assert (t.read("a") + 1) is not (t.read("a") + True)


def test_a_rule_that_branches_on_a_value_is_refused() -> None:
    t = Tracing()
    with pytest.raises(TypeError, match="branches on a value"):
        bool(t.read("a") < 2)


def test_code_that_branches_is_run_on_every_path_and_merged() -> None:
    t = Tracing()
    event: Any = SimpleNamespace(a=t.read("a"), b=t.read("b", is_flag=True))
    paths = t.every_path(lambda: event.a or (7 if event.b else event.a - 1))
    assert len(paths) == 3
    merged = t.merged(paths)
    for a, b, wanted in ((5, True, 5), (0, True, 7), (0, False, -1)):
        assert evaluate(merged, {"a": a, "b": b}, 1) == wanted


def test_what_all_paths_agree_on_is_decided_by_none() -> None:
    t = Tracing()
    paths = t.every_path(lambda: (bool(t.read("b", is_flag=True)), 3)[1])
    assert len(paths) == 2
    assert t.merged(paths) == 3
