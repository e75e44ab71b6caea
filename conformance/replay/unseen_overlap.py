"""A header that says overlap, and no step that overlaps: by the looser rules for results, a step that never ran is not missed."""

from __future__ import annotations

from collections.abc import Mapping

from kvproof.conformance.replay.coverage import Coverage, decisions_in
from kvproof.conformance.replay.judge import LATE_RESULTS
from kvproof.spec.actions import Action
from kvproof.spec.actions.decode import AT_MOST_ONE_IS_LATE

FEW = 16
"""Steps of a server with overlap that may all have been prepared late: after a prefill of others, or as grammars ask for it."""


def steps_in_turn(coverage: Coverage, actions: Mapping[str, Action]) -> int:
    """Decode steps of a run in which none was prepared before the result of the one before it; 0 if one was."""
    late = early = 0
    for action in actions.values():
        for decision in decisions_in(action):
            if decision.sentence == AT_MOST_ONE_IS_LATE:
                late += coverage.branches[decision.key(0)]
                early += coverage.branches[decision.key(1)]
    return 0 if early or any(coverage.actions[name] for name in LATE_RESULTS) else late
