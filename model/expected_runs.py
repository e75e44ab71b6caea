"""Expectations of runs: short runs that must be possible and end as said, steps that must be refused, states denied.

The states of a ledger are explored whole (`model/expectations.py`). What no set of states shows stands here: that a guard
refuses, that an invariant denies, and what the small machines do, whose counters have no end of states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from kvproof.model import oracle as right_oracle
from kvproof.spec.machine import MACHINES, Machine
from kvproof.spec.state import PREFILL, RUNNING

Step = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Expected:
    """A run of one machine from its start. `then`: fields after it. `refused`: steps that must not be taken next."""

    name: str
    machine: str
    run: tuple[Step, ...]
    then: Mapping[str, Any] = field(default_factory=dict)
    refused: tuple[Step, ...] = ()
    page_size: int = 1
    row_width: int = 3
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Denied:
    """A state that the invariants of its machine must deny: the start with some fields changed."""

    name: str
    machine: str
    fields: Mapping[str, Any]


def _do(action: str, **params: Any) -> Step:
    return action, params


OVERLAP = {"overlap": True}
ROUNDS = {"overlap": True, "speculation": 2, "drafts": 2}
WINDOW = {"window": 1}
STAGED = (_do("stage"), _do("stage_row"), _do("stage_pages", size=2))
LOCKED_TWICE = (_do("tree_insert", size=3), _do("tree_lock"), _do("tree_lock"))
DECODED = (_do("prefill_again"), _do("decode_once"))


def _turn(length: int) -> tuple[Step, ...]:
    """A session's first turn, prefilled whole."""
    turn = _do("create", origin_len=length, too_long=False, logprob=False)
    return (_do("open"), turn, _do("match_tree", matched_len=0), _do("extend", seq_len=length, last=True))


def _request(length: int, matched: int = 0) -> tuple[Step, ...]:
    """An ordinary request, prefilled whole."""
    arrive, match = _do("arrive", origin_len=length), _do("match_tree", matched_len=matched)
    return (arrive, match, _do("extend", seq_len=length, last=True))


FIRST_CHUNK = (*_request(3)[:2], _do("extend", seq_len=1, last=False))
LATER_CHUNK = (*FIRST_CHUNK, _do("insert", dup_len=0, key_len=1), _do("extend", seq_len=2, last=False))
LAST_CHUNK = (_do("insert", dup_len=1, key_len=2), _do("extend", seq_len=3, last=True))
CHUNK_RESULT = _do("chunk_result")
ONE, DECODE = _do("result", tokens=1), _do("decode")
TWO_LATE = (DECODE, ONE, DECODE)

