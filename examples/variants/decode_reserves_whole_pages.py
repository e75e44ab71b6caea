"""A decode step that allocates the rest of its page at once. Proved, with a helper of its own.

One page instead of one token at a time: a row then holds tokens of its last page that no step has claimed yet. Under the
built-in rules kv_committed_len = kv_allocated_len while a turn runs without speculation. X3 says so, because the induction
needs it; nobody asked for it. So the induction fails here, though no run breaks anything: NOT PROVED. HELPERS says what holds
instead, and that is enough.

    kvproof prove --variant examples/variants/decode_reserves_whole_pages.py
"""

from __future__ import annotations

from kvproof.spec.actions import ACTIONS, Guard, Step
from kvproof.spec.actions.prefill import take
from kvproof.spec.domain import ceil_align, larger, smaller
from kvproof.spec.effects import Write
from kvproof.spec.invariants import AUXILIARY
from kvproof.spec.state import RUNNING

REPLACES = "decode"
SUMMARY = "a decode step allocates whole pages"


def run(d, s, p):
    claimed = s.kv_committed_len + d.one
    allocated = larger(d, s.kv_allocated_len, smaller(d, ceil_align(d, claimed), d.row_width))
    in_flight = ACTIONS["decode"].run(d, s, p).guards[0]
    fits = Guard("a row is wide enough", claimed <= d.row_width)
    after = s.but(kv_committed_len=claimed, kv_allocated_len=allocated, pending=s.pending + 1)
    effects = (take(d, s.kv_allocated_len, allocated), Write(s.kv_committed_len, claimed))
    return Step(after, (in_flight, fits), effects)


def turn_lengths(d, s):
    """A turn's lengths in each phase, but for what a running turn has allocated ahead: at most to the end of its page."""
    running = d.every(s.phase == RUNNING, d.no(d.spec_v1), d.no(d.spec_v2))
    allocated = d.where(running, s.kv_committed_len, s.kv_allocated_len)
    ahead = d.every(s.kv_committed_len <= s.kv_allocated_len, s.kv_allocated_len <= ceil_align(d, s.kv_committed_len))
    return d.every(AUXILIARY["X3"].holds(d, s.but(kv_allocated_len=allocated)), d.some(d.no(running), ahead))


HELPERS = {"X3": turn_lengths}
