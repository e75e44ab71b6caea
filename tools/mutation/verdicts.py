"""The verdict on one mutant: the first run on which a check notices it, or that none does.

Each mutant is judged in a fork of a process that has everything loaded and compiled, so that it begins at once and takes nothing
but itself along when it crashes. The fork names each run before it plays it: from one that says nothing for long, it is ended.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection, wait
from types import CodeType, FunctionType
from typing import Any

from rule_mutation.mutant_results import Result

from kvproof.conformance.fuzz.child_process import die_with_parent
from kvproof.conformance.fuzz.judging import NewJudging, Unjudged
from kvproof.conformance.fuzz.play import EXIT, HANG, Trouble
from mutation.in_place import exchange
from mutation.mistakes import NotANumber, Numbers
from mutation.runs import CRASHED, HUNG, Run, noticed_by

KILLED, SURVIVED, EQUIVALENT, NO_MUTANT = "killed", "survived", "equivalent", "no mutant"
NOT_RUN = "no run comes here"
SAME_CODE = "compiles to the same code"
SILENT_SECONDS, POLL_SECONDS = 40.0, 1.0
"""No run takes nearly as long, and inside of it every act has a limit of its own."""
MOST_MEMORY = 16 << 30
"""Bytes of address space of one mutant, libraries and all: a loop that collects for ever ends there."""


@dataclass(frozen=True)
class Case:
    """A mutant, ready to be put in its place, and the runs that come to where it is."""

    key: str
    function: FunctionType
    code: CodeType
    runs: Sequence[int]


@dataclass
class Plan:
    """All runs, and what each told without a mutant."""

    runs: Sequence[Run]
    told: Sequence[str]
    new_judging: NewJudging
    twins: dict[str, Any] = field(default_factory=dict)
    known: Mapping[int, str] = field(default_factory=dict)
    """Of runs that find something without a mutant, its signature: there only another finding notices one."""


def verdict(case: Case, plan: Plan, tell: Any = lambda name: None) -> Result:
    """In a process that ends with it: the mutant stays where it is put. Policies are asked where no other check notices it."""
    numbers = Numbers()
    exchange(case.function, case.code, numbers, plan.twins)
    differs = 0
    try:
        for number in case.runs:
            run = plan.runs[number]
            tell(run.name)
            passed = run.play(plan.new_judging)
            if passed.trouble is not None and passed.trouble.signature != plan.known.get(number):
                return _killed(run, passed.trouble)
            differs += passed.told != plan.told[number]
        for run in (plan.runs[number] for number in case.runs if number not in plan.known):
            if run.with_policies is not None:
                tell(f"{run.name}, policies asked")
                passed = run.with_policies(plan.new_judging)
                if passed.trouble is not None:
                    return _killed(run, passed.trouble)
    except NotANumber:
        return {"outcome": NO_MUTANT}
    if not numbers.seen and _asks_for_numbers(case.code, numbers):
        return {"outcome": NO_MUTANT}
    return {"outcome": SURVIVED, "runs": len(case.runs), "of": len(plan.runs), "differs": differs}


def _killed(run: Run, trouble: Trouble) -> Result:
    """With what would have noticed it if the model had not been asked: the same run is played once more."""
    hangs = trouble.kind == HANG
    without_model = trouble if hangs else run.play(Unjudged).trouble
    return {
        "outcome": KILLED,
        "by": noticed_by(trouble),
        "without_model": "" if without_model is None else noticed_by(without_model),
        "run": run.name,
        "detail": trouble.signature,
    }


def _asks_for_numbers(code: CodeType, numbers: Numbers) -> bool:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return bool(set(code.co_names) & set(numbers.names)) or any(_asks_for_numbers(each, numbers) for each in inner)


@dataclass
class _Judged:
    process: Any
    connection: Connection
    key: str
    since: float
    run: str = ""


def judged(cases: Iterator[Case], plan: Plan, jobs: int) -> Iterator[tuple[str, Result]]:
    """Verdicts as they come, from so many processes at once."""
    context = multiprocessing.get_context("fork")
    at_work: dict[Connection, _Judged] = {}
    try:
        while True:
            for case in islice(cases, jobs - len(at_work)):
                here, there = context.Pipe(duplex=False)
                process = context.Process(target=_serve, args=(case, plan, there), name="kvproof-mutant")
                process.start()
                there.close()
                at_work[here] = _Judged(process, here, case.key, time.monotonic())
            if not at_work:
                return
            ready = wait(list(at_work), POLL_SECONDS)
            for one in [one for connection, one in at_work.items() if connection in ready or not ready]:
                result = _heard(one)
                if result is not None:
                    _end(at_work.pop(one.connection))
                    yield one.key, result
    finally:
        for one in at_work.values():
            _end(one)


def _heard(one: _Judged) -> Result | None:
    """The verdict, if it is there; also where the process died or says nothing any more."""
    try:
        while one.connection.poll():
            said = one.connection.recv()
            if isinstance(said, dict):
                return said
            one.run, one.since = said, time.monotonic()
    except (EOFError, OSError):
        one.process.join(1.0)
        detail = f"{EXIT}: code {one.process.exitcode}"
        return {"outcome": KILLED, "by": CRASHED, "without_model": CRASHED, "run": one.run, "detail": detail}
    if time.monotonic() - one.since > SILENT_SECONDS:
        return {"outcome": KILLED, "by": HUNG, "without_model": HUNG, "run": one.run, "detail": HANG}
    return None


def _end(one: _Judged) -> None:
    one.process.kill()
    one.process.join()
    one.connection.close()


def _serve(case: Case, plan: Plan, connection: Connection) -> None:
    die_with_parent()
    nowhere = os.open(os.devnull, os.O_WRONLY)  # a broken server says much
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    begin = time.perf_counter()
    result = verdict(case, plan, connection.send)
    connection.send({**result, "seconds": round(time.perf_counter() - begin, 2)})
