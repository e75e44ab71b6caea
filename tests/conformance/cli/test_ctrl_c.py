"""Ctrl-C in the middle of each command that may take long: exit code 130, one line about it, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import completed, of_its_own, run
from many_traces import HEADER
from repository import EXCERPT
from waiting import wait_until

from kvproof.conformance.traces.json_lines import TraceWriter

EVENTS = 600_000
"""Seconds of reading for every command that reads a trace."""


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "t.jsonl"
    with TraceWriter(path, HEADER) as writer:
        writer.event(action="open", session="s")
    head, event, end = path.read_bytes().splitlines(keepends=True)
    with path.open("wb") as file:
        file.write(head)
        for number in range(EVENTS):
            file.write(event.replace(b'"seq":0', b'"seq":%d' % number).replace(b'"s"', b'"s%d"' % number))
        file.write(end.replace(b'"events":1', b'"events":%d' % EVENTS))
    return path


Wanted = Callable[[Path, Path], list[object]]
COMMANDS: dict[str, Wanted] = {
    "prove": lambda trace, out: ["prove", "--no-cache"],
    "prove by two solvers": lambda trace, out: ["prove", "--no-cache", "--certify"],
    "record": lambda trace, out: ["record", "--workload", EXCERPT, "--out", out / "r.jsonl"],
    "replay": lambda trace, out: ["replay", trace, "--checker", "interpreted"],
    "replay by processes": lambda trace, out: ["replay", trace, trace, "--checker", "interpreted", "--jobs", "2"],
    "info": lambda trace, out: ["info", trace],
    "convert": lambda trace, out: ["convert", trace, out / "c.kvtrace"],
    "slice": lambda trace, out: ["slice", trace, "--out", out / "s.jsonl"],
    "fuzz": lambda trace, out: ["fuzz", "--seconds", "60", "--out", out / "f"],
    "fuzz by processes": lambda trace, out: ["fuzz", "--seconds", "60", "--jobs", "2", "--out", out / "f"],
    "shrink": lambda trace, out: ["shrink", trace, "--out", out / "s.jsonl"],
    "explain": lambda trace, out: ["explain", trace, "--html", out / "e.html"],
    "gate": lambda trace, out: ["gate", "--out", out / "g", "--cache", out / "c"],
    "watch": lambda trace, out: ["watch", out / "never.jsonl"],
}


def worked(pid: int) -> float:
    """Seconds of the processor that a process and the threads in it had."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def interrupted(arguments: list[object], after: float) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command that gets Ctrl-C, as a terminal sends it, `after` so many seconds of work.

    On a machine that has other things to do these take longer; a command that only waits works no more.
    """
    process = subprocess.Popen(
        of_its_own(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that starts a command in the background has SIGINT ignored, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        began = time.monotonic()
        wait_until(lambda: worked(process.pid) >= after or time.monotonic() - began > 10 * after, "its work")
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.3, 1.5], ids=["at its start", "in the middle"])
@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_ends_a_command_cleanly(command: str, after: float, long_trace: Path, tmp_path: Path) -> None:
    code, out, err = interrupted(COMMANDS[command](long_trace, tmp_path), after)
    assert code == 130, (code, out, err)
    assert "Traceback" not in err + out, err
    if after > 1:  # before that typer may end it silently
        assert "interrupted" in err + out
    for path in tmp_path.glob("*.jsonl"):
        assert command == "record" and run("info", path).exit_code == 3, (
            "what is half written must not look like a whole"
        )


IMPORTING = """
import builtins, signal, sys
from kvproof.conformance.cli.program import main

def importing(name, *rest):
    if name == {module!r}:
        signal.raise_signal(signal.SIGINT)
    return imported(name, *rest)

imported, builtins.__import__ = builtins.__import__, importing
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["kvproof", "prove"]
main()
"""


@pytest.mark.parametrize("module", ["typer", "kvproof.model.prove"])
def test_ctrl_c_while_the_program_is_imported_is_clean_too(module: str) -> None:
    command = [sys.executable, "-c", IMPORTING.format(module=module)]
    done = completed(command, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")
