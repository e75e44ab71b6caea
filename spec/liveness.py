"""How a turn continues: in each of its states, the ways that lead it nearer to its end, by which rule and with which parameters.

A scheduler that takes one of these ways again and again ends every turn, because each way lowers the rank, and the rank has no
infinite descent. Nothing but a retract raises it, and each retract is paid for with a token (I18). Under overlap a turn may be
retracted before the result of its prefill is in, as SGLang does. How often is not proved; a replay counts it
(`spec/patience.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kvproof.spec.domain import Count, Domain, Flag
from kvproof.spec.state import NONE, PREFILL, RUNNING, WAITING, Ledger, fill_len

Params = Callable[[Domain, Ledger], Mapping[str, Any]]


@dataclass(frozen=True)
class Stage:
    """States that wait for something, and the rules that bring it: one of them can be taken in each of these states."""

    waits_for: str
    holds: Callable[[Domain, Ledger], Flag]
    ways: Mapping[str, Params]


def _nothing(d: Domain, s: Ledger) -> Mapping[str, Any]:
    return {}


def _whole_input(d: Domain, s: Ledger) -> Mapping[str, Any]:
    return {"seq_len": fill_len(s), "last": d.true}


def _ending(d: Domain, s: Ledger) -> Mapping[str, Any]:
    """A request that ends gives all back, and the tree takes nothing."""
    return {"dup_len": d.zero, "inserted": d.false, "key_len": s.kv_committed_len}


def _chunk_is_kept(d: Domain, s: Ledger) -> Flag:
    return s.prefix_len == s.kv_committed_len


STAGES: tuple[Stage, ...] = (
    Stage(
        "a queued turn is matched",
        lambda d, s: d.every(s.phase == WAITING, d.no(s.matched)),
        {"match_tree": lambda d, s: {"matched_len": d.zero}, "match_slot": _nothing, "detach": _nothing},
    ),
    Stage(
        "a matched turn runs",
        lambda d, s: d.every(s.phase == WAITING, s.matched, fill_len(s) <= d.row_width),
        {"extend": _whole_input},
    ),
    Stage(
        "a chunk is kept",
        lambda d, s: d.every(s.phase == PREFILL, d.no(_chunk_is_kept(d, s))),
        {
            "stash": _nothing,
            "insert": lambda d, s: {"dup_len": s.cache_protected_len, "key_len": s.kv_committed_len},
        },
    ),
    Stage(
        "the next chunk runs",
        lambda d, s: d.every(s.phase == PREFILL, _chunk_is_kept(d, s), fill_len(s) <= d.row_width),
        {"extend": _whole_input},
    ),
    Stage(
        "a step's result is processed",
        lambda d, s: d.every(s.phase == RUNNING, 1 <= s.pending),
        {"result": lambda d, s: {"tokens": d.one}},
    ),
    Stage(
        "a turn ends once its results are in",
        lambda d, s: d.every(s.phase == RUNNING, s.pending == 0, d.no(s.pre_aborted)),
        {
            "finish": lambda d, s: {"finished_len": s.output_len},
            "finish_plain": _ending,
        },
    ),
    Stage(
        "a turn that was to be aborted is aborted",
        lambda d, s: d.every(s.phase == RUNNING, s.pending == 0, s.pre_aborted),
        {"abort_first": _ending, "abort_nth": _ending},
    ),
    Stage(
        "a close that waits is done",
        lambda d, s: d.every(s.closing, d.no(s.inflight)),
        {"close": _nothing},
    ),
)


def rank(d: Domain, s: Ledger) -> Count:
    """How far a turn is from its end, and a close that waits from its own; 0 once neither is left."""
    over = d.where(s.closing, 1, 0)
    running = s.pending + 2
    prefill = d.where(_chunk_is_kept(d, s), 5, 6)
    queued = d.where(s.matched, 7, 8)
    live = d.where(s.phase == RUNNING, running, prefill)
    return d.where(s.phase == NONE, over, d.where(s.phase == WAITING, queued, live))
