"""A prompt in chunks for which the window pool is too small: it stands still with what it has; for SGLang's environment.

    python drive_standstill.py FOLDER

Prints what is found in the trace of a run in the headless driver, and how often the scheduler found nothing to run in it; then
what is found where it is captured as a server is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from captured import captured

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.record import header_of_run, recording
from kvproof.conformance.adapters.sglang.settings import Settings
from kvproof.conformance.replay.replay import replay
from kvproof.conformance.traces.open_trace import write_trace

SETTINGS = Settings(
    pool_tokens=17,
    max_running_requests=8,
    chunked_prefill_size=1,
    window=1,
    swa_full_tokens_ratio=0.3,
    context_length=36,
)


def stands_still(headless: Headless) -> int:
    headless.open("s")
    headless.send("s/1", 5, 1, session="s")
    return sum(not headless.step() for _ in range(12))


def driven(path: Path) -> int:
    with Headless(SETTINGS) as headless, write_trace(path, header_of_run(headless, "standstill")) as writer:
        with recording(headless, writer) as recorder:
            headless.on_check = lambda busy, passed: recorder.check(busy=busy, passed=passed)
            idle = stands_still(headless)
        writer.close("stuck: s/1")
    return idle


def served(path: Path) -> None:
    with captured(SETTINGS, path) as headless:
        stands_still(headless)


def main() -> None:
    for name, run in (("driven", driven), ("captured", served)):
        path = Path(sys.argv[1]) / f"{name}.jsonl"
        idle = run(path)
        found = [finding.rule for finding in replay(path, profile="auto").findings]
        print(json.dumps({"run": name, "idle": idle, "found": found}))


if __name__ == "__main__":
    main()
