"""Values of a state in words: which changed, from what to what."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kvproof.spec.state import FIELDS, NONE, PHASE_NAMES

_SORTS = {f.name: f.metadata["sort"] for f in FIELDS}


def value(name: str, v: object) -> str:
    """yes and no for flags, names for phases, numbers for the rest; `-` for what is not there."""
    if v is None:
        return "-"
    if isinstance(v, bool):
        return "yes" if v else "no"
    if _SORTS.get(name) == "phase" and isinstance(v, int):
        return PHASE_NAMES[v]
    return str(v)


def action_in_words(name: str, params: Mapping[str, object]) -> str:
    """An action as a call, with the parameters that it was given."""
    given = ", ".join(f"{name}={value(name, v)}" for name, v in params.items() if v is not False)
    return f"{name}({given})"


def changes(before: Any, after: Any) -> list[str]:
    """`name old → new` for what changed, implementation fields first, the ghosts (what really is) on a line of their own."""
    changed = [f for f in dataclasses.fields(before) if getattr(before, f.name) != getattr(after, f.name)]
    ended = getattr(before, "phase", NONE) != NONE and after.phase == NONE
    hidden = {"ghost", "turn"} if ended else {"ghost"}
    seen = [_change(f.name, before, after) for f in changed if f.metadata["group"] not in hidden]
    ghosts = [_change(f.name, before, after) for f in changed if f.metadata["group"] == "ghost"]
    seen += ["the turn is over"] if ended else []
    lines = [", ".join(seen)] if seen else []
    return lines + ([f"in truth: {', '.join(ghosts)}"] if ghosts else [])


def _change(name: str, before: Any, after: Any) -> str:
    return f"{name} {value(name, getattr(before, name))} → {value(name, getattr(after, name))}"
