"""A replayer at the beginning of a trace, or where the state that a slice carries leaves off.

A slice carries that state in its header (`extra.slice.checkpoint`), as data of the same shape as a checkpoint's. It is believed,
so what rests on it is never a *conforms*: the slice is a part, and its verdict is *incomplete* unless it violates.
"""

from __future__ import annotations

from collections.abc import Callable

from kvproof.conformance.errors import UserError, at
from kvproof.conformance.replay.replayer import Replayer
from kvproof.conformance.replay.rules_of_trace import judged_by
from kvproof.conformance.replay.serialization import restore_state
from kvproof.conformance.traces.data_file import WRONG_SHAPE, wrong_shape
from kvproof.conformance.traces.json_lines import TraceReader
from kvproof.conformance.traces.slices import Slice
from kvproof.spec import SPEC_VERSION

STATE_FORMAT = 2


def replayer_of(
    reader: TraceReader, *, strict: bool, profile: str | None = None, make: Callable[..., Replayer] = Replayer
) -> Replayer:
    """At the beginning of a trace. `make`: what kind of replayer, from a trace, the deviations to follow and a profile.

    Raises UserError if its header, or `profile`, asks for what this kvproof does not know."""
    path = reader.path
    if reader.header.spec != SPEC_VERSION:
        raise UserError(
            f"{at(path, 1)}: written for specification {reader.header.spec!r}; this kvproof checks {SPEC_VERSION!r}"
        )
    rules = judged_by(reader.header, reader.path, profile, strict=strict)
    replayer = make(reader, rules.known, rules.profile)
    replayer.report.hint = rules.hint
    return replayer


def begin_with_state(replayer: Replayer, reader: TraceReader, *, resumes: bool = False) -> None:
    """Put a fresh replayer to where the slice begins, if it is one; with `resumes` a checkpoint of later does that.

    Raises UserError if the state is not as `slice_state.py` writes it.
    """
    part: Slice | None = reader.slice
    if part is None or part.starts_from_nothing or part.checkpoint is None or part.has_gaps:
        return
    replayer.report.gaps += (f"what was before event {part.first}: the state that the slice carries is believed",)
    if resumes:
        return
    try:
        if (part.checkpoint["kvproof_state"], part.checkpoint["spec"]) != (STATE_FORMAT, SPEC_VERSION):
            raise ValueError(f"format {part.checkpoint['kvproof_state']!r}, specification {part.checkpoint['spec']!r}")
        restore_state(replayer, part.checkpoint["state"])
    except WRONG_SHAPE as error:
        raise UserError(
            f"{at(reader.path, 1)}: the state that this slice carries is not as this kvproof writes it "
            f"({wrong_shape(error)}): cut it again"
        ) from error
