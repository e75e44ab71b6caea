"""How often the scheduler ran, by the trace, when each ledger was last seen to go on, and how often it went round since.

A pass is a batch with a decode step in it: decodes that follow each other with one `step`. Prefills are counted as no pass, for
a scheduler may prefer them for as long as there are any. Where events have no `step`, no pass is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvproof.spec.batch import LAUNCHES
from kvproof.spec.trace import Event

DECODES = "decode"
BRINGS_NOTHING_ON = ("match",)
"""Events of a turn that stands where it stood: a match of a waiting turn is tried again and again."""
RETRACTS = "retract"
ASKS_ABORT = "ask_abort"
STEPS_OF_A_TURN = (*LAUNCHES, "verify")
"""Events by which a turn gets pages."""
GETS_ON = ("result", "verify", "finish", "abort")
"""Events by which a turn gets a token, or ends."""
ADMITS_OR_GIVES_BACK = ("extend", "finish", "abort", "retract", "close")
"""Events at which a turn is admitted, or at which rows and pages may come back. Between them what can be had only gets less."""
LOOKS_OF_EVENTS = 8
"""A look at all ledgers for each 2^8 passes' share of the events so far: so it costs little however long the trace is."""


@dataclass
class Passes:
    step: int | None = None
    """Of the last decode."""
    count: int = 0
    barren: int = 0
    """The last in a row in which nothing was admitted and nothing came back."""
    next_look: int = 0
    idle_at: int = 0
    """How many events there were when the scheduler last said that it finds nothing to run."""
    last: dict[str, int] = field(default_factory=dict)
    """Of each ledger, how many passes there were when it went on last."""
    retracts: dict[str, int] = field(default_factory=dict)
    """Of each ledger, how often its turn was retracted since it got a token."""

    def begins_with(self, event: Event) -> bool:
        return event.action == DECODES and event.step is not None and event.step != self.step

    def see(self, event: Event, key: str, *, is_late: bool = False) -> None:
        """An event of a ledger, by which it continues. `is_late`: a result that is dropped."""
        if self.begins_with(event):
            self.step, self.count, self.barren = event.step, self.count + 1, self.barren + 1
        if event.action in ADMITS_OR_GIVES_BACK:
            self.barren = 0
        if event.action not in BRINGS_NOTHING_ON:
            self.last[key] = self.count
        if event.action == RETRACTS:
            self.retracts[key] = self.retracts.get(key, 0) + 1
        elif event.action in GETS_ON and not is_late:
            self.retracts.pop(key, None)

    def forget(self, key: str) -> None:
        """The ledger is gone."""
        self.last.pop(key, None)
        self.retracts.pop(key, None)

    def is_due(self, events: int) -> bool:
        """Whether it is time to look for what stands still, after so many events; the next time is later."""
        if self.count < self.next_look:
            return False
        self.next_look = self.count + 1 + (events >> LOOKS_OF_EVENTS)
        return True

    def since(self, key: str) -> int:
        """Passes that went by since the ledger went on."""
        return self.count - self.last.get(key, self.count)
