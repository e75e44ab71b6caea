"""Many traces at once: which files an argument means, who judges which, and one verdict of all.

A trace is what is handed out: ranks and processes share no pages, so each writes a trace of its own, and traces are judged
independently of each other. The order of the reports is that of the files, whoever is done first.
"""

from __future__ import annotations

import glob
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from kvproof.conformance.errors import UserError
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.replay.coverage import Coverage
from kvproof.conformance.replay.replay import Checker, follow_interpreted, replay
from kvproof.conformance.replay.verdict import INCOMPLETE, VIOLATES, Report
from kvproof.conformance.traces.columnar_blocks import COLUMNAR_SUFFIX

SUFFIXES = (".jsonl", ".jsonl.gz", COLUMNAR_SUFFIX)
TRIES = 3
"""How often a trace is begun whose worker died, before it is given up."""
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Options:
    """How each trace is to be judged."""

    strict: bool = False
    checker: Checker = follow_interpreted
    """A process of its own may be handed it: a function of a module, or an object that can be pickled."""
    until: int | None = None
    profile: str | None = None


@dataclass(frozen=True)
class CouldNotJudge:
    """In place of a report: a trace that cannot be read, and why."""

    path: Path
    message: str


Judged = Report | CouldNotJudge
ANSWER: TypeAdapter[Judged] = TypeAdapter(Judged)
"""How an answer is sent between processes: as JSON, so a report is the same whoever made it."""
Told = Callable[[int, int, int], None]
"""Is called with the numbers of events so far, of traces that are done, and of all traces."""


def traces_in(arguments: Iterable[str | Path]) -> list[Path]:
    """The traces that files, folders and patterns name, each once: by argument, and within one by name."""
    found: dict[Path, None] = {}
    for argument in map(str, arguments):
        path = Path(argument)
        if path.is_dir():
            within = sorted(p for p in path.rglob("*") if p.name.endswith(SUFFIXES) and not p.name.startswith("."))
            if not within:
                raise UserError(f"{path}: no trace in this folder ({', '.join(SUFFIXES)})")
        elif not path.exists() and glob.has_magic(argument):
            within = [Path(name) for name in sorted(glob.glob(argument, recursive=True))]  # noqa: PTH207
            if not within:
                raise UserError(f"{argument}: no file matches this pattern")
        else:
            within = [path]
        found.update(dict.fromkeys(within))
    return list(found)


def judged(path: Path, options: Options, progress: Callable[..., None] = lambda *_: None) -> Judged:
    """One trace; an error of the user becomes an answer, so that the others are judged."""
    try:
        return replay(
            path,
            strict=options.strict,
            profile=options.profile,
            checker=options.checker,
            until=options.until,
            progress=progress,
        )
    except UserError as error:
        return CouldNotJudge(path, error.message)


def called(path: Path, answer: Judged) -> Judged:
    """The answer about a trace under the name that the user gave it, wherever it was judged."""
    there = str(answer.path)
    if isinstance(answer, CouldNotJudge):
        return CouldNotJudge(path, answer.message.replace(there, str(path)))
    findings = [replace(finding, path=path) for finding in answer.findings]
    return replace(answer, path=path, why=answer.why.replace(there, str(path)), findings=findings)


_events: Any = None
"""In a worker: the shared numbers of events, one for each trace."""


def _begin_worker(events: Any) -> None:
    global _events
    _events = events
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's, who ends its workers


def _judge_in_worker(number: int, path: str, options: Options) -> Any:
    def progress(events: int, share: float | None = None) -> None:
        _events[number] = events

    return ANSWER.dump_python(judged(Path(path), options, progress), mode="json")


def judge_in_turn(paths: Sequence[Path], options: Options, told: Told) -> list[Judged]:
    """One trace after the other, in this process."""
    answers: list[Judged] = []
    for path in paths:
        before = sum(report.events for report in reports_in(answers))
        answers.append(judged(path, options, lambda n, _, before=before: told(before + n, len(answers), len(paths))))
    return answers


def judge_by_processes(paths: Sequence[Path], options: Options, jobs: int, told: Told) -> list[Judged]:
    """Each trace by one of `jobs` processes. Where one dies the traces that were not done are begun again."""
    done: dict[int, Judged] = {}
    context = multiprocessing.get_context("spawn")
    events = context.Array("q", len(paths), lock=False)
    for _ in range(TRIES):
        left = [n for n in range(len(paths)) if n not in done]
        if not left:
            break
        with ProcessPoolExecutor(min(jobs, len(left)), context, _begin_worker, (events,)) as pool:
            running = {pool.submit(_judge_in_worker, n, str(paths[n]), options): n for n in left}
            try:
                for number, data in _as_they_end(running, lambda: told(sum(events), len(done), len(paths))):
                    done[number] = ANSWER.validate_python(data)
            except BaseException:
                for process in list(pool._processes.values()):
                    process.terminate()
                raise
    for n, path in enumerate(paths):
        if n not in done:
            done[n] = CouldNotJudge(
                path, f"{path}: a worker process died {TRIES} times; try --jobs 1, it may lack memory"
            )
    return [done[n] for n in range(len(paths))]


def _as_they_end(running: dict[Future[Any], int], poll: Callable[[], None]) -> Iterator[tuple[int, Any]]:
    waiting = set(running)
    while waiting:
        ended, waiting = wait(waiting, POLL_SECONDS)
        for future in ended:
            try:
                yield running[future], future.result()
            except BrokenProcessPool:
                continue
        poll()


def coverage_of(answers: Iterable[Judged]) -> Coverage:
    """What all traces together exercised."""
    total = Coverage()
    for report in reports_in(answers):
        total.add(report.coverage)
    return total


def reports_in(answers: Iterable[Judged]) -> list[Report]:
    return [answer for answer in answers if isinstance(answer, Report)]


def exit_code(answers: Sequence[Judged]) -> ExitCode:
    """That of the worst: a violation, then what could not be judged or held nothing, then what is incomplete."""
    reports = reports_in(answers)
    verdicts = {report.verdict for report in reports}
    if VIOLATES in verdicts:
        return ExitCode.VIOLATION
    nothing_checked = any(not report.events and report.verdict != INCOMPLETE for report in reports)
    if len(reports) < len(answers) or nothing_checked:
        return ExitCode.COULD_NOT_RUN
    return ExitCode.INCONCLUSIVE if INCOMPLETE in verdicts else ExitCode.PASS
