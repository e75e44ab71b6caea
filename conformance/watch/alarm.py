"""The alarm of `kvproof watch`: a command of the user's that is run once for each finding.

It runs beside the watch. If it fails, hangs or is slow, that is reported, and stops nothing. Findings may come faster than it
runs, so a few wait and the rest is counted: an alarm that starts a thousand processes would be the greater harm.
"""

from __future__ import annotations

import json
import os
import queue
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kvproof.conformance.errors import UserError

SECONDS = 30.0
"""Time limit of one run."""
MOST_WAITING = 16
PREFIX = "KVPROOF_ALARM_"


class Alarm:
    """Runs `command` (no shell) with the finding as JSON on stdin and its main values in the environment."""

    def __init__(self, command: str, say: Callable[[str], None], seconds: float = SECONDS) -> None:
        try:
            self._arguments = shlex.split(command)
        except ValueError as error:
            raise UserError(f"--alarm {command!r}: {error}") from error
        if not self._arguments:
            raise UserError("--alarm needs a command; for a shell: --alarm \"sh -c '...'\"")
        self._say, self._seconds = say, seconds
        self.run = 0
        self.failed = 0
        self.dropped = 0
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def ring(self, finding: dict[str, Any]) -> None:
        try:
            self._waiting.put_nowait(finding)
        except queue.Full:
            self.dropped += 1
            if self.dropped == 1:
                self._say(f"alarm: findings come faster than it runs; more than {MOST_WAITING} waiting are not told")

    def close(self) -> None:
        """Wait until the alarms that were rung are over, which their time limit bounds."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (finding := self._waiting.get()) is not None:
            self.run += 1
            if problem := self._run(finding):
                self.failed += 1
                self._say(f"alarm: {problem}")

    def _run(self, finding: dict[str, Any]) -> str | None:
        """What went wrong with one run; None: nothing."""
        try:
            process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**os.environ, **_environment(finding)},
                start_new_session=True,  # Ctrl-C is for the watch, and a time limit for all that the command started
            )
        except OSError as error:
            return f"{self._arguments[0]}: {error.strerror or error}"
        try:
            _, complaint = process.communicate(json.dumps(finding, default=str).encode(), timeout=self._seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=1)
            return f"{self._arguments[0]} did not end within {self._seconds:g} s and was killed"
        if process.returncode == 0:
            return None
        last_words = complaint.decode(errors="replace").strip().splitlines()[-1:]
        return f"{self._arguments[0]} exited with {process.returncode}" + "".join(f": {words}" for words in last_words)


def _environment(finding: dict[str, Any]) -> dict[str, str]:
    values = {
        "TRACE": finding["trace"],
        "LINE": finding["line"],
        "SEQ": finding["seq"],
        "ACTION": finding["action"],
        "LEDGER": finding["ledger"],
        "INVARIANTS": " ".join(finding["invariants"]),
        "EXPLAINED_BY": " ".join(finding["explained_by"]),
    }
    return {PREFIX + name: str(value).replace("\0", "") for name, value in values.items()}
