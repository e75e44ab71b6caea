"""What a trace does not tell although the recorder of its target does, and although its header names no such gap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from kvproof.conformance.replay.compared_fields import SHOWN
from kvproof.conformance.replay.coverage import Coverage
from kvproof.spec.actions import ACTIONS
from kvproof.spec.profiles import told_by
from kvproof.spec.recorded_values import WHERE_NO_TURN_IS_ON_THE_SLOT
from kvproof.spec.trace import EventName, Header

EVENTS = frozenset(get_args(EventName))
ON_THE_SLOT = "while a turn runs on the slot"
OF_A_WINDOW = "swa_evicted_seqlen"
MAX_NAMED = 4
"""Kinds of events that are named one by one."""


@dataclass(frozen=True)
class Gap:
    """Values that a recorder says it cannot see: after some events (none named: after any), or while a turn runs on the slot."""

    values: frozenset[str]
    events: frozenset[str]
    on_the_slot: bool

    @classmethod
    def parsed(cls, text: str) -> Gap:
        """Before the colon stand the values, as in `checkpoint_len, slot_* after a decode: why`."""
        subject = text.partition(":")[0]
        words = subject.replace(",", " ").split()
        named = (
            name
            for word in words
            for name in SHOWN
            if name == word or (word.endswith("_*") and name.startswith(word[:-1]))
        )
        return cls(frozenset(named), EVENTS.intersection(words), ON_THE_SLOT in subject)

    def covers(self, rule: str, value: str) -> bool:
        if value not in self.values or (self.on_the_slot and rule in WHERE_NO_TURN_IS_ON_THE_SLOT):
            return False
        return not self.events or ACTIONS[rule].event in self.events


def untold(coverage: Coverage, header: Header) -> Iterator[tuple[str, str, int]]:
    """Rule, value, and how often an event that it judged did not show the value."""
    expected, gaps = told_by(header.producer.target), [Gap.parsed(text) for text in header.gaps]
    for key, times in sorted(coverage.not_shown.items()):
        rule, _, value = key.partition(".")
        if value.endswith(OF_A_WINDOW) and not header.config.window:
            continue
        if value in expected.get(rule, ()) and not any(gap.covers(rule, value) for gap in gaps):
            yield rule, value, times


def why_untold(coverage: Coverage, header: Header) -> str:
    """What is missing, in a sentence; empty if nothing is."""
    missing: dict[str, dict[str, int]] = {}
    for rule, value, times in untold(coverage, header):
        of_event = missing.setdefault(ACTIONS[rule].event or rule, {})
        of_event[value] = of_event.get(value, 0) + times
    if not missing:
        return ""
    named = "; ".join(f"{event}: {_values(values)}" for event, values in list(missing.items())[:MAX_NAMED])
    more = f"; and {len(missing) - MAX_NAMED} more kinds of event" if len(missing) > MAX_NAMED else ""
    return (
        f"it tells less than the recorder of {header.producer.target} does: {named}{more}. "
        "What a recorder cannot see, the header names under gaps (docs/trace.md lists them)"
    )


def _values(values: dict[str, int]) -> str:
    return ", ".join(f"{name} ({times} times)" for name, times in values.items())
