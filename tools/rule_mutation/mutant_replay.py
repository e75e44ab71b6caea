"""What a replay would notice: runs of the right rules, judged by mutated ones.

Every run of a small instance is followed by both, side by side, with the events and parameters that a trace of a right
implementation holds. The mutant is noticed where it has no rule for the event, refuses it, breaks an invariant, or
says that something else must be seen. What no trace shows (ghosts, phases) does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvproof.spec.trace import Observed
from rule_mutation.mutant_spec import SpecCopy

# Page size, row width, configuration. The plain ones come first.
INSTANCES: tuple[tuple[int, int, Mapping[str, Any]], ...] = (
    (1, 3, {}),
    (2, 4, {}),
    (1, 3, {"overlap": True}),
    (1, 3, {"speculation": 1}),
    (1, 3, {"overlap": True, "speculation": 2}),
    (1, 3, {"window": 1}),
    (1, 3, {"tree": False}),
)
# A mutant whose lengths run away has no end of states; the right rules have far fewer than this.
MOST_PAIRS = 20_000
OBSERVED = frozenset(Observed.model_fields)


@dataclass(frozen=True)
class Event:
    """A step of the right rules: what a trace says of it, and where it leads."""

    action: str
    event: str
    of_another: bool
    params: Mapping[str, Any]
    seen: tuple[Any, ...]
    after: Any


class Runs:
    """All runs of the right rules over one instance: the events of each reachable state."""

    def __init__(self, right: SpecCopy, instance: tuple[int, int, Mapping[str, Any]]) -> None:
        self.page_size, self.row_width, self.config = instance
        oracle = right.oracle.Oracle.of(self.page_size, self.row_width, **self.config)
        self.start = right.state.pristine(oracle.d)
        self.events: dict[Any, list[Event]] = {}
        frontier = [self.start]
        while frontier:
            state = frontier.pop()
            if state not in self.events:
                self.events[state] = [_event(oracle, right, taken) for taken in right.explore.successors(oracle, state)]
                frontier.extend(event.after for event in self.events[state])

    def noticed(self, wrong: SpecCopy) -> str:
        """The first event, in some run, at which the mutated rules disagree; empty when they never do."""
        oracle = wrong.oracle.Oracle.of(self.page_size, self.row_width, **self.config)
        start = (self.start, wrong.state.pristine(oracle.d))
        pairs, frontier = {start}, [start]
        while frontier and len(pairs) < MOST_PAIRS:
            state, twin = frontier.pop()
            for event in self.events[state]:
                after, disagreement = self._judged(wrong, oracle, twin, event)
                if disagreement:
                    return disagreement
                pair = (event.after, after)
                if pair not in pairs:
                    pairs.add(pair)
                    frontier.append(pair)
        return ""

    def _judged(self, wrong: SpecCopy, oracle: Any, twin: Any, event: Event) -> tuple[Any, str]:
        action = oracle.applicable(event.event, twin, event.of_another)
        if action is None:
            return None, f"{event.action}: no rule for its event"
        # Another rule than the right one may ask for what the event of the right one does not have.
        given = {**dict.fromkeys(action.params, 0), **event.params}
        outcome = oracle.step(action, twin, given)
        if outcome.failed_guards:
            return None, f"{event.action}: refused ({outcome.failed_guards[0].sentence})"
        if broken := outcome.broken(oracle.d):
            return None, f"{event.action}: breaks {', '.join(broken)}"
        if (seen := _seen(oracle, wrong, outcome)) != event.seen:
            return None, f"{event.action}: {_first_difference(event.seen, seen)}"
        return outcome.after, ""


def _event(oracle: Any, copy: SpecCopy, taken: Any) -> Event:
    outcome = taken.outcome
    action = outcome.action
    seen = _seen(oracle, copy, outcome)
    return Event(action.name, action.event, action.of_another, taken.params, seen, outcome.after)


def _seen(oracle: Any, copy: SpecCopy, outcome: Any) -> tuple[Any, ...]:
    """What a trace shows of a step: observed fields, admission, the terms of the memory check, pages freed and taken."""
    after, before = outcome.after, outcome.before
    hidden = set() if after.slot_held else {"slot"}
    hidden |= {"turn"} if outcome.action.of_another else set()
    values = tuple(
        (f.name, getattr(after, f.name))
        for f in copy.state.FIELDS
        if f.name in OBSERVED and (f.metadata["group"] not in hidden or f.name == "slot_held")
    )
    admitted = after.turns > before.turns
    attached = bool(after.inflight or after.turns > 0)
    return (*values, ("admitted", admitted), ("attached", attached), *_pages(oracle.d, outcome))


def _pages(d: Any, outcome: Any) -> tuple[tuple[str, Any], ...]:
    """Positions of the row whose pages are freed, how many are taken, and what the memory check reads."""
    freed: list[int] = []
    taken, row = 0, False
    terms: tuple[Any, ...] = ()
    end, tree_end = outcome.before.row_end, outcome.before.tree_end
    for effect in outcome.effects:
        match type(effect).__name__:
            case "TakeRow" if effect.when:
                row, end, tree_end = True, 0, 0
            case "Share" if effect.when:
                end = tree_end = effect.pages
            case "Take" if effect.first < effect.last:
                taken, end = taken + effect.last - effect.first, max(end, effect.last)
            case "Free" if effect.start < effect.end:
                first, last = d.floor_pages(effect.start), d.ceil_pages(effect.end)
                freed += range(first, min(last, end))
                end = min(end, first)
            case "Insert" if effect.when:
                freed += range(tree_end, min(effect.duplicates, effect.pages, end))
                tree_end = effect.pages
            case "Report":
                terms = (effect.session_held, effect.uncached)
    return ("freed", tuple(sorted(freed))), ("taken", taken), ("row", row), ("terms", terms)


def _first_difference(right: tuple[Any, ...], wrong: tuple[Any, ...]) -> str:
    for (name, value), (_, other) in zip(right, wrong, strict=False):
        if value != other:
            return f"{name} is {value}, not {other}"
    return "another set of fields"
