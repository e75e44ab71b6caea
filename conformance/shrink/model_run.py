"""A finding told anew by the model: the steps of one life by the right rules, and the last one by the fault that explains it.

Recorded pages and lengths hang together: where a decode step is left out, those behind it no longer fit. Told by the model they
do, so steps can be left out and lengths made small. It is what the catalogue's fault does in such a life; that a replay judges
it as it judged the recorded one is seen, not assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.judge import parameters
from kvproof.conformance.replay.replayer import Replayer
from kvproof.conformance.replay.verdict import Finding
from kvproof.conformance.shrink.delta import without_any_stretch, without_stretches
from kvproof.model.explore import Taken
from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle, Outcome, Value
from kvproof.model.witness import Witness, witness
from kvproof.spec.actions import Action
from kvproof.spec.faults import Fault
from kvproof.spec.machine import LEDGER
from kvproof.spec.state import Ledger, fill_len, pristine
from kvproof.spec.trace import Event

SMALLEST: Mapping[str, int] = {"origin_len": 1, "seq_len": 1, "tokens": 1}
"""Of a parameter; of another one it is 0."""


FEW = 60


@dataclass(frozen=True)
class RecordedStep:
    """What happened, as its rule takes it."""

    event: str
    params: tuple[tuple[str, Value], ...]
    of_another: bool = False

    @staticmethod
    def of(event: Event, action: Action, before: Ledger, of_another: bool) -> RecordedStep:
        """Raises UserError where the event lacks a parameter of the action."""
        params = parameters(event, action, before)
        return RecordedStep(event.action, tuple((name, params[name]) for name in action.params), of_another)


@dataclass(frozen=True)
class Retold:
    """The steps of one life; the last one is the fault's."""

    oracle: Oracle
    fault: Fault
    steps: tuple[RecordedStep, ...]

    def simpler(self) -> Iterator[Retold]:
        """With fewer steps, smaller numbers, smaller pages, a narrower row."""
        *before, last = self.steps
        for fewer in without_stretches(before):
            yield replace(self, steps=(*fewer, last))
        for place, step in enumerate(self.steps):
            for changed in _smaller(step):
                yield replace(self, steps=(*self.steps[:place], changed, *self.steps[place + 1 :]))
        yield from self._in_smaller_sizes()
        if len(before) <= FEW:  # a turn begins where the one before it ends, so it is left out as a whole or not at all
            for fewer in without_any_stretch(before):
                yield replace(self, steps=(*fewer, last))

    def _in_smaller_sizes(self) -> Iterator[Retold]:
        d = self.oracle.d
        for page_size in (1, 2, 3, 4, 8, 16, 64):
            if page_size < d.page_size:
                yield replace(self, oracle=_oracle(self.oracle, page_size, d.row_width))
        for width in dict.fromkeys((d.row_width // 2, d.row_width - 1)):
            if 0 < width < d.row_width:
                yield replace(self, oracle=_oracle(self.oracle, d.page_size, width))

    def witness(self) -> Witness | None:
        """The trace of it; None where the rules do not allow these steps."""
        s, taken = pristine(self.oracle.d), []
        for place, step in enumerate(self.steps):
            is_last = place == len(self.steps) - 1
            action = self.oracle.applicable(step.event, s, step.of_another)
            if action is None or (is_last and action.name not in self.fault.in_traces):
                return None
            if is_last:
                params = dict(step.params)
                outcome = self.oracle.step(self.fault.in_traces[action.name], s, params)
            else:
                told = _told(self.oracle, action, s, dict(step.params))
                if told is None:
                    return None
                params, outcome = told
            taken.append(("life", Taken(params, outcome)))
            s = outcome.after
        d = self.oracle.d
        try:
            return witness(taken, d.page_size, d.row_width, **_settings(d))
        except (AssertionError, KeyError, IndexError, ValueError):
            return None  # what the last step took for granted cannot be told by the right rules


def retelling_of(events: Sequence[Event], finding: Finding, replayer: Replayer) -> Retold | None:
    """The life of a finding, as it was recorded; None where no fault of a life's rules explains it.

    `replayer`: at the beginning of the trace."""
    faults = [fault for fault in finding.explained_by if fault.machine is LEDGER]
    if not faults or finding.event.action in ("check", "evict"):
        return None
    deviating = faults[0].in_traces.get(finding.action)
    if deviating is None:
        return None
    steps = []
    for event in events[:-1]:
        key = replayer._key(0, event) if event.session is not None or event.turn is not None else ""
        before = replayer.ledgers.get(key, pristine(replayer.d))
        is_another = _is_of_another(event, replayer)
        action = replayer.oracle.applicable(event.action, before, is_another)
        if replayer.feed(0, event) is not None:
            return None
        if key == finding.ledger and action is not None:
            steps.append(RecordedStep.of(event, action, before, is_another))
    before = replayer.ledgers.get(finding.ledger, pristine(replayer.d))
    try:
        steps.append(RecordedStep.of(finding.event, deviating, before, _is_of_another(finding.event, replayer)))
    except UserError:
        return None
    return Retold(replayer.oracle, faults[0], tuple(steps))


def _is_of_another(event: Event, replayer: Replayer) -> bool:
    return event.session is not None and event.action != "create" and event.turn in replayer.elsewhere


def _told(
    oracle: Oracle, action: Action, s: Ledger, params: dict[str, Value]
) -> tuple[dict[str, Value], Outcome] | None:
    """A step by the right rule. Where steps before it were left out, lengths that follow from them are put right."""
    fitted: dict[str, Any] = {"seq_len": fill_len(s), "finished_len": s.output_len, "key_len": s.kv_committed_len}
    for changed in ({}, {name: value for name, value in fitted.items() if name in params}):
        given = {**params, **changed}
        given = {name: value for name, value in given.items() if name in action.params}
        if len(given) < len(action.params):
            return None
        outcome = oracle.step(action, s, given)
        if not outcome.failed_guards and not outcome.broken(oracle.d):
            return given, outcome
    return None


def _smaller(step: RecordedStep) -> Iterator[RecordedStep]:
    for place, (name, value) in enumerate(step.params):
        least = SMALLEST.get(name, 0)
        if isinstance(value, bool) or value <= least:
            continue
        for smaller in dict.fromkeys((least, (value + least) // 2, value - 1)):
            yield replace(step, params=(*step.params[:place], (name, smaller), *step.params[place + 1 :]))


def _oracle(oracle: Oracle, page_size: int, row_width: int) -> Oracle:
    return Oracle.of(page_size, row_width, oracle.actions, **_settings(oracle.d))


def _settings(d: Integers) -> dict[str, Any]:
    return {name: getattr(d, name) for name in ("overlap", "speculation", "drafts", "window", "tree")}
