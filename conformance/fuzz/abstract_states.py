"""Abstract states: what a ledger, or the pool, was like behind an event, as far as it can matter to a rule.

Lengths are left out but for how they stand to each other, so there are a few hundred states and not as many as there are runs.
Which were seen, and how often, leads the search to rare ones (`campaign.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

PREFIX = "state: "
"""What tells the name of an abstract state from those of actions, branches and invariants."""
FLAGS = ("inflight", "closing", "slot_held", "attached", "lent")
LENGTHS = ("prefix_len", "cache_protected_len", "swa_evicted_seqlen", "output_len", "checkpoint_len")
"""Told by whether they are zero."""
PAIRS = (
    ("kv_committed_len", "kv_allocated_len"),
    ("cache_protected_len", "kv_committed_len"),
    ("slot_kv_committed_len", "slot_kv_allocated_len"),
    ("slot_kv_committed_len", "checkpoint_len"),
    ("slot_cache_protected_len", "slot_kv_committed_len"),
)
"""Told by which is the larger."""
TERMS = ("available", "evictable", "protected", "session_held", "uncached")
"""Of a memory check, told by whether they are zero."""

State = tuple[Any, ...]


def abstract_states(seen: Iterable[Any]) -> frozenset[str]:
    """The states behind these events, each an object with the fields of docs/events.md, by name."""
    return frozenset(map(_name, {_state(event) for event in seen}))


def _state(event: Any) -> State:
    """Asked of every event, of which there are several a step: so it is written for speed."""
    after, terms = _fields(event, "after"), _fields(event, "terms")
    if not after and not terms:
        return (event.action,)
    seen = after.get
    try:
        return (
            event.action,
            *[seen(name) for name in FLAGS],
            *[None if (there := seen(name)) is None else there > 0 for name in LENGTHS],
            *[
                None if (a := seen(one)) is None or (b := seen(other)) is None else (a > b) - (a < b)
                for one, other in PAIRS
            ],
            *([_is_there(terms.get(name)) for name in TERMS] if terms else ()),
        )
    except TypeError:  # what is no number: the model says so
        return (event.action,)


def _fields(event: Any, name: str) -> Mapping[str, Any]:
    """Of a part of the event, which a target may leave out; what it makes of it wrongly, the model says."""
    part = getattr(event, name, None)
    if type(part) is dict:  # nearly always, and told much faster than that it is a mapping
        return part
    if isinstance(part, Mapping):
        return part
    return dict(part) if isinstance(part, BaseModel) else {}


def _is_there(value: Any) -> bool | None:
    return None if value is None else value > 0


@lru_cache(maxsize=4096)
def _name(state: State) -> str:
    """`state: finish inflight=False … kv_committed_len<kv_allocated_len`, without what was not seen."""
    action, *values = state
    flags = [f"{name}={value}" for name, value in zip((*FLAGS, *LENGTHS), values, strict=False) if value is not None]
    rest = values[len(FLAGS) + len(LENGTHS) :]
    pairs = [f"{a}{'=><'[order]}{b}" for (a, b), order in zip(PAIRS, rest, strict=False) if order is not None]
    terms = [f"{name}={value}" for name, value in zip(TERMS, rest[len(PAIRS) :], strict=False)]
    return PREFIX + " ".join([action, *flags, *pairs, *terms])
