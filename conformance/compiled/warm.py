"""Compiles the checker ahead of use: `python -m kvproof.conformance.compiled.warm [PROFILE]`. The cache keeps the result.

Whoever watches a server must not stand still for some seconds. So another process does it, and the watcher loads the result.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress

from kvproof.conformance.compiled.build import Judge, the_judge
from kvproof.conformance.compiled.columns import Names, arrays_of
from kvproof.conformance.compiled.state import State
from kvproof.conformance.replay.limits import Limits
from kvproof.conformance.replay.rules_of_trace import rules_of
from kvproof.conformance.traces.columnar_schema import pyarrow, schema
from kvproof.model.integers import Integers
from kvproof.spec.actions import Action
from kvproof.spec.trace import Config


def warmed(actions: Mapping[str, Action]) -> Judge:
    """The compiled loop of these rules, run over no events, and what brings events to it: from here on a call is at once."""
    judge = the_judge(actions)
    limits = Limits(Config(page_size=1, pool_pages=1, rows=1, row_width=1))
    state = State(Integers(1, 1), 1, 0, limits, actions)
    nothing = pyarrow().RecordBatch.from_pylist([], schema=schema())
    judge(0, 0, arrays_of(nothing, Names()).arrays, state.arrays())
    names = pyarrow().RecordBatch.from_pylist([{"seq": 0, "action": "open", "session": ""}], schema=schema())
    arrays_of(names, Names())
    return judge


if __name__ == "__main__":
    with suppress(OSError):
        os.nice(10)  # the server goes first
    warmed(rules_of(*sys.argv[1:]))
    sys.exit(0)