RUNS: tuple[Expected, ...] = (
    # The ledger: what its guards refuse.
    Expected("a closed session is not closed again", "ledger", (), refused=(_do("close"), _do("late_result"))),
    Expected(
        "an idle session neither refuses a turn nor defers a close",
        "ledger",
        (_do("open"),),
        refused=(_do("refuse"), _do("defer_close")),
    ),
    Expected(
        "no turn is admitted while a close waits",
        "ledger",
        (*_turn(1), _do("defer_close"), ONE, _do("finish", finished_len=1)),
        {"closing": True, "inflight": False},
        (_do("create", origin_len=3, too_long=False, logprob=False),),
    ),
    Expected(
        "without overlap no turn ends while its result is late",
        "ledger",
        (*_turn(1), ONE, DECODE),
        {"pending": 1},
        (_do("finish", finished_len=1),),
    ),
    Expected(
        "without overlap no request ends while its result is late",
        "ledger",
        (*_request(1), ONE, DECODE),
        {"pending": 1},
        (_do("finish_plain", dup_len=0, inserted=False),),
    ),
    Expected(
        "with overlap a turn does not end while two results are late",
        "ledger",
        (*_turn(1), *TWO_LATE),
        {"pending": 2, "output_len": 1},
        (_do("finish", finished_len=1), _do("retract")),
        config=OVERLAP,
    ),
    Expected(
        "with overlap a request does not end while two results are late",
        "ledger",
        (*_request(1), *TWO_LATE),
        {"pending": 2},
        (_do("finish_plain", dup_len=0, inserted=False),),
        config=OVERLAP,
    ),
    Expected(
        "with overlap a request may end between chunks, whose results need not be told",
        "ledger",
        (*LATER_CHUNK, _do("finish_plain", dup_len=0, inserted=False)),
        {"phase": 0, "rows": 0},
        config=OVERLAP,
    ),
    Expected(
        "with overlap a retracted turn's step in flight still writes its KV",
        "ledger",
        (*_turn(1), ONE, DECODE, _do("retract")),
        {"slot_kv_committed_len": 2, "kv_valid": 2},
        config=OVERLAP,
    ),
    Expected(
        "without overlap a retracted turn's prepared step never runs",
        "ledger",
        (*_turn(1), ONE, DECODE, _do("retract")),
        {"slot_kv_committed_len": 2, "kv_valid": 1},
    ),
    Expected(
        "a chunk's result comes once, after its launch",
        "ledger",
        (*FIRST_CHUNK, CHUNK_RESULT),
        {"pending": 0, "chunk_known": True},
        (CHUNK_RESULT,),
        config=OVERLAP,
    ),
    Expected(
        "a chunk may be launched before the result of the one before is in",
        "ledger",
        LATER_CHUNK,
        {"pending": 2, "chunk_known": False},
        config=OVERLAP,
    ),
    Expected(
        "the last chunk's result is the only one to wait for",
        "ledger",
        (*LATER_CHUNK, CHUNK_RESULT, *LAST_CHUNK),
        {"phase": RUNNING, "pending": 1, "chunk_known": False},
        config=OVERLAP,
    ),
    Expected(
        "without overlap no chunk's result is waited for",
        "ledger",
        FIRST_CHUNK,
        {"phase": PREFILL, "pending": 0},
        (CHUNK_RESULT,),
    ),
    Expected(
        "without overlap no turn is over before its result is in",
        "ledger",
        (_do("open"),),
        refused=(_do("result_of_ended"),),
    ),
    Expected(
        "no result of another turn comes to an ordinary request",
        "ledger",
        _request(1),
        refused=(_do("result_of_ended"),),
        config=OVERLAP,
    ),
    Expected(
        "no more is kept than was generated",
        "ledger",
        (*_turn(1), ONE),
        {"output_len": 1},
        (_do("finish", finished_len=2),),
    ),
    Expected(
        "a speculating turn waits for its result and gives at least one token",
        "ledger",
        _turn(1),
        {"pending": 1},
        (_do("verify", tokens=1),),
        config={"speculation": 1},
    ),
    Expected(
        "a retracted turn that speculates waits for its result again",
        "ledger",
        (*_turn(1), ONE, _do("retract"), _do("match_slot"), _do("extend", seq_len=2, last=True)),
        {"pending": 1, "output_len": 1},
        (_do("verify", tokens=1),),
        config={"speculation": 1},
        row_width=6,
    ),
    Expected(
        "a round gives at least one token, at most its drafts and one",
        "ledger",
        (*_turn(1), ONE),
        {"pending": 0},
        (_do("verify", tokens=0), _do("verify", tokens=3)),
        config={"speculation": 1},
        row_width=6,
    ),
    Expected(
        "a round reserves its drafts and the bonus, what is reserved stays",
        "ledger",
        (*_turn(1), ONE, _do("prepare_round", allocated_len=5)),
        {"kv_committed_len": 2, "kv_allocated_len": 5, "pending": 1, "row_end": 5},
        (_do("prepare_round", allocated_len=4), _do("prepare_round", allocated_len=9)),
        config=ROUNDS,
        row_width=8,
    ),
    Expected(
        "a round that has enough allocates nothing more",
        "ledger",
        (*_turn(1), ONE, *(_do("prepare_round", allocated_len=7),) * 2),
        {"kv_committed_len": 3, "kv_allocated_len": 7, "row_end": 7},
        config=ROUNDS,
        row_width=8,
    ),
    Expected(
        "a round in flight may move the next one by all its drafts",
        "ledger",
        (*_turn(1), ONE, _do("prepare_round", allocated_len=5), _do("prepare_round", allocated_len=7)),
        {"kv_committed_len": 3, "kv_allocated_len": 7, "pending": 2},
        (_do("prepare_round", allocated_len=8), _do("result", tokens=4)),
        config=ROUNDS,
        row_width=8,
    ),
    Expected(
        "nothing less than that is enough while a round is in flight",
        "ledger",
        (*_turn(1), ONE, _do("prepare_round", allocated_len=4)),
        {"kv_allocated_len": 4},
        (_do("prepare_round", allocated_len=6),),
        config=ROUNDS,
        row_width=8,
    ),
    Expected(
        "a chunk is inserted as it is, and gives no result without overlap",
        "ledger",
        (*_request(3)[:2], _do("extend", seq_len=2, last=False)),
        {"kv_committed_len": 2},
        (_do("insert", dup_len=0, key_len=1), _do("chunk_result")),
    ),
    Expected(
        "with overlap too a chunk is inserted as it is",
        "ledger",
        (*_request(3)[:2], _do("extend", seq_len=2, last=False)),
        {"kv_committed_len": 2},
        (_do("insert", dup_len=0, key_len=1),),
        config=OVERLAP,
    ),
    Expected(
        "a tree that answers in parts of pages is refused",
        "ledger",
        (*_request(3), ONE),
        {"output_len": 1},
        (_do("insert", dup_len=1, key_len=3), _do("finish_plain", dup_len=1, inserted=True)),
        page_size=2,
        row_width=4,
    ),
    Expected(
        "a tree that lost a locked prefix is refused",
        "ledger",
        (*_request(2, matched=1), ONE),
        {"cache_protected_len": 1},
        (_do("insert", dup_len=0, key_len=2), _do("finish_plain", dup_len=0, inserted=True)),
    ),
    Expected(
        "a chunk cache takes nothing and matches nothing",
        "ledger",
        (*_request(2), ONE),
        {"output_len": 1},
        (_do("insert", dup_len=0, key_len=2), _do("finish_plain", dup_len=0, inserted=True)),
        config={"tree": False},
    ),
    Expected(
        "whole pages leave the window, and one page more than the window stays",
        "ledger",
        (*_request(6), _do("evict_window", pre_len=6)),
        {"swa_evicted_seqlen": 2, "window_start": 1},
        page_size=2,
        row_width=6,
        config=WINDOW,
    ),
    # An admission that stages resources.
    Expected("an admission begins with a lock", "admission", (_do("stage"),), {"staging": True, "locks": 1, "held": 1}),
    Expected(
        "an admission stages a lock, a row and pages",
        "admission",
        STAGED,
        {"staging": True, "locks": 1, "rows": 1, "pages": 2, "held": 4},
        (_do("stage"), _do("stage_row")),
    ),
    Expected(
        "an admission that succeeds hands over all and ends",
        "admission",
        (*STAGED, _do("admit")),
        {"staging": False, "locks": 0, "rows": 0, "pages": 0, "held": 0},
    ),
    Expected(
        "one page is enough", "admission", (*STAGED[:2], _do("stage_pages", size=1), _do("admit")), {"staging": False}
    ),
    Expected(
        "an admission that is cancelled gives back all and ends",
        "admission",
        (*STAGED, _do("cancel_admission")),
        {"staging": False, "locks": 0, "rows": 0, "pages": 0, "held": 0},
    ),
    Expected(
        "nothing is staged outside an admission",
        "admission",
        (),
        refused=(_do("stage_row"), _do("stage_pages", size=1), _do("cancel_admission"), _do("admit")),
    ),
    Expected(
        "no pages and no end without a row", "admission", STAGED[:1], refused=(_do("stage_pages", size=1), _do("admit"))
    ),
    Expected("no end without pages", "admission", STAGED[:2], {"rows": 1}, (_do("stage_pages", size=0), _do("admit"))),
    # A free that waits.
    Expected("a row names a page", "deferred", (), {"row_page": 1, "listed": 0, "meant": 0}, (_do("carry_out_free"),)),
    Expected(
        "a free that waits keeps its page when the row gets another",
        "deferred",
        (_do("defer_free"), _do("overwrite_row", page=2)),
        {"waits": True, "row_page": 2, "listed": 1, "meant": 1},
        (_do("defer_free"), _do("overwrite_row", page=0)),
    ),
    Expected(
        "a free that was carried out waits no more",
        "deferred",
        (_do("defer_free"), _do("overwrite_row", page=2), _do("carry_out_free"), _do("overwrite_row", page=1)),
        {"waits": False, "row_page": 1, "listed": 0, "meant": 0},
        (_do("carry_out_free"),),
    ),
    # A request that is retracted again and again.
    Expected(
        "a request waits for its prefill",
        "progress",
        (),
        {"running": False, "output": 0, "retracts": 0},
        (_do("decode_once"), _do("force_retract")),
    ),
    Expected(
        "a prefilled request is not retracted before it decodes",
        "progress",
        (_do("prefill_again"),),
        {"running": True, "decoded": False},
        (_do("force_retract"), _do("prefill_again")),
    ),
    Expected("a decode step gives one token", "progress", DECODED, {"decoded": True, "output": 1}),
    Expected(
        "a retracted request keeps its output and is prefilled again",
        "progress",
        (*DECODED, _do("force_retract"), _do("prefill_again")),
        {"running": True, "decoded": False, "output": 1, "retracts": 1},
        (_do("force_retract"),),
    ),
    Expected(
        "a retracted request waits", "progress", (*DECODED, _do("force_retract")), {"running": False, "decoded": False}
    ),
    # A node of the tree.
    Expected(
        "nothing happens to a node that is not there",
        "tree",
        (),
        {"present": False},
        (_do("tree_lock"), _do("tree_unlock"), _do("tree_evict"), _do("tree_insert", size=0)),
    ),
    Expected(
        "a new node is unlocked, even of one page",
        "tree",
        (_do("tree_insert", size=1),),
        {"present": True, "pages": 1, "evictable": 1, "protected": 0},
        (_do("tree_insert", size=1), _do("tree_unlock"), _do("tree_split", size=1)),
    ),
    Expected(
        "a node that is locked twice is protected once",
        "tree",
        LOCKED_TWICE,
        {"lock_ref": 2, "holders": 2, "evictable": 0, "protected": 3},
        (_do("tree_evict"), _do("tree_split", size=0), _do("tree_split", size=3), _do("tree_split", size=4)),
    ),
    Expected(
        "a split keeps the locks, one page is enough for a part",
        "tree",
        (*LOCKED_TWICE, _do("tree_split", size=1)),
        {"pages": 1, "lock_ref": 2, "protected": 3, "rest_protected": 2, "rest_evictable": 0},
    ),
    Expected(
        "the last holder makes the pages evictable, and they are evicted",
        "tree",
        (*LOCKED_TWICE, _do("tree_unlock"), _do("tree_unlock"), _do("tree_evict")),
        {"present": False, "pages": 0, "lock_ref": 0, "holders": 0, "evictable": 0, "protected": 0},
    ),
    Expected(
        "other nodes have pages or none",
        "tree",
        (
            _do("tree_elsewhere", evictable_pages=2, protected_pages=1),
            _do("tree_elsewhere", evictable_pages=0, protected_pages=0),
        ),
        {"rest_evictable": 0, "rest_protected": 0, "evictable": 0, "protected": 0},
        (
            _do("tree_elsewhere", evictable_pages=-1, protected_pages=1),
            _do("tree_elsewhere", evictable_pages=1, protected_pages=-1),
            _do("tree_elsewhere", evictable_pages=-1, protected_pages=-1),
        ),
    ),
)

