"""Questions, each in a forked process with a bound on its processor time: a rule may have states without end."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from kvproof.conformance.fuzz.child_process import die_with_parent

Question = TypeVar("Question")
Answer = TypeVar("Answer")
PROCESSES = 2
FORK = multiprocessing.get_context("fork")
"""What this process has loaded, each of its children has: a solver takes longer to load than most questions to answer."""


class _Asked(Generic[Question]):
    """A question, and the process that answers it."""

    def __init__(self, ask: Callable[[Question], object], question: Question, cpu_seconds: int) -> None:
        self.question = question
        self.answer, sender = FORK.Pipe(duplex=False)
        self.process = FORK.Process(target=_answered, args=(ask, question, cpu_seconds, sender))
        self.process.start()
        sender.close()


def answers(
    ask: Callable[[Question], Answer], questions: Iterable[Question], cpu_seconds: int, processes: int = PROCESSES
) -> Iterator[tuple[Question, Answer | None]]:
    """Each question with its answer, as they come; None: none within `cpu_seconds` of processor time.

    An error in `ask` ends the process and is reported on stderr; then there is no answer either.
    """
    waiting = iter(questions)
    asked: list[_Asked[Question]] = []
    while True:
        for question in waiting:
            asked.append(_Asked(ask, question, cpu_seconds))
            if len(asked) == processes:
                break
        if not asked:
            return
        ready = multiprocessing.connection.wait([one.answer for one in asked])
        for one in [one for one in asked if one.answer in ready]:
            asked.remove(one)
            try:
                answer: Answer | None = one.answer.recv()
            except EOFError:
                answer = None
            one.process.join()
            yield one.question, answer


def _answered(
    ask: Callable[[Question], object],
    question: Question,
    cpu_seconds: int,
    sender: multiprocessing.connection.Connection[object, object],
) -> None:
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    sender.send(ask(question))
    sys.stdout.flush()
