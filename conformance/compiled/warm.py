"""Compiles the checker ahead of use: `python -m kvproof.conformance.compiled.warm`. What it compiled is kept in the cache.

Whoever watches a server must not stand still for half a minute. So another process does it, and the watcher loads the result.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from kvproof.conformance.columnar_schema import pyarrow, schema
from kvproof.conformance.compiled.build import Judge, compiled_judge, source_of
from kvproof.conformance.compiled.columns import Names, arrays_of
from kvproof.conformance.compiled.lines import ScannedLines
from kvproof.conformance.compiled.state import State
from kvproof.model.integers import Integers
from kvproof.spec.actions import ACTIONS
from kvproof.spec.invariants import INVARIANTS


def warmed() -> Judge:
    """The compiled loop, run over no events, and what brings events to it: from here on a call takes no time of its own."""
    judge = compiled_judge(source_of(ACTIONS, INVARIANTS))
    state = State(Integers(1, 1), 1, 0)
    nothing = pyarrow().RecordBatch.from_pylist([], schema=schema())
    judge(0, 0, arrays_of(nothing, Names()).arrays, state.arrays())
    names = pyarrow().RecordBatch.from_pylist([{"seq": 0, "action": "open", "session": ""}], schema=schema())
    arrays_of(names, Names())
    ScannedLines.of(b"\n")
    return judge


if __name__ == "__main__":
    with suppress(OSError):
        os.nice(10)  # the server goes first
    warmed()
    sys.exit(0)
