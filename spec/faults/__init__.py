"""Faults: what real code did wrong, each as a deviation of one action.

A fault replaces the `run` of its action and nothing else. Proofs must fail with it, a replay that it explains is
diagnosed with its name. Kinds: `fault` is a bug that was fixed (id = the pull request that fixed it), `release` is a
deviation that a release still has (id = S and the release), `mutation` is no real bug but keeps an invariant from
being vacuous.

`breaks` is pinned: the prover computes it and a test compares. The first is the one that a counterexample is looked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from kvproof.spec.actions import ACTIONS, Action, Step
from kvproof.spec.actions.decode import no_token_of_a_chunk
from kvproof.spec.actions.finish import HAS_GENERATED, save_slot
from kvproof.spec.actions.memory_check import report
from kvproof.spec.actions.prefill import append_only, match_key_len, restored, without_tail
from kvproof.spec.actions.release import release_row, release_slot
from kvproof.spec.domain import Domain, Length, footprint, larger, minus, orphan_start, smaller
from kvproof.spec.effects import DropRow, Forget, Free, FreeByLoc, Insert, Require, Write
from kvproof.spec.machine import LEDGER, Machine, machine_of
from kvproof.spec.progress import Request
from kvproof.spec.staging import Admission, Deferred
from kvproof.spec.state import RUNNING, WAITING, Ledger, end_turn, fill_len, is_live
from kvproof.spec.tree import Node

Run = Callable[[Domain, Any, SimpleNamespace], Step]

KINDS = {
    "fault": "bug that was fixed",
    "release": "seen in a release by replaying it",
    "mutation": "no real bug: keeps an invariant from being vacuous",
}


@dataclass(frozen=True)
class Fault:
    id: str
    action: str
    summary: str
    needs: str
    source: str
    breaks: tuple[str, ...]
    run: Run
    kind: str = "fault"
    also: Mapping[str, Run] = field(default_factory=dict)
    """Other actions that deviate with it: a rule that was moved from one step to another."""
    on_ledgers: Mapping[str, Run] = field(default_factory=dict)
    """For a fault of a small machine: rules of ledgers that a trace shows it by."""
    config: Mapping[str, int | bool] = field(default_factory=dict)
    """The configuration in which it shows (fields of the integer domain); elsewhere the rules are right."""
    smallest: tuple[int, int] = (1, 3)
    """Page size and row width of the first small instance that shows it; a slow test searches the smaller ones."""

    @property
    def machine(self) -> Machine:
        return machine_of(self.action)

    def deviate(self, action: str | None = None) -> Action:
        """The action (its main one, or another) with the faulty rule in place of the right one."""
        name = action or self.action
        run = self.run if name == self.action else self.also[name]
        return dataclasses.replace(self.machine.actions[name], run=run)

    @property
    def deviations(self) -> dict[str, Action]:
        return {name: self.deviate(name) for name in (self.action, *self.also)}

    @property
    def in_traces(self) -> dict[str, Action]:
        """The deviating rules of ledgers, which are what events are judged by."""
        shown = {name: dataclasses.replace(ACTIONS[name], run=run) for name, run in self.on_ledgers.items()}
        return self.deviations if self.machine is LEDGER else shown


def actions_with(fault: Fault | None, machine: Machine = LEDGER) -> dict[str, Action]:
    """The machine's table of actions, those of the fault deviating."""
    if fault is None:
        return dict(machine.actions)
    deviating = fault.in_traces if machine is LEDGER else fault.deviations if machine is fault.machine else {}
    return {**machine.actions, **deviating}


