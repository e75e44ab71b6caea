"""Liveness is proved of the rules and of each profile, and a rule that stops a turn or a close is noticed for every page size."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from kvproof.model.liveness import IN_A_STAGE, pose, prove_liveness
from kvproof.model.questions import BROKEN, POSSIBLE, PROVED, Asker, ask_z3
from kvproof.spec.actions import ACTIONS, Action, Guard, Step
from kvproof.spec.domain import Domain, Flag, one_page
from kvproof.spec.liveness import STAGES, Stage
from kvproof.spec.machine import LEDGER
from kvproof.spec.profiles import PROFILES
from kvproof.spec.state import Ledger


def broken(**changed: Action) -> list[str]:
    machine = dataclasses.replace(LEDGER, actions={**ACTIONS, **changed})
    return [lemma.goal for lemma in prove_liveness(Asker(), machine) if lemma.verdict == BROKEN]


def never(d: Domain, s: Ledger) -> Flag:
    return d.false


def finishes_on_small_pages(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    step = ACTIONS["finish"].run(d, s, p)
    small = Guard("a page has at most two tokens", one_page(d) <= d.one + d.one)
    return dataclasses.replace(step, guards=(*step.guards, small))


def matches_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    step = ACTIONS["match_slot"].run(d, s, p)
    return dataclasses.replace(step, after=step.after.but(matched=d.false))


def result_that_stays(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    step = ACTIONS["result"].run(d, s, p)
    return dataclasses.replace(step, after=step.after.but(pending=s.pending))


def close_that_waits_on(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s)


WRONG = {
    "a turn ends once its results are in": {"finish": {"run": finishes_on_small_pages}},
    "a queued turn is matched": {"match_slot": {"run": matches_nothing}},
    "a step's result is processed": {"result": {"run": result_that_stays}},
    "a chunk is kept": {"insert": {"applies": never}},
    "the next chunk runs": {"extend": {"applies": lambda d, s: s.matched}},
    "a turn that was to be aborted is aborted": {"abort_first": {"applies": never}},
    "a close that waits is done": {"close": {"run": close_that_waits_on}},
}


def test_the_rules_lead_on_for_every_page_size() -> None:
    lemmas = list(prove_liveness(Asker()))
    assert [lemma.goal for lemma in lemmas] == [*(stage.waits_for for stage in STAGES), IN_A_STAGE]
    assert {lemma.verdict for lemma in lemmas} == {PROVED}


@pytest.mark.parametrize("name", PROFILES)
def test_so_do_those_of_each_release(name: str) -> None:
    assert broken(**PROFILES[name].rules) == []


@pytest.mark.parametrize("missing", STAGES, ids=lambda stage: stage.waits_for)
def test_a_turn_that_is_in_no_stage_is_noticed(missing: Stage) -> None:
    others = [stage for stage in STAGES if stage is not missing]
    assert [lemma.goal for lemma in prove_liveness(Asker(), stages=others) if lemma.verdict != PROVED] == [IN_A_STAGE]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.waits_for)
def test_each_stage_has_states(stage: object) -> None:
    assert ask_z3(pose(stage, LEDGER))[POSSIBLE].verdict == PROVED  # type: ignore[arg-type]


@pytest.mark.parametrize("goal", WRONG)
def test_a_rule_that_stops_a_turn_or_a_close_is_noticed(goal: str) -> None:
    changed = {name: dataclasses.replace(ACTIONS[name], **parts) for name, parts in WRONG[goal].items()}
    assert goal in broken(**changed)


def test_a_close_that_never_applies_is_noticed() -> None:
    assert broken(close=dataclasses.replace(ACTIONS["close"], applies=never)) == ["a close that waits is done"]
