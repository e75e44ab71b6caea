"""Schedules played in another process: a target that exits, crashes the interpreter or hangs in C takes only that one along.

The process is forked once and plays one schedule after the other. Who asks knows the schedule, so it is known whatever becomes
of the process: where that ends, or where no call on the target ends in time, this is a finding, and the next schedule gets a new
process. What the dying one wrote to stdout and stderr, faulthandler's traceback among it, is the finding's.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol, cast

from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.child_process import CONTEXT, HAS_FORK, Child
from kvproof.conformance.fuzz.judging import Judging, NewJudging
from kvproof.conformance.fuzz.play import EXIT, HANG, START_SECONDS, STEP_SECONDS, Played, Trouble, play
from kvproof.conformance.fuzz.saved_play import SavedPlay, played_as_data, played_from_data
from kvproof.conformance.fuzz.schedule import Schedule, Setting
from kvproof.conformance.fuzz.target import Target, TargetRun, Tell
from kvproof.conformance.fuzz.targets import target_named
from kvproof.conformance.replay.coverage import Coverage
from kvproof.conformance.traces.json_lines import TraceWriter
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.trace import Event, Header

GRACE_SECONDS = 2.0
"""Beyond the limit of a call: where Python still runs there, the alarm in the process itself was quicker."""
LAST_WORDS, MOST_WORDS = 4000, 2**16
"""Characters that are kept of what a process wrote before it died, and bytes in which they are looked for."""
POLL_SECONDS, DUMP_SECONDS = 0.2, 0.5
START = "start"
CALLS = (START, *(name for name, call in vars(TargetRun).items() if callable(call) and not name.startswith("_")))
"""The start of a run, and what may be called on it."""
SAID, TOLD = "said.txt", "told.jsonl"


class Player(Protocol):
    """Whoever plays schedules for a campaign. Raises UserError if the settings of one cannot work."""

    def play(self, schedule: Schedule) -> Played: ...

    def recorded(self, schedule: Schedule) -> Played:
        """Play it, and keep the events also of a target that died."""

    def close(self) -> None: ...


class InThisProcess:
    """Quick, but lost with a target that ends the process."""

    def __init__(self, target: Target, step_seconds: float = STEP_SECONDS, new_judging: NewJudging = Judging) -> None:
        self._target, self._step_seconds, self._new_judging = target, step_seconds, new_judging

    def play(self, schedule: Schedule) -> Played:
        return play(schedule, self._target, step_seconds=self._step_seconds, new_judging=self._new_judging)

    recorded = play

    def close(self) -> None:
        pass


class Isolated:
    """Plays in a process of its own, which is begun anew whenever it died."""

    def __init__(self, target: Target, step_seconds: float = STEP_SECONDS, new_judging: NewJudging = Judging) -> None:
        self._target, self._step_seconds = target, step_seconds
        self._new_judging = new_judging if HAS_FORK else Judging  # what is compiled goes along with a fork only
        self._beats = CONTEXT.RawArray("q", 3)
        self._folder = tempfile.TemporaryDirectory(prefix="kvproof-player-")
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """Of the process that plays, if there is one now."""
        return None if self._child is None else self._child.pid

    def play(self, schedule: Schedule) -> Played:
        return self._play(schedule, keeps_events=False)

    def recorded(self, schedule: Schedule) -> Played:
        return self._play(schedule, keeps_events=True)

    def close(self) -> None:
        self._end()
        self._folder.cleanup()

    def _play(self, schedule: Schedule, *, keeps_events: bool) -> Played:
        try:
            return self._answer(schedule, keeps_events)
        except KeyboardInterrupt:
            self._end()  # its answer would be taken for that to the next schedule
            raise

    def _answer(self, schedule: Schedule, keeps_events: bool) -> Played:
        child = self._begun()
        try:
            child.connection.send((schedule.as_json(), keeps_events))
            trouble = self._wait(child)
            if trouble is None and child.connection.poll():
                refusal, data = child.connection.recv()
                if refusal is not None:
                    raise UserError(refusal)
                return played_from_data(data)
            if trouble is None:
                raise EOFError
        except (EOFError, OSError):
            trouble = self._exited(child)
        header, events = _told(Path(self._folder.name) / TOLD) if keeps_events else (None, [])
        steps = self._beats[1]
        return SavedPlay(schedule, header, events, len(events), steps, Coverage(), frozenset(), trouble).played

    def _begun(self) -> Child:
        if self._child is None:
            target = self._target if HAS_FORK else self._target.name
            arguments = (target, self._beats, self._folder.name, self._step_seconds, self._new_judging)
            self._child = Child("kvproof-player", _serve, *arguments)
        return self._child

    def _wait(self, child: Child) -> Trouble | None:
        """Until there is an answer, or the process died; None then. Else it hangs, and is ended."""
        seen, since = -1, time.monotonic()
        while not wait([child.connection], POLL_SECONDS) and child.is_alive:
            calls, _, name = self._beats
            if calls != seen:
                seen, since = calls, time.monotonic()
            limit = START_SECONDS if CALLS[name] == START else self._step_seconds
            if time.monotonic() - since > limit + GRACE_SECONDS:
                return self._hung(child, limit)
        return None

    def _hung(self, child: Child, limit: float) -> Trouble:
        if hasattr(signal, "SIGUSR1"):
            os.kill(child.pid, signal.SIGUSR1)
            time.sleep(DUMP_SECONDS)
        where, words = self._last_call(), self._last_words()
        self._end()
        return Trouble(HANG, HANG, f"{where} took more than {limit:g} s and does not heed signals", trace=words)

    def _exited(self, child: Child) -> Trouble:
        code, where, words = child.exit_code, self._last_call(), self._last_words()
        self._end()
        how = signal.Signals(-code).name if code is not None and code < 0 else f"code {code}"
        said_in = re.search(r"most recent call first\):\n  File .* in (\S+)", words)
        signature = f"{EXIT}: {how}" + (f" in {said_in[1]}" if said_in else "")
        return Trouble(EXIT, signature, f"the process ended with {how}, in {where}", trace=words)

    def _last_call(self) -> str:
        calls, steps, name = self._beats
        return f"{CALLS[name]}(), call {calls} on the target, after {steps} steps"

    def _last_words(self) -> str:
        """The end of what it wrote; of a traceback, which has the innermost call first, only the target's own part."""
        with suppress(OSError):
            words = (Path(self._folder.name) / SAID).read_bytes()[-MOST_WORDS:].decode("utf-8", "replace")
            return re.sub(r"\n  File [^\n]* in counted\n.*", "", words, flags=re.DOTALL)[-LAST_WORDS:].strip()
        return ""

    def _end(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


def _told(path: Path) -> tuple[Header | None, list[Event]]:
    """What the target told until it died."""
    try:
        trace = read_trace(path)
        return trace.header, [record for _, record in trace if isinstance(record, Event)]
    except UserError:
        return None, []


def _serve(
    connection: Connection,
    target: Target | str,
    beats: Any,
    folder: str,
    step_seconds: float,
    new_judging: NewJudging,
) -> None:
    """In the process: play what is asked for, until nobody asks any more."""
    said = (Path(folder) / SAID).open("ab", buffering=0)
    _speak_into(said.fileno())
    faulthandler.enable(said)
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, said)
    watched = _Watched(target_named(target) if isinstance(target, str) else target, beats, Path(folder) / TOLD)
    while True:
        text, watched.keeps_events = connection.recv()
        said.truncate(0)
        beats[0] = beats[1] = beats[2] = 0
        # Of a target that may die all is judged at once that is kept: what the model finds goes before how it ended.
        judging = Judging if watched.keeps_events else new_judging
        player = InThisProcess(cast(Target, watched), step_seconds, judging)
        try:
            connection.send((None, played_as_data(player.play(Schedule.model_validate_json(text)))))
        except UserError as error:
            connection.send((error.message, None))


