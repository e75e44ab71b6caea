"""Writes the seeds of the fuzzer anew: short traces of the model, in each form that an input can have.

python tests/untrusted_input/make_seeds.py tests/untrusted_input/corpus
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from model_runs import CONFIGURATIONS, walk

from kvproof.conformance.drive.counterexample import write_witness
from kvproof.conformance.traces.columnar import ColumnarWriter, stream_of_batch
from kvproof.conformance.traces.columnar_blocks import blocks
from kvproof.conformance.traces.columnar_events import batches_of
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.conformance.traces.records import line_of
from kvproof.model.witness import witness
from kvproof.spec.trace import Event


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for seed, config in enumerate(CONFIGURATIONS):
        path = folder / "trace.jsonl"
        steps = [step for step in walk(2, 7, 12, 2, seed, **config) if step[1].params.get("inserted") is not False]
        write_witness(witness(steps, 2, 7, **config), path, {})
        write_seeds(path, folder, seed)
        path.unlink()


def write_seeds(path: Path, folder: Path, seed: int) -> None:
    reader = read_trace(path)
    events = [record for _, record in reader if isinstance(record, Event)]
    lines = b"".join(line_of(event) + b"\n" for event in events)
    end = path.read_bytes().splitlines(keepends=True)[-1]
    columns = folder / "trace.kvtrace"
    with ColumnarWriter(columns, reader.header) as writer:
        for event in events:
            writer.write(event)
    (batch,) = batches_of(events)
    seeds = {
        "lines": b"\0" + path.read_bytes(),
        "behind": b"\1" + lines + end,
        "plain": b"\1" + lines,
        "columns": b"\2" + columns.read_bytes(),
        "payload": b"\3" + len(events).to_bytes(2, "little") + stream_of_batch(batch).to_pybytes(),
        "header": b"\6" + next(blocks(columns.open("rb"))).payload,
    }
    for name, data in seeds.items():
        if seed < 2 or name in ("behind", "payload"):
            (folder / f"{name}-{seed}").write_bytes(data)
    columns.unlink()


if __name__ == "__main__":
    main()
