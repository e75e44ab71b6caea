"""Faults of forced retracts: requests that are retracted again and again."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.finish import KEEPS_SOME, retract
from kvproof.spec.domain import Domain
from kvproof.spec.faults.fault import fault
from kvproof.spec.progress import Request, force_retract
from kvproof.spec.state import Ledger


def _before_it_keeps_any(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """In a trace: a turn of one token is retracted before its prefill brought it another."""
    right = retract.run(d, s, p)
    return dataclasses.replace(right, guards=tuple(g for g in right.guards if g.sentence != KEEPS_SOME))


@fault(
    "F994e",
    of="force_retract",
    needs="forced retract",
    source="sglang-jax #994",
    breaks=("I18",),
    on_ledgers={"retract": _before_it_keeps_any},
    config={"overlap": True},
)
def retracted_before_it_decodes(d: Domain, s: Request, p: SimpleNamespace) -> Step:
    """Forced retract on every step with prefill allowed: retracted requests prefill again before any decode."""
    return dataclasses.replace(force_retract.run(d, s, p), guards=())
