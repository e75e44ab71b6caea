"""The invariants: what must hold in every state, each with its statement, source and explanation.

An invariant has up to two parts: a predicate on the ledger (`holds`), and side conditions that effects name with its id
(`spec/effects.py`). An action keeps an invariant when the successor satisfies the predicate and all of the action's side
conditions of that id hold.

`AUXILIARY` are facts that no one asked for but that induction needs: the ids begin with X, each with the reason it is there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvproof.spec.actions.action import summary_of
from kvproof.spec.actions.memory_check import report
from kvproof.spec.domain import Domain, Flag, implies, is_aligned, larger, minus, smaller, window_from
from kvproof.spec.effects import counted_once, true_pages, true_window_pages
from kvproof.spec.state import (
    FIELDS,
    NONE,
    PREFILL,
    RUNNING,
    WAITING,
    Ledger,
    end_turn,
    fill_len,
    holds_row,
    is_live,
    owner_is_slot,
)

Holds = Callable[[Domain, Any], Flag]
LENGTHS = tuple(f.name for f in FIELDS if f.metadata["sort"] == "length" and f.metadata["group"] != "ghost")


@dataclass(frozen=True)
class Invariant:
    id: str
    statement: str
    source: str
    explanation: str
    holds: Holds


class InvariantTable(dict[str, Invariant]):
    """Invariants by id, in the order in which they are written. `invariant` writes the row of a predicate above it."""

    def invariant(self, id: str, *, source: str = "") -> Callable[[Holds], Invariant]:
        """A decorator. The first paragraph of the predicate's docstring is the statement, the second says why it matters."""

        def add(holds: Holds) -> Invariant:
            explanation = (inspect.getdoc(holds) or "").partition("\n\n")[2]
            self[id] = Invariant(id, summary_of(holds), source, " ".join(explanation.split()), holds)
            return self[id]

        return add


INVARIANTS = InvariantTable()
invariant = INVARIANTS.invariant


@invariant("I1", source="domain page; sglang #22862")
def one_owner(d: Domain, s: Ledger) -> Flag:
    """Every page that is not free has exactly one owner: tree, one request row, one session slot.

    A page nobody names is leaked for ever; a page with two owners is overwritten under one of them. Sums stay
    balanced when both happen at once.
    """
    # Rounds of speculation v2 write their drafts, and one may move the next by all of its own.
    drafting = d.every(d.spec_v2, s.phase == RUNNING)
    one_round = d.every(drafting, s.pending == 1, s.prefill_known)
    two_rounds = d.every(drafting, s.pending == 2)
    written = s.kv_committed_len + d.drafts + d.where(s.pending == 2, d.drafts, d.zero)
    return d.every(
        s.orphans == 0,
        s.tree_end <= s.row_end,
        implies(d, is_live(d, s), s.row_end == d.ceil_pages(s.kv_allocated_len)),
        implies(d, owner_is_slot(d, s), s.row_end == d.ceil_pages(s.slot_kv_allocated_len)),
        implies(d, d.some(one_round, two_rounds), d.ceil_pages(written) <= s.row_end),
    )


@invariant("I2", source="sglang #20070, #22213, #22753")
def terms_are_true(d: Domain, s: Ledger) -> Flag:
    """Each term of the memory check equals the true count of that owner's pages.

    A term that counts a lent slot twice, or does not round up, raises false alarms and hides true ones.
    """
    terms = report(d, s)
    full = counted_once(d, s, terms.session_held, terms.uncached, true_pages(s))
    window = counted_once(d, s, terms.window_held, terms.window_uncached, true_window_pages(d, s))
    return d.every(full, implies(d, d.windowed, window))


@invariant("I3", source="domain page")
def lengths_are_ordered(d: Domain, s: Ledger) -> Flag:
    """0 <= cache_protected_len <= kv_committed_len <= kv_allocated_len <= row width, for every live request and every slot.

    Lengths out of order make footprints negative and let one release free what another owns.
    """
    turn = d.every(
        s.cache_protected_len <= s.kv_committed_len,
        s.kv_committed_len <= s.kv_allocated_len,
        s.kv_allocated_len <= d.row_width,
    )
    slot = d.every(
        s.slot_cache_protected_len <= s.slot_kv_committed_len,
        s.slot_kv_committed_len <= s.slot_kv_allocated_len,
        s.slot_kv_allocated_len <= d.row_width,
    )
    positive = d.every(*(d.zero <= getattr(s, name) for name in LENGTHS))
    return d.every(positive, implies(d, is_live(d, s), turn), implies(d, s.slot_held, slot))


