"""The real scheduler with real forwards of the tiny model, recorded on a CUDA device, or on the CPU where there is none.

    python record_on_device.py FOLDER

runs in an environment of SGLang. On a device the attention is Triton's, KV and page ids are in its memory, and the recorder
copies ids through pinned memory; on the CPU the same schedules run. Each schedule is recorded twice: event by event, and as a
server's is, where nothing may wait for the device. Exit code 1 if a trace does not conform by the rules of its release, or if the
recorder of a server waited.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from captured import captured

from kvproof.conformance import adapters
from kvproof.conformance.adapters.scenario_run import run_to_its_end
from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.record import record_scenario, settings_for
from kvproof.conformance.adapters.sglang.scenarios import SCENARIOS
from kvproof.conformance.replay.replay import CONFORMS, replay
from kvproof.conformance.report.show_replay import verdict_lines

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# scenario -> settings. Small: the traces are kept and replayed ever after (tests/golden).
RUNS: dict[str, dict[str, Any]] = {
    "basic": {"page_size": 1},
    "many-sessions": {"page_size": 16, "overlap": True},
    "chunked": {"page_size": 4, "chunked_prefill_size": 16},
    "retract": {"page_size": 4, "overlap": True},
    "pressure": {"page_size": 1, "overlap": True},
    "matrix-window-overlap": {"page_size": 4},
}


def main(folder: Path) -> int:
    name = torch.cuda.get_device_name() if DEVICE == "cuda" else "the CPU: there is no CUDA device here"
    print(f"on {name}", flush=True)
    failed = 0
    for scenario, chosen in RUNS.items():
        settings = {**chosen, "device": DEVICE, "real_forward": True}
        recorded, served = (folder / DEVICE / f"{scenario}{kind}.jsonl.gz" for kind in ("", ".served"))
        recorded.parent.mkdir(parents=True, exist_ok=True)
        record_scenario(scenario, recorded, settings=settings)
        waits = record_as_served(scenario, served, settings)
        for path in (recorded, served):
            report = replay(path, profile="auto")
            print(*verdict_lines(report), sep="\n", flush=True)
            failed += report.verdict != CONFORMS
        for wait in sorted(waits):
            print(f"  the recorder waited for the device: {wait}", flush=True)
        failed += bool(waits)
    return 1 if failed else 0


def record_as_served(name: str, path: Path, settings: dict[str, Any]) -> set[str]:
    """Where the recorder waited for the device."""
    scenario = SCENARIOS[name]
    headless = Headless(settings_for(scenario, 1, 0, settings), checks=scenario.checks)
    waits: set[str] = set()
    with captured(headless, path), noting_waits(waits):
        run_to_its_end(scenario, headless)
    return waits


@contextmanager
def noting_waits(waits: set[str]) -> Iterator[None]:
    """SGLang may wait for its device; what is looked for are lines of the adapters."""
    if DEVICE == "cpu":
        yield
        return
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        yield
        torch.cuda.set_sync_debug_mode("default")
    ours = str(Path(adapters.__file__).parent)
    waits |= {
        f"{w.filename}:{w.lineno}" for w in warned if w.filename.startswith(ours) and "synchroniz" in str(w.message)
    }


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
