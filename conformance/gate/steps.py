"""What the gate's steps have in common: what they are given, what they say, and the verdict of all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kvproof.conformance.errors import UserError
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.report.formats.run_events import CouldNot, GateStep, GateVerdict
from kvproof.conformance.report.formats.stream import Stream

if TYPE_CHECKING:
    from kvproof.model.variant import Variant

PROOF, KILLS, GOLDEN, FUZZ = STEPS = ("proof", "kill matrix", "golden traces", "fuzz")
CODE = "code"
"""A step of its own, where a target of `--code` is given."""
PASSED: GateVerdict = "passed"
FAILED: GateVerdict = "failed"
COULD_NOT: GateVerdict = "could not run"
OPEN: GateVerdict = "no verdict"
SKIPPED: GateVerdict = "not asked for"


@dataclass(frozen=True)
class Plan:
    """What is to be gated. `actions`: those that the change is about; None: nothing is known of it, so all."""

    stream: Stream
    deadline: float
    """By `time.monotonic()`: what is not looked at by then has no verdict."""
    cache: Path | None = None
    """Where a solver's answers are kept; None: where they are kept for everybody."""
    variant: Variant | None = None
    code: str | None = None
    """The target whose functions are proved, as `prove --code` takes it."""
    profile: str | None = None
    """Whose rules are proved, and traces and schedules judged by; `auto`: those of the release that a trace or target names."""
    actions: tuple[str, ...] | None = None
    golden: tuple[Path, ...] = ()
    target: str = "reference"
    seconds: float = 20.0
    """Of fuzzing."""
    seed: int = 0
    accepted: frozenset[str] = frozenset()
    """Signatures of what the fuzzer may find: known of the target, and not yet fixed."""
    folder: Path = Path("out/gate")
    show: Callable[[str], None] = field(default=lambda _: None)

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()


@dataclass(frozen=True)
class Outcome:
    """One row of the gate's table. `problems`: what is wrong, one line each."""

    name: str
    verdict: GateVerdict
    detail: str
    problems: tuple[str, ...] = ()
    seconds: float = 0.0


StepFunction = Callable[[Plan], Outcome]


def run_step(name: str, step: StepFunction | None, plan: Plan) -> Outcome:
    """One step, timed and told; None: it is left out. What cannot run does not keep the others from running."""
    plan.show(name)
    begin = time.monotonic()
    try:
        done = step(plan) if step is not None else Outcome(name, SKIPPED, "--skip")
    except UserError as error:
        plan.stream.tell(CouldNot(what=name, why=error.message))
        done = Outcome(name, COULD_NOT, error.message)
    outcome = Outcome(name, done.verdict, done.detail, done.problems, round(time.monotonic() - begin, 1))
    plan.stream.tell(GateStep(name=name, verdict=outcome.verdict, detail=outcome.detail, seconds=outcome.seconds))
    return outcome


def exit_code(outcomes: Sequence[Outcome]) -> ExitCode:
    """That of the worst; and where nothing passed, nothing was checked."""
    verdicts = {outcome.verdict for outcome in outcomes}
    for verdict, code in (
        (FAILED, ExitCode.VIOLATION),
        (COULD_NOT, ExitCode.COULD_NOT_RUN),
        (OPEN, ExitCode.INCONCLUSIVE),
        (PASSED, ExitCode.PASS),
    ):
        if verdict in verdicts:
            return code
    return ExitCode.COULD_NOT_RUN