@invariant("I4", source="sglang #22862")
def frees_cover_whole_pages(d: Domain, s: Ledger) -> Flag:
    """A free covers whole pages only, each once.

    The allocator returns index // page_size: a free that starts inside a page takes the tokens before it along.
    """
    # Effects name it in their side conditions.
    return d.true


@invariant("I5", source="sglang #22790, #17850")
def row_has_one_user(d: Domain, s: Ledger) -> Flag:
    """A row has one user; it is not handed out while a reader or a writer remains.

    Two turns of one session share the session's one row, and overwrite each other.
    """
    return d.every(
        implies(d, holds_row(d, s), s.turns <= 1),
        implies(d, s.lent, s.slot_held),
        implies(d, d.every(s.phase == WAITING, s.matched, s.slot_held), s.lent),
        implies(d, d.every(is_live(d, s), d.no(s.lent)), d.no(s.slot_held)),
        s.rows <= 1,
    )


@invariant("I6", source="sglang #21875, #22862")
def steps_in_flight_keep_their_pages(d: Domain, s: Ledger) -> Flag:
    """Nothing that a step in flight reads or writes is in the free pool.

    A freed page is handed to the next request, which writes into it while the first still attends to it.
    """
    # Effects name it in their side conditions.
    return d.true


@invariant("I7", source="sglang #22862")
def nothing_will_be_orphaned(d: Domain, s: Ledger) -> Flag:
    """Before positions of a row are overwritten, the pages behind them were freed or are kept by name.

    alloc_for_extend overwrites the page table; a page it no longer names stays taken for ever.
    """
    # No page lies behind the position from which a matched turn will overwrite, or behind an idle slot's tokens.
    matched, idle = d.every(s.phase == WAITING, s.lent), d.every(s.slot_held, s.turns == 0)
    return d.every(
        implies(d, matched, s.row_end <= d.ceil_pages(s.prefix_len)),
        implies(d, idle, s.slot_kv_allocated_len <= s.checkpoint_len),
    )


@invariant("I8", source="sglang #22651, #22897")
def content_is_handed_on(d: Domain, s: Ledger) -> Flag:
    """What a slot hands on equals the KV-backed prefix of the next turn, and its content matches those tokens.

    A slot one token too long hands on KV of a token that is not in the next prompt: wrong answers, no counter sees
    it.
    """
    idle = d.every(s.slot_held, s.turns == 0)
    handed_on = d.every(s.slot_kv_committed_len == s.kv_valid, s.slot_kv_committed_len <= s.checkpoint_len)
    queued = d.every(s.slot_held, s.phase == WAITING)
    # The next match keeps one token back: what it reuses is never the one that a dropped step had claimed.
    reused = smaller(d, s.slot_kv_committed_len, minus(d, fill_len(s), d.one))
    return d.every(
        implies(d, idle, handed_on),
        implies(d, queued, reused <= s.kv_valid),
        implies(d, is_live(d, s), s.kv_committed_len <= s.kv_valid),
    )


@invariant("I9", source="sglang #22900")
def cursor_moves_with_lengths(d: Domain, s: Ledger) -> Flag:
    """The window cursor, swa_evicted_seqlen, is at most the length it belongs to, and moves down with it.

    A cursor above the lengths says that slots were freed which the next turn takes anew: they are never evicted.
    """
    none = d.every(s.swa_evicted_seqlen == d.zero, s.slot_swa_evicted_seqlen == d.zero, s.window_start == 0)
    return d.every(
        implies(d, d.no(d.windowed), none),
        implies(d, is_live(d, s), s.swa_evicted_seqlen <= s.kv_committed_len),
        implies(d, owner_is_slot(d, s), s.slot_swa_evicted_seqlen <= s.slot_kv_committed_len),
    )