DENIED: tuple[Denied, ...] = (
    Denied("a lock that no admission holds", "admission", {"locks": 1, "held": 1}),
    Denied("a row that no admission holds", "admission", {"rows": 1, "held": 1}),
    Denied("pages that no admission holds", "admission", {"pages": 1, "held": 1}),
    Denied("a node without pages", "tree", {"present": True}),
    Denied("pages of a node that is not there", "tree", {"pages": 1}),
    Denied("pages without a node", "tree", {"pages": 1, "evictable": 1}),
    Denied("a lock that nobody holds", "tree", {"present": True, "pages": 1, "lock_ref": 1, "protected": 1}),
    Denied("an evictable page that is in no node", "tree", {"evictable": 1}),
    Denied("a protected page that is in no node", "tree", {"protected": 1}),
)


def unexpected(machines: Sequence[Machine] = MACHINES, oracle: ModuleType = right_oracle) -> Iterator[str]:
    """What is not as expected, as sentences."""
    of = {m.name: m for m in machines}
    for expected in RUNS:
        if expected.machine in of and (failure := _failure(expected, of[expected.machine], oracle)):
            yield f"{expected.name}: {failure}"
    for denied in DENIED:
        if denied.machine in of and _is_allowed(denied, of[denied.machine], oracle):
            yield f"{denied.name}: no invariant denies it"


def _failure(expected: Expected, machine: Machine, oracle: ModuleType) -> str:
    rules = oracle.Oracle.of(expected.page_size, expected.row_width, machine.actions, **expected.config)
    state = machine.start(rules.d)
    for name, params in expected.run:
        outcome = _taken(rules, state, name, params)
        if outcome is None:
            return f"{name} is refused"
        state = outcome.after
    for name, value in expected.then.items():
        if getattr(state, name) != value:
            return f"{name} is {getattr(state, name)}, not {value}"
    for name, params in expected.refused:
        if _taken(rules, state, name, params) is not None:
            return f"{name} is not refused"
    return ""


def _taken(rules: Any, state: Any, name: str, params: dict[str, Any]) -> Any:
    """The outcome of the step, or None where its rule does not apply or a guard fails."""
    action = rules.actions[name]
    if not action.applies(rules.d, state):
        return None
    outcome = rules.step(action, state, params)
    return None if outcome.failed_guards else outcome


def _is_allowed(denied: Denied, machine: Machine, oracle: ModuleType) -> bool:
    d = oracle.Oracle.of(1, 3).d
    state = machine.start(d).but(**denied.fields)
    return all(invariant.holds(d, state) for invariant in machine.all_invariants.values())
