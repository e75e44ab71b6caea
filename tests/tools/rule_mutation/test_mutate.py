"""The mutation test itself: mutants are what they say, copies are apart, and verdicts are right where they are known."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest
from rule_mutation.mutant_results import begin_of, load, save, write_part
from rule_mutation.mutant_spec import copy_of_spec
from rule_mutation.mutant_verdicts import (
    EQUIVALENT,
    INDUCTION,
    KILLED,
    NO_MUTANT,
    NOT_JUDGED,
    SMALL_ROWS,
    Judge,
    Verdict,
)
from rule_mutation.mutants import Mutant, all_mutants, mutants_of, rule_modules
from rule_mutation.mutate import SCORE, main, report

from kvproof.spec.actions import ACTIONS

MUTANTS = list(all_mutants())


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


def verdict(judge: Judge, function: str, operator: str, original: str, mutated: str) -> Verdict:
    asked = (function, operator, original, mutated)
    wanted = next(m for m in MUTANTS if (m.function, m.operator, m.original, m.mutated) == asked)
    for mutant, tree in mutants_of(wanted.module):  # a tree is mutated only until the next one is asked for
        if mutant == wanted:
            return judge.verdict(wanted.module, tree)
    raise AssertionError(f"{wanted.key} is not made a second time")


def test_keys_are_unique_and_the_same_in_every_run() -> None:
    keys = [m.key for m in MUTANTS]
    assert len(set(keys)) == len(keys)
    assert keys == [m.key for m in all_mutants()]


def test_every_kind_of_mistake_is_made() -> None:
    assert {m.operator for m in MUTANTS} == {
        "flip comparison",
        "off by one",
        "drop update",
        "drop guard",
        "drop effect",
        "drop condition",
        "drop operand",
        "swap twin",
        "swap every/some",
        "negate condition",
        "other sign",
    }


def test_judges_are_not_mutated() -> None:
    assert not any(name.endswith((".invariants", ".faults", ".trace")) for name in rule_modules())


def test_each_edit_is_undone() -> None:
    for module, path in rule_modules().items():
        trees = [tree for _, tree in mutants_of(module)]
        assert all(ast.dump(t) == ast.dump(ast.parse(path.read_text(encoding="utf-8"))) for t in trees[-1:])


def test_a_copy_leaves_the_original_alone() -> None:
    before = dict(sys.modules)
    copy = copy_of_spec()
    assert {n: m for n, m in sys.modules.items() if n.startswith("kvproof")} == {
        n: m for n, m in before.items() if n.startswith("kvproof")
    }
    assert list(copy.ledger.actions) == list(ACTIONS)
    assert copy.actions["open"] is not ACTIONS["open"]


def test_a_forgotten_unlock_is_killed_by_induction(judge: Judge) -> None:
    found = verdict(judge, "release_row", "drop effect", "Unlock(when)", "(dropped)")
    assert (found.outcome, found.by) == (KILLED, INDUCTION)
    assert "I11" in found.detail


def test_a_comparison_whose_sides_are_alike_when_equal_is_equivalent(judge: Judge) -> None:
    found = verdict(judge, "smaller", "flip comparison", "a <= b", "a < b")
    assert (found.outcome, found.by) == (EQUIVALENT, "in every state")


def test_a_demand_that_is_left_out_is_killed_by_the_pages_of_small_rows(judge: Judge) -> None:
    found = verdict(judge, "Unlock.apply", "drop condition", "held", "(dropped)")
    assert (found.outcome, found.by) == (KILLED, SMALL_ROWS)


def test_every_module_of_rules_is_judged() -> None:
    """A machine that no verdict looks at would have equivalent mutants only."""
    copy = copy_of_spec()
    homes = {action.run.__module__ for action in copy.actions.values()}
    assert homes <= set(rule_modules())
    assert {m.module for m in MUTANTS} >= homes


def test_a_function_that_no_rule_runs_is_not_called_equivalent(judge: Judge) -> None:
    (module, path) = next((m, p) for m, p in rule_modules().items() if p.name == "domain.py")
    unused = "def unused(d, s):\n    _reached()\n    return d.every(s)\n"
    tree = ast.parse(path.read_text(encoding="utf-8") + unused)
    assert judge.verdict(module, tree).outcome == NOT_JUDGED


def test_one_more_than_a_ledger_is_no_mutant(judge: Judge) -> None:
    found = verdict(judge, "end_turn", "off by one", "pristine(d)", "pristine(d) + 1")
    assert found.outcome == NO_MUTANT


def test_results_are_kept_for_the_same_sources_only(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "results.json"
    save(path, "abc", {"key": {"outcome": KILLED}})
    assert load(path, "abc") == {"key": {"outcome": KILLED}}
    assert load(path, "abd") == {}
    assert json.loads(path.read_text(encoding="utf-8"))["sources"] == "abc"


def test_the_report_counts_and_lists_survivors(tmp_path: Path) -> None:
    mutants = [Mutant("m", "spec/a.py", i, "f", "off by one", "x", f"x + {i}", str(i)) for i in range(1, 5)]
    results = {
        "1": {"outcome": KILLED, "by": INDUCTION, "detail": ""},
        "2": {"outcome": KILLED, "by": SMALL_ROWS, "detail": ""},
        "3": {"outcome": EQUIVALENT, "by": "in every state", "detail": ""},
        "4": {"outcome": "survived", "by": "", "detail": "another step of f"},
    }
    text = report(mutants, results)
    assert "4 mutants, 1 of them equivalent. Killed: **2 of 3 (66.7%)**" in text
    assert "`spec/a.py:4`" in text
    page = tmp_path / "page.md"
    begin, end = begin_of(SCORE), begin_of(SCORE).replace("begin", "end")
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n", encoding="utf-8")
    write_part(page, SCORE, text)
    assert page.read_text(encoding="utf-8") == f"before\n{begin}\n{text}\n{end}\nafter\n"


def test_a_page_without_markers_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing", encoding="utf-8")
    assert main(["--page", str(page)]) == 2
    assert begin_of(SCORE) in capsys.readouterr().err