@invariant("I10", source="sglang #22900; sglang-jax #994")
def map_names_live_window_pages(d: Domain, s: Ledger) -> Flag:
    """The full->window map of a slot is non-zero iff that slot owns a live window page.

    A window page that no cursor counts leaks; one that is counted and was freed is freed twice.
    """
    true = larger(d, s.tree_end, s.window_start)
    turn = window_from(d, s.cache_protected_len, s.swa_evicted_seqlen)
    slot = window_from(d, s.slot_cache_protected_len, s.slot_swa_evicted_seqlen)
    return d.every(implies(d, is_live(d, s), true == turn), implies(d, owner_is_slot(d, s), true == slot))


@invariant("I11", source="sglang #22790, #20476")
def locks_have_holders(d: Domain, s: Ledger) -> Flag:
    """A tree node's lock count equals its holders; each acquire is undone once.

    A lock too many pins pages for ever; one too few lets the tree evict a prefix that a row still reads.
    """
    return s.locks == d.where(holds_row(d, s), 1, 0)


@invariant("I12", source="sglang #20070, #22862")
def protected_is_the_trees(d: Domain, s: Ledger) -> Flag:
    """cache_protected_len is whole pages, the tree-owned prefix; on every session turn prefix_len >= cache_protected_len.

    cache_protected_len tells which pages are the tree's. Everything that is freed or written starts at or behind it.
    """
    return d.every(
        is_aligned(d, s.cache_protected_len),
        is_aligned(d, s.slot_cache_protected_len),
        implies(d, is_live(d, s), s.cache_protected_len == d.tokens(s.tree_end)),
        implies(d, s.slot_held, s.slot_cache_protected_len == d.tokens(s.tree_end)),
        implies(d, d.every(s.lent, s.phase == WAITING), s.slot_cache_protected_len <= s.prefix_len),
        implies(d, s.lent, s.cache_protected_len == s.slot_cache_protected_len),
        implies(d, d.no(d.tree), s.tree_end == 0),
        implies(d, d.every(d.no(d.tree), s.phase == WAITING, s.matched, d.no(s.lent)), s.prefix_len == d.zero),
    )


@invariant("I14", source="sglang #22790")
def only_success_advances(d: Domain, s: Ledger) -> Flag:
    """Only a turn that finished with success advances the session's checkpoint.

    After an abort the next turn must build on the last good turn, not on half an answer.
    """
    idle = d.every(s.slot_held, s.turns == 0)
    return d.every(
        s.checkpoint_len == s.success_len,
        implies(d, idle, s.slot_kv_committed_len <= s.success_len),
    )


@invariant("I15", source="sglang #22790")
def marker_is_set_iff_in_flight(d: Domain, s: Ledger) -> Flag:
    """The in-flight marker is set iff one admitted, unfinished turn exists; only that turn clears it.

    Without it a second turn is admitted onto the same row, and a close frees the KV of a running one; left set, the
    session never takes a turn again. A close that waits is only ended by the close.
    """
    has_turn = d.no(s.phase == NONE)
    return d.every(
        d.some(*(s.phase == phase for phase in (NONE, WAITING, PREFILL, RUNNING))),
        d.some(s.turns == 0, s.turns == 1),
        s.inflight == (s.turns == 1),
        s.closing == s.close_asked,
        implies(d, s.inflight, d.every(has_turn, s.is_open)),
        implies(d, d.every(has_turn, d.no(s.plain)), s.inflight),
    )


@invariant("I16", source="sglang #22790, #12224")
def released_exactly_once(d: Domain, s: Ledger) -> Flag:
    """Every terminal path releases each resource exactly once.

    Row, pages and lock go back on every way out, and never twice.
    """
    nothing = d.every(s.rows == 0, s.row_end == 0, s.tree_end == 0, s.orphans == 0, s.locks == 0)
    return d.every(
        implies(d, d.no(holds_row(d, s)), nothing),
        implies(d, holds_row(d, s), s.rows == 1),
        implies(d, s.phase == NONE, d.no(s.plain)),
    )


