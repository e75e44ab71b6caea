"""The mutation test itself: mutants are what they say, copies are apart, and verdicts are right where they are known."""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from rule_mutation.mutant_proof import INDUCTION, LEMMAS, SITUATIONS, Known, recorded
from rule_mutation.mutant_results import begin_of, load, save, write_part
from rule_mutation.mutant_spec import copy_of_spec
from rule_mutation.mutant_verdicts import EQUIVALENT, KILLED, NO_ANSWER, NO_MUTANT, NOT_JUDGED, Judge, Verdict
from rule_mutation.mutants import Mutant, all_mutants, mutants_of, rule_modules
from rule_mutation.mutate import SCORE, main
from rule_mutation.page_terms import is_refuted
from rule_mutation.results_page import named, told
from rule_mutation.reviewed import ALLOWED, MISSED, Review

from kvproof.model.small_rows import SMALL_ROWS
from kvproof.spec.actions import ACTIONS


@cache
def made() -> list[Mutant]:
    return list(all_mutants())


@pytest.fixture(scope="module")
def known() -> Known:
    return recorded()


@pytest.fixture(scope="module")
def judge(known: Known) -> Judge:
    return Judge(known)


def verdict(judge: Judge, function: str, operator: str, original: str, mutated: str) -> Verdict:
    asked = (function, operator, original, mutated)
    wanted = next(m for m in made() if (m.function, m.operator, m.original, m.mutated) == asked)
    for mutant, tree in mutants_of(wanted.module):  # a tree is mutated only until the next one is asked for
        if mutant == wanted:
            return judge.verdict(mutant, tree)
    raise AssertionError(f"{wanted.key} is not made a second time")


@pytest.mark.slow
def test_keys_are_unique_and_the_same_in_every_run_and_each_edit_is_undone() -> None:
    assert len({m.key for m in made()}) == len(made())
    for module, path in list(rule_modules().items())[::4]:
        mutants = list(mutants_of(module))
        assert [mutant for mutant, _ in mutants] == [m for m in made() if m.module == module]
        assert all(ast.dump(tree) == ast.dump(ast.parse(path.read_text(encoding="utf-8"))) for _, tree in mutants[-1:])


def test_every_kind_of_mistake_is_made() -> None:
    assert {m.operator for m in made()} == {
        *(
            "flip comparison",
            "off by one",
            "drop update",
            "drop guard",
            "drop effect",
            "drop condition",
            "drop operand",
        ),
        *("swap twin", "swap every/some", "negate condition", "other sign"),
    }


def test_judges_are_not_mutated() -> None:
    assert not any(name.endswith((".invariants", ".faults", ".trace")) for name in rule_modules())


def test_a_copy_leaves_the_original_alone() -> None:
    before = dict(sys.modules)
    copy = copy_of_spec()
    assert {n: m for n, m in sys.modules.items() if n.startswith("kvproof")} == {
        n: m for n, m in before.items() if n.startswith("kvproof")
    }
    assert list(copy.ledger.actions) == list(ACTIONS)
    assert copy.actions["open"] is not ACTIONS["open"]


