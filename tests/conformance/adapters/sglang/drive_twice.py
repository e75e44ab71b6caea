"""Drives scenarios with and without the recorder and compares what came out; run in the environment of SGLang."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from kvproof.conformance.adapters.scenario_run import run_to_its_end
from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.record import header_of_run, recording, scenarios_here, settings_for
from kvproof.conformance.adapters.sglang.scenarios import SCENARIOS
from kvproof.conformance.traces.json_lines import TraceWriter

DRIVEN = ("storm", "retract", "pressure", "many-sessions", "mixed-chunk", "busy-check")
WITH_DRAFTS = (
    "matrix-speculation",
    "matrix-speculation-window",
    "matrix-speculation-v1",
    "matrix-speculation-v1-window",
)


def outcome(name: str, page_size: int, seed: int, record_to: Path | None) -> Any:
    """Everything a client or the allocator could notice."""
    scenario = SCENARIOS[name]
    headless = Headless(settings_for(scenario, page_size, seed, {}), checks=scenario.checks)
    if record_to is None:
        reason = run_to_its_end(scenario, headless)
    else:
        with TraceWriter(record_to, header_of_run(headless, name)) as writer, recording(headless, writer):
            reason = run_to_its_end(scenario, headless)
    outputs = [(reply.rids, reply.output_ids) for reply in headless.replies if hasattr(reply, "output_ids")]
    free_pages = headless.free_pages()
    return reason, headless.steps, outputs, free_pages, list(headless.rows.free_slots), headless.tokens(1)


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    for name in (*DRIVEN, *(name for name in WITH_DRAFTS if name in scenarios_here())):
        for page_size in (1, 4):
            for seed in (0, 1):
                bare = outcome(name, page_size, seed, None)
                recorded = outcome(name, page_size, seed, folder / "trace.jsonl")
                assert bare[2], f"{name} gave no output: nothing was compared"
                assert bare == recorded, f"{name}, page size {page_size}, seed {seed}:\n{bare}\n{recorded}"
    print("same")


if __name__ == "__main__":
    main()
