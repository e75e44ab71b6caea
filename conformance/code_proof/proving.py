"""All functions of a target: each in a process with bounds, or as it was found out before.

The code is not executed, but what it makes the interpreter and the solver do is up to whoever wrote it. So a process that takes
too much memory or time, or opens a socket, is ended, and its function has no verdict.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing
from math import inf
from multiprocessing.connection import Connection, wait
from typing import Any

from kvproof.conformance.code_proof.findings import Finding, find, moved, names_of, small_runs
from kvproof.conformance.code_proof.kept_answers import Answer, KeptAnswers
from kvproof.conformance.code_proof.targets import Target
from kvproof.conformance.cores import cores
from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.child_process import Child
from kvproof.model.cache import Store
from kvproof.model.code.claims import NOT_UNDERSTOOD, UNKNOWN
from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.reached import SmallRuns
from kvproof.model.code.rests_on import again, read_of
from kvproof.model.code.source import Sources
from kvproof.spec.profiles import PROFILES, Profile

FEWEST_JOBS, MOST_JOBS = 2, 8
"""Processes at once: one for each core, between these."""
MOST_MEMORY = 8 << 30
"""Bytes of address space of one process."""
MOST_NEW_OBJECTS = 20_000
"""Between two searches for garbage. Most objects of a proof are terms, which stay."""
MOST_SECONDS = 300.0
"""For one function."""
DEEPEST_PYTHON = 10_000
LIMITS = f"limits: {MOST_SECONDS:.0f} s and {MOST_MEMORY >> 30} GiB"
NO_ANSWER = f"its process ended without an answer ({LIMITS})"
UNREADABLE = (NotUnderstoodError, RecursionError, MemoryError)
"""What the text of the code can bring about, which its author chooses."""


class Proving:
    """Proves the functions of one target.

    `store`: answers of earlier runs; None asks anew and keeps nothing. `deadline`: by `time.monotonic()`; a function
    without an answer by then has no verdict. `runs`: whether runs that lead to a difference are looked for.
    """

    def __init__(
        self,
        target: Target,
        profile: Profile | None,
        store: Store | None,
        deadline: float = inf,
        runs: bool = True,
    ) -> None:
        self._target, self._profile, self._deadline, self._runs = target, profile, deadline, runs
        self._kept = KeptAnswers(store, Sources(target.tree), profile, runs)

    def all(
        self,
        told: Callable[[int, int], None] = lambda done, of: None,
        wanted: Callable[[str], bool] = lambda name: True,
    ) -> list[Finding]:
        """The findings in the order of the claims. `told`: how many functions are done, of how many. `wanted`: whether one of
        this name is asked at all."""
        waiting: list[Asked] = [NAMES]
        jobs = max(FEWEST_JOBS, min(cores(), MOST_JOBS))
        found: dict[str, Finding] = {}
        with closing(in_processes(waiting, self._child, _lost, jobs=jobs, deadline=self._deadline)) as answers:
            _, all_names = next(answers)
            if isinstance(all_names, str):
                raise UserError(f"{self._target.label} cannot be read: {all_names}")
            names = [name for name in all_names if wanted(name)]
            told(0, len(names))
            for name in names:
                if (kept := self._kept.of_this_tree(name)) is not None:
                    found[name] = kept
                    told(len(found), len(names))
            waiting += [(name, self._kept.of_trees_like_it(name)) for name in names if name not in found]
            for name, answer in answers:
                found[name] = answer.finding
                if answer.read and answer.finding.verdict not in (NOT_UNDERSTOOD, UNKNOWN):
                    self._kept.keep(name, answer)  # what one limit did not show, another may
                told(len(found), len(names))
        return [found[name] for name in names]

    def _child(self) -> Child:
        profile = self._profile.name if self._profile is not None else None
        return Child("kvproof-code", _serve, self._target, profile, self._runs)


Asked = tuple[str, list[Answer]]
"""The name of a function, and what was found out of it in trees that are like this one."""
NAMES: Asked = ("", [])
"""The question for the names of all functions. A process is asked for these as well: even to parse the code may take more than
there is."""


AtWork = dict[Connection, tuple[Child, str, float]]
"""By the end of its pipe each process that was asked: what for, and until when it may take."""


def in_processes(
    waiting: list[Asked],
    start: Callable[[], Child],
    lost: Callable[[str], Any],
    *,
    jobs: int,
    deadline: float,
) -> Generator[tuple[str, Any], None, None]:
    """What processes answer to each name, given what is kept, in the order in which it comes; `lost(name)` for one that ends a
    process. More names may be added between two answers."""
    at_work: AtWork = {}
    idle: list[Child] = []
    try:
        while waiting or at_work:
            while waiting and len(at_work) < jobs:
                _ask(at_work, idle.pop() if idle else start(), *waiting.pop(0), deadline)
            ready, now = wait(list(at_work), 1.0), time.monotonic()
            late = [connection for connection, (_, _, until) in at_work.items() if now > until]
            for connection in [c for c in list(at_work) if c in ready or c in late]:
                child, name, _ = at_work.pop(connection)
                answer = _received(child) if connection in ready else None
                if answer is None:
                    child.end()
                else:
                    idle.append(child)
                yield name, answer[0] if answer is not None else lost(name)
    finally:
        for child in (*idle, *(child for child, _, _ in at_work.values())):
            child.end()


def _lost(name: str) -> Answer | str:
    return Answer(_without_verdict(name, NO_ANSWER), {}) if name else NO_ANSWER


def _ask(at_work: AtWork, child: Child, name: str, kept: list[Answer], deadline: float) -> None:
    child.connection.send((name, kept))
    until = time.monotonic() + MOST_SECONDS
    at_work[child.connection] = child, name, min(until, deadline) if name else until


def _received(child: Child) -> tuple[Any] | None:
    try:
        return (child.connection.recv(),)
    except (EOFError, OSError):
        return None


def _without_verdict(name: str, why: str) -> Finding:
    return Finding(name, name, None, None, NOT_UNDERSTOOD, open=(why,))


def _serve(connection: Connection, target: Target, profile: str | None, runs: bool) -> None:
    """Answers the empty name with all names, and each name with its finding: a kept one that still holds, or a new one."""
    gc.freeze()
    gc.set_threshold(MOST_NEW_OBJECTS)
    sys.addaudithook(_refuse_network)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    sys.setrecursionlimit(DEEPEST_PYTHON)
    sources, rules = Sources(target.tree), PROFILES[profile] if profile is not None else None
    explored = small_runs(rules) if runs else None
    while True:
        name, kept = connection.recv()
        found: Answer | list[str] | str
        try:
            found = _answer(sources, rules, name, kept, explored) if name else names_of(sources, rules)
        except UNREADABLE as error:
            why = str(error) if isinstance(error, NotUnderstoodError) else f"{type(error).__name__}: {error}"
            found = Answer(_without_verdict(name, why), {}) if name else why
        connection.send(found)


def _refuse_network(event: str, arguments: tuple[object, ...]) -> None:
    if event.startswith("socket."):
        raise PermissionError(f"a proof of code has no network: {event}")


def _answer(sources: Sources, rules: Profile | None, name: str, kept: list[Answer], runs: SmallRuns | None) -> Answer:
    for answer in kept:
        now = again(answer.read, sources)
        if now is not None:
            read, shifts = now
            return Answer(moved(answer.finding, shifts), read)
    sources.begin()
    finding = find(sources, rules, name, runs)
    return Answer(finding, read_of(sources))