@invariant("I17", source="domain page")
def late_results_change_nothing(d: Domain, s: Ledger) -> Flag:
    """A result that arrives for a finished or retracted request changes no length.

    Its lengths were reset or handed on; a late change would describe pages that are someone else's.
    """
    zero = d.every(s.kv_committed_len == d.zero, s.kv_allocated_len == d.zero)
    return d.every(
        implies(d, s.phase == NONE, d.every(zero, s.output_len == d.zero)),
        implies(d, d.every(s.phase == WAITING, d.no(s.lent)), zero),
    )


@invariant("I18", source="domain page; sglang-jax #994")
def admitted_progress(d: Domain, s: Ledger) -> Flag:
    """An admitted request can progress: its charge covers what the allocator takes, and a retract is paid for with a token.

    A charge that is too small lets the allocator fail in the middle of a batch that was already admitted. A turn that is
    retracted again and again without a token never ends.
    """
    # Effects and events name it in their side conditions.
    runs = s.phase == RUNNING
    return d.every(
        implies(d, d.every(runs, s.pending == 0), s.prefill_known),
        implies(d, d.every(runs, s.prefill_known), s.paid),
        implies(d, s.paid, runs),
    )


@invariant("I22", source="sglang-jax #994")
def lengths_have_one_unit(d: Domain, s: Ledger) -> Flag:
    """Two lengths are compared in one unit.

    Counting a chunk as a finished prompt, or pages as tokens, appends tokens that have no KV: wrong lengths ever
    after.
    """
    # C counts tokens with KV, O + out tokens known; they differ by the last sampled one and the steps in flight.
    in_flight = d.where(s.pending == 0, d.zero, d.where(s.pending == 1, d.one, d.one + d.one))
    of_running = implies(d, s.phase == RUNNING, s.kv_committed_len + d.one == fill_len(s) + in_flight)
    return d.every(of_running, s.origin_len == s.input_len, s.output_len == s.generated_len)


def _has_no_turn(d: Domain, s: Ledger) -> Flag:
    none = end_turn(d, s)
    return d.every(*(getattr(s, f.name) == getattr(none, f.name) for f in FIELDS if f.metadata["group"] == "turn"))


def _is_as_the_last_turn_left_it(d: Domain, s: Ledger) -> Flag:
    return d.every(s.kv_valid <= s.checkpoint_len, _has_nothing_of_this_turn(d, s))


def _has_nothing_of_this_turn(d: Domain, s: Ledger) -> Flag:
    """It never ran, or it was retracted and matched again."""
    return d.every(
        s.slot_kv_committed_len == smaller(d, s.kv_valid, s.checkpoint_len),
        s.slot_kv_allocated_len <= s.checkpoint_len,
    )


AUXILIARY = InvariantTable()
auxiliary = AUXILIARY.invariant


@auxiliary("X1")
def session_or_plain(d: Domain, s: Ledger) -> Flag:
    """A closed session has nothing, an ordinary request has no session, only a waiting or live turn borrows.

    Rules out mixtures of a session's and an ordinary request's state, which one ledger type could express.
    """
    closed = d.every(d.no(s.slot_held), d.no(s.inflight), d.no(s.closing), s.turns == 0, s.checkpoint_len == d.zero)
    no_slot = d.every(
        s.slot_kv_committed_len == d.zero, s.slot_kv_allocated_len == d.zero, s.slot_cache_protected_len == d.zero
    )
    return d.every(
        implies(d, d.no(s.is_open), closed),
        implies(d, s.plain, d.no(s.is_open)),
        implies(d, s.plain, d.no(s.pre_aborted)),
        implies(d, s.lent, d.no(s.phase == NONE)),
        implies(d, s.pre_aborted, d.no(s.lent)),
        implies(d, is_live(d, s), d.some(s.plain, s.is_open)),
        implies(d, d.no(s.slot_held), no_slot),
        implies(d, s.phase == NONE, _has_no_turn(d, s)),
    )


