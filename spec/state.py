"""The ledger: lengths and protocol state of one session, its slot and its turn, or of one ordinary request.

Sessions never touch each other's ledgers; they meet only in the pools, and what an action does there it states as effects
(`spec/effects.py`). So a proof about one arbitrary ledger holds for any number of sessions.

The last group of fields is *ghost* state: no implementation has it. Only effects write it. It counts what really happened to
the row and its pages, so that an invariant can compare what the lengths claim with what is true.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kvproof.spec.domain import Count, Domain, Flag, Length

S = TypeVar("S", bound="State")

# Phases of a turn. WAITING: queued, first time or after a retract. PREFILL: between chunks. RUNNING: in the decode batch.
NONE, WAITING, PREFILL, RUNNING = range(4)
PHASE_NAMES = ("none", "waiting", "prefill", "running")


def described(sort: str, group: str, doc: str) -> Any:
    """A field of a state, with its sort (length, count, flag, phase), its group and its meaning."""
    return field(metadata={"sort": sort, "group": group, "doc": doc})


class State:
    """What the states of all machines have: a copy with some fields changed."""

    def but(self: S, **changes: Any) -> S:
        """What `dataclasses.replace` does, at a tenth of its price. Raises TypeError for a field that there is not."""
        changed = object.__new__(type(self))
        fields = changed.__dict__
        fields.update(self.__dict__)
        known = len(fields)
        fields.update(changes)
        if len(fields) != known:
            raise TypeError(f"no such field of a state: {', '.join(changes.keys() - self.__dict__.keys())}")
        return changed


@dataclass(frozen=True)
class Ledger(State):
    """All values of one ledger. Each field's metadata names its sort (length, count, flag, phase), group and meaning."""

    # The session.
    is_open: Flag = described("flag", "session", "the session exists")
    closing: Flag = described("flag", "session", "a close waits for the turn in flight")
    inflight: Flag = described("flag", "session", "the in-flight marker")
    checkpoint_len: Length = described("length", "session", "tokens of the last turn that finished with success")
    # The slot.
    slot_held: Flag = described("flag", "slot", "the slot has a row")
    slot_kv_committed_len: Length = described("length", "slot", "C of the slot")
    slot_kv_allocated_len: Length = described("length", "slot", "A of the slot")
    slot_cache_protected_len: Length = described("length", "slot", "R of the slot")
    slot_swa_evicted_seqlen: Length = described("length", "slot", "E of the slot: window cursor")
    # The turn.
    plain: Flag = described("flag", "turn", "an ordinary request, of no session")
    phase: Any = described("phase", "turn", "where the turn stands")
    matched: Flag = described("flag", "turn", "a waiting turn has its prefix")
    pre_aborted: Flag = described("flag", "turn", "will be aborted before it generates; its input is cut to one token")
    logprob: Flag = described("flag", "turn", "asks for input logprobs from position 0")
    lent: Flag = described("flag", "turn", "runs on the row of the session's slot")
    origin_len: Length = described("length", "turn", "O: input tokens, earlier turns included")
    output_len: Length = described("length", "turn", "output tokens known so far")
    prefix_len: Length = described("length", "turn", "leading tokens whose KV the next extend reuses")
    kv_committed_len: Length = described("length", "turn", "C")
    kv_allocated_len: Length = described("length", "turn", "A")
    cache_protected_len: Length = described("length", "turn", "R")
    swa_evicted_seqlen: Length = described("length", "turn", "E: window cursor")
    pending: Count = described("count", "turn", "steps that were launched and whose result is not known yet")
    prefill_known: Flag = described("flag", "turn", "a chunk's result is in; of a turn that runs, the last one's")
    # Ghosts.
    turns: Count = described("count", "ghost", "admitted turns that have not ended")
    success_len: Length = described("length", "ghost", "tokens of the last turn that really finished with success")
    input_len: Length = described("length", "ghost", "tokens that the turn came with, earlier turns included")
    generated_len: Length = described("length", "ghost", "tokens that results gave the turn")
    paid: Flag = described("flag", "ghost", "the turn runs, and a result gave it a token since its prefill")
    close_asked: Flag = described("flag", "ghost", "a close was asked for, and the session is still open")
    rows: Count = described("count", "ghost", "rows taken for this ledger and not returned")
    locks: Count = described("count", "ghost", "tree locks acquired for this ledger and not undone")
    row_end: Count = described("count", "ghost", "pages behind the row, from position 0")
    tree_end: Count = described("count", "ghost", "leading pages of the row that the tree owns")
    window_start: Count = described("count", "ghost", "leading pages of the row whose window pages were evicted")
    orphans: Count = described("count", "ghost", "pages taken for the row that nothing names any more")
    kv_valid: Length = described(
        "length", "ghost", "leading tokens of the row whose KV is that of the session's tokens"
    )


FIELDS: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(Ledger)
FIELD_NAMES: tuple[str, ...] = tuple(f.name for f in FIELDS)
GHOSTS: frozenset[str] = frozenset(f.name for f in FIELDS if f.metadata["group"] == "ghost")


def pristine(d: Domain) -> Ledger:
    """Nothing: no session, no turn, no row. Every ledger starts here and, once all is returned, ends here."""
    empty: dict[str, Any] = {"flag": d.false, "length": d.zero, "count": 0, "phase": NONE}
    return Ledger(**{f.name: empty[f.metadata["sort"]] for f in FIELDS})


def is_live(d: Domain, s: Ledger) -> Flag:
    """The turn has a row and counts its pages itself: it is being prefilled or decoded."""
    return d.some(s.phase == PREFILL, s.phase == RUNNING)


def fill_len(s: Ledger) -> Length:
    """Tokens to run: the input and the output so far."""
    return s.origin_len + s.output_len


def owner_is_slot(d: Domain, s: Ledger) -> Flag:
    """A slot whose row is in no live batch counts its own pages (sglang #22753)."""
    return d.every(s.slot_held, d.no(d.every(s.lent, is_live(d, s))))


def holds_row(d: Domain, s: Ledger) -> Flag:
    return d.some(s.slot_held, is_live(d, s))


def end_turn(d: Domain, s: Ledger) -> Ledger:
    """The turn is over: nothing of it remains in the ledger."""
    none = pristine(d)
    fields = {f.name: getattr(none, f.name) for f in FIELDS if f.metadata["group"] == "turn"}
    return s.but(**fields)


def drop_slot(d: Domain, s: Ledger) -> Ledger:
    none = pristine(d)
    fields = {f.name: getattr(none, f.name) for f in FIELDS if f.metadata["group"] == "slot"}
    return s.but(**fields)
