from __future__ import annotations

from kvproof.conformance.report.show_effects import in_words
from kvproof.model.integers import Integers
from kvproof.spec.effects import DropRow, Free, Take, TakeRow


def test_effects_that_do_not_take_place_are_not_shown() -> None:
    d = Integers(4, 64)
    assert in_words(Free(4, 9), d) == "frees tokens [4, 9) = pages [1, 3)"
    assert in_words(Free(9, 9), d) is None
    assert in_words(Take(2, 2, 0), d) is None
    assert in_words(TakeRow(False), d) is None
    assert in_words(DropRow(True), d) == "returns the row"
