from __future__ import annotations

from itertools import count

from kvproof.conformance.adapters.live.idle_passes import FIRST_PASSES, FIRST_SECONDS, TIMES, IdlePasses


def told_by(passes: IdlePasses, records: int, times: int) -> list[int]:
    """What is said in so many passes, where each word is a record of its own."""
    told = []
    for _ in range(times):
        if said := passes.one_more(records):
            told.append(said)
            passes.was_said(records)
    return told


def test_it_is_said_after_many_passes_and_each_time_after_four_times_as_many() -> None:
    passes = IdlePasses(count(step=FIRST_SECONDS).__next__)
    assert told_by(passes, 0, 20 * FIRST_PASSES) == [FIRST_PASSES, TIMES * FIRST_PASSES, TIMES**2 * FIRST_PASSES]


def test_nothing_is_said_before_some_seconds_have_gone_by() -> None:
    assert told_by(IdlePasses(lambda: 0.0), 0, 20 * FIRST_PASSES) == []


def test_what_happens_in_between_begins_the_count_anew() -> None:
    passes = IdlePasses(count(step=FIRST_SECONDS).__next__)
    assert told_by(passes, 0, FIRST_PASSES - 1) == []
    assert told_by(passes, 1, FIRST_PASSES - 1) == []
    assert told_by(passes, 1, 1) == [FIRST_PASSES]
