"""Behind a rule only the invariants that read a field which it writes are weighed: that has to be the same as weighing all."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

import numpy as np

from kvproof.conformance.compiled import build, weighing
from kvproof.conformance.compiled.layout import FIELDS, NOT_KNOWN, SETTINGS
from kvproof.conformance.compiled.rules import LEDGER_EVENTS, TracedRule
from kvproof.spec.actions import ACTIONS
from kvproof.spec.invariants import INVARIANTS

CHANGED = {number: [*TracedRule.of(a).changed] for number, a in enumerate(ACTIONS.values()) if a.event in LEDGER_EVENTS}
TIMES = 300


def weighers() -> tuple[Any, Any]:
    of_changed = build.plain_judge(build.source_of(ACTIONS, INVARIANTS), "weigh_changed")
    return of_changed, of_changed.__globals__["weigh_invariants"]


def some_settings(chance: random.Random) -> np.ndarray[Any, Any]:
    page_size = chance.choice([1, 2, 3, 4])
    shift = page_size.bit_length() - 1 if page_size != 3 else -1
    known = {"page_size": page_size, "page_shift": shift, "row_width": 8, "window": chance.choice([0, 3])}
    return np.array([known.get(name, chance.randrange(2)) for name in SETTINGS], np.int64)


def test_weighing_what_changed_is_weighing_all() -> None:
    of_changed, of_all = weighers()
    chance = random.Random(1)
    differed = 0
    for number, names in CHANGED.items():
        for _ in range(TIMES):
            settings = some_settings(chance)
            before = np.array([chance.randrange(4) for _ in FIELDS], np.int64)
            after = before.copy()
            for name in names:
                after[FIELDS[name]] = chance.randrange(4)
            was_broken, exercised_before = of_all(before, settings)
            broken, exercised = of_all(after, settings)
            differed += exercised != exercised_before
            told, told_exercised = of_changed(number, exercised_before, after, settings)
            assert told_exercised == exercised
            assert told & ~was_broken == broken & ~was_broken
            assert of_changed(number, NOT_KNOWN, after, settings) == (broken, exercised)
    assert differed > TIMES


def test_rules_that_write_little_are_weighed_little() -> None:
    source = build.source_of(ACTIONS, INVARIANTS)
    of_changed = source[source.index("def weigh_changed(") :].split("\n\n")[0]
    names = list(ACTIONS)
    assert f"rule == {names.index('result')}:" in of_changed
    assert f"rule == {names.index('finish')}:" not in of_changed


def test_a_field_that_was_not_seen_to_be_read_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first test goes red if an invariant is taken to read fewer fields than it does."""
    fields = weighing.Weighed.fields.fget
    assert fields is not None
    monkeypatch.setattr(weighing.Weighed, "fields", property(lambda self: fields(self) - {"kv_committed_len"}))
    monkeypatch.setattr(build, "_sources", {})
    with pytest.raises(AssertionError):
        test_weighing_what_changed_is_weighing_all()
