"""Plays a schedule on a target, judges every event as it happens, and says what went wrong first."""

from __future__ import annotations

import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.judging import Judging, NewJudging
from kvproof.conformance.fuzz.schedule import Act, Schedule
from kvproof.conformance.fuzz.target import Target, TargetRun
from kvproof.conformance.replay.coverage import Coverage
from kvproof.conformance.replay.kept_types import Text
from kvproof.conformance.replay.replayer import STANDSTILL
from kvproof.conformance.replay.verdict import Finding
from kvproof.spec.trace import Event, Header

STEP_SECONDS = 10.0
"""What one act, or one step, may take."""
START_SECONDS = 180.0
"""What the start of a target may take."""
DRAIN_STEPS, DRAIN_STEPS_PER_TOKEN = 500, 8
"""No load takes nearly as many steps to its end: each token is one step, and may be done again after a retract."""

VIOLATION, OWN_CHECK, CRASH, HANG, STUCK, LEAK = "violation", "own check", "crash", "hang", "stuck", "not returned"
EXIT = "exit"


@dataclass(frozen=True)
class Trouble:
    """What went wrong first. `signature` is the same for what is the same."""

    kind: Text
    signature: Text
    sentence: Text
    faults: tuple[Text, ...] = ()
    """Known faults that explain it."""
    finding: Finding | None = None
    trace: Text = ""
    """Where it was raised, for what was raised; what waits for what, where nothing continues."""
    after: tuple[Text, ...] = ()
    """Known deviations of the target that were met before, and followed: what nothing else explains may come of them."""


class Heard(Protocol):
    """What a target told, and what of the model it exercised."""

    @property
    def events(self) -> list[Event]: ...
    @property
    def seen(self) -> int: ...
    @property
    def coverage(self) -> Coverage: ...
    @property
    def states(self) -> frozenset[str]: ...


@dataclass
class Played:
    schedule: Schedule
    header: Header | None
    """None: the target did not come as far as to say one."""
    judging: Heard | None
    steps: int
    trouble: Trouble | None = None

    @property
    def events(self) -> list[Event]:
        """Up to the first that the model does not allow."""
        return [] if self.judging is None else self.judging.events

    @property
    def seen(self) -> int:
        """How many events."""
        return 0 if self.judging is None else self.judging.seen

    @property
    def coverage(self) -> Coverage:
        return Coverage() if self.judging is None else self.judging.coverage

    @property
    def states(self) -> frozenset[str]:
        """Abstract states that were seen, by name."""
        return frozenset() if self.judging is None else self.judging.states


class Hung(BaseException):
    """A step took too long. No Exception: a target that catches everything must not catch this."""


def play(
    schedule: Schedule, target: Target, *, step_seconds: float = STEP_SECONDS, new_judging: NewJudging = Judging
) -> Played:
    """Play all acts, then wait until all is over, close every session, and see that everything is back.

    Stops at the first trouble. Raises UserError if the settings cannot work. What the target's own checks found the model may
    explain a little later: then the schedule is played once more without them, so that a known fault is named.
    """
    played = _play(schedule, target, step_seconds, new_judging, own_checks=True)
    trouble = played.trouble
    if trouble is not None and trouble.kind == OWN_CHECK:
        later = _play(schedule, target, step_seconds, new_judging, own_checks=False).trouble
        if later is not None and later.faults:
            signature = f"{trouble.signature} ({later.faults[0]})"
            played.trouble = replace(trouble, faults=later.faults, signature=signature)
    return played


def _play(
    schedule: Schedule, target: Target, step_seconds: float, new_judging: NewJudging, *, own_checks: bool
) -> Played:
    heard: list[Judging] = []
    with alarms():
        try:
            with alarm(START_SECONDS):
                run = target.start(
                    schedule.settings, schedule.faults, lambda event: heard[0].see(event), own_checks=own_checks
                )
        except UserError:
            raise
        except (Exception, SystemExit, Hung) as error:
            return Played(schedule, None, None, 0, _raised(error, "the start", START_SECONDS))
        judging = new_judging(run.header, schedule.profile)
        heard.append(judging)
        player = _Player(run, judging, schedule, step_seconds, target.sessions_may_fill_it)
        trouble = player.trouble_of(target)
    return Played(schedule, run.header, judging, player.steps, trouble)


class Wrong(Exception):
    """What the player itself sees: nobody comes to an end, or not all came back."""

    def __init__(self, kind: str, sentence: str, signature: str) -> None:
        super().__init__(sentence)
        self.kind, self.signature = kind, signature


