"""The real scheduler with real forwards of the tiny model, recorded on a CUDA device, or on the CPU where there is none.

    python record_on_device.py FOLDER

runs in an environment of SGLang. On a device the attention is Triton's, KV and page ids are in its memory, and the recorder
copies ids through pinned memory; on the CPU the same schedules run. Each trace is replayed by the rules of its release; exit
code 1 if one does not conform.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from kvproof.conformance.adapters.sglang.record import record_scenario
from kvproof.conformance.replay.replay import CONFORMS, replay

# scenario -> settings. Small: the traces are kept and replayed ever after (tests/golden).
RUNS: dict[str, dict[str, Any]] = {
    "basic": {"page_size": 1},
    "many-sessions": {"page_size": 16, "overlap": True},
    "chunked": {"page_size": 4, "chunked_prefill_size": 16},
    "retract": {"page_size": 4, "overlap": True},
    "pressure": {"page_size": 1, "overlap": True},
    "matrix-window-overlap": {"page_size": 4},
}


def main() -> int:
    folder = Path(sys.argv[1])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(
        f"on {torch.cuda.get_device_name() if device == 'cuda' else 'the CPU: there is no CUDA device here'}",
        flush=True,
    )
    (folder / device).mkdir(parents=True, exist_ok=True)
    failed = 0
    for scenario, settings in RUNS.items():
        out = folder / device / f"{scenario}.jsonl.gz"
        result = record_scenario(scenario, out, settings={**settings, "device": device, "real_forward": True})
        report = replay(out, profile="auto")
        failed += report.verdict != CONFORMS
        print(f"{out}: SGLang {result.release}, {result.events} events, {result.reason}: {report.verdict}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
