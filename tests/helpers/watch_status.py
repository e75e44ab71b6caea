"""The status of a watch with a value in each of its fields: for tests of what draws or exports one."""

from __future__ import annotations

from collections import Counter

from trace_events import HEADER

from kvproof.conformance.replay.owner_counts import Load
from kvproof.conformance.watch.status import FOLLOWING, Status

STATUS = Status(
    "/var/log/kvproof/live.dp0-tp1.jsonl",
    FOLLOWING,
    "conforms",
    HEADER,
    events=1234567,
    rate=103221.4,
    lag_bytes=3 * 2**20,
    lag_seconds=1.25,
    pools={
        "full": {"free": 4000, "tree": 9000, "slots": 1, "running": 3383},
        "window": {"free": 100, "tree": 20, "slots": 40, "running": 40},
    },
    load=Load(120, 30, 4, 17),
    actions=Counter(extend_chunk=1, decode=900000, evict=3),
    compiled=True,
    seconds=61.0,
)
