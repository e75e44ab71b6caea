"""The same behaviours on every kind of cache, pool and scheduler."""

from __future__ import annotations

from typing import Any

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.scenarios.scenario import ScenarioTable, Session

SCENARIOS = ScenarioTable()


def _every_behaviour(h: Headless, s1: Session, s2: Session, s3: Session) -> None:
    """Sessions with chunked prompts beside ordinary requests; a retract, a too-long turn, aborts in a first and a later turn."""
    for number in (1, 2):
        s1.send(37, 6)
        s2.send(13, 9, logprob=True)
        h.send(f"plain/{number}", 29, 5)
        h.drain()
    s1.send(8, 12)
    s2.start_turn(7, 12, steps=3)
    h.retract()
    h.drain()
    s1.whole_turn(h.settings.context_length + 10, 3)
    s3.start_turn(21)
    s3.abort()
    s3.whole_turn(11)
    s3.start_turn()
    s3.abort()
    s3.whole_turn()
    s2.start_turn()
    s2.close()
    h.drain()


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
    SCENARIOS.add(
        f"matrix-{_name}",
        f"every behaviour of a session, one after the other: {_name}",
        sessions=3,
        chunk=16,
        **_needs,
    )(_every_behaviour)
