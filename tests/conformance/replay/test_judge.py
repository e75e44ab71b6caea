"""One event against one rule: which values are compared, and what is read off the event."""

from __future__ import annotations

from typing import Any

import pytest

from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.judge import ABOUT, Judgement, comparisons, judge, parameters
from kvproof.conformance.replay.page_book import PageBook
from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle
from kvproof.spec.actions import ACTIONS
from kvproof.spec.invariants import INVARIANTS
from kvproof.spec.state import pristine
from kvproof.spec.trace import Event

D = Integers(2, 8)
ARRIVAL = {"origin_len": 5, "too_long": False, "logprob": False}


def judged(**fields: Any) -> Judgement:
    event = Event(seq=7, action="arrive", turn="r", **{"params": ARRIVAL, **fields})
    arrive, before = ACTIONS["arrive"], pristine(D)
    outcome = Oracle(D, ACTIONS).step(arrive, before, parameters(event, arrive, before))
    return judge(D, PageBook(8, D), "request r", outcome, event)


def test_an_event_that_shows_what_the_rule_says_agrees() -> None:
    assert judged(after={"output_len": 0, "kv_committed_len": 0}).agrees


def test_each_difference_has_the_value_before_the_expected_one_and_the_one_seen() -> None:
    (difference,) = judged(after={"output_len": 3}).differences
    assert vars(difference) == {"name": "output_len", "before": 0, "expected": 0, "seen": 3}
    assert not judged(after={"output_len": 3}).agrees


def test_what_an_event_does_not_show_is_not_compared() -> None:
    assert judged().agrees


def test_pages_that_the_rule_does_not_move_are_differences() -> None:
    names = [d.name for d in judged(free=(3,), alloc=(4, 5)).differences]
    assert names == ["freed pages", "number of pages taken"]


def test_whatever_is_compared_is_about_an_invariant() -> None:
    """Where no rule of the catalogue predicts what was seen, the invariant that the value is about is named."""
    arrive, before = ACTIONS["arrive"], pristine(D)
    event = Event(seq=7, action="arrive", turn="r", params=ARRIVAL)
    outcome = Oracle(D, ACTIONS).step(arrive, before, parameters(event, arrive, before))
    names = {name for name, *_ in comparisons(D, outcome, event)}
    assert names and names <= set(ABOUT) and set(ABOUT.values()) <= set(INVARIANTS)


def test_a_parameter_that_the_event_lacks_is_named() -> None:
    with pytest.raises(UserError, match="event 7: 'arrive' has no origin_len, which its rule needs"):
        judged(params={})
