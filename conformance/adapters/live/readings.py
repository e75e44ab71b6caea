"""What is read of a turn and of a session, value by value, and what the values are called."""

from __future__ import annotations

from typing import Any

Values = dict[str, Any]
# The values of a reading, in the order of `spec.trace.Observed`. In a reading None means that the value was not observed.
TURN = ("kv_committed_len", "kv_allocated_len", "cache_protected_len")
SESSION = (
    "inflight",
    "closing",
    "checkpoint_len",
    "slot_held",
    "slot_kv_committed_len",
    "slot_kv_allocated_len",
    "slot_cache_protected_len",
    "slot_swa_evicted_seqlen",
)


def named(names: tuple[str, ...], reading: tuple[Any, ...]) -> Values:
    """A reading with its names; what was not observed is left out."""
    return {name: value for name, value in zip(names, reading, strict=True) if value is not None}