def _right(action: str, d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return ACTIONS[action].run(d, s, p)


def _without_free_tail(d: Domain, s: Ledger, prefix_len: Length) -> Step:
    """Before #22862: the row is restored and will be overwritten from prefix_len; nothing is freed."""
    return Step(restored(d, s, prefix_len), effects=(append_only(d, s, prefix_len),))


def _f20070(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right = _right("match_slot", d, s, p)
    return dataclasses.replace(right, after=right.after.but(cache_protected_len=right.after.prefix_len))


def _f20476(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right = _right("match_slot", d, s, p)
    return dataclasses.replace(right, after=right.after.but(slot_held=d.false))


def _f20557(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right, cut = _right("match_slot", d, s, p), _without_free_tail(d, s, d.zero)
    fields = {f.name: d.where(s.logprob, getattr(cut.after, f.name), getattr(right.after, f.name)) for f in _fields(s)}
    prefix_len = fields["prefix_len"]
    kept = d.where(s.logprob, s.slot_kv_allocated_len, orphan_start(d, prefix_len))
    return Step(Ledger(**fields), effects=(append_only(d, s, prefix_len), Free(kept, s.slot_kv_allocated_len)))


def _fields(s: Ledger) -> tuple[dataclasses.Field[object], ...]:
    return dataclasses.fields(s)


def _f22213(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A lent slot counts as held; a turn that just ended counts as uncached although its slot holds the pages."""
    held = footprint(d, s.slot_kv_allocated_len, s.slot_cache_protected_len)
    ended = d.every(p.lingering, s.slot_held, d.no(is_live(d, s)))
    right = report(d, s)
    terms = dataclasses.replace(
        right, session_held=d.where(s.slot_held, held, 0), uncached=right.uncached + d.where(ended, held, 0)
    )
    return Step(s, effects=(terms,))


def _f21875a(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The session is gone at once; its turn runs on, of no session."""
    released, effects = release_slot(d, s, s.slot_kv_allocated_len)
    gone = released.but(is_open=d.false, closing=d.false, inflight=d.false, checkpoint_len=d.zero, success_len=d.zero)
    return Step(gone, effects=effects)


def _f21875b(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _without_free_tail(d, s, smaller(d, s.slot_kv_committed_len, match_key_len(d, s)))


def _f22790a(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    after = end_turn(d, save_slot(d, s)).but(inflight=d.false, turns=s.turns - 1)
    return Step(after, effects=(Forget(s.checkpoint_len),))


def _f22790b(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return dataclasses.replace(_right("abort_first", d, s, p), effects=())


def _f22790c(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Not detached: it falls through to the tree, which has nothing for an empty key, and stays the session's turn."""
    return Step(s.but(matched=d.true, prefix_len=d.zero, cache_protected_len=d.zero))


def _f22790d(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right = _right("create", d, s, p)
    return dataclasses.replace(right, after=right.after.but(checkpoint_len=p.origin_len))


def _f22790e(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s.but(turns=s.turns + 1))


def _f22862a(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """One token more was kept back, and the tail behind prefix_len was left to be overwritten."""
    key_len = match_key_len(d, s)
    one_less = d.where(d.one <= key_len, key_len - d.where(d.one <= key_len, d.one, d.zero), d.zero)
    return _without_free_tail(d, s, smaller(d, s.slot_kv_committed_len, one_less))


def _f22862b(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    prefix_len = smaller(d, s.slot_kv_committed_len, match_key_len(d, s))
    after = without_tail(d, restored(d, s, prefix_len))
    return Step(after, effects=(append_only(d, s, prefix_len), Free(prefix_len, s.slot_kv_allocated_len)))


_OF_THE_SLOT = ("slot_kv_committed_len", "slot_kv_allocated_len", "slot_swa_evicted_seqlen")


def _s0511a(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The turn is saved as a finished one is: what is reserved ahead is trimmed, too."""
    right, finished = _right("retract", d, s, p), _right("finish", d, s, SimpleNamespace(finished_len=s.output_len))
    saved = {name: getattr(finished.after, name) for name in (*_OF_THE_SLOT, "inflight", "checkpoint_len")}
    trim = Free(orphan_start(d, fill_len(s)), s.kv_allocated_len)
    return dataclasses.replace(right, after=right.after.but(**saved), effects=(trim, *right.effects))


def _s0511b(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right = _right("abort_queued", d, s, p)
    return dataclasses.replace(right, after=right.after.but(inflight=s.inflight))


def _s0511c(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s.but(inflight=d.false))


def _s0511d(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s.but(turns=s.turns + 1))


def _saved_as_if_finished(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Before #22790 an abort took the path of a finish: the slot and the checkpoint take the partial turn."""
    tokens = d.where(s.pre_aborted, s.origin_len, fill_len(s))
    after = end_turn(d, save_slot(d, s)).but(inflight=d.false, turns=s.turns - 1, checkpoint_len=tokens)
    return Step(after, effects=(Forget(s.checkpoint_len),))


def _s0510c(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right = _right("abort_queued", d, s, p)
    checkpoint_len = d.where(s.plain, s.checkpoint_len, fill_len(s))
    return dataclasses.replace(right, after=right.after.but(checkpoint_len=checkpoint_len))


def _s0510d(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    after = end_turn(d, s).but(inflight=d.false, turns=s.turns - 1, checkpoint_len=fill_len(s))
    return Step(after, effects=(Forget(s.checkpoint_len),))


def _s0510e(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Neither the lengths nor the pages are trimmed, and what the round in flight writes is not counted."""
    right, in_flight = _right("finish", d, s, p), d.where(s.pending == 0, d.zero, d.one)
    as_it_is = {
        "slot_kv_committed_len": minus(d, s.kv_committed_len, in_flight),
        "slot_kv_allocated_len": s.kv_allocated_len,
    }
    slot = {name: d.where(d.spec_v2, length, getattr(right.after, name)) for name, length in as_it_is.items()}
    target = s.origin_len + p.finished_len
    kept = d.where(d.spec_v2, s.kv_allocated_len, target)
    others = tuple(effect for effect in right.effects if not isinstance(effect, Free))
    freed = Free(orphan_start(d, larger(d, target, kept)), s.kv_allocated_len)
    return dataclasses.replace(right, after=right.after.but(**slot), effects=(freed, *others))


def _s0517a(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The slot's length is the turn's, whether or not a round that writes its last position was launched."""
    right = _right("finish", d, s, p)
    claimed = smaller(d, s.origin_len + p.finished_len, s.kv_allocated_len)
    slot_len = d.where(d.spec_v2, claimed, right.after.slot_kv_committed_len)
    return dataclasses.replace(right, after=right.after.but(slot_kv_committed_len=slot_len))


def _f12224(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The finish under overlap takes what lies behind input + max(output - 1, 0) for the slot of the step in flight, and
    frees it by itself; the release frees it again."""
    right = _right("finish_plain", d, s, p)
    inferred = s.origin_len + minus(d, s.output_len, d.one)
    end = d.where(d.every(d.overlap, s.phase == RUNNING), larger(d, inferred, s.kv_committed_len), inferred)
    return dataclasses.replace(right, effects=(FreeByLoc(inferred, end), *right.effects))


def _f17850(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The row is freed between two chunks, to be taken again; meanwhile it is anyone's."""
    right = _right("stash", d, s, p)
    return dataclasses.replace(right, effects=(DropRow(d.true), *right.effects))


def _f21875c(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right = _right("finish", d, s, p)
    after = right.after.but(slot_kv_allocated_len=s.kv_allocated_len)
    return dataclasses.replace(right, after=after, effects=tuple(e for e in right.effects if not isinstance(e, Free)))


def _f22735(d: Domain, s: Node, p: SimpleNamespace) -> Step:
    """Releasing, it matches again, finds a node below the one that it locked, or cuts one off, and takes a lock from that."""
    right = _right_of("tree_unlock", d, s, p)
    return Step(right.after.but(holders=s.holders))


def _right_of(action: str, d: Domain, s: Any, p: SimpleNamespace) -> Step:
    return machine_of(action).actions[action].run(d, s, p)


def _f22753(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The slot's own flag says that it is lent, from the restore until the save, whether the turn runs or not."""
    right = report(d, s)
    held = d.where(s.lent, 0, right.session_held)
    return Step(
        s, effects=(dataclasses.replace(right, session_held=held, window_held=d.where(s.lent, 0, right.window_held)),)
    )


def _f22897(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The tail behind C is freed, what a round committed behind T is not."""
    right = _right("finish", d, s, p)
    after = right.after.but(slot_kv_committed_len=s.kv_committed_len, slot_kv_allocated_len=s.kv_committed_len)
    effects = (Free(orphan_start(d, s.kv_committed_len), s.kv_allocated_len), Forget(s.origin_len + p.finished_len))
    return dataclasses.replace(right, after=after, effects=effects)


def _f22900(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right = _right("finish", d, s, p)
    return dataclasses.replace(right, after=right.after.but(slot_swa_evicted_seqlen=s.swa_evicted_seqlen))


def _f22651_prepare(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right = _right("prepare_round", d, s, p)
    return dataclasses.replace(right, after=right.after.but(kv_committed_len=s.kv_committed_len))


def _f22651_result(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The whole accept_len at resolve. (A prefill's result has nothing to add.)"""
    right = _right("result", d, s, p)
    of_round = s.kv_committed_len < s.kv_valid
    committed = s.kv_committed_len + d.where(of_round, p.tokens, d.zero)
    written = Write(s.kv_valid, d.where(of_round, s.kv_valid + (p.tokens - d.one), s.kv_valid))
    return dataclasses.replace(right, after=right.after.but(kv_committed_len=committed), effects=(written,))


def _f994a(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Duplicates are freed from len(prefix_indices), whose unaligned tail the request owns itself."""
    right = _right("finish_plain", d, s, p)
    start = d.ceil_pages(s.prefix_len)
    effects = tuple(dataclasses.replace(e, freed_from=start) if isinstance(e, Insert) else e for e in right.effects)
    return dataclasses.replace(right, effects=effects)


def _f994b(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The tree of a windowed cache takes a row over and cuts the last slot off ([:-1]) before it frees the rest."""
    right = _right("finish_plain", d, s, p)
    own = d.where(p.inserted, d.tokens(d.floor_pages(s.kv_committed_len)), s.cache_protected_len)
    cut = d.every(d.windowed, p.inserted)
    end = d.where(cut, minus(d, s.kv_allocated_len, d.one), s.kv_allocated_len)
    insert = tuple(e for e in right.effects if isinstance(e, Insert))
    return dataclasses.replace(right, effects=(*insert, *release_row(d, d.true, own, end)))


def _f994c(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Processing a late result frees out_cache_loc[i], although the release has the page or has freed it."""
    waits = d.every(s.phase == WAITING, s.slot_held, fill_len(s) <= s.slot_kv_committed_len)
    end = d.where(waits, s.slot_kv_committed_len, d.zero)
    return Step(s, effects=(FreeByLoc(minus(d, end, d.one), end),))


def _f994d(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Only the first chunk was counted: each later result looks final, and the token that it samples is appended."""
    right = _right("chunk_result", d, s, p)
    output_len = d.where(s.chunk_known, s.output_len + d.one, s.output_len)
    return dataclasses.replace(
        right, after=right.after.but(output_len=output_len), effects=(no_token_of_a_chunk(s, output_len),)
    )


def _f994e(d: Domain, s: Request, p: SimpleNamespace) -> Step:
    """A retract is forced on every step, and prefill goes first."""
    right = _right_of("force_retract", d, s, p)
    return dataclasses.replace(right, guards=())


def _f994e_retract(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """In a trace: a turn is retracted before its prefill brought it a token."""
    right = _right("retract", d, s, p)
    return dataclasses.replace(right, guards=tuple(g for g in right.guards if g.sentence != HAS_GENERATED))


def _m13(d: Domain, s: Node, p: SimpleNamespace) -> Step:
    right = _right_of("tree_unlock", d, s, p)
    return dataclasses.replace(right, after=right.after.but(protected=s.protected))


def _m18(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Charged by tokens alone, without the page that each request may need more."""
    right = _right("extend", d, s, p)
    taken = d.tokens(d.ceil_pages(p.seq_len) - d.ceil_pages(s.prefix_len))
    charged = Require("I18", taken <= minus(d, p.seq_len, s.prefix_len), "the charge covers what the allocator takes")
    return dataclasses.replace(right, effects=(charged, *right.effects[1:]))


def _m19(d: Domain, s: Admission, p: SimpleNamespace) -> Step:
    """The lock that was taken first is forgotten."""
    return Step(s.but(staging=d.false, locks=0, rows=0, pages=0, held=s.held - s.rows - s.pages))


def _m24(d: Domain, s: Deferred, p: SimpleNamespace) -> Step:
    """The waiting free looks at the row, not at a copy."""
    right = _right_of("overwrite_row", d, s, p)
    return dataclasses.replace(right, after=right.after.but(listed=d.where(s.waits, p.page, s.listed)))


def _m3(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right = _right("decode", d, s, p)
    return dataclasses.replace(right, after=right.after.but(kv_allocated_len=s.kv_allocated_len))


def _m17(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s.but(kv_committed_len=s.kv_committed_len + d.one))


_FAULTS = (
    Fault(
        "F20070",
        "match_slot",
        "a session turn takes len(prefix) (= C) for R: not whole pages, and more than the tree owns",
        "P > 1",
        "sglang #20070",
        ("I12",),
        _f20070,
    ),
    Fault(
        "F20476",
        "match_slot",
        "restoring clears the slot's row: a rejected chunk that matches again falls through to the tree and loses the row",
        "chunks",
        "sglang #20476",
        ("I5", "I2", "I11", "I16"),
        _f20476,
    ),
    Fault(
        "F20557",
        "match_slot",
        "logprob_start_len = 0 cuts the match key to nothing: prefix_len = 0 and the whole row is overwritten",
        "a session turn with logprobs",
        "sglang #20557",
        ("I7", "I12"),
        _f20557,
    ),
    Fault(
        "F22213",
        "check",
        "a lent slot is counted as held and as uncached",
        "busy check",
        "sglang #22213",
        ("I2",),
        _f22213,
    ),
    Fault(
        "F21875a",
        "defer_close",
        "close during decode frees the KV under the running request",
        "close",
        "sglang #21875",
        ("I6", "I1", "I2", "I4", "I5", "I8", "I10", "I11", "I12", "I15", "I16"),
        _f21875a,
    ),
    Fault(
        "F21875b",
        "detach",
        "a too-long turn, its input cut to one token, still restores the slot and overwrites its row",
        "pre-abort",
        "sglang #21875",
        ("I7", "I12"),
        _f21875b,
    ),
    Fault(
        "F22790a",
        "abort_nth",
        "a later turn aborted mid-way saves its partial lengths into the slot",
        "abort",
        "sglang #22790",
        ("I8", "I7", "I14"),
        _f22790a,
    ),
    Fault(
        "F22790b",
        "abort_first",
        "a first turn aborted mid-way has no slot yet: row, pages and tree lock are not returned",
        "abort",
        "sglang #22790",
        ("I16", "I2", "I11"),
        _f22790b,
    ),
    Fault(
        "F22790c",
        "detach",
        "a pre-aborted turn is treated as a session turn",
        "abort",
        "sglang #22790",
        ("I5",),
        _f22790c,
    ),
    Fault(
        "F22790d",
        "create",
        "the checkpoint moves at create: after an abort the next turn builds on the aborted tokens",
        "abort",
        "sglang #22790",
        ("I14",),
        _f22790d,
    ),
    Fault(
        "F22790e",
        "refuse",
        "no in-flight marker: a second turn on a busy session is admitted and shares the row",
        "concurrent turns",
        "sglang #22790",
        ("I15", "I5"),
        _f22790e,
    ),
    Fault(
        "F22862a",
        "match_slot",
        "no tail free: the extend overwrites [prefix_len, A) and the old pages are orphaned",
        "retract",
        "sglang #22862",
        ("I7", "I12"),
        _f22862a,
    ),
    Fault(
        "F22862b",
        "match_slot",
        "the tail free starts at prefix_len: the page that still holds committed tokens is freed",
        "P > 1",
        "sglang #22862",
        ("I4", "I1", "I2", "I6", "I8", "I10"),
        _f22862b,
        smallest=(2, 4),
    ),
    Fault(
        "F12224",
        "finish_plain",
        "the overlap finish branch frees its extra slot by itself as well: a double free",
        "overlap",
        "sglang #12224",
        ("I16", "I1", "I2"),
        _f12224,
        config={"overlap": True},
    ),
    Fault(
        "F17850",
        "stash",
        "a chunked request's row is freed between chunks and taken again",
        "chunks",
        "sglang #17850",
        ("I5", "I1", "I2", "I8", "I10", "I12", "I16"),
        _f17850,
    ),
    Fault(
        "F21875c",
        "finish",
        "the over-allocated tail goes into the slot untrimmed",
        "speculation v2",
        "sglang #21875",
        ("I7", "I2", "I10"),
        _f21875c,
        config={"overlap": True, "speculation": 2},
    ),
    Fault(
        "F22735",
        "tree_unlock",
        "release matches the prefix again; the match finds or cuts off another node, and takes a lock that is not its own",
        "tree split",
        "sglang #22735",
        ("I11", "I13"),
        _f22735,
    ),
    Fault(
        "F22753",
        "check",
        "the lent flag is set on restore and cleared on save; a rejected or queued turn leaves it set",
        "busy check",
        "sglang #22753",
        ("I2",),
        _f22753,
    ),
    Fault(
        "F22897",
        "finish",
        "the overshoot of a finishing speculative round is not trimmed",
        "speculation",
        "sglang #22897",
        ("I8", "I2", "I7", "I10", "I14"),
        _f22897,
        config={"speculation": 1},
    ),
    Fault(
        "F22900",
        "finish",
        "the trim leaves E above T: slots written at [T, E) next turn are never evicted",
        "window and speculation",
        "sglang #22900",
        ("I9", "I2", "I10"),
        _f22900,
        config={"speculation": 1, "drafts": 3, "window": 1},
        smallest=(1, 6),
    ),
    Fault(
        "F22651",
        "prepare_round",
        "spec v2 adds the whole accept_len at resolve and claims nothing at prepare: the slot inherits one token short",
        "speculation v2",
        "sglang #22651",
        ("I8", "I22"),
        _f22651_prepare,
        also={"result": _f22651_result},
        config={"overlap": True, "speculation": 2},
    ),
    Fault(
        "F994a",
        "finish_plain",
        "the duplicate free of a finished request starts at len(prefix_indices), not at R",
        "chunks, P > 1",
        "sglang-jax #994",
        ("I16", "I1", "I2"),
        _f994a,
        smallest=(2, 4),
    ),
    Fault(
        "F994b",
        "finish_plain",
        "the window cache strips the last slot before it frees",
        "window",
        "sglang-jax #994",
        ("I16", "I1", "I2", "I4"),
        _f994b,
        config={"window": 1},
        smallest=(2, 4),
    ),
    Fault(
        "F994c",
        "late_result",
        "processing a late result frees its slot by itself",
        "overlap",
        "sglang-jax #994",
        ("I6", "I1", "I2", "I16"),
        _f994c,
        config={"overlap": True},
    ),
    Fault(
        "F994d",
        "chunk_result",
        "the chunk counter is raised for the first chunk only: later chunks look final, sample a token and append it",
        "chunks",
        "sglang-jax #994",
        ("I22",),
        _f994d,
        config={"overlap": True},
    ),
    Fault(
        "F994e",
        "force_retract",
        "forced retract on every step with prefill allowed: retracted requests prefill again before any decode",
        "forced retract",
        "sglang-jax #994",
        ("I18",),
        _f994e,
        on_ledgers={"retract": _f994e_retract},
        config={"overlap": True},
    ),
    Fault(
        "S0510a",
        "abort_first",
        "a first turn aborted mid-way is saved like a finished one: slot and checkpoint take the partial turn",
        "abort",
        "seen in sglang 0.5.10.post1, before #22790",
        ("I14", "I7", "I8"),
        _saved_as_if_finished,
        kind="release",
    ),
    Fault(
        "S0510b",
        "abort_nth",
        "a later turn aborted mid-way is saved like a finished one: slot and checkpoint take the partial turn",
        "abort",
        "seen in sglang 0.5.10.post1, before #22790",
        ("I14", "I7", "I8"),
        _saved_as_if_finished,
        kind="release",
    ),
    Fault(
        "S0510c",
        "abort_queued",
        "a turn aborted in the queue stays the session's checkpoint",
        "abort in the queue",
        "seen in sglang 0.5.10.post1, before #22790",
        ("I14", "I7", "I8"),
        _s0510c,
        kind="release",
    ),
    Fault(
        "S0510d",
        "abort_retracted",
        "a retracted turn aborted in the queue stays in the slot and is the session's checkpoint",
        "retract, abort in the queue",
        "seen in sglang 0.5.10.post1, before #22790",
        ("I14", "I7", "I8"),
        _s0510d,
        kind="release",
    ),
    Fault(
        "S0510e",
        "finish",
        "F21875c with real rounds: a turn's lengths go into the slot as they are, drafts past its end and all that was reserved",
        "speculation v2",
        "seen in sglang 0.5.10.post1, before #21875",
        ("I7", "I2", "I8", "I9", "I10", "I14"),
        _s0510e,
        kind="release",
        config={"overlap": True, "speculation": 2},
    ),
    Fault(
        "S0511a",
        "retract",
        "a retract clears the in-flight marker and advances the checkpoint to the unfinished turn",
        "retract",
        "seen in sglang 0.5.11",
        ("I14", "I15"),
        _s0511a,
        kind="release",
    ),
    Fault(
        "S0511b",
        "abort_queued",
        "the abort of a queued turn leaves the in-flight marker set: the session never takes a turn again",
        "abort in the queue",
        "seen in sglang 0.5.11",
        ("I15",),
        _s0511b,
        kind="release",
    ),
    Fault(
        "S0511c",
        "pass_by",
        "a refused turn, answered beside a slot or aborted in the queue, clears the marker of the turn in flight",
        "a second turn on a busy session",
        "seen in sglang 0.5.11",
        ("I15",),
        _s0511c,
        kind="release",
    ),
    Fault(
        "S0511d",
        "pass_by",
        "a refused turn stays the session's while it has no slot: its end runs the session's abort path",
        "a second turn on a busy session",
        "seen in sglang 0.5.11",
        ("I15", "I5"),
        _s0511d,
        kind="release",
    ),
    Fault(
        "S0517a",
        "finish",
        "a slot claims the last token of its turn, whose KV no round was launched to write",
        "speculation v2",
        "seen in sglang 0.5.17",
        ("I8",),
        _s0517a,
        kind="release",
        config={"overlap": True, "speculation": 2},
    ),
    Fault(
        "M3",
        "decode",
        "a decode step claims a position without raising A",
        "",
        "",
        ("I3", "I1", "I2"),
        _m3,
        kind="mutation",
    ),
    Fault(
        "M13",
        "tree_unlock",
        "an unlock leaves the counter of protected pages as it was",
        "",
        "",
        ("I13",),
        _m13,
        kind="mutation",
    ),
    Fault(
        "M17",
        "late_result",
        "a result that arrives late still raises C",
        "overlap",
        "",
        ("I17",),
        _m17,
        kind="mutation",
    ),
    Fault(
        "M18",
        "extend",
        "admission charges tokens, not pages",
        "P > 1",
        "",
        ("I18",),
        _m18,
        kind="mutation",
        smallest=(2, 4),
    ),
    Fault("M19", "cancel_admission", "a failed admission keeps its tree lock", "", "", ("I19",), _m19, kind="mutation"),
    Fault("M24", "overwrite_row", "a deferred free keeps a view of the row", "", "", ("I24",), _m24, kind="mutation"),
)

FAULTS: dict[str, Fault] = {f.id: f for f in _FAULTS}
