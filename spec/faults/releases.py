"""What releases do wrong, seen by replaying them. The id names the release."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Run, Step
from kvproof.spec.actions.finish import abort_queued, finish, retract, save_slot
from kvproof.spec.domain import Domain, larger, minus, orphan_start, smaller
from kvproof.spec.effects import Begin, End, Forget, Free
from kvproof.spec.faults.fault import but_after, fault, without
from kvproof.spec.faults.speculation import V2
from kvproof.spec.state import Ledger, end_turn, fill_len

BEFORE_22790 = "seen in sglang 0.5.10.post1, before #22790"
SAVED_AS_FINISHED = ("I14", "I7", "I8")


def _saved_as_if_finished(d: Domain, s: Ledger) -> Step:
    """Before #22790 an abort took the path of a finish: the slot and the checkpoint take the partial turn."""
    tokens = d.where(s.pre_aborted, s.origin_len, fill_len(s))
    after = end_turn(d, save_slot(d, s)).but(inflight=d.false, checkpoint_len=tokens)
    return Step(after, effects=(Forget(s.checkpoint_len), End(d.true)))


@fault("S0510a", of="abort_first", needs="abort", source=BEFORE_22790, breaks=(*SAVED_AS_FINISHED, "I9"))
def aborted_first_turn_is_saved(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A first turn aborted mid-way is saved like a finished one: slot and checkpoint take the partial turn."""
    return _saved_as_if_finished(d, s)


@fault("S0510b", of="abort_nth", needs="abort", source=BEFORE_22790, breaks=(*SAVED_AS_FINISHED, "I9"))
def aborted_later_turn_is_saved(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A later turn aborted mid-way is saved like a finished one: slot and checkpoint take the partial turn."""
    return _saved_as_if_finished(d, s)


@fault("S0510c", of="abort_queued", needs="abort in the queue", source=BEFORE_22790, breaks=SAVED_AS_FINISHED)
def aborted_queued_turn_is_the_checkpoint(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn aborted in the queue stays the session's checkpoint."""
    return but_after(abort_queued.run(d, s, p), checkpoint_len=d.where(s.plain, s.checkpoint_len, fill_len(s)))


@fault(
    "S0510d",
    of="abort_retracted",
    needs="retract, abort in the queue",
    source=BEFORE_22790,
    breaks=SAVED_AS_FINISHED,
)
def aborted_retracted_turn_stays(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retracted turn aborted in the queue stays in the slot and is the session's checkpoint."""
    after = end_turn(d, s).but(inflight=d.false, checkpoint_len=fill_len(s))
    return Step(after, effects=(Forget(s.checkpoint_len), End(d.true)))


@fault(
    "S0510e",
    of="finish",
    needs="speculation v2",
    source="seen in sglang 0.5.10.post1, before #21875",
    breaks=("I7", "I2", "I8", "I9", "I10", "I14"),
    config=V2,
)
def slot_takes_the_turn_untrimmed(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """F21875c with real rounds: a turn's lengths go into the slot as they are, drafts past its end and all that was reserved.

    Neither the lengths nor the pages are trimmed, and what the round in flight writes is not counted.
    """
    right, in_flight = finish.run(d, s, p), d.where(s.pending == 0, d.zero, d.one)
    as_it_is = {
        "slot_kv_committed_len": minus(d, s.kv_committed_len, in_flight),
        "slot_kv_allocated_len": s.kv_allocated_len,
    }
    slot = {name: d.where(d.spec_v2, length, getattr(right.after, name)) for name, length in as_it_is.items()}
    target = s.origin_len + p.finished_len
    kept = d.where(d.spec_v2, s.kv_allocated_len, target)
    freed = Free(orphan_start(d, larger(d, target, kept)), s.kv_allocated_len)
    return dataclasses.replace(right, after=right.after.but(**slot), effects=(freed, *without(right, Free).effects))


_OF_THE_SLOT = ("slot_kv_committed_len", "slot_kv_allocated_len", "slot_swa_evicted_seqlen")


@fault("S0511a", of="retract", needs="retract", source="seen in sglang 0.5.11", breaks=("I14", "I15"))
def retract_ends_the_turn(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retract clears the in-flight marker and advances the checkpoint to the unfinished turn.

    The turn is saved as a finished one is: what is reserved ahead is trimmed, too.
    """
    return retracted_as_finished(d, s, p, finish.run)


def retracted_as_finished(d: Domain, s: Ledger, p: SimpleNamespace, finish: Run) -> Step:
    """A retract that saves and trims the turn as this finish does."""
    right, finished = retract.run(d, s, p), finish(d, s, SimpleNamespace(finished_len=s.output_len))
    saved = {name: getattr(finished.after, name) for name in (*_OF_THE_SLOT, "inflight", "checkpoint_len")}
    trim = next(effect for effect in finished.effects if isinstance(effect, Free))
    return dataclasses.replace(right, after=right.after.but(**saved), effects=(trim, *right.effects))


@fault("S0511b", of="abort_queued", needs="abort in the queue", source="seen in sglang 0.5.11", breaks=("I15",))
def aborted_queued_turn_stays_in_flight(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The abort of a queued turn leaves the in-flight marker set: the session never takes a turn again."""
    return but_after(abort_queued.run(d, s, p), inflight=s.inflight)


@fault("S0511c", of="pass_by", needs="a second turn on a busy session", source="seen in sglang 0.5.11", breaks=("I15",))
def refused_turn_clears_the_marker(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A refused turn, answered beside a slot or aborted in the queue, clears the marker of the turn in flight."""
    return Step(s.but(inflight=d.false))


@fault(
    "S0511d",
    of="pass_by",
    needs="a second turn on a busy session",
    source="seen in sglang 0.5.11",
    breaks=("I15", "I5"),
)
def refused_turn_stays(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A refused turn stays the session's while it has no slot: its end runs the session's abort path."""
    return Step(s, effects=(Begin(s.origin_len, d.true),))


@fault("S0517a", of="finish", needs="speculation v2", source="seen in sglang 0.5.17", breaks=("I8",), config=V2)
def slot_claims_the_last_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A slot claims the last token of its turn, whose KV no round was launched to write.

    The slot's length is the turn's, whether or not a round that writes its last position was launched.
    """
    return with_last_token_claimed(d, s, p, finish.run)


def with_last_token_claimed(d: Domain, s: Ledger, p: SimpleNamespace, finish: Run) -> Step:
    """This finish, and a slot that is as long as the tokens kept, or as what is allocated then."""
    right = finish(d, s, p)
    claimed = smaller(d, s.origin_len + p.finished_len, right.after.slot_kv_allocated_len)
    return but_after(right, slot_kv_committed_len=d.where(d.spec_v2, claimed, right.after.slot_kv_committed_len))