def _speak_into(descriptor: int) -> None:
    """All that is written to stdout and stderr, also by what is not Python."""
    for number in (1, 2):
        os.dup2(descriptor, number)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


class _Watched:
    """The target, which says of each call that it has begun, and keeps what it tells where that is asked for."""

    def __init__(self, target: Target, beats: Any, told: Path) -> None:
        self._target, self._beats, self._told = target, beats, told
        self.keeps_events = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def start(
        self, settings: Mapping[str, Setting], faults: Sequence[str], tell: Tell, *, own_checks: bool = True
    ) -> Any:
        keeping = _Keeping(self._told, tell) if self.keeps_events else None
        begin = _counted(self._target.start, CALLS.index(START), self._beats)
        run: TargetRun = begin(settings, faults, tell if keeping is None else keeping.see, own_checks=own_checks)
        if keeping is not None:
            keeping.begin(run.header)
        return _WatchedRun(run, self._beats)


class _WatchedRun:
    def __init__(self, run: TargetRun, beats: Any) -> None:
        self.header = run.header
        for number, name in enumerate(CALLS):
            if hasattr(run, name):
                setattr(self, name, _counted(getattr(run, name), number, beats))


def _counted(call: Callable[..., Any], number: int, beats: Any) -> Callable[..., Any]:
    is_step = CALLS[number] == "step"

    def counted(*args: Any, **kwargs: Any) -> Any:
        beats[2] = number
        beats[0] += 1
        answer = call(*args, **kwargs)
        if is_step:
            beats[1] += 1
        return answer

    return counted


class _Keeping:
    """Each event is on disk before the target continues: what comes next may be its end."""

    def __init__(self, path: Path, tell: Tell) -> None:
        self._path, self._tell = path, tell
        self._writer: TraceWriter | None = None

    def begin(self, header: Header) -> None:
        self._writer = TraceWriter(self._path, header)

    def see(self, seen: Any) -> None:
        if self._writer is not None:
            self._writer.event(**vars(seen))
            self._writer.flush()
        self._tell(seen)
