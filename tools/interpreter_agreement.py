"""Whether the three interpreters of the rules agree on what happened: the oracle, Z3's terms, the compiled checker.

Step by step the oracle is compared with Z3 (`tools/model_agreement.py`), and every few events the compiled checker's state with
that of the interpreted one; where the two differ, they are compared once more after each event, so that the first is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from model_agreement import disagreements

from kvproof.conformance.compiled.build import Judge
from kvproof.conformance.compiled.checker import CompiledChecker
from kvproof.conformance.fuzz.judging import IN_MEMORY
from kvproof.conformance.replay.judge import Judgement, parameters
from kvproof.conformance.replay.replayer import FIRST_LINE, Replayer, Unwritten
from kvproof.conformance.traces.columnar_events import batches_of
from kvproof.model.integers import Integers
from kvproof.spec.actions import Action
from kvproof.spec.machine import LEDGER
from kvproof.spec.state import Ledger
from kvproof.spec.trace import Event, Header

ORACLE_AND_Z3 = "oracle and Z3"
STRIDE = 16
"""Events between two comparisons of the checkers' states."""


@dataclass(frozen=True)
class Disagreement:
    """Two interpreters say different things of an event."""

    seq: int
    """Of the event: behind it they differ for the first time."""
    between: str
    what: dict[str, tuple[Any, Any]]
    """By name what the one and what the other says."""
    asked: str = ""
    """The step: configuration, rule, state and parameters."""

    @property
    def size(self) -> int:
        """Of two disagreements the smaller one is easier to read."""
        return len(self.asked) + self.seq


class Asked:
    """Steps on which oracle and Z3 were compared; the same step is asked once."""

    def __init__(self) -> None:
        self.steps = 0
        self._agreed: set[tuple[Any, ...]] = set()

    @property
    def distinct(self) -> int:
        return len(self._agreed)

    def disagreement(
        self, d: Integers, action: Action, before: Ledger, params: dict[str, Any], seq: int
    ) -> Disagreement | None:
        self.steps += 1
        of_rule = {name: params[name] for name in action.params}
        step = (d, action.name, *vars(before).values(), *of_rule.values())
        if step in self._agreed:
            return None
        found = disagreements(LEDGER, action, d, before, of_rule)
        if not found:
            self._agreed.add(step)
            return None
        return Disagreement(seq, ORACLE_AND_Z3, found, f"{d}: {action.name}({of_rule}) in {before}")


class _WithZ3(Replayer):
    """An interpreted replay whose every step is asked of Z3 as well."""

    def __init__(self, header: Header, asked: Asked) -> None:
        super().__init__(Unwritten(IN_MEMORY, header), ())
        self.disagreement: Disagreement | None = None
        self._asked = asked

    def _advance(self, key: str, judgement: Judgement, event: Event) -> None:
        outcome = judgement.outcome
        if self.disagreement is None:
            params = parameters(event, outcome.action, outcome.before)
            self.disagreement = self._asked.disagreement(self.d, outcome.action, outcome.before, params, event.seq)
        super()._advance(key, judgement, event)


def compare(header: Header, events: Sequence[Event], judge: Judge, asked: Asked) -> Disagreement | None:
    """Judge the events, up to the first that the rules do not allow, in all three ways; None: they agree."""
    found = _in_step(header, events, judge, asked, STRIDE)
    if found is None or found.between == ORACLE_AND_Z3:
        return found
    return _in_step(header, events, judge, asked, 1) or found


def _in_step(header: Header, events: Sequence[Event], judge: Judge, asked: Asked, stride: int) -> Disagreement | None:
    """The two checkers side by side, compared after every so many events."""
    interpreted, compiled = _WithZ3(header, asked), Replayer(Unwritten(IN_MEMORY, header), ())
    checker = CompiledChecker(compiled, judge)
    for first in range(0, len(events), stride):
        part = events[first : first + stride]
        for event in part:
            if (finding := interpreted.feed(FIRST_LINE + event.seq, event)) is not None:
                interpreted.report.findings.append(finding)
                break
        if interpreted.disagreement is not None:
            return interpreted.disagreement
        for batch in batches_of(part):
            checker.judge_batch(batch)
        checker.bring_up_to_date()
        if what := _differs(interpreted, compiled):
            return Disagreement(part[-1].seq, "interpreted and compiled checker", what, repr(part[-1]))
        if interpreted.report.findings:
            break
    return None


def _differs(one: Replayer, other: Replayer) -> dict[str, tuple[Any, Any]]:
    mine, theirs = _state(one), _state(other)
    return {name: (value, theirs[name]) for name, value in mine.items() if value != theirs[name]}


def _state(replayer: Replayer) -> dict[str, Any]:
    """All that a replay knows of the run, and what it found."""
    book, report = replayer.book, replayer.report
    pages = range(1, book.pool_pages + 1)
    return {
        "ledgers": replayer.ledgers,
        "turns": {turn: key for turn, key in replayer.of_turn.items() if turn not in replayer.elsewhere},
        "ended": replayer.ended_in,
        "late": replayer.late,
        # The loop has noted what a turn lets go of before it finds that the event is wrong, and nothing follows then.
        "batch": None if report.findings else replayer.batch,
        "owners": [book.owner(page) for page in pages],
        "tables": {key: book.table(key) for key in replayer.ledgers},
        "locked": book.protected,
        "findings": [(finding.event.seq, finding.invariants) for finding in report.findings],
        "coverage": {name: dict(part) for name, part in vars(report.coverage).items()},
    }
