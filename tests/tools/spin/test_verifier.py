"""SPIN shows of the model written by hand that turns end and closes are done, and sees each fault that stops one."""

from __future__ import annotations

import pytest
from spin.verifier import LIVENESS, forever, missing, verifier

from kvproof.model.explore import reach

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]

STOPS = {
    ("F994e", "ends"): {"retract", "match_slot*", "extend*"},  # prefilled and retracted, without a token
    ("F994e", "closes"): {"retract", "match_slot*", "extend*"},
    ("NOT_MATCHED", "runs"): {"match_slot*"},
}
"""What is taken again and again, beside what changes nothing."""
CHANGES_NOTHING = {"refuse", "pass_by", "late_result", "check", "defer_close"}


@pytest.mark.parametrize("claim", LIVENESS)
@pytest.mark.parametrize("instance", [(1, 3), (2, 4)])
def test_what_waits_gets_on_where_the_scheduler_does(claim: str, instance: tuple[int, int]) -> None:
    assert forever(claim, *instance) is None


@pytest.mark.parametrize("claim", LIVENESS)
def test_without_a_scheduler_everything_waits_for_ever(claim: str) -> None:
    cycle = forever(claim, 1, 3, is_fair=False)
    assert cycle is not None
    assert set(cycle.again) <= CHANGES_NOTHING


@pytest.mark.parametrize(("fault", "claim"), STOPS)
def test_a_rule_that_undoes_progress_is_a_cycle(fault: str, claim: str) -> None:
    cycle = forever(claim, 1, 3, fault)
    assert cycle is not None
    assert set(cycle.again) - CHANGES_NOTHING == STOPS[fault, claim]


def test_a_retract_that_clears_the_marker_loses_the_turn() -> None:
    """The session is closed, or takes another turn, while the retracted one waits (S0511a)."""
    cycle = forever("ends", 1, 3, "S0511a")
    assert cycle is not None
    since = cycle.before[cycle.before.index("retract") :]
    assert {"close", "close*", "creates"} & set(since)
    assert set(cycle.again) <= CHANGES_NOTHING


def test_a_marker_that_an_abort_leaves_keeps_the_close_waiting() -> None:
    cycle = forever("closes", 1, 3, "S0511b")
    assert cycle is not None
    assert "abort_queued" in cycle.before
    assert set(cycle.again) <= CHANGES_NOTHING
    assert str(cycle).endswith("then for ever: refuse")
    assert forever("runs", 1, 3, "S0511b") is None  # other turns are refused, and nothing else


def test_both_reach_as_many_states_and_the_shortest_run_stays() -> None:
    with verifier(2, 4) as whole, verifier(2, 4, fault="F22862b") as faulty:
        assert whole.run().states == reach(2, 4).states
        assert faulty.run().steps == 8
