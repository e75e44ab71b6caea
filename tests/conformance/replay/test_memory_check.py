"""Memory checks that read what is not so, by either checker; those of the full pool's terms are in other files here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_traces import Records, edited

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.replay.replay import CONFORMS, Report, replay

pytest.importorskip("torch")
pytest.importorskip("numba")
from kvproof.conformance.adapters.reference import record_scenario


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("recorded")
    settings = {"forward": "none"}
    names = ("busy-check", "window")
    return {name: record_scenario(name, folder / f"{name}.jsonl", settings=settings).path for name in names}


def by_both(path: Path) -> Report:
    interpreted = replay(path, checker=Chosen("interpreted"))
    assert replay(path, checker=Chosen("compiled")) == interpreted
    return interpreted


def last_check(change: Callable[[dict[str, Any]], object], **without: bool) -> Callable[[Records], object]:
    def changed(records: Records) -> None:
        for name in without:
            records[0]["config"][name] = 0
            for record in records[1:-1]:
                for key in ("window_alloc", "window_free", "window_free_list"):
                    record.pop(key, None)
        change([r for r in records if r.get("window_terms") and r["window_terms"]["protected"] >= 1][-1])

    return changed


def moved(pages: int) -> Callable[[dict[str, Any]], object]:
    """So many pages count as evictable in place of protected."""

    def change(check: dict[str, Any]) -> None:
        check["window_terms"]["evictable"] += pages
        check["window_terms"]["protected"] -= pages

    return change


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (last_check(moved(99)), {"I13": ["window protected"]}),
        (last_check(moved(-99)), {"I2": ["window evictable"], "I13": ["window protected"]}),
        (last_check(moved(99), window_pages=False), {"I13": ["window protected"]}),
        (last_check(moved(-99), window_pages=False), {"I2": ["window evictable"]}),
    ],
    ids=["protected below zero", "evictable below zero", "without page ids", "without page ids, below zero"],
)
def test_a_term_of_the_window_pool_that_cannot_be_is_found(
    change: Callable[[Records], object], found: dict[str, list[str]], recorded: dict[str, Path], tmp_path: Path
) -> None:
    first = by_both(edited(recorded["window"], change, tmp_path / "t.jsonl")).first
    assert first is not None and first.action == "check"
    assert {*first.invariants} == {*found}
    assert sorted(d.name for d in first.differences) == sorted(name for names in found.values() for name in names)


def test_what_is_locked_without_a_row_that_reads_it_is_found(recorded: dict[str, Path], tmp_path: Path) -> None:
    """The last check of a run: no row is left, and a page counts as locked."""

    def change(records: Records) -> None:
        terms = [r for r in records if r.get("window_terms")][-1]["window_terms"]
        assert terms["protected"] == 0 and terms["evictable"] >= 1
        terms["protected"], terms["evictable"] = 1, terms["evictable"] - 1

    first = by_both(edited(recorded["window"], change, tmp_path / "t.jsonl")).first
    assert first is not None and [*first.invariants] == ["I13"]


def test_a_check_that_says_idle_while_a_turn_runs_is_found(recorded: dict[str, Path], tmp_path: Path) -> None:
    def change(records: Records) -> None:
        next(r for r in records if r.get("params", {}).get("busy") is True)["params"]["busy"] = False

    assert replay(recorded["busy-check"]).verdict == CONFORMS
    first = by_both(edited(recorded["busy-check"], change, tmp_path / "t.jsonl")).first
    assert first is not None and [*first.invariants] == ["I2"]
    assert [(d.name, d.expected, d.seen) for d in first.differences] == [("busy", True, False)]


def test_a_check_that_says_busy_may_come_when_the_last_turn_has_just_ended(
    recorded: dict[str, Path], tmp_path: Path
) -> None:
    def change(records: Records) -> None:
        [r for r in records if r.get("action") == "check"][-1]["params"]["busy"] = True

    assert by_both(edited(recorded["busy-check"], change, tmp_path / "t.jsonl")).verdict == CONFORMS
