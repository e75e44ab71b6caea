"""How a turn ends or is interrupted: finish, retract, abort."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions.action import ActionTable, Guard, Step
from kvproof.spec.actions.prefill import copies_in_the_tree, insert_own
from kvproof.spec.actions.release import release_row, release_slot
from kvproof.spec.domain import Domain, Flag, Length, larger, orphan_start, smaller
from kvproof.spec.effects import End, Forget, Free, Succeed
from kvproof.spec.state import PREFILL, RUNNING, WAITING, Ledger, end_turn, fill_len, is_live

FINISH_ACTIONS = ActionTable()
action = FINISH_ACTIONS.action

KEEPS_SOME = "its next match, of all but the last token, keeps KV of it, and what the tree holds of it"


def kv_of_known_tokens(d: Domain, s: Ledger) -> Length:
    """C once all results are in: every token but the last sampled one has its KV."""
    return fill_len(s) - d.one


def _at_most_one_is_late(d: Domain, s: Ledger) -> Flag:
    """Without overlap every result is known; with it the step in flight may still run."""
    return d.every(d.one <= s.output_len, d.some(s.pending == 0, d.every(d.overlap, s.pending == 1)))


def _is_session_turn(d: Domain, s: Ledger) -> Flag:
    return d.every(s.is_open, is_live(d, s))


def save_slot(d: Domain, s: Ledger) -> Ledger:
    """The slot takes the turn's row and lengths; R and the tree lock only from the first turn."""
    return s.but(
        slot_held=d.true,
        slot_kv_committed_len=s.kv_committed_len,
        slot_kv_allocated_len=s.kv_allocated_len,
        slot_swa_evicted_seqlen=s.swa_evicted_seqlen,
        slot_cache_protected_len=d.where(s.slot_held, s.slot_cache_protected_len, s.cache_protected_len),
    )


def queued_again(d: Domain, s: Ledger) -> Ledger:
    """A retracted turn keeps its tokens and its place; its lengths become 0 and it will be matched again."""
    kept = {name: getattr(s, name) for name in ("plain", "pre_aborted", "logprob", "origin_len", "output_len")}
    return end_turn(d, s).but(phase=WAITING, **kept)


def _is_paid_for(d: Domain, s: Ledger) -> Guard:
    """With it, a turn may be retracted before the result of its prefill is in, as often as that happens."""
    return Guard("without overlap the result of the prefill is known", d.some(d.overlap, s.prefill_known))


def _over(d: Domain, s: Ledger) -> Ledger:
    """The turn ends without success: the marker clears, the checkpoint stays."""
    return end_turn(d, s).but(inflight=d.false)


def _end(d: Domain, s: Ledger) -> End:
    return End(d.no(s.plain))


def slot_has_run_ahead(d: Domain, s: Ledger) -> Flag:
    """The slot holds tokens of a turn that was retracted: more than the checkpoint's."""
    return d.every(s.slot_held, s.checkpoint_len < s.slot_kv_committed_len)


