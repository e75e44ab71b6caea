"""Which choices of a trace an implementation may be told to make: those that the rules allow.

How far ahead a round reserves, and how many drafts a result accepts, is not for the rules to say, so a drive tells the
implementation what the trace chose. A choice that the rules refuse is what the implementation is to be judged by: it must not be
told to make it.
"""

from __future__ import annotations

from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.judge import parameters
from kvproof.conformance.replay.replayer import FIRST_LINE, Headed, Replayer
from kvproof.spec.actions import Guard
from kvproof.spec.state import pristine
from kvproof.spec.trace import Event


class LegalChoices:
    """Follows a trace by the right rules, as far as it follows them."""

    def __init__(self, trace: Headed) -> None:
        self._replayer: Replayer | None = Replayer(trace, ())

    def refused(self, event: Event, choice: str, others: range) -> Guard | None:
        """The guard by which the rule refuses the value of a parameter, if it allows one of the `others`."""
        replayer = self._replayer
        key = replayer.ledger_of(event) if replayer is not None else None
        if replayer is None or key is None:
            return None
        before = replayer.ledgers.get(key, pristine(replayer.d))
        action = replayer.oracle.applicable(event.action, before)
        if action is None or choice not in action.params:
            return None
        try:
            given = parameters(event, action, before)
        except UserError:
            return None
        failed = replayer.oracle.step(action, before, given).failed_guards
        if not failed or all(replayer.oracle.step(action, before, {**given, choice: v}).failed_guards for v in others):
            return None
        return failed[0]

    def passed(self, event: Event) -> None:
        """The event was done. Behind the first violation of the trace nothing is known, and nothing refused."""
        if self._replayer is None:
            return
        try:
            found = self._replayer.feed(FIRST_LINE + event.seq, event)
        except UserError:
            self._replayer = None
        else:
            if found is not None and found.action != "check":
                self._replayer = None
