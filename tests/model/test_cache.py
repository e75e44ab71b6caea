"""Answers are found again for the very same question and solver, and for nothing else."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import z3
from pydantic import TypeAdapter

from kvproof.model.cache import Remembering, Store
from kvproof.model.cache_folder import cache_folder
from kvproof.model.explore import Interpreted
from kvproof.model.integers import Integers
from kvproof.model.prove import induction_step, prove, step_question
from kvproof.model.questions import BROKEN, POSSIBLE, PROVED, UNKNOWN, Answer, Answers, Posed, Question, ask_z3
from kvproof.model.small_instances import SMALL
from kvproof.spec.actions import ACTIONS
from kvproof.spec.domain import smaller
from kvproof.spec.faults import FAULTS

X = z3.Int("x")
HOLDS = Posed([X > 1], {("I1", "x is positive"): X > 0})
FAILS = Posed([X > 1], {("I1", "x is positive"): X > 2})


def question(posed: Posed) -> Question:
    return Question("a question", lambda: posed)


def verdicts(answers: Answers) -> list[str]:
    return [answer.verdict for answer in answers.values()]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def files(store: Store) -> list[Path]:
    return sorted(store.folder.rglob("*.json"))


def forbidden(posed: Posed) -> Answers:
    raise AssertionError("the solver was asked")


@pytest.mark.parametrize(("posed", "verdict"), [(HOLDS, PROVED), (FAILS, BROKEN)])
def test_what_was_answered_is_not_asked_again(store: Store, posed: Posed, verdict: str) -> None:
    first = Remembering(store).answers(question(posed))
    assert Remembering(store, ask=forbidden).answers(question(posed)) == first
    assert verdicts(first) == [PROVED, verdict]


def test_another_formula_is_asked(store: Store) -> None:
    asker = Remembering(store)
    asker.answers(question(HOLDS))
    assert verdicts(asker.answers(question(FAILS))) == [PROVED, BROKEN]


def test_the_same_formula_under_another_name_is_another_question(store: Store) -> None:
    asker = Remembering(store)
    asker.answers(question(HOLDS))
    renamed = Posed(HOLDS.assumptions, {("I2", "x is positive"): X > 0})
    assert list(asker.answers(question(renamed))) == [POSSIBLE, ("I2", "x is positive")]


def test_the_same_names_of_another_sort_are_another_question(store: Store) -> None:
    asker = Remembering(store)
    a, b = z3.Ints("a b")
    asker.answers(question(Posed([a < b], {("I1", "no number is between"): z3.Or(X - a <= 0, b <= X)})))
    asked = asker.asked
    a, b, x = z3.Reals("a b x")
    asker.answers(question(Posed([a < b], {("I1", "no number is between"): z3.Or(x - a <= 0, b <= x)})))
    assert asker.asked == 2 * asked


def test_another_version_of_the_solver_is_asked_anew(store: Store) -> None:
    Remembering(store, "z3 5.4.0").answers(question(HOLDS))
    with pytest.raises(AssertionError, match="the solver was asked"):
        Remembering(store, "z3 5.4.1", forbidden).answers(question(HOLDS))


def test_no_answer_is_never_kept(store: Store) -> None:
    def gives_up(posed: Posed) -> Answers:
        return {label: Answer(UNKNOWN, 0.0) for label in posed.labels}

    assert verdicts(Remembering(store, ask=gives_up).answers(question(HOLDS))) == [UNKNOWN, UNKNOWN]
    assert files(store) == []
    assert verdicts(Remembering(store).answers(question(HOLDS))) == [PROVED, PROVED]


def of_another_question(kept: bytes) -> bytes:
    """The file of another answer, moved here."""
    with tempfile.TemporaryDirectory() as folder:
        Remembering(other := Store(Path(folder))).answers(question(HOLDS))
        return files(other)[0].read_bytes()


@pytest.mark.parametrize(
    "damaged",
    [
        *(b"", b"\x80\x04\x95 not text", b"[1, 2", b"null", b"[]", b'{"key": "k"}', b"[" * 100_000),
        b'{"key": 1, "value": [["I1", "x", "proved", 0]], "checksum": "0"}',
        lambda kept: kept.replace(b'"broken"', b'"proved"'),
        of_another_question,
    ],
)
def test_a_file_that_is_not_what_was_kept_is_as_good_as_none(
    store: Store, damaged: bytes | Callable[[bytes], bytes]
) -> None:
    Remembering(store).answers(question(FAILS))
    assert len(files(store)) == 1
    for file in files(store):
        file.write_bytes(damaged if isinstance(damaged, bytes) else damaged(file.read_bytes()))
    asker = Remembering(store)
    assert verdicts(asker.answers(question(FAILS))) == [PROVED, BROKEN]
    assert (asker.found, asker.asked) == (0, 2)


def test_values_of_another_shape_are_not_answers(store: Store) -> None:
    asker = Remembering(store)
    asker.answers(question(HOLDS))
    (file,) = files(store)
    for value in ("text", [["I1", "x", "unknown", 0.0]], [["I1", "x", "proved"]], 7):
        store.write(json.loads(file.read_text())["key"], value)
        assert verdicts(Remembering(store).answers(question(HOLDS))) == [PROVED, PROVED]


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, where a folder should be")
    store = Store(tmp_path / "taken")
    assert verdicts(Remembering(store).answers(question(HOLDS))) == [PROVED, PROVED]
    assert "taken" in store.problem


def test_the_folder_is_the_users_cache_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder({}) == Path("~/.cache/kvproof").expanduser()
    assert cache_folder({"XDG_CACHE_HOME": "/x"}) == Path("/x/kvproof")
    assert cache_folder({"XDG_CACHE_HOME": "/x", "KVPROOF_CACHE": "/y/z"}) == Path("/y/z")


def test_a_warm_proof_says_the_same_and_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What other tests asked is not asked again. A copy: a test beside this one may write the same answers, with other times.
    kept_by_others = cache_folder()
    kept_by_others.mkdir(parents=True, exist_ok=True)
    store = Store(shutil.copytree(kept_by_others, tmp_path / "kept", ignore=shutil.ignore_patterns("*.part")))
    monkeypatch.setattr("kvproof.model.prove.explored_whole", lambda: (SMALL[-1:],))
    cold = prove(asker=Remembering(store))
    asker = Remembering(store, ask=forbidden)
    warm = prove(asker=asker)
    assert cold.reachable[0].states > 0 and cold.vacuous  # what only other configurations reach
    for part in ("vacuous", "obligations", "lemmas", "reachable"):
        assert getattr(warm, part) == getattr(cold, part)
    assert asker.found > sum(o.goals for o in warm.obligations)


def test_a_faulty_rule_never_finds_the_answers_of_the_right_one(store: Store) -> None:
    asker = Remembering(store)
    for fault in {fault.action: fault for fault in FAULTS.values() if fault.action in ACTIONS}.values():
        list(induction_step(ACTIONS[fault.action], [], asker))
        cells = induction_step(fault.deviate(), [], asker)
        assert "broken" in {cell.verdict for cell in cells}


def test_the_text_of_a_question_does_not_depend_on_what_was_asked_before() -> None:
    first = step_question(ACTIONS["retract"]).pose()
    held = [ask_z3(step_question(action).pose()) for action in list(ACTIONS.values())[:3]]
    terms = [*first.assumptions, *(part for goal in first.goals.values() for part in goal.children())]
    assert step_question(ACTIONS["retract"]).pose().text == first.text
    assert held and terms


# --- patched modules ------------------------------------------------------------------------------------------------


def test_answers_of_a_patched_rule_are_not_those_of_the_right_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are the same, and what is loaded is not."""
    right = verdicts(Remembering(store).answers(step_question(ACTIONS["abort_nth"])))
    with monkeypatch.context() as patched:
        patched.setattr("kvproof.spec.actions.finish.larger", smaller)
        assert BROKEN in verdicts(Remembering(store).answers(step_question(ACTIONS["abort_nth"])))
    assert verdicts(Remembering(store, ask=forbidden).answers(step_question(ACTIONS["abort_nth"]))) == right


