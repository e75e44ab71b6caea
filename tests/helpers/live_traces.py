"""What the tests of live traces put into them, and how they wait for the process that writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from waiting import wait_until

from kvproof.conformance.adapters.live.assembly import DECODE, RESULT
from kvproof.conformance.adapters.live.handover import Handover
from kvproof.conformance.adapters.live.live_trace import is_being_written
from kvproof.conformance.adapters.live.page_ids import PageIds
from kvproof.conformance.adapters.live.readings import SESSION, TURN

OPEN = {"action": "open", "session": "s", "after": {"slot_held": False, "inflight": None}}
CHECK = {"action": "check", "params": {"busy": False}}


def reading(names: tuple[str, ...], **seen: int) -> tuple[int | None, ...]:
    """What an observer hands over: the values of `names` in order, None for what was not seen."""
    return tuple(seen.get(name) for name in names)


def a_decode(step: int) -> tuple[Any, ...]:
    session = ("s", reading(SESSION, closing=False, inflight=True, checkpoint_len=0, slot_held=False))
    lengths = [
        reading(TURN, kv_committed_len=5, kv_allocated_len=5, cache_protected_len=4),
        reading(TURN, kv_committed_len=6, kv_allocated_len=6, cache_protected_len=0),
    ]
    return (DECODE, step, ["a", "b"], [1, 2], lengths, [1, 2], [session, None], ([5, 6], [7, 7], None), None)


def a_result(step: int) -> tuple[Any, ...]:
    return (RESULT, step, ["a", "b"], [1, 2], [2, 2])


def handover_to(pipe: int, **options: int) -> Handover:
    """One whose page ids are there at once."""
    handover = Handover(pipe, **options)
    handover.page_ids = PageIds(4, device_is_host=True)
    return handover


def wait_until_written(path: Path, seconds: float = 30.0) -> None:
    wait_until(lambda: not is_being_written(path), f"the end of {path}", seconds)
