"""What is left open where a trace ends: turns that are not over, and closes that wait for one."""

from __future__ import annotations

from collections.abc import Iterator

from kvproof.conformance.replay.replayer import Replayer
from kvproof.spec.liveness import rank
from kvproof.spec.state import NONE, WAITING, Ledger

MAX_NAMED = 4
"""Turns and closes that are named one by one."""


def left_open(replayer: Replayer) -> str:
    """Each turn and each close that is left, as a list in words; empty if all is over."""
    turns = {key: name for name, key in replayer.open_turns().items()}
    left = [
        words
        for key, ledger in sorted(replayer.ledgers.items())
        if rank(replayer.d, ledger) != 0
        for words in _words(key, turns.get(key), ledger)
    ]
    more = f" and {len(left) - MAX_NAMED} more" if len(left) > MAX_NAMED else ""
    return ", ".join(left[:MAX_NAMED]) + more


def _words(key: str, turn: str | None, ledger: Ledger) -> Iterator[str]:
    if ledger.phase != NONE:
        whose = f"turn {turn} of {key}" if key.startswith("session") else key
        yield f"{whose} {'waits' if ledger.phase == WAITING else 'runs'}"
    if ledger.closing:
        yield f"the close of {key} waits"
