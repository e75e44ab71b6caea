"""What an event is in the world, whatever the rule says that it does: the input that came, the tokens that a result gave.

A rule states its effects itself. So a rule that left one out, stated another number than the event's, or had an effect that
is none of the event's, could pass. What is asked here is asked of every step of the ledger, by its event and its parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar

from kvproof.spec.actions.action import Action, Step
from kvproof.spec.batch import LAUNCHES
from kvproof.spec.domain import Domain, Flag, implies, minus, one_page, smaller, window_keep_from
from kvproof.spec.effects import (
    Applied,
    AskClose,
    Begin,
    Condition,
    EndSession,
    Insert,
    Report,
    Succeed,
    Take,
    apply_effects,
)
from kvproof.spec.liveness import rank
from kvproof.spec.state import (
    FIELD_NAMES,
    GHOSTS,
    NONE,
    PREFILL,
    RUNNING,
    WAITING,
    Ledger,
    fill_len,
    is_live,
    owner_is_slot,
)

E = TypeVar("E")
Given = Mapping[str, Any]

ADMITS = ("create", "arrive")
ENDS = ("finish", "abort")
"""Events after which a turn is over."""
LEAVES = (*ENDS, "retract")
"""Events after which a turn no longer runs. The results of its steps in flight come late, if at all."""
REFUSED = ("I15", "a turn that is refused changes nothing")
LATE = ("I17", "a result that comes too late changes nothing")
FALLS_BACK = (*ADMITS, "extend", "decode", "retract")
"""Events after which a turn may be further from its end: the first chunk of two, another step, a retract."""


def take(d: Domain, action: Action, before: Any, step: Step, p: SimpleNamespace) -> Applied:
    """The successor with its ghosts brought up to date, and all that is asked of the step: of its effects and of its event."""
    after, conditions = apply_effects(d, step.after, step.effects)
    if isinstance(before, Ledger):
        conditions += tuple(asked_of_event(d, action, before, step, after, p))
    return after, conditions


def asked_of_event(
    d: Domain, action: Action, before: Ledger, step: Step, after: Ledger, p: SimpleNamespace
) -> Iterator[Condition]:
    """What a step of the ledger must keep beside the conditions of its effects."""
    given = {name: getattr(p, name) for name in action.params}
    yield Condition("X4", _same(d, before, step.after, sorted(GHOSTS)), "a rule writes no ghost itself")
    if action.event == "check":
        yield from _of_the_memory_check(d, before, after, step)
    elif action.of_another:
        yield _changes_nothing(d, before, after, *(LATE if action.event == "result" else REFUSED))
    else:
        yield from _of_a_turn(d, action.event, before, after, step, given)
        yield from _of_the_session(d, action.event, before, after, step)
        yield from _of_its_tokens(d, action.event, before, after, step, given)
        yield from _of_its_pages(d, action.event, before, after, step, given)


def _of_the_memory_check(d: Domain, before: Ledger, after: Ledger, step: Step) -> Iterator[Condition]:
    reads = d.true if _some(step, Report) else d.false
    yield Condition("I2", reads, "the memory check reads its terms")
    yield _changes_nothing(d, before, after, "I2", "the memory check changes nothing")


def _of_a_turn(d: Domain, event: str, before: Ledger, after: Ledger, step: Step, given: Given) -> Iterator[Condition]:
    """A turn begins where one is admitted, ends where it ends, and between these comes nearer to its end."""
    begins = bool(_some(step, Begin))
    if event == "create" and not begins:
        yield _changes_nothing(d, before, after, *REFUSED)
    if begins:
        yield Condition("I15", d.true if event in ADMITS else d.false, "a turn begins where it is admitted")
    asked = [
        after_it == (given[told] if begins and told in given else before_it)
        for told, after_it, before_it in (
            ("too_long", after.pre_aborted, before.pre_aborted),
            ("logprob", after.logprob, before.logprob),
        )
    ]
    is_as_asked = implies(d, after.phase != NONE, d.every(*asked))
    yield Condition("I18", is_as_asked, "a turn is what its client asked for: only a too long input is cut short")
    if event in ENDS:
        yield Condition("I15", d.every(after.phase == NONE), "a turn that finishes or is aborted is over")
    elif event != "close":  # which may abort at once
        leaves = d.every(before.pre_aborted, d.true if event == "match" else d.false)
        goes_on = d.some(before.phase == NONE, after.phase != NONE, leaves)
        yield Condition("I15", goes_on, "a turn is over where it finishes or is aborted, or leaves its session")
    if event == "decode":
        yield Condition("I18", after.pending == before.pending + 1, "a decode step is launched")
    if event == "extend":
        chunk = d.where(d.overlap, before.pending + 1, 0)
        launched = after.pending == d.where(after.phase == RUNNING, 1, chunk)
        yield Condition("I18", launched, "a prefill is launched, and with overlap the result of its chunk comes later")
        yield Condition("I18", before.prefix_len < given["seq_len"], "a prefill runs at least one token")
    if event == "result":
        chunk_is_known = implies(d, before.phase == PREFILL, after.pending == before.pending - 1)
        yield Condition("I18", chunk_is_known, "the result of a chunk is that of one launch")
    if event == "verify":
        yield Condition("I17", before.pending == 0, "a round begins behind a token that is known")
    if event == "retract":
        in_flight = d.every(d.overlap, 1 <= before.pending)
        paid = d.some(before.paid, in_flight)
        yield Condition("I18", paid, "a retract is paid for with a token since the turn's prefill")
        yield Condition("I18", d.every(after.phase == WAITING), "a turn that is retracted is queued again")
    if event not in FALLS_BACK:
        nearer = d.every(rank(d, after) <= rank(d, before))
        yield Condition("I18", nearer, "nothing but a step that is launched, or a retract, takes a turn from its end")


def _of_the_session(d: Domain, event: str, before: Ledger, after: Ledger, step: Step) -> Iterator[Condition]:
    """It is opened and closed where a client asks for that. A close is done at once where no turn is in flight."""
    if event == "open":
        opens = d.every(d.no(before.is_open), after.is_open, d.false if _some(step, EndSession) else d.true)
        yield Condition("I15", opens, "a session that is opened was closed, and is open")
    elif event == "close":
        waits = d.every(before.turns == 1, after.closing)
        yield Condition(
            "I15", d.some(d.no(after.is_open), waits), "a session that is closed ends, or waits for its turn"
        )
    else:
        stays = d.every(after.is_open == before.is_open, after.closing == before.closing)
        ends_it = any(isinstance(effect, EndSession | AskClose) for effect in step.effects)
        yield Condition("I15", d.false if ends_it else stays, "only who opens or closes a session does so")
    if _some(step, AskClose):
        yield Condition("I15", before.turns == 1, "a close waits only for a turn in flight")


def _of_its_tokens(
    d: Domain, event: str, before: Ledger, after: Ledger, step: Step, given: Given
) -> Iterator[Condition]:
    """Tokens come with the input and with results, and their KV with what runs."""
    for begin in _some(step, Begin):
        if "origin_len" in given:
            yield Condition("I22", begin.tokens == given["origin_len"], "a turn begins with the input that came")
        appends = d.some(given.get("too_long", d.true), before.success_len < begin.tokens)
        yield Condition("I14", implies(d, begin.of_session, appends), "a turn of a session appends to what it keeps")
    told = before.generated_len + given.get("tokens", d.zero)
    yield Condition(
        "I22", d.some(after.phase == NONE, after.generated_len == told), "a turn is given the tokens of the result"
    )
    for succeed in _some(step, Succeed):
        kept = d.false
        if event == "finish" and "finished_len" in given:
            kept = d.every(succeed.tokens == before.input_len + given["finished_len"], d.no(before.pre_aborted))
        yield Condition("I14", kept, "a session keeps the input and what the client was given")
    if event == "extend":
        runs = d.every(after.kv_committed_len == given["seq_len"], (after.phase == RUNNING) == given["last"])
        yield Condition("I22", runs, "a prefill runs the tokens of its event, and ends where that says so")
    if event == "result":
        late = implies(d, d.no(is_live(d, before)), _same(d, before, after))
        yield Condition(LATE[0], late, LATE[1])
    if event in LEAVES:
        is_kept = d.every(_last_is_unknown(d, before), after.slot_held)
        kept = implies(d, is_kept, after.kv_valid <= fill_len(before) - d.one)
        yield Condition("I8", kept, "a step that was prepared and does not run leaves no KV")
    computed = before.kv_valid + (d.one if event == "decode" else given.get("tokens", d.zero))
    most = given["seq_len"] if event == "extend" else computed
    yield Condition("I8", after.kv_valid <= most, "only what runs has its KV computed")


def _of_its_pages(
    d: Domain, event: str, before: Ledger, after: Ledger, step: Step, given: Given
) -> Iterator[Condition]:
    """Pages of the tree come with a match, and go to it where the event says what it had already."""
    found = after.prefix_len <= given.get("matched_len", d.zero)
    as_before = d.every(before.matched, after.prefix_len == before.prefix_len)
    waits = d.every(after.phase == WAITING, after.matched, d.no(after.lent))
    matched = implies(d, waits, found if event == "match" else as_before)
    yield Condition("I12", matched, "a turn reuses of the tree no more than its match found")
    for insert in _some(step, Insert):
        had = insert.duplicates == d.floor_pages(given["dup_len"]) if "dup_len" in given else d.false
        yield Condition("I16", implies(d, insert.when, had), "every copy of what the tree has is freed")
        yield Condition("I12", implies(d, insert.when, d.tree), "a chunk cache takes nothing")
        known = d.where(_last_is_unknown(d, before), fill_len(before) - d.one, fill_len(before))
        are_known = implies(d, insert.when, d.tokens(insert.pages) <= known)
        yield Condition("I8", are_known, "the tree takes pages of tokens that are known")
    for taken in _some(step, Take):
        yield Condition("I3", taken.last <= d.ceil_pages(d.row_width), "no page is taken behind the end of the row")
    if event in (*LAUNCHES, "verify"):
        first = before.prefix_len if event == "extend" else before.kv_committed_len
        kept = d.some(after.window_start <= before.window_start, d.tokens(after.window_start) + d.window <= first)
        yield Condition("I9", kept, "what runs keeps the window of its first token")
    keeps_all_but_one = d.every(before.output_len <= given.get("finished_len", before.output_len) + d.one)
    goes_on = implies(d, d.every(d.no(before.plain), keeps_all_but_one, _can_go_on(d, before)), _can_go_on(d, after))
    yield Condition("I9", goes_on, "the window of a session's next token is there")
    if "inserted" in given:
        inserted = d.some(d.false, *(insert.when for insert in _some(step, Insert)))
        yield Condition("I16", inserted == given["inserted"], "the tree takes pages where the event says so")
    if event == "window" and "pre_len" in given:
        # A server may evict late, but not never.
        last = window_keep_from(d, minus(d, given["pre_len"], d.window + one_page(d)))
        kept = d.some(d.floor_pages(last) <= after.window_start, last <= before.cache_protected_len)
        yield Condition("I9", kept, "an eviction leaves at most two windows and two pages")
    if event == "verify":
        end = d.ceil_pages(smaller(d, before.kv_committed_len + d.drafts + d.one, d.row_width))
        has_pages = d.some(end <= before.row_end, *(end <= taken.last for taken in _some(step, Take)))
        yield Condition("I1", has_pages, "every position that a round may write has a page")


def _last_is_unknown(d: Domain, before: Ledger) -> Flag:
    """Whether a turn that leaves has no KV of its last token: without overlap the step that computes it is prepared at most, and
    does not run."""
    return d.every(d.no(d.overlap), before.phase == RUNNING)


def _can_go_on(d: Domain, s: Ledger) -> Flag:
    """Whether the row has the window that its session's next step reads, also if the turn is retracted or its last token is cut.

    A finish may cut more. SGLang keeps no window there: its #22900 moves the cursor, but the pages are gone.
    """
    end = d.tokens(s.window_start) + d.window
    turn_can = d.some(s.phase == NONE, s.pre_aborted, end < s.kv_committed_len, end < fill_len(s))
    slot_can = d.some(d.no(owner_is_slot(d, s)), end <= s.slot_kv_committed_len)
    return d.some(s.window_start <= s.tree_end, d.every(turn_can, slot_can))


def _some(step: Step, kind: type[E]) -> list[E]:
    return [effect for effect in step.effects if isinstance(effect, kind)]


def _changes_nothing(d: Domain, before: Ledger, after: Ledger, invariant: str, sentence: str) -> Condition:
    return Condition(invariant, _same(d, before, after), sentence)


def _same(d: Domain, before: Ledger, after: Ledger, fields: tuple[str, ...] | list[str] = FIELD_NAMES) -> Flag:
    return d.every(*(getattr(after, name) == getattr(before, name) for name in fields))
