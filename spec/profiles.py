"""Profiles: what a release of an inference server does by other rules than these, each difference as a replaced action.

A profile does not say that the release is right. The proof says what follows from its rules (`kvproof prove --profile`), and a
replay against a profile says whether a trace follows them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from kvproof.spec.actions import ACTIONS, Action, Guard, Step
from kvproof.spec.actions.turn import report
from kvproof.spec.domain import Domain, Flag
from kvproof.spec.effects import Report
from kvproof.spec.faults import FAULTS
from kvproof.spec.state import PREFILL, Ledger, drop_slot


@dataclass(frozen=True)
class Profile:
    name: str
    summary: str
    deviations: tuple[str, ...]
    """Of the fault catalogue: what the release is known to do wrong."""
    rules: Mapping[str, Action] = field(default_factory=dict)
    """What it does by another design."""

    @property
    def replaced(self) -> dict[str, Action]:
        wrong = {name: action for fault in self.deviations for name, action in FAULTS[fault].in_traces.items()}
        return {**self.rules, **wrong}

    @property
    def actions(self) -> dict[str, Action]:
        return {**ACTIONS, **self.replaced}


def _right(action: str, d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return ACTIONS[action].run(d, s, p)


def _insert_chunk(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk of a session's first prompt is inserted as an ordinary request's is; of its output nothing, as ever."""
    right = _right("insert", d, s.but(plain=d.every()), p)
    only_input = Guard("a session inserts its prompt, never its output", d.some(s.plain, p.key_len <= s.origin_len))
    return Step(right.after.but(plain=s.plain), (*right.guards, only_input), right.effects)


def _may_insert_chunk(d: Domain, s: Ledger) -> Flag:
    first_prompt = d.every(d.tree, s.phase == PREFILL, d.no(s.plain), d.no(s.slot_held))
    return d.some(ACTIONS["insert"].applies(d, s), first_prompt)


def _abort_into_tree(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The turn leaves its session and ends like an ordinary request: whole committed pages go to the tree."""
    plainly = _right("finish_plain", d, s, p)
    return Step(drop_slot(d, plainly.after), plainly.guards, plainly.effects)


def _check_by_session(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """What a session's turn holds is the session's, also while it runs; only ordinary requests are uncached."""
    right, ours = report(d, s), d.no(s.plain)

    def split(held: Any, uncached: Any) -> tuple[Any, Any]:
        return held + d.where(ours, uncached, 0), d.where(ours, 0, uncached)

    held, uncached = split(right.session_held, right.uncached)
    return Step(s, effects=(Report(held, uncached, *split(right.window_held, right.window_uncached)),))


def _instead(action: str, **changes: Any) -> Action:
    return dataclasses.replace(ACTIONS[action], **changes)


ENDS_LIKE_A_REQUEST = {"run": _abort_into_tree, "params": ACTIONS["finish_plain"].params, "source": "sglang 0.5.23"}

PROFILES: dict[str, Profile] = {
    p.name: p
    for p in (
        Profile(
            "sglang-0.5.11",
            "sglang 0.5.11 to 0.5.20: two deviations, no other design",
            ("S0511a", "S0511b"),
        ),
        Profile(
            "sglang-0.5.23",
            "sglang 0.5.23: a first prompt's chunks and an aborted turn's tokens go into the tree, and the memory check counts "
            "what a session's turn holds as the session's",
            ("S0511a",),
            {
                "insert": _instead("insert", run=_insert_chunk, applies=_may_insert_chunk, source="sglang 0.5.23"),
                "abort_first": _instead("abort_first", **ENDS_LIKE_A_REQUEST),
                "abort_nth": _instead("abort_nth", **ENDS_LIKE_A_REQUEST),
                "check": _instead("check", run=_check_by_session, source="sglang 0.5.23"),
            },
        ),
    )
}
