"""No side condition of an effect can be lost: a lemma on pages or a wrong rule of the proof needs it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from kvproof.model import condition_twins
from kvproof.model.condition_twins import TWINS, conditions_without_a_twin, stated, twin_questions_of_conditions
from kvproof.model.page_lemmas import lemma_questions
from kvproof.model.questions import POSSIBLE, PROVED, Label, ask_z3
from kvproof.spec import effects, events
from kvproof.spec.effects import Applied, Condition
from kvproof.spec.events import asked_of_event

LITTLE = 200_000
"""Resource units for a lemma that has no proof any more."""
ON_PAGES = {
    "Take": ["no page is overwritten in the row before it was freed"],
    "Free": ["a free ends with the row's last page, each page once", "no page of the tree is freed by a row"],
    "Share": ["a shared prefix is written into an empty row"],
    "Insert": [
        "only pages behind the row go to the tree",
        "what the tree owns it keeps",
        "only duplicates are freed",
        "each duplicate is freed, and once",
    ],
    "DropRow": ["a returned row owns no page any more"],
    "FreeWindow": ["a window page is freed once, oldest first", "only window pages behind the row are freed"],
}
OF_TWINS = sorted({found.breaks for found in TWINS})


def lose(monkeypatch: pytest.MonkeyPatch, sentence: str) -> None:
    """No effect and no event states the condition any more."""
    for kind in effects.Effect.__args__:
        right = kind.apply

        def apply(self: Any, d: Any, s: Any, after: Any, right: Any = right) -> Applied:
            applied, conditions = right(self, d, s, after)
            return applied, tuple(c for c in conditions if c.sentence != sentence)

        monkeypatch.setattr(kind, "apply", apply)

    def asked(*step: Any) -> Iterator[Condition]:
        return (c for c in asked_of_event(*step) if c.sentence != sentence)

    monkeypatch.setattr(events, "asked_of_event", asked)


def without_model() -> list[str]:
    asked = twin_questions_of_conditions()
    return [what for what, question in asked if ask_z3(question.pose())[POSSIBLE].verdict != PROVED]


def test_every_condition_is_needed() -> None:
    assert conditions_without_a_twin() == []
    assert without_model() == []
    assert {sentence for found in ON_PAGES.values() for sentence in found} | {s for _, s in OF_TWINS} == {
        sentence for _, sentence in stated()
    }


def test_each_condition_that_is_written_for_an_event_is_stated_of_some_action() -> None:
    """One for an event that has another name is asked nowhere, and nothing else would show it."""
    calls = (node for node in ast.walk(ast.parse(inspect.getsource(events))) if isinstance(node, ast.Call))
    last = (call.args[2] for call in calls if len(call.args) == 3)
    written = {node.value for node in last if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert len(written) > 20
    assert written <= {sentence for _, sentence in stated()}


@pytest.mark.parametrize("label", OF_TWINS, ids=lambda label: label[1])
def test_a_condition_that_is_lost_is_missed(label: Label, monkeypatch: pytest.MonkeyPatch) -> None:
    breaking = [found for found in TWINS if found.breaks == label]
    monkeypatch.setattr(condition_twins, "TWINS", breaking)
    lose(monkeypatch, label[1])
    assert len(without_model()) == len(breaking)


@pytest.mark.parametrize(
    ("effect", "sentence"), [(effect, sentence) for effect, sentences in ON_PAGES.items() for sentence in sentences]
)
def test_a_lemma_misses_its_condition(effect: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(monkeypatch, sentence)
    found = ask_z3(lemma_questions()[effect].pose(), rlimit=LITTLE)
    assert any(answer.verdict != PROVED for answer in found.values())


def test_a_lemma_needs_as_little_as_that() -> None:
    """The bound of the test above is enough for what is proved."""
    for question in lemma_questions().values():
        assert {answer.verdict for answer in ask_z3(question.pose(), rlimit=LITTLE).values()} == {PROVED}


def test_a_new_condition_needs_a_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condition_twins, "TWINS", [t for t in TWINS if t.breaks[1] != "a lock is undone once"])
    assert conditions_without_a_twin() == ["nothing needs 'a lock is undone once' (I11)"]
