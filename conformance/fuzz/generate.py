"""Schedules by chance, as Hypothesis strategies.

Swarm testing (Groce et al., 2012): each schedule is drawn from a random subset of what can be done and of the settings that
are not tame, because a bug often needs something to be absent: no close, no abort, nothing but one session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from kvproof.conformance.fuzz.schedule import Act, Schedule, Setting
from kvproof.conformance.fuzz.target import Target

MOST_GROUPS, MOST_IN_A_GROUP, MOST_BETWEEN = 24, 12, 6
NEEDED = ("step", "turn")
"""Without these nothing happens."""
WEIGHTS = {"turn": 4, "step": 4, "send": 2, "abort": 2}
"""How often an act is drawn, if not once."""
STEPS = (1, 2, 3, 5, 9, 30)
MOST_WHO = 3


@st.composite
def schedules(
    draw: st.DrawFn, target: Target, pinned: Mapping[str, Setting] | None = None, faults: Sequence[str] = ()
) -> Schedule:
    """A schedule for the target, half of the time around one of its seeds. `pinned`: settings that the user chose."""
    seed = draw(st.sampled_from((None, *target.seeds))) if draw(st.booleans()) else None
    settings = _settings(draw, target, seed, pinned or {})
    may_be_absent = [name for name in target.acts if name not in NEEDED]
    left_out = _some_of(draw, may_be_absent)
    one_act = _one_act(target, settings, [name for name in target.acts if name not in left_out])
    acts = _around(draw, seed, one_act) if seed is not None else _from_nothing(draw, one_act)
    return Schedule(target=target.name, faults=tuple(faults), settings=settings, acts=tuple(acts))


def _settings(
    draw: st.DrawFn, target: Target, seed: Schedule | None, pinned: Mapping[str, Setting]
) -> dict[str, Setting]:
    """Those of the seed, or a half of all that are not tame; the user's in any case."""
    settings: dict[str, Setting] = {}
    if seed is not None:
        settings |= seed.settings
    if seed is None or draw(st.booleans()):
        for name in _some_of(draw, [name for name in target.settings if name not in pinned]):
            settings[name] = draw(st.sampled_from(target.settings[name]))
    settings |= pinned
    return {name: value for name, value in settings.items() if value != target.settings[name][0] or name in pinned}


def _from_nothing(draw: st.DrawFn, one_act: st.SearchStrategy[Act]) -> list[Act]:
    # Groups, because lists are short on the average, and a schedule should be long.
    groups = draw(st.lists(st.lists(one_act, min_size=1, max_size=MOST_IN_A_GROUP), min_size=1, max_size=MOST_GROUPS))
    return [Act(do="open"), *(act for group in groups for act in group)]


def _around(draw: st.DrawFn, seed: Schedule, one_act: st.SearchStrategy[Act]) -> list[Act]:
    """The acts of a seed, with others before, between and behind."""
    acts = list(seed.acts)
    for place, act in draw(st.lists(st.tuples(st.integers(0, len(acts)), one_act), max_size=MOST_BETWEEN)):
        acts.insert(place, act)
    some = st.lists(one_act, max_size=MOST_IN_A_GROUP)
    return [*draw(some), *acts, *draw(some)]


def _some_of(draw: st.DrawFn, names: Sequence[str]) -> list[str]:
    """Each with a chance of a half; none is the simplest."""
    chosen = draw(st.integers(0, (1 << len(names)) - 1))
    return [name for place, name in enumerate(names) if chosen >> place & 1]


def _one_act(target: Target, settings: Mapping[str, Setting], enabled: Sequence[str]) -> st.SearchStrategy[Act]:
    kinds = [name for name in enabled for _ in range(WEIGHTS.get(name, 1))]
    lengths = _lengths(target.page_size(settings), target.longest(settings))
    who = st.integers(0, MOST_WHO)
    new, out, shared = (
        st.sampled_from(lengths),
        st.sampled_from(lengths[: len(lengths) // 2 + 2]),
        st.sampled_from((0, *lengths[1:])),
    )
    priority = st.integers(0, 2)
    of_kind: dict[str, st.SearchStrategy[Act]] = {
        "open": st.just(Act(do="open")),
        "launch": st.just(Act(do="launch")),
        "step": st.builds(Act, do=st.just("step"), times=st.sampled_from(STEPS)),
        "send": st.builds(
            Act, do=st.just("send"), new_tokens=new, max_new_tokens=out, shared=shared, priority=priority
        ),
        "turn": st.builds(
            Act,
            do=st.just("turn"),
            who=who,
            new_tokens=new,
            max_new_tokens=out,
            shared=shared,
            logprob=st.booleans(),
            priority=priority,
        ),
    }
    of_kind |= {name: st.builds(Act, do=st.just(name), who=who) for name in ("abort", "retract", "close")}
    return st.sampled_from(kinds).flatmap(lambda kind: of_kind[kind])


def _lengths(page_size: int, longest: int) -> list[int]:
    """Lengths in tokens at which something changes: about the end of a page, several pages, a whole row."""
    about = (1, 2, 3, 5, page_size - 1, page_size, page_size + 1, 2 * page_size, 2 * page_size + 1, 5 * page_size + 2)
    return sorted({length for length in (*about, longest) if 1 <= length <= longest})
