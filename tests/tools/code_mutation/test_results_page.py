"""The page tells what survived, and complains of what nobody read."""

from __future__ import annotations

from code_mutation.judging import NOT_UNDERSTOOD, REFUTED, SURVIVED
from code_mutation.results_page import report
from code_mutation.reviewed import OUTSIDE
from mutation.review import EQUIVALENT, MISSED, Review
from rule_mutation.mutants import Mutant


def mutant(line: int) -> Mutant:
    return Mutant("m", "m.py", line, "f", "off by one", "a", "a + 1", f"m.py f line {line}: off by one")


MUTANTS = [mutant(line) for line in range(1, 5)]


def told(outcomes: list[str], *words: Review) -> tuple[str, list[str]]:
    results = {m.key: {"outcome": outcome} for m, outcome in zip(MUTANTS, outcomes, strict=True)}
    said = report(MUTANTS, results, ["head"], words)
    return said.text, said.complaints


def word(line: int, verdict: str) -> Review:
    return Review("m.py", "f", (f"line {line}: off by one",), verdict, "because")


def test_all_that_is_noticed_has_no_complaint() -> None:
    text, complaints = told([REFUTED, REFUTED, NOT_UNDERSTOOD, REFUTED])

    assert complaints == [] and "**4 of 4 (100.0%)**" in text


def test_what_is_equivalent_or_outside_is_not_counted_but_told() -> None:
    text, complaints = told([REFUTED, REFUTED, SURVIVED, SURVIVED], word(3, EQUIVALENT), word(4, OUTSIDE))

    assert complaints == []
    assert "**2 of 2 (100.0%)**" in text and "2 of 3 (66.7%)" in text and "because" in text


def test_a_survivor_without_a_word_and_one_that_is_missed_are_too_many() -> None:
    _, unread = told([REFUTED, REFUTED, REFUTED, SURVIVED])
    text, missed = told([REFUTED, REFUTED, REFUTED, SURVIVED], word(4, MISSED))

    assert any("no word on it" in sentence for sentence in unread)
    assert missed == ["3 of 4 were noticed: fewer than 97%"] and "### Missed" in text


def test_a_word_on_what_is_noticed_or_unknown_is_a_complaint() -> None:
    _, complaints = told([REFUTED] * 4, word(1, EQUIVALENT), word(9, EQUIVALENT))

    assert len(complaints) == 2
