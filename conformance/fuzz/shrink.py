"""Makes a schedule simpler, as long as the same trouble comes of it: fewer acts, tamer settings, smaller numbers.

Whole stretches of acts first, then single ones (delta debugging): Hypothesis would shrink choice by
choice, which is slow for what has hundreds of them. The order is fixed, so the same schedule shrinks to the same one, unless the
time is up before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kvproof.conformance.fuzz.schedule import Act, Schedule
from kvproof.conformance.shrink.delta import Limit, least, without_stretches

StillFails = Callable[[Schedule], bool]


def shrunk(schedule: Schedule, still_fails: StillFails, seconds: float) -> Schedule:
    """The simplest schedule found in so many seconds; `still_fails` says whether one shows the same trouble."""
    limit, best = Limit(seconds), schedule
    while not limit.is_over:
        simpler = best
        for candidates in (_fewer_acts, _tamer_settings, _smaller_numbers):
            simpler = least(simpler, candidates, still_fails, limit)
        if simpler == best:
            break
        best = simpler
    return best


def _fewer_acts(schedule: Schedule) -> Iterator[Schedule]:
    for acts in without_stretches(schedule.acts):
        yield schedule.model_copy(update={"acts": tuple(acts)})


def _tamer_settings(schedule: Schedule) -> Iterator[Schedule]:
    """With one setting as it is when nobody chooses it."""
    for name in schedule.settings:
        kept = {other: value for other, value in schedule.settings.items() if other != name}
        yield schedule.model_copy(update={"settings": kept})


SIMPLEST: Mapping[str, int | bool] = {
    "times": 1,
    "new_tokens": 1,
    "max_new_tokens": 1,
    "shared": 0,
    "priority": 0,
    "who": 0,
    "logprob": False,
}


def _smaller_numbers(schedule: Schedule) -> Iterator[Schedule]:
    """With one number of one act as small as can be, or half, or one less."""
    for place, act in enumerate(schedule.acts):
        for name, simplest in SIMPLEST.items():
            value = getattr(act, name)
            for smaller in dict.fromkeys((simplest, (value + simplest) // 2, value - 1)):
                if value > simplest and simplest <= smaller < value:
                    yield _with_act(schedule, place, act.model_copy(update={name: type(simplest)(smaller)}))


def _with_act(schedule: Schedule, place: int, act: Act) -> Schedule:
    acts = (*schedule.acts[:place], act, *schedule.acts[place + 1 :])
    return schedule.model_copy(update={"acts": acts})
