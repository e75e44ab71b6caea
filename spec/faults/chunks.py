"""Faults of chunked prefill."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.decode import chunk_result
from kvproof.spec.actions.prefill import stash
from kvproof.spec.domain import Domain
from kvproof.spec.effects import DropRow, Generate
from kvproof.spec.faults.fault import fault
from kvproof.spec.state import Ledger


@fault(
    "F17850",
    of="stash",
    needs="chunks",
    source="sglang #17850",
    breaks=("I5", "I1", "I2", "I8", "I10", "I12", "I16"),
)
def row_is_freed_between_chunks(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunked request's row is freed between chunks and taken again.

    Meanwhile the row is anyone's.
    """
    right = stash.run(d, s, p)
    return dataclasses.replace(right, effects=(DropRow(d.true), *right.effects))


@fault(
    "F994d",
    of="chunk_result",
    needs="chunks",
    source="sglang-jax #994",
    breaks=("I22",),
    config={"overlap": True},
)
def later_chunks_look_final(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The chunk counter is raised for the first chunk only: later chunks look final, sample a token and append it."""
    right = chunk_result.run(d, s, p)
    output_len = d.where(s.prefill_known, s.output_len + d.one, s.output_len)
    sampled = Generate(d.where(s.prefill_known, d.one, d.zero))
    return dataclasses.replace(right, after=right.after.but(output_len=output_len), effects=(sampled,))