def count_states() -> int:
    return Interpreted().whole(Integers(1, 3, tree=False)).states


def test_a_search_over_patched_rules_is_not_found_among_those_over_the_right_ones(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = TypeAdapter(int)
    right = Remembering(store).recall("states", count_states, number)
    with monkeypatch.context() as patched:
        patched.setitem(ACTIONS, "create", dataclasses.replace(ACTIONS["create"], applies=lambda d, s: d.false))
        assert Remembering(store).recall("states", count_states, number) < right
    with monkeypatch.context() as patched:
        patched.setattr(Integers, "floor_pages", lambda self, length: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            Remembering(store).recall("states", count_states, number)
    with monkeypatch.context() as patched:
        patched.setattr(count_states, "__code__", (lambda: 1 // 0).__code__)
        assert Remembering(store).recall("states", lambda: right, number) == right
    assert len(files(store)) == 3


def test_a_search_that_cannot_be_read_is_not_kept(store: Store) -> None:
    pattern = re.compile("a")
    asker = Remembering(store)
    assert asker.recall("found", lambda: len(pattern.findall("aa")), TypeAdapter(int)) == 2
    assert files(store) == []


def test_the_texts_are_the_same_whatever_was_asked_before() -> None:
    first, *others = ACTIONS.values()
    posed = step_question(first).pose()
    texts = [posed.script(label) for label in posed.labels]
    assert {text.count("(check-sat)") for text in texts} == {1}
    step_question(others[0]).pose()
    again = step_question(first).pose()
    assert [again.script(label) for label in reversed(again.labels)] == texts[::-1]
    assert verdicts(ask_z3(posed)) == [PROVED] * len(posed.labels)


def test_no_partial_file_is_left(store: Store) -> None:
    Remembering(store).answers(question(HOLDS))
    left = [name for _, _, names in os.walk(store.folder) for name in names]
    assert [name for name in left if not name.endswith(".json")] == []
