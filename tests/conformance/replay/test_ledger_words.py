from __future__ import annotations

import pytest

from kvproof.conformance.replay.ledger_words import changes, value
from kvproof.model.integers import Integers
from kvproof.spec.state import RUNNING, pristine


def test_only_what_changed_is_shown() -> None:
    start = pristine(Integers(4, 64))
    after = start.but(phase=RUNNING, kv_committed_len=5, rows=1)
    assert changes(start, start) == []
    assert changes(start, after) == ["phase none → running, kv_committed_len 0 → 5", "in truth: rows 0 → 1"]
    assert changes(after, start) == ["the turn is over", "in truth: rows 1 → 0"]


@pytest.mark.parametrize(("given", "shown"), [(True, "yes"), (False, "no"), (7, "7"), (None, "-")])
def test_values_are_shown_in_words(given: object, shown: str) -> None:
    assert value("slot_held", given) == shown
