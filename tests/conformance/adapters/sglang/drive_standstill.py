"""Schedulers that stand still: a window pool too small for a prompt, a request kept out; runs in SGLang's environment."""

from __future__ import annotations

from pathlib import Path

from captured import captured

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.record import header_of_run, recording
from kvproof.conformance.adapters.sglang.settings import Settings
from kvproof.conformance.replay.replay import replay
from kvproof.conformance.traces.open_trace import write_trace
from kvproof.spec.trace import STOPPED

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


def found(folder: str) -> tuple[int, list[str], list[str]]:
    """How often a driven scheduler found nothing to run, and what is found in its trace, and in that of a captured one."""
    driven, served = Path(folder) / "driven.jsonl", Path(folder) / "captured.jsonl"
    with Headless(SETTINGS) as headless, write_trace(driven, header_of_run(headless, "standstill")) as writer:
        with recording(headless, writer):
            idle = stands_still(headless)
        writer.close("stuck: s/1")
    with captured(Headless(SETTINGS), served, own_idle_check=True) as headless:
        stands_still(headless)
    of_driven, of_served = ([one.rule for one in replay(path, profile="auto").findings] for path in (driven, served))
    return idle, of_driven, of_served


def kept_out(folder: str) -> list[tuple[str, list[str]]]:
    """A request comes while another runs and its window moves. The verdict as SGLang is, and where it counts no free row."""
    return [_beside_one_that_runs(Path(folder) / f"{counts}.jsonl", counts_rows=counts) for counts in (True, False)]


def _beside_one_that_runs(path: Path, *, counts_rows: bool) -> tuple[str, list[str]]:
    settings = Settings(pool_tokens=2048, window=16, context_length=256, page_size=4)
    with Headless(settings) as headless, write_trace(path, header_of_run(headless, "kept out")) as writer:
        with recording(headless, writer):
            headless.send("a", 40, 150)
            headless.run(3)
            if not counts_rows:
                headless.scheduler.get_num_allocatable_reqs = lambda *_, **__: 0
            headless.send("b", 40, 4)
            headless.run(100)
        writer.close(STOPPED)
    report = replay(path, profile="auto")
    return report.verdict, [f"{one.ledger}: {one.rule}" for one in report.findings]
