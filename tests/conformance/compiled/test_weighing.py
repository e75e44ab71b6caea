"""Behind a rule only the invariants that read a field which it writes are weighed: that has to be the same as weighing all."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

import numpy as np

from kvproof.conformance.compiled import build, layout, weighing
from kvproof.conformance.compiled.assembly import Assembly
from kvproof.conformance.compiled.rule_calls import call
from kvproof.conformance.compiled.rules import LEDGER_EVENTS, TracedRule
from kvproof.conformance.compiled.weighing import ALL, Weigher
from kvproof.model.compiled.assembly import PRELUDE
from kvproof.spec.actions import ACTIONS
from kvproof.spec.invariants import INVARIANTS

CHANGED = {name: [*TracedRule.of(a).changed] for name, a in ACTIONS.items() if a.event in LEDGER_EVENTS}
TIMES = 300


class Weighing:
    """All invariants of a ledger, and those behind each rule, weighed by compiled functions."""

    def __init__(self) -> None:
        weigher, texts = Weigher(INVARIANTS), []
        for name, changed in CHANGED.items():
            written = Assembly()
            clean = written.put(f"zext i1 {weigher.weighed_behind(changed, written)} to i64")
            texts.append(written.function(f"behind_{name}", "i64", clean, linkage=""))
        names = (ALL, *(f"behind_{name}" for name in CHANGED))
        addresses, self._code = build.compiled_rules("\n".join([PRELUDE, *texts, *weigher.functions()]), names)
        self._addresses = dict(zip(names, addresses.tolist(), strict=True))

    def _ask(self, name: str, settings: Any, before: Any, after: Any, answer: Any) -> int:
        old, new, of_settings, answers = (a.ctypes.data for a in (before, after, settings, answer))
        return call(self._addresses[name], (0, old, new, 0, 0, of_settings, 0, answers, 0))

    def of_all(self, settings: Any, ledger: Any) -> tuple[int, int]:
        """The bits of the invariants that a ledger breaks, and of those that it exercises."""
        weighed = self._ask(ALL, settings, ledger, ledger, np.zeros(4, np.int64))
        return weighed >> layout.BROKEN_BIT, weighed & ((1 << layout.BROKEN_BIT) - 1)

    def behind(self, name: str, settings: Any, before: Any, after: Any, exercised: int) -> tuple[bool, int]:
        """Whether a rule broke nothing that held, and what is exercised after it."""
        answer = np.full(4, exercised, np.int64)
        return self._ask(f"behind_{name}", settings, before, after, answer) == 1, int(answer[layout.EXERCISES])


def some_settings(chance: random.Random) -> np.ndarray[Any, Any]:
    page_size = chance.choice([1, 2, 3, 4])
    shift = page_size.bit_length() - 1 if page_size != 3 else -1
    known = {"page_size": page_size, "page_shift": shift, "row_width": 8, "window": chance.choice([0, 3])}
    return np.array([known.get(name, chance.randrange(2)) for name in layout.SETTINGS], np.int64)


def test_weighing_what_changed_is_weighing_all() -> None:
    weighing, chance = Weighing(), random.Random(1)
    differed, answers = 0, set()
    for name, changed in CHANGED.items():
        for _ in range(TIMES):
            settings = some_settings(chance)
            before = np.array([chance.randrange(4) for _ in layout.FIELDS], np.int64)
            after = before.copy()
            for field in changed:
                after[layout.FIELDS[field]] = chance.randrange(4)
            was_broken, exercised_before = weighing.of_all(settings, before)
            broken, exercised = weighing.of_all(settings, after)
            differed += exercised != exercised_before
            breaks_nothing = broken & ~was_broken == 0
            assert weighing.behind(name, settings, before, after, exercised_before) == (breaks_nothing, exercised)
            answers.add(breaks_nothing)
    assert differed > TIMES and answers == {True, False}


def test_rules_that_write_little_are_weighed_little() -> None:
    weigher = Weigher(INVARIANTS)
    assert len(weigher.concerned(CHANGED["result"])) < len(weigher.concerned(CHANGED["finish"])) == len(INVARIANTS)


def test_a_field_that_was_not_seen_to_be_read_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first test goes red if an invariant is taken to read fewer fields than it does."""
    fields = weighing.Weighed.fields.fget
    assert fields is not None
    monkeypatch.setattr(weighing.Weighed, "fields", property(lambda self: fields(self) - {"kv_committed_len"}))
    with pytest.raises(AssertionError):
        test_weighing_what_changed_is_weighing_all()
