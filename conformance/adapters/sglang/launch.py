"""Runs a command, a server as a rule, with the recorder loaded in all Python processes that it starts.

The recorder comes by way of `preload/sitecustomize.py` on PYTHONPATH, which every release obeys; the Python that runs the
server must be able to import kvproof. Signals are passed on, so what is above (a supervisor, a container) may treat the
launcher as the server.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from kvproof.conformance.adapters.live.live_trace import PATH_VARIABLE, is_being_written
from kvproof.conformance.errors import UserError

PRELOAD = Path(__file__).with_name("preload")
# How long the processes that write may take for their last lines once the server is gone.
WRITERS_SECONDS = 30.0

PASSED_ON = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})
# `si_code` of a signal that the terminal sent: it went to the whole group, so the command has it already.
FROM_THE_TERMINAL = 128


@dataclass(frozen=True)
class Launched:
    exit_code: int
    """of the command; 128 and the number of the signal that ended it, as shells have it"""
    traces: tuple[Path, ...]
    """what the command's schedulers wrote; more than one if it had several"""


def launch(command: list[str], out: Path) -> Launched:
    """Run the command to its end. A trace of an earlier run at `out` is replaced, never one that is being written."""
    _make_room(out)
    earlier = set(traces_at(out))
    path = os.pathsep.join(filter(None, [str(PRELOAD), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, PATH_VARIABLE: str(out.resolve())}
    exit_code = _run(command, environment)
    traces = tuple(path for path in traces_at(out) if path not in earlier)
    deadline = time.monotonic() + WRITERS_SECONDS
    while any(is_being_written(path) for path in traces) and time.monotonic() < deadline:
        time.sleep(0.05)
    return Launched(exit_code, traces)


def traces_at(out: Path) -> list[Path]:
    """The file of that name, and those that got a rank or a process id into it."""
    stem, dot, suffixes = out.name.partition(".")
    found = [out] if out.exists() else []
    return found + sorted(path for path in out.parent.glob(f"{stem}.*{dot}{suffixes}") if path != out)


def _make_room(out: Path) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if not out.exists():
            return
        if not out.is_file():
            raise UserError(f"cannot write the trace {out}: it is not a plain file")
        if is_being_written(out):
            raise UserError(f"{out} is being written by a running server: choose another name, or stop that one first")
        out.unlink()
    except OSError as error:
        raise UserError(f"cannot write the trace {out}: {error.strerror or error}") from error


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run the command in this process group; wait for it and pass signals on."""
    wanted = {*PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    try:
        process = subprocess.Popen(
            command, env=environment, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before)
        )
        while process.poll() is None:
            arrived = signal.sigwaitinfo(wanted)
            if arrived.si_signo != signal.SIGCHLD and arrived.si_code != FROM_THE_TERMINAL:
                process.send_signal(arrived.si_signo)
    except FileNotFoundError as error:
        raise UserError(f"cannot run {command[0]!r}: there is no such command") from error
    except OSError as error:
        raise UserError(f"cannot run {command[0]!r}: {error.strerror or error}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = process.returncode
    return code if code >= 0 else 128 - code
