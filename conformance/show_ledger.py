"""Ledger values in words: which changed, from what to what."""

from __future__ import annotations

from kvproof.spec.state import FIELDS, NONE, PHASE_NAMES, Ledger

_SORTS = {f.name: f.metadata["sort"] for f in FIELDS}
_GHOSTS = {f.name for f in FIELDS if f.metadata["group"] == "ghost"}
_OF_TURN = {f.name for f in FIELDS if f.metadata["group"] == "turn"}


def value(name: str, v: object) -> str:
    """yes and no for flags, names for phases, numbers for the rest; `-` for what is not there."""
    if v is None:
        return "-"
    if isinstance(v, bool):
        return "yes" if v else "no"
    if _SORTS.get(name) == "phase" and isinstance(v, int):
        return PHASE_NAMES[v]
    return str(v)


def changes(before: Ledger, after: Ledger) -> list[str]:
    """`name old → new` for what changed, implementation fields first, the ghosts (what really is) on a line of their own."""
    changed = [n for n in _SORTS if getattr(before, n) != getattr(after, n)]
    seen = [_change(n, before, after) for n in changed if n not in _GHOSTS]
    if before.phase != NONE and after.phase == NONE:
        seen = [_change(n, before, after) for n in changed if n not in _GHOSTS | _OF_TURN] + ["the turn is over"]
    ghosts = [_change(n, before, after) for n in changed if n in _GHOSTS]
    lines = [", ".join(seen)] if seen else []
    return lines + ([f"in truth: {', '.join(ghosts)}"] if ghosts else [])


def _change(name: str, before: Ledger, after: Ledger) -> str:
    return f"{name} {value(name, getattr(before, name))} → {value(name, getattr(after, name))}"
