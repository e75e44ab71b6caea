"""What each exit code of the command line promises. Nothing checked is never a pass."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The verdicts, and the two ways of not reaching one."""

    PASS = 0
    VIOLATION = 1
    COULD_NOT_RUN = 2
    INCONCLUSIVE = 3
    INTERRUPTED = 130


MEANING: dict[ExitCode, str] = {
    ExitCode.PASS: "everything that was asked for was checked and holds",
    ExitCode.VIOLATION: "an invariant is broken; the report names the event or the counterexample",
    ExitCode.COULD_NOT_RUN: "could not run, or nothing was checked (a wrong argument, an unreadable file)",
    ExitCode.INCONCLUSIVE: "no verdict: a trace is incomplete, a changed rule neither proved nor refuted, a solver gave up",
    ExitCode.INTERRUPTED: "interrupted",
}
