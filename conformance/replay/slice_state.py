"""The state at the beginning of a slice: ledgers, page tables and owners, so that a replay starts where the trace was.

How a replay starts from it stands in `begin.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.begin import STATE_FORMAT, begin_with_state, replayer_of
from kvproof.conformance.replay.replay import Checker, Progress, follow, follow_interpreted
from kvproof.conformance.replay.serialization import state_as_data
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.conformance.traces.records import LONGEST_RECORD
from kvproof.spec import SPEC_VERSION

HEADER_BESIDE = 2**20
"""Bytes of a header that are kept free for all else in it."""


def state_before(
    path: str | Path,
    first: int,
    turns: Iterable[str],
    progress: Progress = lambda *_: None,
    profile: str | None = None,
    checker: Checker = follow_interpreted,
) -> dict[str, Any]:
    """What a slice from event `first` on carries: all before it is judged. Of turns those are kept that are named: the
    slice's, for no other name is looked up in it.

    Raises UserError if the trace breaks a rule before: behind that nobody knows the state.
    """
    reader = read_trace(path)
    replayer = replayer_of(reader, strict=False, profile=profile)
    begin_with_state(replayer, reader)
    report = follow(reader, replayer, progress, checker, first - 1)
    if report.is_over:
        found = report.findings[-1].event.seq
        raise UserError(
            f"{path}: event {found} breaks a rule, so the state before event {first} is not known: cut --from {found} or earlier"
        )
    kept = set(turns)
    state = state_as_data(replayer)
    state["of_turn"] = {turn: key for turn, key in state["of_turn"].items() if turn in kept}
    state["elsewhere"] = [turn for turn in state["elsewhere"] if turn in kept]
    state["came"] = {turn: tokens for turn, tokens in state["came"].items() if turn in kept}
    state["late"] = {turn: steps for turn, steps in state["late"].items() if turn in kept}
    state["batch"]["launches"] = {turn: of for turn, of in state["batch"]["launches"].items() if turn in kept}
    state["ended_in"] = {key: step for key, step in state["ended_in"].items() if key in replayer.ledgers}
    data = {"kvproof_state": STATE_FORMAT, "spec": SPEC_VERSION, "state": state}
    if (size := len(json.dumps(data))) > LONGEST_RECORD - HEADER_BESIDE:
        raise UserError(
            f"{path}: the state before event {first} has {size} bytes, more than a header may: "
            "use kvproof replay --checkpoint with --to"
        )
    return data
