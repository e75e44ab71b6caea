"""What later releases of SGLang do by the rule of a known fault together with another rule of theirs.

Where a function differs from its rule, the faults of the catalogue and these are tried. One that a function follows on every path
says what it does instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import SimpleNamespace

from kvproof.spec.actions import ACTIONS, Action, Step
from kvproof.spec.actions.finish import retract
from kvproof.spec.domain import Domain, Length, orphan_start, smaller
from kvproof.spec.effects import Forget, Free
from kvproof.spec.profiles import cut_before_cursor
from kvproof.spec.state import Ledger, fill_len

Cut = Callable[[Domain, Length, Length], Length]


def as_it_is(d: Domain, length: Length, cursor: Length) -> Length:
    return length


def _saved(d: Domain, s: Ledger, target: Length, cut: Cut) -> tuple[dict[str, object], Free]:
    """The slot's lengths after a trim to `target`: C is as long as the tokens, whatever the turn's own C was (S0517a)."""
    end = cut(d, target, s.swa_evicted_seqlen)
    allocated = smaller(d, s.kv_allocated_len, end)
    lengths: dict[str, object] = {
        "slot_kv_committed_len": smaller(d, target, allocated),
        "slot_kv_allocated_len": allocated,
        "slot_swa_evicted_seqlen": smaller(d, s.swa_evicted_seqlen, end),
    }
    return lengths, Free(orphan_start(d, end), s.kv_allocated_len)


def _finish_cut(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right = ACTIONS["finish"].run(d, s, p)
    target = s.origin_len + p.finished_len
    lengths, tail = _saved(d, s, target, cut_before_cursor)
    return Step(right.after.but(**lengths), right.guards, (tail, Forget(target)))


def _retract(cut: Cut) -> Action:
    """S0511a, saved as S0517a saves."""

    def run(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
        right = retract.run(d, s, p)
        lengths, tail = _saved(d, s, fill_len(s), cut)
        ended = {"inflight": d.false, "checkpoint_len": fill_len(s)}
        return Step(right.after.but(**lengths, **ended), right.guards, (tail, *right.effects))

    return dataclasses.replace(ACTIONS["retract"], run=run)


CLAIMS_LAST = "S0517a"
ENDS_TURN = "S0511a and S0517a"
CUT = "with rows cut below the window cursor at a page boundary"
DESIGNS: Mapping[str, Mapping[str, Action]] = {
    f"{CLAIMS_LAST}, {CUT}": {"finish": dataclasses.replace(ACTIONS["finish"], run=_finish_cut)},
    ENDS_TURN: {"retract": _retract(as_it_is)},
    f"{ENDS_TURN}, {CUT}": {"retract": _retract(cut_before_cursor)},
}
