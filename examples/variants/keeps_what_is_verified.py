"""With speculation a session keeps the KV that its rounds have verified, and frees what lies behind it. Proved.

SGLang 0.5.23 counts all tokens of a turn as computed, also the one whose KV only the round in flight would write, and perhaps no
round is in flight (docs/findings/last_token_without_kv.md). Here a turn that finishes or is retracted leaves that token out:
lengths, window cursor and row are cut, so the next turn computes it again. As in SGLang, a row that is cut below the window
cursor is cut at a page boundary.

    kvproof prove --variant examples/variants/keeps_what_is_verified.py
"""

from __future__ import annotations

from kvproof.spec.actions import ACTIONS, Step
from kvproof.spec.domain import orphan_start, smaller
from kvproof.spec.effects import Forget, Free
from kvproof.spec.profiles import cut_before_cursor

SUMMARY = "a session keeps what was verified, and not the token of a round in flight"


def verified(d, s):
    is_round = d.every(d.spec_v2, d.no(s.pending == 0), d.one <= s.output_len)
    return d.where(is_round, s.kv_committed_len - d.one, s.kv_committed_len)


def cut(d, s, step, kept):
    """The slot's lengths end where `kept` does, or at the page boundary below, and the pages behind it are freed."""
    kept = cut_before_cursor(d, kept, s.swa_evicted_seqlen)
    after = step.after.but(
        slot_kv_committed_len=kept,
        slot_kv_allocated_len=smaller(d, s.kv_allocated_len, kept),
        slot_swa_evicted_seqlen=smaller(d, s.swa_evicted_seqlen, kept),
    )
    others = [effect for effect in step.effects if not isinstance(effect, (Free, Forget))]
    return Step(after, step.guards, (Free(orphan_start(d, kept), s.kv_allocated_len), Forget(kept), *others))


def finish(d, s, p):
    kept = smaller(d, verified(d, s), s.origin_len + p.finished_len)
    return cut(d, s, ACTIONS["finish"].run(d, s, p), kept)


def retract(d, s, p):
    return cut(d, s, ACTIONS["retract"].run(d, s, p), verified(d, s))


REPLACES = {"finish": finish, "retract": retract}
