"""`kvproof prove` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvproof.conformance.cli.cli import app
from kvproof.conformance.replay.ledger_words import changes, value
from kvproof.conformance.report.show_effects import in_words
from kvproof.model.integers import Integers
from kvproof.spec.effects import DropRow, Free, Take, TakeRow
from kvproof.spec.state import RUNNING, pristine

run = CliRunner().invoke


def test_all_is_proved_with_the_bounds_said() -> None:
    result = run(app, ["prove"])
    assert result.exit_code == 0
    assert "every P >= 1" in result.stdout
    assert "unbounded" in result.stdout
    assert "every configuration of overlap, speculation" in result.stdout
    assert result.stdout.rstrip().endswith("PROVED")
    assert "…" not in result.stdout  # no column is cut


def test_a_fault_gives_exit_code_1_and_a_run_in_small_numbers() -> None:
    result = run(app, ["prove", "--fault", "F22862b"])
    assert result.exit_code == 1
    assert "page size 2" in result.stdout
    assert "8 match_slot()" in result.stdout
    assert "frees tokens [1, 2) = pages [0, 1)" in result.stdout
    assert "✗ I4 a free starts on a page boundary" in result.stdout


def test_the_same_counterexample_every_time() -> None:
    first, second = (run(app, ["prove", "--fault", "F22790a"]).stdout for _ in range(2))
    from_run = [line for line in first.splitlines() if "induction" not in line]
    assert from_run == [line for line in second.splitlines() if "induction" not in line]


def test_json_holds_every_cell_and_the_run(tmp_path: Path) -> None:
    out = tmp_path / "proof.json"
    assert run(app, ["prove", "--fault", "F22862a", "--json", str(out), "-q"]).exit_code == 1
    proof = json.loads(out.read_text())
    assert proof["verdict"] == "broken"
    assert proof["broken"][0] == "I7"
    assert proof["counterexample"]["steps"][-1]["action"] == "match_slot"
    assert {o["action"] for o in proof["obligations"]} == {"(initial)", "match_slot"}


def test_an_unknown_fault_is_answered_with_the_nearest() -> None:
    result = run(app, ["prove", "--fault", "F22862"])
    assert result.exit_code == 2
    assert "did you mean F22862" in result.stderr


def test_only_what_changed_is_shown() -> None:
    start = pristine(Integers(4, 64))
    after = start.but(phase=RUNNING, kv_committed_len=5, rows=1)
    assert changes(start, start) == []
    assert changes(start, after) == ["phase none → running, kv_committed_len 0 → 5", "in truth: rows 0 → 1"]
    assert changes(after, start) == ["the turn is over", "in truth: rows 1 → 0"]


@pytest.mark.parametrize(("given", "shown"), [(True, "yes"), (False, "no"), (7, "7"), (None, "-")])
def test_values_are_shown_in_words(given: object, shown: str) -> None:
    assert value("slot_held", given) == shown


def test_effects_that_do_not_take_place_are_not_shown() -> None:
    d = Integers(4, 64)
    assert in_words(Free(4, 9), d) == "frees tokens [4, 9) = pages [1, 3)"
    assert in_words(Free(9, 9), d) is None
    assert in_words(Take(2, 2), d) is None
    assert in_words(TakeRow(False), d) is None
    assert in_words(DropRow(True), d) == "returns the row"
