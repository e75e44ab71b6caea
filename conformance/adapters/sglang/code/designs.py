"""Known faults as later releases of SGLang have them: two at once, or by the release's own finish.

Where a function differs from its rule, the faults of the catalogue, other releases' rules and these are tried.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace

from kvproof.spec.actions import ACTIONS, Action, Run, Step
from kvproof.spec.domain import Domain
from kvproof.spec.faults.releases import retracted_as_finished, with_last_token_claimed
from kvproof.spec.profiles import CUTS_BEFORE_CURSOR
from kvproof.spec.state import Ledger


def _claims_last(finish: Run) -> Run:
    return lambda d, s, p: with_last_token_claimed(d, s, p, finish)


def _ends_turn(finish: Run) -> Action:
    def run(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
        return retracted_as_finished(d, s, p, finish)

    return dataclasses.replace(ACTIONS["retract"], run=run)


CLAIMS_LAST = "S0517a"
ENDS_TURN = "S0511a and S0517a"
CUT = "with rows cut below the window cursor at a page boundary"
_FINISH_CUT = _claims_last(CUTS_BEFORE_CURSOR["finish"].run)
DESIGNS: Mapping[str, Mapping[str, Action]] = {
    f"{CLAIMS_LAST}, {CUT}": {"finish": dataclasses.replace(ACTIONS["finish"], run=_FINISH_CUT)},
    ENDS_TURN: {"retract": _ends_turn(_claims_last(ACTIONS["finish"].run))},
}
