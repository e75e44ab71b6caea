"""Faults of the end of an ordinary request: what its release frees, and who frees it again."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.finish import finish_plain
from kvproof.spec.domain import Domain, larger, minus
from kvproof.spec.effects import FreeByLoc, Insert
from kvproof.spec.faults.fault import fault, with_parts
from kvproof.spec.state import RUNNING, WAITING, Ledger, fill_len


@fault(
    "F12224",
    of="finish_plain",
    needs="overlap",
    source="sglang #12224",
    breaks=("I16", "I1", "I2"),
    config={"overlap": True},
)
def overlap_frees_its_slot_twice(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The overlap finish branch frees its extra slot by itself as well: a double free.

    It takes what lies behind input + max(output - 1, 0) for the slot of the step in flight; the release frees it again.
    """
    right = finish_plain.run(d, s, p)
    inferred = s.origin_len + minus(d, s.output_len, d.one)
    end = d.where(d.every(d.overlap, s.phase == RUNNING), larger(d, inferred, s.kv_committed_len), inferred)
    return dataclasses.replace(right, effects=(FreeByLoc(inferred, end), *right.effects))


@fault(
    "F994a",
    of="finish_plain",
    needs="chunks, P > 1",
    source="sglang-jax #994",
    breaks=("I16", "I1", "I2"),
    smallest=(2, 4),
)
def duplicates_are_freed_from_the_prefix(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The duplicate free of a finished request starts at len(prefix_indices), not at R.

    The unaligned tail of the prefix is the request's own.
    """
    return with_parts(finish_plain.run(d, s, p), Insert, freed_from=d.ceil_pages(s.prefix_len))


@fault(
    "F994c",
    of="late_result",
    needs="overlap",
    source="sglang-jax #994",
    breaks=("I6", "I1", "I2", "I16", "I17"),
    config={"overlap": True},
)
def late_result_frees_its_slot(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Processing a late result frees its slot by itself.

    It frees out_cache_loc[i], although the release has the page or has freed it.
    """
    has_decoded = d.every(d.one <= s.output_len, fill_len(s) <= s.slot_kv_committed_len)
    waits = d.every(s.phase == WAITING, s.slot_held, has_decoded)
    end = d.where(waits, s.slot_kv_committed_len, d.zero)
    return Step(s, effects=(FreeByLoc(minus(d, end, d.one), end),))
