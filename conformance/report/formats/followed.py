"""A trace followed by the model, one event at a time: what the pictures of it (ITF, Perfetto) are drawn from.

It ends at the first event that breaks a rule: behind that nobody knows the state. Nothing here judges; `kvproof replay` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.begin import begin_with_state, replayer_of
from kvproof.conformance.replay.replayer import Replayer
from kvproof.conformance.replay.verdict import Finding
from kvproof.conformance.report.formats.checks import ORDER, rule_of
from kvproof.conformance.traces.json_lines import TraceReader
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.trace import Event


@dataclass(frozen=True)
class Moment:
    """An event and what was found wrong with it; the replayer's state is the one after it, or before it if it is wrong."""

    event: Event
    finding: Finding | None

    @property
    def violates(self) -> str:
        """The invariant that it breaks, or nothing."""
        if self.finding is None:
            return ""
        broken = rule_of(self.finding.invariants, [fault.id for fault in self.finding.explained_by])
        return "the order of events" if broken == ORDER else broken


class Followed:
    """`moments` may be walked once; after that `bad` is the event at which it ended, if it did."""

    def __init__(self, path: Path, profile: str | None = None) -> None:
        self.reader: TraceReader = read_trace(path)
        if self.reader.slice is not None and not self.reader.slice.can_be_replayed:
            raise UserError(f"{path}: {self.reader.slice.why_not_replayed}")
        self.replayer: Replayer = replayer_of(self.reader, strict=False, profile=profile)
        begin_with_state(self.replayer, self.reader)
        self.bad: Moment | None = None
        self.events = 0

    def moments(self) -> Iterator[Moment]:
        for line, record in self.reader:
            if not isinstance(record, Event):
                continue
            moment = Moment(record, self.replayer.feed(line, record))
            self.events += 1
            if moment.finding is not None and moment.finding.action != "check":
                self.bad = moment
            yield moment
            if self.bad is not None:
                return