@action(
    "finish",
    when=lambda d, s: d.every(s.is_open, s.phase == RUNNING),
    takes={"finished_len": "length"},
    source="sglang #22790, #22897",
)
def finish(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session turn ends with success and saves its slot.

    It is trimmed to T = O + F; the marker clears, the checkpoint advances (#22790, #22897, #22900). F is what the client was
    given, and may be none: SGLang cuts `max_new_tokens` to 0 where too few pages are left for an answer.
    """
    guards = (
        Guard("at most the step in flight is late", _at_most_one_is_late(d, s)),
        Guard("no more than what was generated is kept", p.finished_len <= s.output_len),
        Guard("a pre-aborted turn never finishes with success", d.no(s.pre_aborted)),
    )
    target = s.origin_len + p.finished_len
    trimmed = s.but(
        kv_committed_len=smaller(d, s.kv_committed_len, target),
        kv_allocated_len=smaller(d, s.kv_allocated_len, target),
        swa_evicted_seqlen=smaller(d, s.swa_evicted_seqlen, target),
    )
    after = end_turn(d, save_slot(d, trimmed)).but(inflight=d.false, checkpoint_len=target)
    tail = Free(orphan_start(d, target), s.kv_allocated_len)
    return Step(after, guards, (tail, Forget(target), Succeed(target), End(d.true)))


@action(
    "finish",
    when=lambda d, s: d.every(s.plain, is_live(d, s)),
    takes={"dup_len": "length", "inserted": "flag"},
    source="sglang #12224",
)
def finish_plain(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An ordinary request ends.

    One release entry: whole committed pages go to the tree (or are freed), the rest is freed, the row returns (#12224).
    """
    pages = d.floor_pages(s.kv_committed_len)
    whole_pages, *of_inserted = copies_in_the_tree(d, s, pages, p.dup_len)
    guards = (
        Guard(
            "no more than the step in flight is late",  # of chunks, results need not be told
            d.some(s.phase == PREFILL, s.pending == 0, d.every(d.overlap, s.pending == 1)),
        ),
        Guard("a chunk cache takes nothing", d.some(d.tree, d.no(p.inserted))),
        whole_pages,
        *(Guard(guard.sentence, d.some(d.no(p.inserted), guard.holds)) for guard in of_inserted),
    )
    own = d.where(p.inserted, d.tokens(pages), s.cache_protected_len)
    insert = insert_own(d, s, p.inserted, pages, p.dup_len)
    return Step(_over(d, s), guards, (insert, *release_row(d, d.true, own, s.kv_allocated_len), _end(d, s)))


@action("retract", when=lambda d, s: d.every(s.is_open, s.phase == RUNNING), source="sglang #22862")
def retract(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session turn is retracted into its slot.

    Pool pressure: the slot keeps the turn's KV, the turn queues again; marker and checkpoint stay.

    A step that was prepared has been launched under overlap, and its result will be dropped, that of the prefill, too.
    Without overlap it never runs, and the position that it claimed stays without KV.
    """
    after = queued_again(d, save_slot(d, s))
    guards = (
        Guard("at most one result is not known", s.pending <= 1),
        _is_paid_for(d, s),
        Guard(KEEPS_SOME, larger(d, d.one, after.slot_cache_protected_len) < fill_len(s)),
        Guard("a pre-aborted turn ends with its prefill", d.no(s.pre_aborted)),
    )
    computed = d.where(d.some(d.overlap, s.pending == 0), s.kv_committed_len, kv_of_known_tokens(d, s))
    return Step(after, guards, (Forget(computed),))


@action("retract", when=lambda d, s: d.every(s.plain, s.phase == RUNNING), source="sglang #12224")
def retract_plain(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An ordinary request is retracted.

    It gives everything back and queues again.
    """
    release = release_row(d, d.true, s.cache_protected_len, s.kv_allocated_len)
    return Step(queued_again(d, s), (_is_paid_for(d, s),), release)


@action("abort", when=lambda d, s: d.every(_is_session_turn(d, s), d.no(s.slot_held)), source="sglang #22790")
def abort_first(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session's first turn is aborted mid-way.

    No slot exists yet: the turn itself returns row, pages and tree lock.
    """
    release = release_row(d, d.true, s.cache_protected_len, s.kv_allocated_len)
    return Step(_over(d, s), effects=(*release, End(d.true)))


@action("abort", when=lambda d, s: d.every(_is_session_turn(d, s), s.slot_held), source="sglang #22790")
def abort_nth(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A later turn is aborted mid-way.

    All that slot and turn hold goes back; the tokens of the checkpoint stay, the next turn prefills from them.
    """
    released, effects = release_slot(d, s, larger(d, s.slot_kv_allocated_len, s.kv_allocated_len))
    return Step(_over(d, released), effects=(*effects, _end(d, s)))


@action("abort", when=lambda d, s: d.every(s.phase == WAITING, d.no(slot_has_run_ahead(d, s))), source="sglang #22790")
def abort_queued(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A queued turn of which the slot holds nothing is aborted.

    The turn never ran, or nothing of it is left: only the marker clears.
    """
    return Step(_over(d, s), effects=(Forget(s.checkpoint_len), _end(d, s)))


@action("abort", when=lambda d, s: d.every(s.phase == WAITING, slot_has_run_ahead(d, s)))
def abort_retracted(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retracted turn is aborted in the queue.

    The turn ran before it was queued again, and the slot holds its tokens: as an n-th abort.
    """
    released, effects = release_slot(d, s, s.slot_kv_allocated_len)
    return Step(_over(d, released), effects=(*effects, _end(d, s)))
