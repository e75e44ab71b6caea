"""What is told of events column by column is what the interpreted checker finds in each of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

from trace_events import HEADER

from kvproof.conformance.compiled import layout
from kvproof.conformance.compiled.columns import Names, arrays_of
from kvproof.conformance.compiled.next_events import concerned, look_at
from kvproof.conformance.compiled.state import arrays_of as arrays_of_limits
from kvproof.conformance.compiled.state import contraries_in_arrays
from kvproof.conformance.replay.compared_fields import COMPARED_PARAMS, STEP
from kvproof.conformance.replay.limits import AFTER, Limits, value_of
from kvproof.conformance.traces.columnar_events import batches_of
from kvproof.spec.trace import Event, EventName, Observed, Terms


def after_of(event: Event) -> set[str]:
    return {column.removeprefix("after_") for column in AFTER if value_of(event, column) is not None}


FEW = st.integers(0, 3)
TOTALS = st.builds(
    Terms,
    **dict.fromkeys(("available", "evictable", "protected", "session_held", "uncached"), st.just(0)),
    total=st.integers(3, 9),
)
SHOWING = st.fixed_dictionaries(
    {"action": st.sampled_from(get_args(EventName))},
    optional={
        "row": FEW,
        "params": st.dictionaries(st.sampled_from(["prefix_id", "idle_passes"]), FEW, max_size=1)
        | st.fixed_dictionaries({"last": st.booleans()})
        | st.fixed_dictionaries({"admitted": st.booleans(), "tokens": FEW})
        | st.fixed_dictionaries({"dup_len": FEW, "key_len": FEW}, optional={"inserted": st.booleans()}),
        "step": st.none() | FEW,
        "shared": st.none() | st.just(()),
        "free_list": st.none() | st.just(()),
        "terms": TOTALS,
        "window_terms": TOTALS,
        "after": st.builds(Observed, inflight=st.none() | st.booleans(), output_len=st.none() | FEW)
        | st.builds(Observed, slot_held=st.none() | st.booleans(), slot_kv_committed_len=st.none() | FEW),
    },
)
"""Events that show values just within their bounds, and just beyond them."""


@settings(max_examples=300)
@given(
    events=st.lists(SHOWING, min_size=1, max_size=8), windows=st.sampled_from([None, 4]), chunk=st.sampled_from([0, 8])
)
def test_what_an_event_shows_and_whether_it_may(events: list[dict[str, Any]], windows: int | None, chunk: int) -> None:
    listed = [Event(seq=seq, **fields) for seq, fields in enumerate(events)]
    config = HEADER.config.model_copy(update={"window_pages": windows, "chunked_prefill_size": chunk})
    (batch,) = batches_of(listed)
    arrays, limits = arrays_of(batch, Names()).arrays, Limits(config)
    state: Any = SimpleNamespace(limits=arrays_of_limits(limits)[0], contraries=contraries_in_arrays())
    look_at(0, len(listed), arrays, state)
    for n, event in enumerate(listed):
        assert bool(arrays.table[layout.BEYOND, n]) == any(limits.broken_by(event))
        bits = int(arrays.table[layout.SHOWN_HERE, n])
        lists = {name for name in ("shared", "terms") if getattr(event, name) is not None}
        steps = {STEP} if event.step is not None else set()
        params = {name for name in COMPARED_PARAMS if event.params.get(name) is not None}
        shown = {*after_of(event), *lists, *steps, *params}
        assert bits == sum(1 << layout.SHOWN_BITS[name] for name in shown)


def test_invariants_that_shown_values_are_about() -> None:
    state: Any = SimpleNamespace(about=np.array([[0b001, 0b010, 0b110], [0b1000, 0, 0]]))
    assert concerned(0, 0b101, state) == 0b111
    assert concerned(0, 0b010, state) == 0b010
    assert concerned(1, 0b110, state) == 0
