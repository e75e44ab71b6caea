"""A wrong rule for each side condition that no lemma on pages needs: without the condition the rule would pass.

The lemmas of `model/page_lemmas.py` need what effects ask about pages. Nothing needs what they ask about tokens, rows, locks,
turns and the memory check: that is what the invariants mean. So each such condition has a rule here that breaks it. The proof
fails where a rule breaks nothing, because its condition was lost, and where a condition has no such rule.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import z3

from kvproof.model.arbitrary_step import arbitrary_step
from kvproof.model.page_lemmas import EFFECTS, Universe, conditions
from kvproof.model.questions import Label, Posed, Question
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import ACTIONS, Action, Guard, Run, Step
from kvproof.spec.domain import Count, Domain, Flag, Length, floor_align, larger, minus, one_page, window_keep_from
from kvproof.spec.effects import (
    AskClose,
    Begin,
    DropRow,
    Effect,
    EndSession,
    Free,
    FreeByLoc,
    FreeWindow,
    Generate,
    Insert,
    Report,
    Succeed,
    Take,
    TakeRow,
    Unlock,
    Write,
)
from kvproof.spec.events import asked_of_event
from kvproof.spec.faults.fault import but_after, with_parts
from kvproof.spec.state import PREFILL, RUNNING, WAITING, Ledger, end_turn, fill_len, is_live


@dataclass(frozen=True)
class Twin:
    """A rule in place of the action's, and the condition that it breaks."""

    action: Action
    breaks: Label


TWINS: list[Twin] = []
APPENDS = "a turn of a session appends to what it keeps"
ENDS_OR_WAITS = "a session that is closed ends, or waits for its turn"
EVERY_POSITION = "every position that a round may write has a page"
HAS_WINDOW = "the window of a session's next token is there"
KEEPS = "a session keeps the input and what the client was given"
KNOWN_TOKENS = "the tree takes pages of tokens that are known"
LAUNCHED = "a prefill is launched, and with overlap the result of its chunk comes later"
OPENED = "a session that is opened was closed, and is open"
OVER = "a turn is over where it finishes or is aborted, or leaves its session"
PAID = "a retract is paid for with a token since the turn's prefill"
PREPARED = "a step that was prepared and does not run leaves no KV"
READS = "what runs keeps the window of its first token"
REUSES = "a turn reuses of the tree no more than its match found"
RUNS = "a prefill runs the tokens of its event, and ends where that says so"
TWO_WINDOWS = "an eviction leaves at most two windows and two pages"
WHAT_WAS_ASKED = "a turn is what its client asked for: only a too long input is cut short"


def twin(
    of: str, breaks: str, *sentences: str, when: Callable[[Domain, Ledger], Flag] | None = None
) -> Callable[[Run], Run]:
    """A decorator. `breaks`: the invariant that names each of the conditions; `when`: in other states than the action."""

    def add(rule: Run) -> Run:
        wrong = dataclasses.replace(ACTIONS[of], run=rule, applies=when or ACTIONS[of].applies)
        TWINS.extend(Twin(wrong, (breaks, sentence)) for sentence in sentences)
        return rule

    return add


def twin_questions_of_conditions() -> Iterator[tuple[str, Question]]:
    """What it would mean that a twin breaks nothing, and whether it breaks its condition."""
    for found in TWINS:
        sentence = found.breaks[1]
        said = f"{found.action.name}: no wrong rule breaks '{sentence}'"
        yield said, Question(f"twin: {sentence}", partial(_pose, found))


def _pose(found: Twin) -> Posed:
    step = arbitrary_step(found.action)
    failing = [z3.Not(c.holds) for c in step.conditions if (c.invariant, c.sentence) == found.breaks]
    return Posed((*step.assumptions, step.d.some(*failing)), {})


def conditions_without_a_twin() -> list[str]:
    """Conditions that effects and events state, and that neither a lemma on pages nor a twin needs."""
    needed = {found.breaks for found in TWINS}
    needed |= {_label(name) for effect in EFFECTS for name in conditions(Universe(), effect)}
    return [
        f"nothing needs '{sentence}' ({invariant})"
        for invariant, sentence in dict.fromkeys(stated())
        if (invariant, sentence) not in needed
    ]


def _label(name: str) -> Label:
    sentence, _, invariant = name.removesuffix(")").rpartition(" (")
    return invariant, sentence