@auxiliary("X2")
def turn_appends(d: Domain, s: Ledger) -> Flag:
    """A turn appends: its input is longer than the checkpoint, and cache_protected_len of the slot stays below the turn's tokens.

    This is why prefix_len = min(kv_committed_len, fill_len - 1) never falls below cache_protected_len.
    """
    active = d.no(s.phase == NONE)
    appending = d.every(active, s.is_open, d.no(s.pre_aborted))
    return d.every(
        implies(d, active, d.one <= s.origin_len),
        implies(d, appending, s.checkpoint_len < s.origin_len),
        implies(d, d.every(s.slot_held, s.turns == 0), s.slot_cache_protected_len <= s.checkpoint_len),
        implies(d, d.every(s.slot_held, appending), s.slot_cache_protected_len < fill_len(s)),
        implies(d, d.every(s.is_open, s.phase == WAITING, d.no(s.slot_held)), s.output_len == d.zero),
        implies(
            d, appending, d.every(s.cache_protected_len <= s.origin_len, s.slot_cache_protected_len <= s.origin_len)
        ),
        implies(
            d,
            d.every(s.slot_held, s.phase == WAITING, d.no(s.pre_aborted)),
            d.every(
                s.slot_kv_committed_len <= fill_len(s),
                d.some(
                    d.every(s.checkpoint_len < s.slot_kv_committed_len, d.one < fill_len(s)),
                    d.every(s.slot_cache_protected_len <= s.checkpoint_len, _has_nothing_of_this_turn(d, s)),
                ),
            ),
        ),
        implies(
            d,
            d.every(s.slot_held, s.phase == WAITING, s.pre_aborted),
            d.every(s.slot_cache_protected_len <= s.checkpoint_len, _is_as_the_last_turn_left_it(d, s)),
        ),
    )


@auxiliary("X3")
def turn_lengths(d: Domain, s: Ledger) -> Flag:
    """A turn's lengths in each phase: kv_committed_len = kv_allocated_len but for speculation v2, at most two results late.

    Ties lengths, tokens and steps in flight to each other; the guards of decode, result and retract rest on it.
    """
    waiting_matched = d.every(s.phase == WAITING, s.matched, d.no(s.lent))
    exact = s.kv_committed_len == s.kv_allocated_len
    chunks_known = d.every(s.pending >= 0, d.some(d.overlap, s.pending == 0))
    return d.every(
        implies(d, waiting_matched, d.every(s.cache_protected_len == s.prefix_len, s.prefix_len < fill_len(s))),
        implies(
            d,
            d.every(s.phase == WAITING, s.lent),
            d.every(
                s.prefix_len == s.kv_allocated_len,
                s.prefix_len == s.slot_kv_allocated_len,
                s.prefix_len <= s.kv_valid,
                s.prefix_len < fill_len(s),
                s.swa_evicted_seqlen == s.slot_swa_evicted_seqlen,
            ),
        ),
        implies(d, s.phase == PREFILL, d.every(exact, s.kv_committed_len < fill_len(s), chunks_known)),
        implies(d, d.every(s.phase == RUNNING, d.no(d.spec_v2)), exact),
        implies(d, s.phase == RUNNING, d.every(s.pending >= 0, s.pending <= d.where(d.overlap, 2, 1))),
        implies(d, d.every(s.phase == RUNNING, s.pending == 0), d.one <= s.output_len),
        implies(d, d.no(is_live(d, s)), s.pending == 0),
        implies(
            d,
            is_live(d, s),
            d.every(
                s.cache_protected_len < fill_len(s),
                s.kv_valid == s.kv_committed_len,
                s.prefix_len <= s.kv_committed_len,
            ),
        ),
        implies(d, d.every(is_live(d, s), s.lent), s.slot_kv_allocated_len <= s.kv_allocated_len),
        implies(d, d.every(s.phase == WAITING, d.no(s.lent)), s.swa_evicted_seqlen == d.zero),
        implies(d, d.no(s.slot_held), s.slot_swa_evicted_seqlen == d.zero),
        implies(d, s.rows == 0, s.window_start == 0),
    )


@auxiliary("X4")
def effects_write_ghosts(d: Domain, s: Ledger) -> Flag:
    """What is true of rows, pages and tokens is written by effects alone.

    A rule that wrote it itself would be compared with its own claim.
    """
    # Asked of each step.
    return d.true


ALL_INVARIANTS: dict[str, Invariant] = {**INVARIANTS, **AUXILIARY}
