"""What invariants ask of a rule that leaves out an effect, or changes what only effects should: each rule here is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.model.prove import induction_step
from kvproof.spec.actions import ACTIONS, Run, Step
from kvproof.spec.domain import Domain
from kvproof.spec.effects import AskClose, Begin, End, Generate, Succeed
from kvproof.spec.state import Ledger


def without(action: str, kind: type) -> Run:
    """The rule without its effects of one kind."""

    def run(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
        step = ACTIONS[action].run(d, s, p)
        return dataclasses.replace(step, effects=tuple(e for e in step.effects if not isinstance(e, kind)))

    return run


def writing(action: str, fields: Callable[[Domain, Ledger], dict[str, Any]]) -> Run:
    """The rule, and some fields written beside it."""

    def run(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
        step = ACTIONS[action].run(d, s, p)
        return dataclasses.replace(step, after=step.after.but(**fields(d, s)))

    return run


def one_token_more(d: Domain, s: Ledger) -> dict[str, Any]:
    return {"output_len": s.output_len + d.one}


WRONG: dict[str, tuple[str, Run, str]] = {
    "a chunk appends a token": ("chunk_result", writing("chunk_result", one_token_more), "I22"),
    "a decode step appends a token": ("decode", writing("decode", one_token_more), "I22"),
    "a queued turn appends a token": ("late_result", writing("late_result", one_token_more), "I22"),
    "a result gives nothing": ("result", without("result", Generate), "I22"),
    "a request does not end": ("finish_plain", without("finish_plain", End), "I22"),
    "an abort forgets the close": ("abort_first", writing("abort_first", lambda d, s: {"closing": d.false}), "I15"),
    "nobody asked for the close": ("defer_close", without("defer_close", AskClose), "I15"),
    "a turn does not begin": ("create", without("create", Begin), "I15"),
    "a turn does not end": ("abort_first", without("abort_first", End), "I15"),
    "a checkpoint of no success": ("finish", without("finish", Succeed), "I14"),
    "an abort moves the checkpoint": (
        "abort_queued",
        writing("abort_queued", lambda d, s: {"checkpoint_len": s.checkpoint_len + d.one}),
        "I14",
    ),
    "a retract says that no turn is left": ("retract", writing("retract", lambda d, s: {"turns": 0}), "X4"),
    "a close says that no row is left": ("close", writing("close", lambda d, s: {"rows": 0}), "X4"),
    "a stash says that its KV is written": (
        "stash",
        writing("stash", lambda d, s: {"kv_valid": s.kv_valid + d.one}),
        "X4",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_breaks_the_invariant(name: str) -> None:
    action, run, invariant = WRONG[name]
    cells = induction_step(dataclasses.replace(ACTIONS[action], run=run), [])
    assert invariant in {cell.invariant for cell in cells if cell.verdict == "broken"}
