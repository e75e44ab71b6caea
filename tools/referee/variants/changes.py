"""Small changes of a built-in step, for variants. Each file of a variant carries a copy of these functions."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from kvproof.spec.actions import ACTIONS, Guard, Step
from kvproof.spec.domain import Domain, Flag, Length, orphan_start, smaller
from kvproof.spec.effects import DropRow, Effect, End, Forget, Free, Unlock
from kvproof.spec.state import Ledger, end_turn


def built_in(action: str, d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The step of the built-in rule."""
    return ACTIONS[action].run(d, s, p)


def with_fields(step: Step, **fields: Any) -> Step:
    """The same step to a state with other fields."""
    return dataclasses.replace(step, after=step.after.but(**fields))


def without(step: Step, *kinds: type) -> Step:
    """The same step without its effects of these kinds."""
    return dataclasses.replace(step, effects=tuple(e for e in step.effects if not isinstance(e, kinds)))


def with_effects(step: Step, *effects: Effect) -> Step:
    """The same step with more effects, behind its own."""
    return dataclasses.replace(step, effects=(*step.effects, *effects))


def without_guard(step: Step, words: str) -> Step:
    """The same step without the guard whose sentence has these words. Raises ValueError if there is none."""
    kept = tuple(guard for guard in step.guards if words not in guard.sentence)
    if len(kept) == len(step.guards):
        raise ValueError(f"no guard says {words!r}")
    return dataclasses.replace(step, guards=kept)


def with_guard(step: Step, sentence: str, holds: Flag) -> Step:
    """The same step, allowed only where this holds, too."""
    return dataclasses.replace(step, guards=(*step.guards, Guard(sentence, holds)))


def keeps_the_checkpoint(d: Domain, s: Ledger, turn: Ledger, keeps: Flag) -> Step:
    """A turn with these lengths is aborted. If `keeps`, the slot keeps the checkpoint's KV in its row, else it gives all back."""
    length = smaller(d, turn.kv_committed_len, s.checkpoint_len)
    keeps = d.every(keeps, turn.cache_protected_len <= length)
    after = end_turn(d, s).but(
        inflight=d.false,
        slot_held=keeps,
        slot_kv_committed_len=d.where(keeps, length, d.zero),
        slot_kv_allocated_len=d.where(keeps, length, d.zero),
        slot_swa_evicted_seqlen=d.where(keeps, smaller(d, turn.swa_evicted_seqlen, length), d.zero),
        slot_cache_protected_len=d.where(keeps, turn.cache_protected_len, d.zero),
    )
    first = d.where(keeps, orphan_start(d, length), turn.cache_protected_len)
    given_back = (Unlock(d.no(keeps)), Free(first, turn.kv_allocated_len), DropRow(d.no(keeps)))
    return Step(after, effects=(*given_back, Forget(s.checkpoint_len), End(d.true)))


def sixteen_pages(d: Domain) -> Length:
    """Beyond the rows of every small instance."""
    return d.tokens(d.floor_pages(d.zero) + 16)
