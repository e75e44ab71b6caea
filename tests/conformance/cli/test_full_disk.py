"""A trace that cannot be written, by whoever wants nothing but the trace: one line says so, and what is there is readable."""

from __future__ import annotations

import fcntl
import resource
from pathlib import Path

import pytest
from command_line import completed, of_its_own, run

from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.trace import Event

MOST_BYTES = {"t.jsonl": 20_000, "t.jsonl.gz": 1200, "t.kvtrace": 2500}


@pytest.mark.slow
@pytest.mark.parametrize("name", MOST_BYTES)
def test_a_full_disk_is_an_error_in_one_line(tmp_path: Path, name: str) -> None:
    """The limit on the size of a file answers as a full disk does: with an error from write."""
    out = tmp_path / name

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES[name], MOST_BYTES[name]))

    command = of_its_own("record", "-q", "--scenario", "many-sessions", "--page-size", 1, "--out", out)
    done = completed(command, preexec_fn=limited)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: cannot write the trace {out}: File too large\n"
    reader = read_trace(out)
    assert sum(isinstance(record, Event) for _, record in reader) >= (0 if name.endswith(".kvtrace") else 10)
    assert reader.end is None


@pytest.mark.parametrize("name", MOST_BYTES)
def test_a_trace_that_a_server_writes_is_left_alone(tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    out.write_bytes(b"a server's")
    with out.open("rb") as server:
        fcntl.flock(server, fcntl.LOCK_EX)
        done = run("record", "--scenario", "basic", "--out", out)
    assert done.exit_code == 2 and f"{out} is being written by a running server" in done.stderr.replace("\n", " ")
    assert out.read_bytes() == b"a server's"
