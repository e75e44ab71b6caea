"""Abstract states: what may matter to a rule tells two of them apart, and lengths alone do not. Rare ones lead the search."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
from kvproof.conformance.fuzz.abstract_states import PREFIX, abstract_states
from kvproof.conformance.fuzz.campaign import exercised_in, rarity
from kvproof.conformance.fuzz.judging import judging_by
from kvproof.conformance.fuzz.play import play
from kvproof.conformance.fuzz.reference import Reference
from kvproof.conformance.fuzz.schedule import Act, Schedule

ONE_TURN = Schedule(target="reference", acts=(Act(do="open"), Act(do="turn"), Act(do="step", times=5)))
CLOSED_EARLY = ONE_TURN.model_copy(
    update={"acts": (Act(do="open"), Act(do="turn"), Act(do="close"), Act(do="step", times=5))}
)


def event(action: str, terms: dict[str, int] | None = None, **after: Any) -> SimpleNamespace:
    return SimpleNamespace(action=action, after=after, terms=terms)


def test_other_lengths_are_the_same_state_as_long_as_they_stand_alike() -> None:
    seen = [event("finish", kv_committed_len=c, kv_allocated_len=c + 3) for c in (1, 2, 70)]
    (name,) = abstract_states(seen)
    assert name == f"{PREFIX}finish kv_committed_len<kv_allocated_len"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (event("finish", inflight=True), event("finish", inflight=False)),
        (
            event("finish", kv_committed_len=3, kv_allocated_len=4),
            event("finish", kv_committed_len=4, kv_allocated_len=4),
        ),
        (event("finish", prefix_len=0), event("finish", prefix_len=1)),
        (event("finish"), event("abort")),
        (event("check", terms={"evictable": 0}), event("check", terms={"evictable": 8})),
    ],
)
def test_what_may_matter_tells_states_apart(one: SimpleNamespace, other: SimpleNamespace) -> None:
    assert len(abstract_states([one, other])) == 2


@pytest.mark.parametrize(
    "seen",
    [
        SimpleNamespace(action="open"),
        SimpleNamespace(action="open", after=None, terms={}),
        event("open", terms={}, kv_committed_len="a hundred"),
        SimpleNamespace(action="open", after=[1], terms="none"),
    ],
)
def test_what_a_target_leaves_out_or_gets_wrong_is_no_part_of_the_state(seen: SimpleNamespace) -> None:
    assert abstract_states([seen]) == {f"{PREFIX}open"}


@pytest.mark.parametrize("judge", ["compiled", "interpreted"])
def test_a_play_tells_its_states(judge: str) -> None:
    if judge == "compiled":
        pytest.importorskip("numba")
    new_judging = judging_by(judge, seconds=60)
    usual, early = (exercised_in(play(s, Reference(), new_judging=new_judging)) for s in (ONE_TURN, CLOSED_EARLY))
    closing = {name for name in early if name.startswith(PREFIX) and "closing=True" in name}
    assert closing
    assert not closing & usual


def test_a_schedule_is_worth_more_the_rarer_the_states_that_it_saw() -> None:
    usual, rare = exercised_in(play(ONE_TURN, Reference())), exercised_in(play(CLOSED_EARLY, Reference()))
    seen_in = Counter(dict.fromkeys(usual, 9))
    only_a_state = next(name for name in rare - usual if name.startswith(PREFIX))
    assert rarity(usual | {only_a_state}, seen_in) == pytest.approx(rarity(usual, seen_in) + 1)
    seen_in[only_a_state] = 3
    assert rarity(usual | {only_a_state}, seen_in) == pytest.approx(rarity(usual, seen_in) + 1 / 4)
