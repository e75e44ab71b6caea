"""Runs of the model, by chance or as told: what tests of the model make traces of, and tests of the replay judge."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from kvproof.model.explore import Taken, successors
from kvproof.model.oracle import Oracle
from kvproof.model.witness import Witness, witness
from kvproof.spec.faults import FAULTS
from kvproof.spec.state import pristine

CONFIGURATIONS: list[dict[str, Any]] = [
    {},
    {"tree": False},
    {"overlap": True},
    {"speculation": 1, "drafts": 2},
    {"overlap": True, "speculation": 2, "drafts": 1},
    {"window": 1},
    {"window": 2, "overlap": True, "speculation": 2},
]

# What a trace can show. What an admission is charged (M18) no event tells.
SHOWN = [fault for fault in FAULTS if fault != "M18"]

OF_A_WALK = {
    "page_size": st.integers(1, 4),
    "pages": st.integers(1, 3),
    "beside": st.integers(0, 3),
    "length": st.integers(1, 60),
    "ledgers": st.integers(1, 3),
    "seed": st.integers(0, 2**32),
    "config": st.sampled_from(CONFIGURATIONS),
}
"""What a property of random runs draws. A row is `pages` whole pages wide, one token more, and some `beside` it."""


def walk(
    page_size: int, row_width: int, length: int, ledgers: int, seed: int, **config: Any
) -> list[tuple[str, Taken]]:
    """A random run of several ledgers side by side, by the right rules.

    Its chances are such that turns get far: what changes nothing is rare, and what ends a turn or its session rather rare.
    """
    oracle, chance = Oracle.of(page_size, row_width, **config), random.Random(seed)
    states = {f"ledger {n}": pristine(oracle.d) for n in range(ledgers)}
    steps = []
    for _ in range(length):
        key = chance.choice(list(states))
        kinds: dict[tuple[str, ...], list[Taken]] = {}
        for taken in successors(oracle, states[key]):
            flags = [name for name, value in taken.params.items() if value is True]
            kinds.setdefault((taken.outcome.action.name, *flags), []).append(taken)
        chances = [likelihood(steps_of_kind[0]) for steps_of_kind in kinds.values()]
        taken = chance.choice(chance.choices(list(kinds.values()), chances)[0])
        states[key] = taken.outcome.after
        steps.append((key, taken))
    return steps


def some_walk(page_size: int, row_width: int, length: int, ledgers: int, seed: int, **config: Any) -> Witness:
    """The trace of a random run."""
    steps = []
    for key, taken in walk(page_size, row_width, length, ledgers, seed, **config):
        # What was not inserted had no duplicates: the witness would have to fill a tree that there may not be.
        nothing = {"dup_len": 0} if taken.params.get("inserted") is False else {}
        steps.append((key, replace(taken, params={**taken.params, **nothing})))
    return witness(steps, page_size, row_width, **config)


def likelihood(taken: Taken) -> float:
    if taken.outcome.after == taken.outcome.before:
        return 0.05
    return 0.2 if taken.outcome.action.event in ("arrive", "abort", "close") else 1.0


def steps_of_one_ledger(
    page_size: int, row_width: int, *actions: tuple[str, dict[str, Any]], **config: Any
) -> list[tuple[str, Taken]]:
    """The actions, one after the other, whether the rules allow them or not."""
    oracle = Oracle.of(page_size, row_width, **config)
    state, steps = pristine(oracle.d), []
    for name, params in actions:
        outcome = oracle.step(oracle.actions[name], state, params)
        steps.append(("one", Taken(params, outcome)))
        state = outcome.after
    return steps


def of_one_ledger(page_size: int, row_width: int, *actions: tuple[str, dict[str, Any]], **config: Any) -> Witness:
    """The trace of actions that the rules allow."""
    steps = steps_of_one_ledger(page_size, row_width, *actions, **config)
    for _, taken in steps:
        assert not taken.outcome.failed_guards, taken.outcome.failed_guards
    return witness(steps, page_size, row_width, **config)


DUPLICATES = (
    ("arrive", {"origin_len": 5}),
    ("match_tree", {"matched_len": 0}),
    ("extend", {"seq_len": 5, "last": True}),
    ("result", {"tokens": 1}),
    ("insert", {"dup_len": 4, "key_len": 5}),
)
"""Pages 1 and 2 of the request are duplicates of pages 4 and 5, which another one left to the tree."""

UNTOLD_DUPLICATE = (
    ("arrive", {"origin_len": 5}),
    ("match_tree", {"matched_len": 0}),
    ("extend", {"seq_len": 5, "last": True}),
    ("result", {"tokens": 1}),
    ("finish_plain", {"finished_len": 1, "dup_len": 2, "inserted": True}),
    ("arrive", {"origin_len": 5}),
    ("match_tree", {"matched_len": 4}),
    ("extend", {"seq_len": 5, "last": True}),
)
"""The request's first page is a duplicate, and no event says of which page; its second one stays. The next one shows both."""