def stated() -> Iterator[Label]:
    """All conditions of effects and of events."""
    d = Symbols()
    before, after = d.arbitrary(Ledger), d.arbitrary(Ledger, "'")
    for effect in typing.get_args(Effect):
        sorts = {field.name: str(field.type).lower() for field in dataclasses.fields(effect)}
        given = {name: d.variable(sort, f"@{name}") for name, sort in sorts.items()}
        _, asked = effect(**given).apply(d, before, after)
        yield from ((c.invariant, c.sentence) for c in asked)
    for action in ACTIONS.values():
        params = d.parameters(action.params)
        of_event = asked_of_event(d, action, before, action.run(d, before, params), after, params)
        yield from ((c.invariant, c.sentence) for c in of_event)


# --- Rules ----------------------------------------------------------------------------------------------------------


def _right(action: str, d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return ACTIONS[action].run(d, s, p)


def _and(step: Step, *effects: Effect) -> Step:
    return dataclasses.replace(step, effects=(*step.effects, *effects))


def _where(step: Step, *flags: Flag) -> Step:
    """In such states instead of those of its guards: there no other part of a condition can fail than the one that it breaks."""
    return dataclasses.replace(step, guards=tuple(Guard("the rule is tried in such a state", flag) for flag in flags))


@twin("create", "I15", "no turn is admitted while a close waits for the one in flight")
def admits_while_a_close_waits(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s, effects=(Begin(d.one, d.true),))


@twin("chunk_result", "I22", "a chunk that does not end the input gives no token")
def chunk_gives_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _and(_right("chunk_result", d, s, p), Generate(d.one))


@twin("result", "I22", "no more is accepted than was drafted")
def accepts_whatever_comes(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return dataclasses.replace(_right("result", d, s, p), guards=())


@twin("finish", "I14", "a turn that finishes keeps tokens that it has")
def checkpoint_beyond_the_tokens(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return with_parts(_right("finish", d, s, p), Succeed, tokens=s.origin_len + s.output_len + d.one)


@twin("finish", "I14", "a turn that finishes keeps its whole input")
def checkpoint_stays(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return with_parts(_right("finish", d, s, p), Succeed, tokens=s.checkpoint_len)


@twin("finish", "I14", KEEPS)
def keeps_what_was_behind_a_stop_word(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return with_parts(_right("finish", d, s, p), Succeed, tokens=fill_len(s))


@twin("finish_plain", "I16", "the tree takes pages where the event says so")
def tree_takes_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right = _right("finish_plain", d, s, p)
    return dataclasses.replace(right, effects=tuple(e for e in right.effects if not isinstance(e, Insert)))


@twin("defer_close", "I15", "a session ends when it has no turn in flight")
def busy_session_ends(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s, effects=(EndSession(),))


@twin("close", "I15", "a close waits only for a turn in flight", ENDS_OR_WAITS)
def close_of_an_idle_session_waits(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s.but(closing=d.true), effects=(AskClose(),))


@twin("stash", "I5", "a ledger has at most one row")
def chunk_takes_another_row(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _and(_right("stash", d, s, p), TakeRow(d.true))


@twin("abort_queued", "I16", "a row is returned once")
def queued_turn_returns_a_row(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _and(_right("abort_queued", d, s, p), DropRow(d.true))


@twin("stash", "I5", "a returned row has no user")
def row_is_returned_between_chunks(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _and(_right("stash", d, s, p), DropRow(d.true))


@twin("arrive", "I5", "pages are taken for a row that the ledger has")
def arrival_takes_a_page(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _and(_right("arrive", d, s, p), Take(s.row_end, s.row_end + 1, d.tokens(s.row_end + 1)))


@twin("extend", "I18", "the charge covers what the allocator takes")
def nothing_is_charged(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return with_parts(_right("extend", d, s, p), Take, charge=d.zero)


@twin("extend", "I8", "the reused prefix holds the turn's own tokens")
def reads_what_is_not_written(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return with_parts(_right("extend", d, s, p), Write, start=s.prefix_len + d.one, end=p.seq_len + d.one)


@twin("decode", "I1", "every written position has a page")
def writes_without_a_page(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return with_parts(_right("decode", d, s, p), Take, last=d.ceil_pages(s.kv_allocated_len))


@twin("extend", "I12", "nothing is written into a page that the tree owns")
def writes_from_the_beginning(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return with_parts(_right("extend", d, s, p), Write, start=d.zero)


@twin("match_slot", "I4", "a free starts on a page boundary")
@twin("match_slot", "I6", "no page is freed that the session or its turn still reads")
def tail_begins_inside_a_page(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    step = _right("match_slot", d, s, p)
    return with_parts(step, Free, start=step.after.prefix_len)


@twin("late_result", "I16", "nothing but the release frees a turn's pages")
@twin("late_result", "I6", "no page is freed that is still read")
def late_result_frees_a_slot(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s, effects=(FreeByLoc(d.zero, d.one),))


@twin("evict_window", "I9", "what the window of the next token reaches stays")
def evicts_into_the_window(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    cursor = larger(d, s.swa_evicted_seqlen, s.cache_protected_len)
    moved = larger(d, cursor, floor_align(d, minus(d, p.pre_len, minus(d, d.window, d.one))))
    freed = FreeWindow(d.ceil_pages(cursor), d.floor_pages(moved))
    return Step(s.but(swa_evicted_seqlen=moved), _right("evict_window", d, s, p).guards, (freed,))


@twin("insert", "I8", "what goes to the tree has its KV")
def inserts_what_is_not_written(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """All whole pages that are allocated, those that a round of drafts reserves among them."""
    return with_parts(_right("insert", d, s, p), Insert, pages=d.floor_pages(s.kv_allocated_len))


@twin("close", "I11", "a lock is undone once")
def close_unlocks_twice(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _and(_right("close", d, s, p), Unlock(s.slot_held))


@twin("check", "I2", "one term of the memory check counts each owned page once")
@twin("check", "I2", "and one counts each owned page of the window pool once")
def terms_are_wrong_twice(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    step = _right("check", d, s, p)
    terms = next(effect for effect in step.effects if isinstance(effect, Report))
    held, uncached = terms.session_held + 1, terms.uncached - 1
    windows = {"window_held": terms.window_held + 1, "window_uncached": terms.window_uncached - 1}
    return with_parts(step, Report, session_held=held, uncached=uncached, **windows)


@twin("stash", "X4", "a rule writes no ghost itself")
def says_that_the_tree_owns_all(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(_right("stash", d, s, p).after.but(tree_end=s.row_end))


@twin("create", "I22", "a turn begins with the input that came")
def begins_with_a_token_more(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return with_parts(_right("create", d, s, p), Begin, tokens=p.origin_len + d.one)


@twin("arrive", "I18", WHAT_WAS_ASKED)
def every_request_is_cut_short(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return but_after(_right("arrive", d, s, p), pre_aborted=d.true)


@twin("match_slot", "I18", WHAT_WAS_ASKED)
def later_turn_is_cut_short(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return but_after(_right("match_slot", d, s, p), pre_aborted=d.true)


@twin("result", "I22", "a turn is given the tokens of the result")
def gives_a_token_more(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return with_parts(_right("result", d, s, p), Generate, tokens=p.tokens + d.one)


@twin("insert", "I16", "every copy of what the tree has is freed")
def keeps_the_copies(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return with_parts(_right("insert", d, s, p), Insert, duplicates=d.floor_pages(s.cache_protected_len))


@twin("check", "I2", "the memory check changes nothing")
def check_ends_the_match(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return but_after(_right("check", d, s, p), matched=d.false)


@twin("late_result", "I17", "a result that comes too late changes nothing")
def late_result_ends_the_match(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s.but(matched=d.false))


@twin("refuse", "I15", "a turn that is refused changes nothing")
def refused_turn_forgets_a_match(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s.but(matched=d.false))


@twin("pass_by", "I15", "a turn that is refused changes nothing")
def refused_turn_clears_the_marker(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s.but(inflight=d.false))


@twin("create", "I18", WHAT_WAS_ASKED)
def logprobs_are_forgotten(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return but_after(_right("create", d, s, p), logprob=d.false)


@twin("retract_plain", "I15", "a turn begins where it is admitted")
def retracted_request_begins_anew(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _and(_right("retract_plain", d, s, p), Begin(s.origin_len, d.false))


@twin("abort_queued", "I15", "a turn that finishes or is aborted is over")
@twin("decode", "I18", "a decode step is launched")
@twin("retract", "I18", PAID, "a turn that is retracted is queued again")
@twin("retract_plain", "I18", PAID)
@twin("check", "I2", "the memory check reads its terms")
@twin("evict_window", "I9", TWO_WINDOWS)
@twin("open", "I15", OPENED)
@twin("close", "I15", ENDS_OR_WAITS)
@twin("extend", "I22", RUNS)
def nothing_happens(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s)


@twin("evict_window", "I18", "nothing but a step that is launched, or a retract, takes a turn from its end")
def chunk_is_not_kept(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return but_after(_right("evict_window", d, s, p), prefix_len=d.zero)


@twin("abort_nth", "I15", "only who opens or closes a session does so")
def abort_ends_the_session(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _and(_right("abort_nth", d, s, p), EndSession())


@twin("retract", "I15", "only who opens or closes a session does so")
def retract_asks_for_a_close(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _and(_right("retract", d, s, p), AskClose())


@twin("create", "I14", APPENDS)
def turn_begins_anew(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return dataclasses.replace(_right("create", d, s, p), guards=())


@twin("abort_nth", "I14", KEEPS)
def aborted_turn_is_kept(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _and(_right("abort_nth", d, s, p), Succeed(fill_len(s)))


@twin("stash", "I8", "only what runs has its KV computed")
def next_chunk_counts_as_computed(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _and(_right("stash", d, s, p), Write(s.kv_committed_len, s.kv_committed_len + d.one))


@twin("match_tree", "I12", REUSES)
@twin("arrive", "I12", REUSES)
def match_of_more(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    right = _right("arrive" if "origin_len" in vars(p) else "match_tree", d, s, p)
    return dataclasses.replace(right, after=right.after.but(matched=d.true, prefix_len=d.row_width))


@twin("verify", "I1", EVERY_POSITION)
def takes_pages_of_what_is_accepted(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return with_parts(_right("verify", d, s, p), Take, last=d.ceil_pages(s.kv_committed_len + p.tokens))


@twin("stash", "I16", "every copy of what the tree has is freed")
def chunk_goes_to_the_tree_unasked(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    pages = d.floor_pages(s.kv_committed_len)
    return _and(_right("stash", d, s, p), Insert(d.true, pages, d.floor_pages(d.zero), d.floor_pages(d.zero)))


# --- Rules that break one part of a condition ------------------------------------------------------------------------


@twin("retract", "I18", PAID, when=is_live)
def retract_between_chunks(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _where(Step(s), d.overlap, s.pending == 0)


@twin("defer_close", "I15", ENDS_OR_WAITS)
def close_of_a_busy_session_is_lost(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s)


@twin("create", "I14", APPENDS)
def turn_appends_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _where(with_parts(_right("create", d, s, p), Begin, tokens=s.success_len))


@twin("finish", "I14", KEEPS)
def turn_that_was_cut_short_is_kept(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _where(_right("finish", d, s, p), s.pre_aborted)


@twin("extend", "I22", RUNS)
def last_chunk_does_not_end_the_prefill(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _where(but_after(_right("extend", d, s, p), phase=s.phase), p.last)


@twin("extend", "I22", RUNS)
def prefill_runs_a_token_more(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return but_after(_right("extend", d, s, p), kv_committed_len=p.seq_len + d.one)


@twin("retract", "I12", REUSES)
def retract_matches_the_old_prefix(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return but_after(_right("retract", d, s, p), matched=d.true, prefix_len=s.prefix_len)


@twin("defer_close", "I12", REUSES)
def close_lengthens_a_match(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _where(but_after(_right("defer_close", d, s, p), prefix_len=s.prefix_len + d.one), s.matched)


@twin("evict_window", "I9", TWO_WINDOWS)
def evicts_a_page_less(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    to = d.floor_pages(window_keep_from(d, minus(d, p.pre_len, d.window + one_page(d)))) - 1
    return _where(Step(s, effects=(FreeWindow(s.window_start, to),)), one_page(d) == d.one, s.window_start <= to)


def _takes_to(d: Domain, s: Ledger, p: SimpleNamespace, last: Count, *where: Flag) -> Step:
    return _where(with_parts(_right("verify", d, s, p), Take, last=last), s.row_end <= last, *where)


@twin("verify", "I1", EVERY_POSITION)
def takes_no_page_for_the_last_position(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    end = s.kv_committed_len + d.drafts
    return _takes_to(d, s, p, d.ceil_pages(end), one_page(d) == d.one, end + d.one <= d.row_width)


@twin("verify", "I1", EVERY_POSITION)
def takes_whole_pages_alone(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    end = s.kv_committed_len + d.drafts + d.one
    return _takes_to(d, s, p, d.floor_pages(end), end <= d.row_width)


@twin("verify", "I1", EVERY_POSITION)
def takes_no_page_at_the_end_of_the_row(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    end = s.kv_committed_len + d.drafts + d.one
    return _takes_to(d, s, p, d.ceil_pages(d.row_width) - 1, one_page(d) == d.one, d.row_width < end)


@twin("stash", "I15", OVER)
@twin("chunk_result", "I15", OVER)
@twin("match_tree", "I15", OVER, when=lambda d, s: d.every(s.phase == WAITING, d.no(s.pre_aborted)))
@twin("insert", "I15", OVER, when=lambda d, s: d.every(s.phase == PREFILL, s.pre_aborted))
def turn_is_dropped(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(end_turn(d, s))


@twin("open", "I15", OPENED, when=lambda d, s: s.is_open)
@twin("open", "I15", OPENED, when=lambda d, s: d.no(s.is_open))
def open_session_is_opened_again(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s.but(is_open=d.true), effects=(EndSession(),))


@twin("open", "I15", OPENED, when=lambda d, s: s.is_open)
def open_changes_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s)


@twin("extend", "I18", LAUNCHED)
def chunks_are_counted_once(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _where(but_after(_right("extend", d, s, p), pending=1), d.no(p.last), d.overlap)


@twin("extend", "I18", LAUNCHED)
def result_of_a_chunk_comes_late_without_overlap(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _where(but_after(_right("extend", d, s, p), pending=s.pending + 1), d.no(p.last), d.no(d.overlap))


@twin("extend", "I18", LAUNCHED)
def last_chunk_is_not_launched(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _where(but_after(_right("extend", d, s, p), pending=0), p.last)


@twin("extend", "I18", "a prefill runs at least one token")
def chunk_without_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _where(_right("extend", d, s, p), s.prefix_len == p.seq_len)


@twin("chunk_result", "I18", "the result of a chunk is that of one launch")
def one_result_for_all_chunks(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return but_after(_right("chunk_result", d, s, p), pending=0)


@twin("verify", "I17", "a round begins behind a token that is known")
def round_before_the_prefill_is_known(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _where(_right("verify", d, s, p), s.pending == 1)


@twin("finish", "I8", PREPARED)
@twin("retract", "I8", PREPARED)
@twin("abort_nth", "I8", PREPARED)
def keeps_what_never_ran(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _where(Step(end_turn(d, s)), s.phase == RUNNING, s.pending == 1, d.no(d.overlap))


@twin("finish_plain", "I8", KNOWN_TOKENS)
def tree_takes_what_never_ran(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _where(_right("finish_plain", d, s, p), s.phase == RUNNING, s.pending == 1, d.no(d.overlap))


@twin("finish_plain", "I8", KNOWN_TOKENS)
def tree_takes_a_token_that_nobody_knows(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    step = with_parts(_right("finish_plain", d, s, p), Insert, when=d.true)
    return _where(step, s.phase == RUNNING, s.pending == 2, d.overlap)


@twin("finish_plain", "I12", "a chunk cache takes nothing")
def chunk_cache_takes_pages(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _where(_right("finish_plain", d, s, p), d.no(d.tree))


@twin("verify", "I3", "no page is taken behind the end of the row")
def round_takes_pages_behind_the_row(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    end = s.kv_committed_len + d.drafts + d.one
    return _takes_to(d, s, p, d.ceil_pages(end), d.every(end == d.row_width + d.one, one_page(d) == d.one))


def _evicts(d: Domain, step: Step, s: Ledger, first: Length, *where: Flag) -> Step:
    """One page more is evicted than the first token that runs can spare."""
    last = d.floor_pages(minus(d, first, d.window)) + 1
    states = (d.windowed, one_page(d) <= d.window, d.window < first, s.window_start < last)
    return _where(_and(step, FreeWindow(s.window_start, last)), *states, *where)


@twin("decode", "I9", READS)
def decode_evicts_what_it_reads(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _evicts(d, _right("decode", d, s, p), s, s.kv_committed_len)


@twin("verify", "I9", READS)
def round_evicts_what_it_reads(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _evicts(d, _right("verify", d, s, p), s, s.kv_committed_len)


@twin("extend", "I9", READS)
def chunk_evicts_what_it_reads(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return _evicts(d, _right("extend", d, s, p), s, s.prefix_len, s.prefix_len + one_page(d) <= s.kv_committed_len)


@twin("abort_nth", "I9", HAS_WINDOW)
def slot_lacks_a_token_of_the_window(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    end, kept = d.tokens(s.window_start) + d.window, s.checkpoint_len
    slot = end_turn(d, s).but(slot_kv_committed_len=kept)
    return _where(Step(slot), end < s.kv_committed_len, end == kept + d.one)


@twin("finish", "I9", HAS_WINDOW)
def finish_evicts_what_comes_next(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    kept, last = s.origin_len + p.finished_len, s.window_start + 1
    step = _and(_right("finish", d, s, p), FreeWindow(s.window_start, last))
    return _where(step, s.output_len == p.finished_len + d.one, d.tokens(s.window_start) + d.window == kept)
