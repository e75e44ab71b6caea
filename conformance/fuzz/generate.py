"""Schedules by chance, as Hypothesis strategies.

Swarm testing (Groce et al., 2012): each schedule is drawn from a random subset of what can be done and of the settings that
are not tame, because a bug often needs something to be absent: no close, no abort, nothing but one session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import strategies as st

from kvproof.conformance.fuzz.schedule import Act, Do, Schedule, Setting
from kvproof.conformance.fuzz.target import Target

MOST_GROUPS, MOST_IN_A_GROUP, MOST_BETWEEN = 24, 12, 6
NEEDED = ("step", "turn")
"""Without these nothing happens."""
WEIGHTS = {"turn": 4, "step": 4, "send": 2, "abort": 2}
"""How often an act is drawn, if not once."""
ENTROPY = 6
"""Bytes that choose an act: far more than there are acts."""
STEPS = (1, 2, 3, 5, 9, 30)
MOST_WHO = 3

# One draw for each act, not one for each of its parts, and nothing else in between: to draw takes as long as to play a step.
# Bytes, because integers of a large range are not drawn evenly: small ones and round ones come again and again.
NUMBER = st.binary(min_size=ENTROPY, max_size=ENTROPY)
SOME_NUMBERS = st.lists(NUMBER, max_size=MOST_IN_A_GROUP)
GROUPS_OF_NUMBERS = st.lists(st.lists(NUMBER, min_size=1, max_size=MOST_IN_A_GROUP), min_size=1, max_size=MOST_GROUPS)
"""Groups, because lists are short on the average, and a schedule should be long."""


@st.composite
def schedules(
    draw: st.DrawFn, target: Target, pinned: Mapping[str, Setting] | None = None, faults: Sequence[str] = ()
) -> Schedule:
    """A schedule for the target, half of the time around one of its seeds. `pinned`: settings that the user chose."""
    seed = draw(st.sampled_from((None, *target.seeds))) if draw(st.booleans()) else None
    settings = _settings(draw, target, seed, pinned or {})
    may_be_absent = [name for name in target.acts if name not in NEEDED]
    left_out = _some_of(draw, may_be_absent)
    enabled = [name for name in target.acts if name not in left_out]
    numbered = _Acts.of(enabled, target.page_size(settings), target.longest(settings)).numbered
    acts = _around(draw, seed, numbered) if seed is not None else _from_nothing(draw, numbered)
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


Numbered = Callable[[bytes], Act]
"""The act that such a number stands for."""


def _from_nothing(draw: st.DrawFn, numbered: Numbered) -> list[Act]:
    return [Act(do="open"), *(numbered(number) for group in draw(GROUPS_OF_NUMBERS) for number in group)]


def _around(draw: st.DrawFn, seed: Schedule, numbered: Numbered) -> list[Act]:
    """The acts of a seed, with others before, between and behind."""
    acts = list(seed.acts)
    for place, number in draw(_numbers_between(len(acts))):
        acts.insert(place, numbered(number))
    return [*map(numbered, draw(SOME_NUMBERS)), *acts, *map(numbered, draw(SOME_NUMBERS))]


@cache
def _numbers_between(acts: int) -> st.SearchStrategy[list[tuple[int, bytes]]]:
    return st.lists(st.tuples(st.integers(0, acts), NUMBER), max_size=MOST_BETWEEN)


def _some_of(draw: st.DrawFn, names: Sequence[str]) -> list[str]:
    """Each with a chance of a half; none is the simplest."""
    chosen = draw(st.integers(0, (1 << len(names)) - 1))
    return [name for place, name in enumerate(names) if chosen >> place & 1]


@dataclass(frozen=True)
class _Acts:
    """All acts that may be drawn, by number."""

    choices: Mapping[str, Sequence[Any]]
    """Of each part of an act."""

    @classmethod
    def of(cls, enabled: Sequence[str], page_size: int, longest: int) -> _Acts:
        lengths = _lengths(page_size, longest)
        return cls(
            {
                "do": [name for name in enabled for _ in range(WEIGHTS.get(name, 1))],
                "times": STEPS,
                "logprob": (False, True),
                "priority": (0, 1, 2),
                "shared": (0, *lengths[1:]),
                "max_new_tokens": lengths[: len(lengths) // 2 + 2],
                "new_tokens": lengths,
                "who": range(MOST_WHO + 1),
            }
        )

    def numbered(self, drawn: bytes) -> Act:
        number, chosen = int.from_bytes(drawn, "big"), dict[str, Any]()
        for name, values in self.choices.items():
            number, place = divmod(number, len(values))
            chosen[name] = values[place]
        return Act(do=chosen["do"], **{name: chosen[name] for name in PARTS[chosen["do"]]})


_SENT = ("new_tokens", "max_new_tokens", "shared", "priority")
PARTS: Mapping[Do, Sequence[str]] = {
    "open": (),
    "launch": (),
    "step": ("times",),
    "send": _SENT,
    "turn": (*_SENT, "who", "logprob"),
    "abort": ("who",),
    "retract": ("who",),
    "close": ("who",),
}
"""What there is to choose about each act."""


def _lengths(page_size: int, longest: int) -> list[int]:
    """Lengths in tokens at which something changes: about the end of a page, several pages, a whole row."""
    about = (1, 2, 3, 5, page_size - 1, page_size, page_size + 1, 2 * page_size, 2 * page_size + 1, 5 * page_size + 2)
    return sorted({length for length in (*about, longest) if 1 <= length <= longest})
