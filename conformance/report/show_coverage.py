"""What was exercised, for people: counts by action and invariant, branches of guards that were never taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich.text import Text

from kvproof.conformance.replay.coverage import COUNTED, Coverage, all_branches
from kvproof.conformance.replay.rules_of_trace import rules_of
from kvproof.spec.actions import ACTIONS

OF_A_REPLAY = (*ACTIONS, "evict")


def coverage_lines(coverage: Coverage, profiles: Iterable[str | None] = (None,), *, every: bool = False) -> list[Text]:
    """Three lines; with `every`, one more for each branch. `profiles`: whose rules were judged by."""
    by_action = all_branches(map(rules_of, dict.fromkeys(profiles)))
    branches = [branch for of_one in by_action.values() for branch in of_one]
    judged = [branch for name, of_one in by_action.items() if coverage.actions[name] for branch in of_one]
    taken = sum(coverage.branches[branch] > 0 for branch in branches)
    never = [branch for branch in judged if not coverage.branches[branch]]
    lines = [
        _line("actions", _counted(coverage.actions, OF_A_REPLAY)),
        _line("invariants", _counted(coverage.invariants, COUNTED)),
        _line("guards", f"{taken} of {len(branches)} branches taken; {len(never)} of actions that happened never were"),
    ]
    if every:
        lines += [_line(str(coverage.branches[branch]), branch) for branch in branches]
    return lines


def _line(name: str, text: str) -> Text:
    return Text(f"  {name:<10} {text}", "dim")


def _counted(counts: Counter[str], names: Iterable[str]) -> str:
    """Those that happened with their counts, then those that never did."""
    listed = list(names)
    happened = ", ".join(f"{name} {counts[name]}" for name in listed if counts[name])
    never = [name for name in listed if not counts[name]]
    if not never:
        return happened
    return f"{happened or 'none'}; never {', '.join(never)}"


def as_json(coverage: Coverage, profile: str | None = None) -> dict[str, Any]:
    """Zeros included: what never happened is the point."""
    by_action = all_branches([rules_of(profile)])
    return {
        "actions": {name: coverage.actions[name] for name in OF_A_REPLAY},
        "guards": {branch: coverage.branches[branch] for of_one in by_action.values() for branch in of_one},
        "invariants": {name: coverage.invariants[name] for name in COUNTED},
    }
