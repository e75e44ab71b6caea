"""The standing benchmark traces: a whole production workload on the reference, at page sizes 1, 16 and 64.

`make bench-traces WORKLOAD=mooncake_conversation.jsonl` (12,031 requests of the Mooncake trace release; sessions are inferred
from prefix chains). Traces are written in columns to benchmarks/traces/, which git ignores; then each is replayed, and
benchmarks/results/traces.md says what is in them. `--scale N` divides the token counts: the same conversations, less time.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from measuring import machine, say, spread

from kvproof.conformance.adapters.reference import record_workload
from kvproof.conformance.adapters.workload import read_workload
from kvproof.conformance.replay.many_traces import Options, coverage_of, judged
from kvproof.conformance.replay.verdict import CONFORMS, Report
from kvproof.conformance.report.show_replay import coverage_json

HERE = Path(__file__).parent
FOLDER = HERE / "traces"
PAGE = HERE / "results" / "traces.md"
PAGE_SIZES = (64, 16, 1)
SCALE = 1
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", type=Path)
    parser.add_argument("--scale", type=int, default=SCALE)
    arguments = parser.parse_args()
    requests = read_workload(arguments.workload, scale=arguments.scale)
    sessions = len({request.session for request in requests} - {None})
    FOLDER.mkdir(exist_ok=True)
    rows, reports = [], []
    for page_size in PAGE_SIZES:
        path = FOLDER / f"{arguments.workload.stem}-{arguments.scale}-pages-of-{page_size}.kvtrace"
        say(f"recording {path.name}")
        began = time.process_time()
        recorded = record_workload(requests, path, page_size=page_size)
        spent = time.process_time() - began
        say(f"replaying {path.name}")
        judged(path, Options())  # once for the start: compiling the checker, or loading it
        replayed = []
        for _ in range(REPEATS):
            began = time.process_time()
            report = judged(path, Options())
            replayed.append(time.process_time() - began)
        assert isinstance(report, Report) and report.verdict == CONFORMS, report
        reports.append(report)
        size = path.stat().st_size
        rows.append(
            f"| {page_size} | {recorded.events:,} | {report.pages_moved:,} | {size / 2**20:.1f} | {spent:,.0f} "
            f"| {spread(replayed, digits=1)} | {spread(report.events / s / 1e6 for s in replayed)} "
            f"| {spread(report.pages_moved / s / 1e6 for s in replayed)} |"
        )
    counts = coverage_json(coverage_of(reports))
    divided = f", token counts divided by {arguments.scale}" if arguments.scale > 1 else ""
    never = [name for name, count in counts["actions"].items() if not count]
    lines = [
        "# The standing benchmark traces",
        "",
        f"Written by `make bench-traces`. {machine()}. {arguments.workload.name}: {len(requests):,} requests in "
        f"{sessions:,} sessions{divided}; processor time of one core, recorded once, "
        f"replayed {REPEATS} times: median (smallest to largest).",
        "",
        "| pages of | events | page moves | MiB in columns | seconds to record | seconds to replay | million events/s "
        "| million page moves/s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *rows,
        "",
        f"All conform. Actions that none of them holds: {', '.join(never)}.",
    ]
    PAGE.write_text("\n".join(lines) + "\n")
    say(f"written: {PAGE.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
