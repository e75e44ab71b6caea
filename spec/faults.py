"""Faults: what real code did wrong, each as a deviation of one action.

A fault replaces the `run` of its action and nothing else. Proofs must fail with it, a replay that it explains is
diagnosed with its name. Kinds: `fault` is a bug that was fixed (id = the pull request that fixed it), `release` is a
deviation that a release still has (id = S and the release), `mutation` is no real bug but keeps an invariant from
being vacuous.

`breaks` is pinned: the prover computes it and a test compares. The first is the one that a counterexample is looked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

from kvproof.spec.actions import ACTIONS, Action, Step
from kvproof.spec.actions.prefill import append_only, match_key_len, restored, without_tail
from kvproof.spec.actions.release import release_slot
from kvproof.spec.actions.turn import report, save_slot
from kvproof.spec.domain import Domain, Length, footprint, orphan_start, smaller
from kvproof.spec.effects import Forget, Free
from kvproof.spec.state import Ledger, end_turn, fill_len, is_live

Run = Callable[[Domain, Ledger, SimpleNamespace], Step]


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

    def deviate(self) -> Action:
        """The action with the faulty rule in place of the right one."""
        return dataclasses.replace(ACTIONS[self.action], run=self.run)


def actions_with(fault: Fault | None) -> dict[str, Action]:
    """The table of actions, one of them deviating."""
    return ACTIONS if fault is None else {**ACTIONS, fault.action: fault.deviate()}


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
    return dataclasses.replace(right, after=right.after.but(slot_held=d.some()))


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
    gone = released.but(
        is_open=d.some(), closing=d.some(), inflight=d.some(), checkpoint_len=d.zero, success_len=d.zero
    )
    return Step(gone, effects=effects)


def _f21875b(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _without_free_tail(d, s, smaller(d, s.slot_kv_committed_len, match_key_len(d, s)))


def _f22790a(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    after = end_turn(d, save_slot(d, s)).but(inflight=d.some(), turns=s.turns - 1)
    return Step(after, effects=(Forget(s.checkpoint_len),))


def _f22790b(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return dataclasses.replace(_right("abort_first", d, s, p), effects=())


def _f22790c(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Not detached: it falls through to the tree, which has nothing for an empty key, and stays the session's turn."""
    return Step(s.but(matched=d.every(), prefix_len=d.zero, cache_protected_len=d.zero))


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


def _s0511a(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right = _right("retract", d, s, p)
    return dataclasses.replace(right, after=right.after.but(inflight=d.some(), checkpoint_len=fill_len(s)))


def _s0511b(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right = _right("abort_queued", d, s, p)
    return dataclasses.replace(right, after=right.after.but(inflight=s.inflight))


def _s0511c(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s.but(inflight=d.some()))


def _s0511d(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s.but(turns=s.turns + 1))


def _saved_as_if_finished(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Before #22790 an abort took the path of a finish: the slot and the checkpoint take the partial turn."""
    tokens = d.where(s.pre_aborted, s.origin_len, fill_len(s))
    after = end_turn(d, save_slot(d, s)).but(inflight=d.some(), turns=s.turns - 1, checkpoint_len=tokens)
    return Step(after, effects=(Forget(s.checkpoint_len),))


def _s0510c(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right = _right("abort_queued", d, s, p)
    checkpoint_len = d.where(s.plain, s.checkpoint_len, fill_len(s))
    return dataclasses.replace(right, after=right.after.but(checkpoint_len=checkpoint_len))


def _s0510d(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    after = end_turn(d, s).but(inflight=d.some(), turns=s.turns - 1, checkpoint_len=fill_len(s))
    return Step(after, effects=(Forget(s.checkpoint_len),))


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
        ("I6", "I1", "I2", "I4", "I5", "I8", "I11", "I12", "I15", "I16"),
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
        ("I8", "I14"),
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
        ("I4", "I1", "I2", "I6", "I8"),
        _f22862b,
    ),
    Fault(
        "S0510a",
        "abort_first",
        "a first turn aborted mid-way is saved like a finished one: slot and checkpoint take the partial turn",
        "abort",
        "seen in sglang 0.5.10.post1, before #22790",
        ("I14", "I8"),
        _saved_as_if_finished,
        kind="release",
    ),
    Fault(
        "S0510b",
        "abort_nth",
        "a later turn aborted mid-way is saved like a finished one: slot and checkpoint take the partial turn",
        "abort",
        "seen in sglang 0.5.10.post1, before #22790",
        ("I14", "I8"),
        _saved_as_if_finished,
        kind="release",
    ),
    Fault(
        "S0510c",
        "abort_queued",
        "a turn aborted in the queue stays the session's checkpoint",
        "abort in the queue",
        "seen in sglang 0.5.10.post1, before #22790",
        ("I14", "I8"),
        _s0510c,
        kind="release",
    ),
    Fault(
        "S0510d",
        "abort_retracted",
        "a retracted turn aborted in the queue stays in the slot and is the session's checkpoint",
        "retract, abort in the queue",
        "seen in sglang 0.5.10.post1, before #22790",
        ("I14", "I8"),
        _s0510d,
        kind="release",
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
        "a refused turn, answered while the session holds a slot, clears the marker of the turn in flight",
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
        "M17",
        "late_result",
        "a result that arrives late still raises C",
        "overlap",
        "",
        ("I17",),
        _m17,
        kind="mutation",
    ),
)

FAULTS: dict[str, Fault] = {f.id: f for f in _FAULTS}
