"""Writes the seeds of the fuzzer anew: short traces of the model, in each form that an input can have.

python tests/untrusted_input/make_seeds.py tests/untrusted_input/corpus
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from model_runs import CONFIGURATIONS
from run_traces import trace_of_walk
from trace_events import copied, events_of

from kvproof.conformance.traces.columnar import stream_of_batch
from kvproof.conformance.traces.columnar_blocks import blocks
from kvproof.conformance.traces.columnar_events import batches_of


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for seed, config in enumerate(CONFIGURATIONS):
        with tempfile.TemporaryDirectory() as apart:
            trace = trace_of_walk(Path(apart) / "t.jsonl", 12, seed, row_width=7, ledgers=2, **config)
            seeds = seeds_of(trace)
        for name, data in seeds.items():
            if seed < 2 or name in ("behind", "payload"):
                (folder / f"{name}-{seed}").write_bytes(data)


def seeds_of(trace: Path) -> dict[str, bytes]:
    """By the form: its number, which `strange_traces.FORMS` gives it, and what is in it."""
    header, *events, end = trace.read_bytes().splitlines(keepends=True)
    columns = copied(trace, trace.with_suffix(".kvtrace"))
    (batch,) = batches_of(events_of(trace))
    with columns.open("rb") as file:
        first = next(blocks(file))
    return {
        "lines": b"\0" + b"".join([header, *events, end]),
        "behind": b"\1" + b"".join([*events, end]),
        "plain": b"\1" + b"".join(events),
        "columns": b"\2" + columns.read_bytes(),
        "payload": b"\3" + len(events).to_bytes(2, "little") + stream_of_batch(batch).to_pybytes(),
        "header": b"\6" + first.payload,
    }


if __name__ == "__main__":
    main()
