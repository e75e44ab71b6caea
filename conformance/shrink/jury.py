"""Judges what is left of a trace while it is shrunk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replayer import FIRST_LINE, Replayer, Unwritten
from kvproof.conformance.replay.rules_of_trace import JudgedBy
from kvproof.conformance.replay.verdict import Finding
from kvproof.spec.trace import Event, Header


class Jury:
    """Judges candidates by the rules that the whole trace is judged by."""

    def __init__(self, path: Path, header: Header, rules: JudgedBy) -> None:
        self._path, self.rules = path, rules
        self.header = header.model_copy(update={"scenario": None, "extra": {}})

    def replayer(self, header: Header | None = None) -> Replayer:
        return Replayer(Unwritten(self._path, header or self.header), self.rules.known, self.rules.profile)

    def first_in(self, events: Sequence[Event], header: Header | None = None) -> Finding | None:
        """The first finding in events that are numbered from 0; None also where they are no trace that could be judged."""
        replayer = self.replayer(header)
        try:
            return next((f for e in events if (f := replayer.feed(FIRST_LINE + e.seq, e)) is not None), None)
        except UserError:
            return None
