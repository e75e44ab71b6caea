"""What an event is in the world, whatever the rule says that it does: the input that came, the copies that the tree has.

A rule states its effects itself. So a rule that left one out, or that stated another number than the event's, could pass. What
is asked here is asked of every step of the ledger, by its event and its parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from kvproof.spec.actions.action import Action, Step
from kvproof.spec.domain import Domain, Flag, implies
from kvproof.spec.effects import Applied, AskClose, Begin, Condition, Generate, Insert, Report, Succeed, apply_effects
from kvproof.spec.state import FIELD_NAMES, GHOSTS, NONE, Ledger, is_live


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
    given = action.params
    ghosts = _same(d, before, step.after, sorted(GHOSTS))
    yield Condition("I18", _is_cut_short_as_asked(d, before, step, p, given), "only a too long input is cut short")
    yield Condition("X4", ghosts, "a rule writes no ghost itself")
    for effect in step.effects:
        if isinstance(effect, Begin) and "origin_len" in given:
            yield Condition("I22", effect.tokens == p.origin_len, "a turn begins with the input that came")
        if isinstance(effect, Generate) and "tokens" in given:
            yield Condition("I22", effect.tokens == p.tokens, "a turn is given the tokens of the result")
        if isinstance(effect, Succeed) and "finished_len" in given:
            kept = effect.tokens == before.input_len + p.finished_len
            yield Condition("I14", kept, "a session keeps the input and what the client was given")
        if isinstance(effect, AskClose):
            yield Condition("I15", before.turns == 1, "a close waits only for a turn in flight")
        if isinstance(effect, Insert) and "dup_len" in given:
            told = implies(d, effect.when, effect.duplicates == d.floor_pages(p.dup_len))
            yield Condition("I16", told, "every copy of what the tree has is freed")
    if "inserted" in given:
        inserted = d.some(d.false, *(effect.when for effect in step.effects if isinstance(effect, Insert)))
        yield Condition("I16", inserted == p.inserted, "the tree takes pages where the event says so")
    if action.event == "decode":
        in_flight = d.where(before.pending == 0, d.zero, d.drafts)
        written = after.kv_committed_len + d.drafts + in_flight
        positions = implies(d, d.spec_v2, d.ceil_pages(written) <= after.row_end)
        yield Condition("I1", positions, "every position that a round may write has a page")
    if action.event == "retract":
        in_flight = d.every(d.overlap, 1 <= before.pending)
        yield Condition(
            "I18", d.some(before.paid, in_flight), "a retract is paid for with a token since the turn's prefill"
        )
    if action.event == "check":
        reads = d.true if any(isinstance(effect, Report) for effect in step.effects) else d.false
        yield Condition("I2", reads, "the memory check reads its terms")
        yield Condition("I2", _same(d, before, after), "the memory check changes nothing")
    if action.event == "result":
        late = d.true if action.of_another else d.no(is_live(d, before))
        yield Condition(
            "I17", implies(d, late, _same(d, before, after)), "a result that comes too late changes nothing"
        )
    elif action.of_another or (action.event == "create" and not any(isinstance(e, Begin) for e in step.effects)):
        yield Condition("I15", _same(d, before, after), "a turn that is refused changes nothing")


def _is_cut_short_as_asked(d: Domain, before: Ledger, step: Step, p: SimpleNamespace, given: Mapping[str, str]) -> Flag:
    """A turn comes with the answer to whether its input is too long, and keeps it until it ends."""
    answered = "too_long" in given and any(isinstance(effect, Begin) for effect in step.effects)
    asked = p.too_long if answered else before.pre_aborted
    return implies(d, step.after.phase != NONE, step.after.pre_aborted == asked)


def _same(d: Domain, before: Ledger, after: Ledger, fields: tuple[str, ...] | list[str] = FIELD_NAMES) -> Flag:
    return d.every(*(getattr(after, name) == getattr(before, name) for name in fields))
