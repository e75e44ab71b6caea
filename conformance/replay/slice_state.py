"""The state at the beginning of a slice: ledgers, page tables and owners, so that a replay starts where the trace was.

A slice carries it in its header (`extra.slice.checkpoint`), as data of the same shape as a checkpoint's. It is believed, so what
rests on it is never a *conforms*: the slice is a part, and its verdict is *incomplete* unless it violates.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvproof.conformance.errors import UserError, at
from kvproof.conformance.replay.replay import AUTO, Progress, Replayer, follow, replayer_of
from kvproof.conformance.replay.serialization import restore_state, state_as_data
from kvproof.conformance.traces.data_file import WRONG_SHAPE, wrong_shape
from kvproof.conformance.traces.slices import Slice
from kvproof.conformance.traces.trace_io import LONGEST_RECORD, TraceReader, read_trace
from kvproof.spec import SPEC_VERSION

FORMAT = 1
HEADER_BESIDE = 2**20
"""Bytes of a header that are kept free for all else in it."""


def state_before(
    path: str | Path,
    first: int,
    turns: Iterable[str],
    progress: Progress = lambda *_: None,
    profile: str | None = None,
) -> dict[str, Any]:
    """What a slice from event `first` on carries: all before it is judged. Of turns those are kept that are named: the
    slice's, for no other name is looked up in it.

    Raises UserError if the trace breaks a rule before: behind that nobody knows the state.
    """
    reader = read_trace(path)
    replayer = replayer_of(reader, strict=False, profile=profile)
    begin_with_state(replayer, reader)
    report = follow(reader, replayer, progress, AUTO, first - 1)
    if report.is_over:
        found = report.findings[-1].event.seq
        raise UserError(
            f"{path}: event {found} breaks a rule, so the state before event {first} is not known: cut --from {found} or earlier"
        )
    kept = set(turns)
    state = state_as_data(replayer)
    state["of_turn"] = {turn: key for turn, key in state["of_turn"].items() if turn in kept}
    state["elsewhere"] = [turn for turn in state["elsewhere"] if turn in kept]
    state["ended_in"] = {key: step for key, step in state["ended_in"].items() if key in replayer.ledgers}
    data = {"kvproof_state": FORMAT, "spec": SPEC_VERSION, "state": state}
    if (size := len(json.dumps(data))) > LONGEST_RECORD - HEADER_BESIDE:
        raise UserError(
            f"{path}: the state before event {first} has {size} bytes, more than a header may: "
            "use kvproof replay --checkpoint with --to"
        )
    return data


def begin_with_state(replayer: Replayer, reader: TraceReader, *, resumes: bool = False) -> None:
    """Put a fresh replayer to where the slice begins, if it is one; with `resumes` a checkpoint of later does that.

    Raises UserError if the state is not as it is written here.
    """
    part: Slice | None = reader.slice
    if part is None or part.starts_from_nothing or part.checkpoint is None or part.has_gaps:
        return
    replayer.report.gaps += (f"what was before event {part.first}: the state that the slice carries is believed",)
    if resumes:
        return
    try:
        if (part.checkpoint["kvproof_state"], part.checkpoint["spec"]) != (FORMAT, SPEC_VERSION):
            raise ValueError(f"format {part.checkpoint['kvproof_state']!r}, specification {part.checkpoint['spec']!r}")
        restore_state(replayer, part.checkpoint["state"])
    except WRONG_SHAPE as error:
        raise UserError(
            f"{at(reader.path, 1)}: the state that this slice carries is not as this kvproof writes it "
            f"({wrong_shape(error)}): cut it again"
        ) from error
