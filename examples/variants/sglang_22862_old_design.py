"""The first design for sglang #22862: the release frees what it will not hand on. Refuted.

The idea: the extend of the next turn overwrites the row from prefix_len, so pages behind it would be orphaned. They are those
of [committed, allocated). So free them where the turn lets go of its KV (release_kv_cache, on a retract), once; the
match then has nothing to free.

Why it fails: prefix_len is not always the committed length. The match keeps one token back, so that the extend has a logit to
compute. After a retract all tokens may be committed, prefix_len is one less, and where that crosses a page boundary the
last page of the row is overwritten in the page table and never freed.

    kvproof prove --variant examples/variants/sglang_22862_old_design.py
"""

from __future__ import annotations

import dataclasses

from kvproof.spec.actions import ACTIONS, Step
from kvproof.spec.actions.prefill import match_key_len, restored
from kvproof.spec.domain import smaller
from kvproof.spec.effects import Free

SUMMARY = "free [committed, allocated) when a turn is retracted, and nothing when the next one is matched"


def retract(d, s, p):
    """The built-in retract, with one free more: the slot keeps exactly what is committed."""
    step = ACTIONS["retract"].run(d, s, p)
    after = step.after.but(slot_kv_allocated_len=s.kv_committed_len)
    tail = Free(s.kv_committed_len, s.kv_allocated_len)
    return dataclasses.replace(step, after=after, effects=(*step.effects, tail))


def match_slot(d, s, p):
    """Restore the slot, free nothing."""
    prefix_len = smaller(d, s.slot_kv_committed_len, match_key_len(d, s))
    return Step(restored(d, s, prefix_len))


REPLACES = {"retract": retract, "match_slot": match_slot}