@pytest.mark.parametrize(
    ("mutant", "outcome", "by"),
    [
        (("release_row", "drop effect", "Unlock(when)", "(dropped)"), KILLED, INDUCTION),
        (("smaller", "flip comparison", "a <= b", "a < b"), EQUIVALENT, "in every state"),  # alike where a is b
        (("Unlock.apply", "drop condition", "held", "(dropped)"), KILLED, SMALL_ROWS),
        (("_take.is_free", "flip comparison", "first <= j", "first < j"), KILLED, LEMMAS),
        (("_drop_row", "flip comparison", "r >= 0", "r > 0"), KILLED, SITUATIONS),
        (("end_turn", "off by one", "pristine(d)", "pristine(d) + 1"), NO_MUTANT, ""),  # no number
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else None,
)
def test_a_verdict_is_right_where_it_is_known(
    judge: Judge, mutant: tuple[str, str, str, str], outcome: str, by: str
) -> None:
    found = verdict(judge, *mutant)
    assert (found.outcome, found.by) == (outcome, by)
    assert "I11" in found.detail or mutant[0] != "release_row"
    assert not found.detail.endswith(NO_ANSWER)  # a wrong lemma has three rows that refute it


@pytest.mark.parametrize("effect", ["Free", "Share", "DropRow", "Evict", "EvictWindow"])
def test_three_rows_refute_no_lemma_that_holds(judge: Judge, effect: str) -> None:
    assert not is_refuted(judge.right, effect)


def test_every_module_of_rules_is_judged() -> None:
    """A machine that no verdict looks at would have equivalent mutants only."""
    copy = copy_of_spec()
    homes = {action.run.__module__ for action in copy.actions.values()}
    assert homes <= set(rule_modules())
    assert {m.module for m in made()} >= homes


def test_a_function_that_no_rule_runs_is_not_called_equivalent(judge: Judge) -> None:
    (module, path) = next((m, p) for m, p in rule_modules().items() if p.name == "domain.py")
    unused = "def unused(d, s):\n    _reached()\n    return d.every(s)\n"
    text = path.read_text(encoding="utf-8")
    mutant = Mutant(module, "spec/domain.py", 0, "unused", "", "", "", "unused", begins=text.count("\n") + 1)
    assert judge.verdict(mutant, ast.parse(text + unused)).outcome == NOT_JUDGED


def test_what_a_question_runs_is_noted_so_that_a_mutant_asks_only_what_it_touches(known: Known) -> None:
    detach = next(m for m in made() if m.function == "detach")
    place = str(rule_modules()[detach.module]), detach.begins
    touched = {name for name in known.asked if not known.untouched(name, place)}
    assert "induction: detach #1" in touched
    assert "expected runs #1" in touched
    assert not {name for name in touched if name.startswith(("induction: close", "pages", "small rows", "walk"))}
    assert all(not known.untouched(name, None) for name in known.asked)


def test_results_are_kept_for_the_same_sources_only(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "results.json"
    save(path, "abc", {"key": {"outcome": KILLED}})
    assert load(path, "abc") == {"key": {"outcome": KILLED}}
    assert load(path, "abd") == {}
    assert json.loads(path.read_text(encoding="utf-8"))["sources"] == "abc"


def _four() -> tuple[list[Mutant], dict[str, dict[str, str]]]:
    mutants = [Mutant("m", "spec/a.py", i, "f", "off by one", "x", f"x + {i}", str(i)) for i in range(1, 5)]
    results = {
        "1": {"outcome": KILLED, "by": INDUCTION, "detail": ""},
        "2": {"outcome": KILLED, "by": SMALL_ROWS, "detail": ""},
        "3": {"outcome": EQUIVALENT, "by": "in every state", "detail": ""},
        "4": {"outcome": "survived", "by": "", "detail": "another step of f"},
    }
    return mutants, results


def test_the_page_counts_and_lists_survivors(tmp_path: Path) -> None:
    mutants, results = _four()
    page = told(mutants, results, ())
    assert "4 mutants, 1 of them equivalent. Noticed by the proof alone: **2 of 3 (66.7%)**" in page.text
    assert "`spec/a.py:4`" in page.text
    file = tmp_path / "page.md"
    begin, end = begin_of(SCORE), begin_of(SCORE).replace("begin", "end")
    file.write_text(f"before\n{begin}\nold\n{end}\nafter\n", encoding="utf-8")
    write_part(file, SCORE, page.text)
    assert file.read_text(encoding="utf-8") == f"before\n{begin}\n{page.text}\n{end}\nafter\n"


def test_a_survivor_without_a_word_a_word_on_none_and_a_low_share_are_complaints() -> None:
    mutants, results = _four()
    of_survivor = Review("spec/a.py", "f", (named(mutants[3]),), ALLOWED, "it is as good")
    of_killed = Review("spec/a.py", "f", (named(mutants[0]),), MISSED, "nobody looked")
    low = "the proof alone notices 2 of 3 mutants: less than 97%"
    assert told(mutants, results, ()).complaints == ["survived, and reviewed.py has no word on it: 4", low]
    assert told(mutants, results, (of_survivor,)).complaints == [low]
    said = told(mutants, results, (of_survivor, of_killed)).complaints
    named_of_killed = "spec/a.py f off by one: x -> x + 1"
    assert said == [f"reviewed.py: 0 mutants survive that are called {named_of_killed}, and 1 were read", low]
    no_mistake = Review("spec/a.py", "f", (named(mutants[3]),), EQUIVALENT, "a witness")
    assert told(mutants, results, (no_mistake,)).complaints == []
    assert "it is as good" in told(mutants, results, (of_survivor,)).text


def test_a_word_is_on_one_mutant_of_its_name() -> None:
    mutants, results = _four()
    twin = replace(mutants[3], key="5", line=mutants[3].line + 1)
    results["5"] = results["4"]
    name = named(twin)
    once, twice = (Review("spec/a.py", "f", (name,) * times, EQUIVALENT, "a witness") for times in (1, 2))
    assert told([*mutants, twin], results, (twice,)).complaints == []
    said = told([*mutants, twin], results, (once,)).complaints
    assert said == [f"reviewed.py: 2 mutants survive that are called spec/a.py f {name}, and 1 were read"]


def test_where_the_solver_gave_no_answer_it_is_said() -> None:
    mutants, results = _four()
    results["1"] = {"outcome": KILLED, "by": LEMMAS, "detail": f"pages: Insert / J4: 0 <= tree_end{NO_ANSWER}"}
    assert "**2 of 3 (66.7%)**.\n\nOf these, 1 are noticed because" in told(mutants, results, ()).text


def test_a_page_without_markers_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing", encoding="utf-8")
    assert main(["--page", str(page)]) == 2
    assert begin_of(SCORE) in capsys.readouterr().err
