"""The same behaviours on every kind of cache, pool and scheduler."""

from __future__ import annotations

from typing import Any

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.scenarios.scenario import (
    ScenarioTable,
    close_all,
    start_turn,
    turn,
    whole_turn,
)

SCENARIOS = ScenarioTable()


def _every_behaviour(h: Headless) -> None:
    """Sessions with chunked prompts beside ordinary requests; a retract, a too-long turn, aborts in a first and a later turn."""
    for session in ("s1", "s2", "s3"):
        h.open(session)
    for number in (1, 2):
        h.send(turn("s1", number), 37, 6, session="s1")
        h.send(turn("s2", number), 13, 9, session="s2", logprob=True)
        h.send(f"plain/{number}", 29, 5)
        h.drain()
    h.send(turn("s1", 3), 8, 12, session="s1")
    h.send(turn("s2", 3), 7, 12, session="s2")
    h.run(3)
    with h.force_retract():
        h.step()
    h.drain()
    h.send(turn("s1", 4), h.settings.context_length + 10, 3, session="s1")
    h.drain()
    start_turn(h, "s3", 1, 21)
    h.abort(turn("s3", 1))
    h.drain()
    whole_turn(h, "s3", 2, 11)
    start_turn(h, "s3", 3)
    h.abort(turn("s3", 3))
    h.drain()
    whole_turn(h, "s3", 4)
    start_turn(h, "s2", 4)
    h.close("s2")
    h.drain()
    close_all(h, "s1", "s3")


_ROUNDS = {"overlap": True, "drafts": 2}
_ROUNDS_OF_VERSION_1 = {"drafts": 2}
_MATRIX: dict[str, dict[str, Any]] = {
    "full": {},
    "overlap": {"overlap": True},
    "window": {"window": 16},
    "window-overlap": {"window": 16, "overlap": True},
    "chunk-cache": {"disable_radix_cache": True},
    "chunk-cache-overlap": {"disable_radix_cache": True, "overlap": True},
    "chunk-cache-window": {"disable_radix_cache": True, "window": 16},
    "mixed-overlap": {"mixed_chunk": True, "overlap": True},
    "checked": {"checks": "every"},
    "speculation": _ROUNDS,
    "speculation-window": {**_ROUNDS, "window": 16},
    "speculation-chunk-cache": {**_ROUNDS, "disable_radix_cache": True},
    "speculation-v1": _ROUNDS_OF_VERSION_1,
    "speculation-v1-window": {**_ROUNDS_OF_VERSION_1, "window": 16},
    "speculation-v1-chunk-cache": {**_ROUNDS_OF_VERSION_1, "disable_radix_cache": True},
}
for _name, _needs in _MATRIX.items():
    SCENARIOS.add(f"matrix-{_name}", f"every behaviour of a session, one after the other: {_name}", chunk=16, **_needs)(
        _every_behaviour
    )
