"""What later releases of SGLang do by other rules than the model and, so far, than any profile: candidates for a profile.

Where a function differs from its rule, these are tried. One that a function follows on every path says what it does instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import SimpleNamespace

from kvproof.spec.actions import ACTIONS, Action, Step
from kvproof.spec.actions.finish import retract
from kvproof.spec.actions.prefill import append_only, match_key_len, restored, without_tail
from kvproof.spec.domain import Domain, Length, floor_align, orphan_start, smaller
from kvproof.spec.effects import Forget, Free
from kvproof.spec.state import Ledger, fill_len

Cut = Callable[[Domain, Length, Length], Length]


def as_it_is(d: Domain, length: Length, cursor: Length) -> Length:
    return length


def rounded_below_cursor(d: Domain, length: Length, cursor: Length) -> Length:
    """A cut below the window cursor goes down to a page boundary, so that the cursor stays on one."""
    return d.where(length < cursor, floor_align(d, length), length)


def match_rounded(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """As `match_slot`; a rewind below the window cursor goes down to a page boundary."""
    whole = smaller(d, s.slot_kv_committed_len, match_key_len(d, s))
    prefix_len = rounded_below_cursor(d, whole, s.slot_swa_evicted_seqlen)
    tail = Free(orphan_start(d, prefix_len), s.slot_kv_allocated_len)
    return Step(without_tail(d, restored(d, s, prefix_len)), effects=(append_only(d, s, whole), tail))


def _saved(d: Domain, s: Ledger, target: Length, cut: Cut) -> tuple[dict[str, object], Free]:
    """The slot's lengths after a trim to `target`: C is as long as the tokens, whatever the turn's own C was."""
    end = cut(d, target, s.swa_evicted_seqlen)
    allocated = smaller(d, s.kv_allocated_len, end)
    lengths: dict[str, object] = {
        "slot_kv_committed_len": smaller(d, target, allocated),
        "slot_kv_allocated_len": allocated,
        "slot_swa_evicted_seqlen": smaller(d, s.swa_evicted_seqlen, end),
    }
    return lengths, Free(orphan_start(d, end), s.kv_allocated_len)


def _finish(cut: Cut) -> Action:
    def run(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
        right = ACTIONS["finish"].run(d, s, p)
        target = s.origin_len + p.finished_len
        lengths, tail = _saved(d, s, target, cut)
        return Step(right.after.but(**lengths), right.guards, (tail, Forget(target)))

    return dataclasses.replace(ACTIONS["finish"], run=run)


def _retract(cut: Cut) -> Action:
    """S0511a, saved as `_finish` saves."""

    def run(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
        right = retract.run(d, s, p)
        lengths, tail = _saved(d, s, fill_len(s), cut)
        ended = {"inflight": d.false, "checkpoint_len": fill_len(s)}
        return Step(right.after.but(**lengths, **ended), right.guards, (tail, *right.effects))

    return dataclasses.replace(ACTIONS["retract"], run=run)


CLAIMS_LAST = "the slot's C is the tokens kept, or all that is allocated (S0517a)"
ROUNDS = "a cut below the window cursor goes down to a page boundary"
ENDS_TURN = "a retract ends the turn (S0511a)"
DESIGNS: Mapping[str, Mapping[str, Action]] = {
    ROUNDS: {"match_slot": dataclasses.replace(ACTIONS["match_slot"], run=match_rounded)},
    CLAIMS_LAST: {"finish": _finish(as_it_is)},
    f"{CLAIMS_LAST}; {ROUNDS}": {"finish": _finish(rounded_below_cursor)},
    f"{ENDS_TURN}; {CLAIMS_LAST}": {"retract": _retract(as_it_is)},
    f"{ENDS_TURN}; {CLAIMS_LAST}; {ROUNDS}": {"retract": _retract(rounded_below_cursor)},
}