@dataclass
class _Player:
    run: TargetRun
    judging: Judging
    schedule: Schedule
    step_seconds: float
    sessions_may_fill_it: bool = False
    steps: int = 0
    _opened: int = 0
    _sessions: list[str] = field(default_factory=list)
    _requests: list[str] = field(default_factory=list)

    def trouble_of(self, target: Target) -> Trouble | None:
        trouble = trouble_in(self._play, self.judging, target.own_errors, self.step_seconds)
        if trouble is not None and trouble.kind == STUCK:
            trace = "\n".join(self.judging.standstill(self.run.unfinished()))
            trouble = replace(trouble, trace=trace, signature=f"{STUCK}: {self.judging.cause_of_standstill()}")
        return _after(trouble, self.judging.followed) if trouble is not None else None

    def _play(self) -> None:
        for act in self.schedule.acts:
            self._do(act)
        try:
            self._drain()
        except Wrong:
            if not self.sessions_may_fill_it:
                raise
            self._close_all()
            self._drain()
        self._close_all()
        with self._limited():
            missing = self.run.not_returned()
            self.run.stop()
        if missing:
            raise Wrong(LEAK, missing, f"{LEAK}: {without_numbers(missing)}")

    def _close_all(self) -> None:
        while self._sessions:
            with self._limited():
                self.run.close(self._sessions.pop())

    def _do(self, act: Act) -> None:
        match act.do:
            case "step":
                for _ in range(act.times):
                    self._step()
            case "launch":
                with self._limited():
                    self.run.launch()
            case "open":
                self._sessions.append(f"s{self._opened}")
                self._opened += 1
                with self._limited():
                    self.run.open(self._sessions[-1])
            case "close" if self._sessions:
                with self._limited():
                    self.run.close(self._sessions.pop(act.who % len(self._sessions)))
            case "turn" if self._sessions:
                self._send(act, self._sessions[act.who % len(self._sessions)])
            case "turn" | "send":
                self._send(act, None)
            case "abort" | "retract" if self._requests:
                some = self.run.unfinished() or self._requests[-1:]  # one that is over can be aborted, too
                with self._limited():
                    (self.run.abort if act.do == "abort" else self.run.retract)(some[-1 - act.who % len(some)])
            case _:
                pass

    def _send(self, act: Act, session: str | None) -> None:
        turn = f"r{len(self._requests)}"
        self._requests.append(turn)
        with self._limited():
            if session is None:
                self.run.send(turn, act.new_tokens, act.max_new_tokens, shared=act.shared, priority=act.priority)
            else:
                self.run.turn(
                    session,
                    turn,
                    act.new_tokens,
                    act.max_new_tokens,
                    shared=act.shared,
                    logprob=act.logprob,
                    priority=act.priority,
                )

    def _step(self) -> None:
        with self._limited():
            self.run.step()
        self.steps += 1

    def _drain(self) -> None:
        asked = sum(a.new_tokens + a.max_new_tokens for a in self.schedule.acts if a.do in ("turn", "send"))
        for _ in range(DRAIN_STEPS + DRAIN_STEPS_PER_TOKEN * asked):
            if not self.run.unfinished():
                return
            self._step()
        waiting = self.run.unfinished()
        told = f"{', '.join(waiting[:5])} never end{'s' if len(waiting) == 1 else ''}: I18"
        raise Wrong(STUCK, told, STUCK)

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """One act on the target, in a limited time; where the model has found something, it is the last."""
        with alarm(self.step_seconds):
            yield
        if self.judging.finding is not None:
            raise Violated


class Violated(Exception):
    """The model has a finding: the rest of the schedule says nothing."""


def trouble_in(
    playing: Callable[[], None], judging: Judging, own_errors: tuple[type[Exception], ...], seconds: float
) -> Trouble | None:
    """What went wrong in it. A finding of the model comes first: what is raised in the same act, or later, follows from it.

    `seconds`: what one act of it may take, if it sees to that."""
    raised = _ends_by(playing, own_errors, seconds)
    try:
        judging.settle()
    except Exception as error:
        raised = _raised(error, "judging", seconds)
    return _found(judging.finding) or raised


def _ends_by(playing: Callable[[], None], own_errors: tuple[type[Exception], ...], seconds: float) -> Trouble | None:
    try:
        playing()
    except Violated:
        pass
    except Wrong as wrong:
        return Trouble(wrong.kind, wrong.signature, str(wrong))
    except own_errors as error:
        signature = f"{OWN_CHECK}: {without_numbers(str(error).partition(';')[0])}"
        return Trouble(OWN_CHECK, signature, str(error), trace=_raised_at(error))
    except (Exception, SystemExit, Hung) as error:
        return _raised(error, "a step", seconds)
    return None


def _found(finding: Finding | None) -> Trouble | None:
    if finding is None:
        return None
    if finding.action == STANDSTILL:
        return Trouble(STUCK, STUCK, finding.rule, finding=finding)
    faults = tuple(fault.id for fault in finding.explained_by)
    what = faults[0] if faults else f"breaks {', '.join(sorted(finding.invariants)) or 'order'}"
    return Trouble(VIOLATION, f"{finding.action}: {what}", finding.rule, faults, finding)


@contextmanager
def alarms() -> Iterator[None]:
    """Inside, an alarm raises Hung. Only the main thread can be told so; elsewhere nothing is limited."""
    if not _is_main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Rings after so long, if what is inside is not over by then."""
    if not _is_main_thread():
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _after(trouble: Trouble, followed: tuple[str, ...]) -> Trouble:
    """What no fault explains may come of a deviation that was followed: it is distinguished from what comes without one."""
    if trouble.faults or not followed:
        return trouble
    return replace(trouble, after=followed, signature=f"{trouble.signature} (after {', '.join(sorted(followed))})")


def without_numbers(text: str) -> str:
    return re.sub(r"-?\d+", "#", text)


def _raised(error: BaseException, what: str, seconds: float) -> Trouble:
    """What came out of a target that it should have kept: an error, its exit, or the alarm that `what` took too long."""
    if isinstance(error, Hung):
        return Trouble(HANG, HANG, f"{what} took more than {seconds:g} s", trace=_raised_at(error))
    if isinstance(error, SystemExit):
        return Trouble(EXIT, f"{EXIT}: code {error.code}", f"{what} ended the process: sys.exit({error.code!r})")
    where = traceback.extract_tb(error.__traceback__)[-1]
    signature = f"{CRASH}: {type(error).__name__} in {where.name}"
    return Trouble(CRASH, signature, f"{type(error).__name__}: {error}", trace=_raised_at(error))


def _raised_at(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()
