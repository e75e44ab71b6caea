"""`kvproof list`: a line for each row of the table, and what a name that is none is answered with."""

from __future__ import annotations

from typing import Any

import pytest
from command_line import refusal, run

from kvproof.conformance.adapters import scenarios
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import every_invariant


@pytest.mark.parametrize(("what", "table"), [("faults", FAULTS), ("invariants", every_invariant())])
def test_list_has_a_line_for_each_row_of_the_table(what: str, table: dict[str, Any]) -> None:
    lines = run("list", what).stdout.splitlines()
    assert {line.split("\t")[0] for line in lines} == set(table)
    assert set(run("list", what, "-q").stdout.splitlines()) == set(table)


def test_list_of_something_else_names_what_can_be_listed() -> None:
    message = refusal("list", "fauls")
    assert (
        "unknown list 'fauls'; did you mean faults?; valid: faults, invariants, actions, profiles, scenarios" in message
    )


def test_a_target_that_is_not_installed_is_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    target = scenarios.Target(adapter="no_such_package", scenarios="no_such_package", install="pip install it")
    monkeypatch.setattr(scenarios, "TARGETS", {"other": target})
    monkeypatch.setattr("kvproof.conformance.cli.commands.list.TARGETS", {"other": target})
    result = run("list", "scenarios")
    assert result.exit_code == 0 and result.stdout == ""
    assert "note: scenarios of other left out: target other needs no_such_package" in result.stderr
