"""Files that deceive the proof: effects of their own, rules that know who asks."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from kvproof.spec.actions import Step
from kvproof.spec.domain import Domain, orphan_start, smaller
from kvproof.spec.effects import DropRow, Free, Unlock
from kvproof.spec.state import Ledger
from referee.cases import Variants
from referee.variants.changes import built_in, with_effects, with_fields, without

DECEITS = Variants("a file that deceives")


@DECEITS.wrong("finish", must="I4, or refused: an effect of its own")
def free_that_asks_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A free of its own states no condition, and frees the tail a second time: two requests get its pages."""

    class QuietFree(Free):
        def apply(self, d: Domain, s: Ledger, after: Ledger) -> Any:
            return super().apply(d, s, after)[0], ()

    again = QuietFree(orphan_start(d, s.origin_len + p.finished_len), s.kv_allocated_len)
    return with_effects(built_in("finish", d, s, p), again)


@DECEITS.wrong("close", must="I11, or refused: an effect of its own")
def unlock_that_undoes_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An unlock of its own counts as one and undoes nothing: the prefix is locked for ever."""

    class NoUnlock(Unlock):
        pass

    right = built_in("close", d, s, p)
    return dataclasses.replace(
        right, effects=(NoUnlock(s.slot_held), *(e for e in right.effects if not isinstance(e, Unlock)))
    )


@DECEITS.wrong("finish_plain", must="refused, or the two interpreters disagree")
def rule_that_knows_its_judge(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The rule is right on symbols and returns no row on numbers: what is proved is not what is replayed."""
    right = built_in("finish_plain", d, s, p)
    return right if type(d).__name__ == "Symbols" else without(right, DropRow)


@DECEITS.wrong("match_slot", must="refused, or I4")
def rule_that_changes_by_the_call(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The rule is right when it is asked first and wrong later: no proof is about what runs."""
    calls = vars(built_in).setdefault("calls", [])
    calls.append(1)
    right = built_in("match_slot", d, s, p)
    if len(calls) == 1:
        return right
    return with_effects(without(right, Free), Free(right.after.prefix_len, s.slot_kv_allocated_len))


@DECEITS.wrong("finish", must="I4, or refused: the rules are not its own")
def rule_that_switches_conditions_off(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The rule replaces a function of kvproof, so that no free has a condition, and then frees its tail twice."""
    apply = Free.apply
    if apply.__name__ == "apply":

        def unasked(self: Free, d: Domain, s: Ledger, after: Ledger) -> Any:
            return apply(self, d, s, after)[0], ()

        type.__setattr__(Free, "apply", unasked)
    again = Free(orphan_start(d, s.origin_len + p.finished_len), s.kv_allocated_len)
    return with_effects(built_in("finish", d, s, p), again)


@DECEITS.wrong("match_slot", must="refused: a rule reads no ghost")
def match_reads_what_is_valid(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The match reuses as much as really is valid, by a ghost that no server has: nobody can build this rule."""
    right = built_in("match_slot", d, s, p)
    prefix = smaller(d, right.after.prefix_len, s.kv_valid)
    return with_fields(right, prefix_len=smaller(d, prefix, right.after.prefix_len))


@DECEITS.wrong("abort_first", must="refused: a rule reads no ghost")
def abort_reads_what_is_there(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An abort frees the pages that a ghost counts, whatever its own lengths say: nobody can build this rule."""
    right = built_in("abort_first", d, s, p)
    rest = Free(d.tokens(s.tree_end), d.tokens(s.row_end))
    return dataclasses.replace(right, effects=(Unlock(d.true), rest, DropRow(d.true)))


@DECEITS.wrong("refuse", must="refused: a rule reads no ghost")
def refusal_by_a_ghost(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A second turn is refused only if a ghost says that one runs; else the marker is cleared: nobody can build it."""
    return with_fields(built_in("refuse", d, s, p), inflight=s.turns == 1)
