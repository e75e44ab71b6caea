"""The design that sglang #22862 took: the match frees the tail that the extend is about to overwrite. Proved.

Only the match knows prefix_len, so the free belongs there. It begins at the next page boundary, ceil(prefix_len, P), because
the allocator frees whole pages: from prefix_len itself it would take the page that still holds kept tokens. (Change
`orphan_start(d, prefix_len)` to `prefix_len` below and prove again: refuted for every P > 1, by I4 and more.)

    kvproof prove --variant examples/variants/sglang_22862_new_design.py
"""

from __future__ import annotations

from kvproof.spec.actions import Step
from kvproof.spec.actions.prefill import match_key_len, restored, without_tail
from kvproof.spec.domain import orphan_start, smaller
from kvproof.spec.effects import Free

REPLACES = "match_slot"
SUMMARY = "free [ceil(prefix_len, P), allocated) when the next turn is matched"


def run(d, s, p):
    """Restore the slot; slot and turn end at prefix_len; the whole pages behind it go back to the allocator."""
    prefix_len = smaller(d, s.slot_kv_committed_len, match_key_len(d, s))
    after = without_tail(d, restored(d, s, prefix_len))
    tail = Free(orphan_start(d, prefix_len), s.slot_kv_allocated_len)
    return Step(after, effects=(tail,))
