"""The three interpreters of the rules agree; where one is bent, the first event that shows it is named."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("numba")
import interpreter_agreement as agreement
from interpreter_agreement import Asked, Disagreement, compare

from kvproof.conformance.compiled.checker import CompiledChecker
from kvproof.conformance.compiled.warm import warmed
from kvproof.conformance.fuzz.play import Played, play
from kvproof.conformance.fuzz.reference import Reference
from kvproof.conformance.replay.rules_of_trace import rules_of


@pytest.fixture(scope="module")
def some() -> list[Played]:
    target = Reference()
    seeds = list(target.seeds[:6])
    return [play(seed.model_copy(update={"faults": faults}), target) for seed in seeds for faults in ((), ("F22862a",))]


def compared(played: Played, asked: Asked) -> Disagreement | None:
    return compare(played.header, played.events, warmed(rules_of(None)), asked)


def test_they_agree_also_on_what_is_refused(some: list[Played]) -> None:
    asked = Asked()
    assert [compared(played, asked) for played in some] == [None] * len(some)
    assert any(played.trouble for played in some)
    assert asked.steps > asked.distinct > 20


def test_z3_that_says_otherwise_is_named(some: list[Played], monkeypatch: Any) -> None:
    right = agreement.disagreements

    def bent(machine: Any, action: Any, d: Any, before: Any, params: Any) -> Any:
        return {"turns": (1, 2)} if action.name == "create" else right(machine, action, d, before, params)

    monkeypatch.setattr(agreement, "disagreements", bent)
    found = compared(some[0], Asked())
    assert found is not None and found.between == "oracle and Z3" and found.what == {"turns": (1, 2)}
    assert some[0].events[found.seq].action == "create" and "create(" in found.asked


def test_a_compiled_checker_that_forgets_is_named_by_the_first_event(some: list[Played], monkeypatch: Any) -> None:
    right = CompiledChecker.bring_up_to_date

    def forgetful(checker: CompiledChecker) -> None:
        right(checker)
        ledgers = checker.replayer.ledgers
        checker.replayer.ledgers = {key: ledger.but(output_len=0) for key, ledger in ledgers.items()}

    monkeypatch.setattr(CompiledChecker, "bring_up_to_date", forgetful)
    found = compared(some[0], Asked())
    assert found is not None and list(found.what) == ["ledgers"]
    assert some[0].events[found.seq].action == "result"
    assert all(event.action != "result" for event in some[0].events[: found.seq])
