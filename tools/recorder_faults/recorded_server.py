"""A server that is recorded while harm is done to it: SGLang's scheduler on its own event loop, or the reference implementation.

    python tools/recorder_faults/recorded_server.py sglang|reference

It is built once, and each line on its input, a JSON object, makes a child of it serve: so two hundred kills cost two hundred
forks, not two hundred starts. What a child did stands in a file that outlives it (`Board`): its steps, how long each took
and what its recorder had seen. Its load never ends: sessions of several turns and ordinary requests come and go, and every
few hundred steps nothing runs for a moment, as in a server.

Some harm is done from outside (kill, a full disk), by whoever asks. What has to be done inside is here: `HARM`.
"""

from __future__ import annotations

import gc
import json
import logging
import mmap
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

MOST_STEPS = 400_000
HEAD = 16
STEPS, SEEN, HARMED_AT, RESIDENT_KB, WAITED_BYTES, ENDING_SECONDS, RECORDING, WAKE = range(8)

RUNNING, OF_SESSIONS = 6, 3
STEPS_BETWEEN, STEPS_OF_A_REQUEST, TURNS_OF_A_SESSION = 5, 25, 20
# Every so many steps of the loop no request comes, until all are over and the server is idle.
STEPS_OF_A_PERIOD, STEPS_OF_A_LULL = 400, 60

Step = Callable[[], None]


class Board:
    """Numbers of a child in a file that both sides have mapped; nothing of it is lost when the child is killed."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        if new:
            with path.open("wb") as file:
                file.truncate(8 * (HEAD + 2 * MOST_STEPS))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._numbers = memoryview(self._map).cast("d")

    def __getitem__(self, place: int) -> float:
        return self._numbers[place]

    def __setitem__(self, place: int, value: float) -> None:
        self._numbers[place] = value

    def add_step(self, seconds: float, of_cpu: float) -> None:
        """By the clock, and of its thread."""
        steps = int(self._numbers[STEPS])
        self._numbers[HEAD + steps % MOST_STEPS] = seconds
        self._numbers[HEAD + MOST_STEPS + steps % MOST_STEPS] = of_cpu
        self._numbers[STEPS] = steps + 1

    def steps(self, first: int = 0, last: int | None = None) -> list[float]:
        """Seconds of each step of a stretch."""
        return self._stretch(HEAD, first, last)

    def cpu_of_steps(self, first: int = 0, last: int | None = None) -> list[float]:
        return self._stretch(HEAD + MOST_STEPS, first, last)

    def _stretch(self, begin: int, first: int, last: int | None) -> list[float]:
        until = int(self[STEPS]) if last is None else last
        return self._numbers[begin + first : begin + min(until, MOST_STEPS)].tolist()


class Enough(BaseException):
    """Leaves the event loop."""


class Load:
    """Which requests come before which step. `clients`: open, send and close of whoever serves."""

    def __init__(self, clients: Any) -> None:
        self._clients = clients
        self._passes = 0

    def arrive(self) -> None:
        passes, self._passes = self._passes, self._passes + 1
        if passes % STEPS_BETWEEN == 0 and passes % STEPS_OF_A_PERIOD < STEPS_OF_A_PERIOD - STEPS_OF_A_LULL:
            place, number = passes // STEPS_BETWEEN % RUNNING, passes // (STEPS_BETWEEN * RUNNING)
            session = None
            if place < OF_SESSIONS:
                life, turn = divmod(number, TURNS_OF_A_SESSION)
                session = f"s{place}.{life}"
                if turn == 0:
                    if life:
                        self._clients.close(f"s{place}.{life - 1}")
                    self._clients.open(session)
            self._clients.send(f"turn/{place}/{number:06}", 16, STEPS_OF_A_REQUEST, session=session)


class SGLang:
    """The installed release's scheduler, recorded as the plugin records it."""

    def __init__(self) -> None:
        from kvproof.conformance.adapters.sglang import capture
        from kvproof.conformance.adapters.sglang.headless import Headless
        from kvproof.conformance.adapters.sglang.settings import Settings

        self._capture = capture
        self._headless = Headless(
            Settings(page_size=4, pool_tokens=1 << 14, max_running_requests=2 * RUNNING, context_length=2048)
        )
        self._scheduler = self._headless.scheduler
        vars(self._scheduler).pop(
            self._headless.release.idle_check
        )  # the class's own, which a server has and a capture watches

    def serve(self, trace: str, board: Board, between_steps: Callable[[int], None]) -> None:
        headless, scheduler, load = self._headless, self._scheduler, Load(self._headless)
        before, cpu_before, ran = time.perf_counter(), time.thread_time(), scheduler.forward_ct

        def receive(*_args: Any, **_kwargs: Any) -> list[Any]:
            nonlocal before, cpu_before, ran
            if scheduler.forward_ct != ran:
                board.add_step(time.perf_counter() - before, time.thread_time() - cpu_before)
                ran = scheduler.forward_ct
            note(board, self.handover())
            between_steps(int(board[STEPS]))
            load.arrive()
            inbox, headless._inbox = headless._inbox, []
            headless.replies.clear()  # nobody reads them here, and the collector would go through ever more
            before, cpu_before = time.perf_counter(), time.thread_time()
            return inbox

        def loop(scheduler: Any) -> None:
            headless.release.receive(scheduler, receive)
            with suppress(Enough):
                scheduler.event_loop_normal()
            board[ENDING_SECONDS] = -time.monotonic()

        os.environ["KVPROOF_TRACE"] = trace
        self._capture.record_event_loop(loop, scheduler)
        board[ENDING_SECONDS] += time.monotonic()

    def handover(self) -> Any:
        """What stands between the scheduler and the process that writes; None as long as nothing is recorded."""
        capture = self._capture.Capture._of_this_process
        return None if capture is None else capture._handover


class Reference:
    """The reference implementation, recorded live."""

    def __init__(self) -> None:
        from kvproof.impl.config import EngineConfig

        self._config = EngineConfig(page_size=4, pool_pages=4096, rows=2 * RUNNING, row_width=2048, forward="none")
        self._observer: Any = None
        from kvproof.impl import scheduler
        from recorder_faults.live_observer import LiveObserver

        self._live, self._scheduler_of = LiveObserver, scheduler.Scheduler

    def serve(self, trace: str, board: Board, between_steps: Callable[[int], None]) -> None:
        self._observer = observer = self._live(trace, self._config)
        self.scheduler = scheduler = self._scheduler_of(self._config, observer)
        load = Load(self)
        with suppress(Enough):
            while True:
                note(board, self.handover())
                between_steps(int(board[STEPS]))
                load.arrive()
                before, cpu_before = time.perf_counter(), time.thread_time()
                if scheduler.is_idle:
                    observer.idle()
                else:
                    scheduler.step()
                    board.add_step(time.perf_counter() - before, time.thread_time() - cpu_before)
        board[ENDING_SECONDS] = -time.monotonic()
        observer.end("finished" if scheduler.is_idle else "stopped")
        board[ENDING_SECONDS] += time.monotonic()

    def handover(self) -> Any:
        return None if self._observer.trace is None else self._observer.trace.handover

    def open(self, session: str) -> None:
        self.scheduler.open_session(session)

    def close(self, session: str) -> None:
        self.scheduler.close_session(session)

    def send(self, turn: str, new_tokens: int, output: int, *, session: str | None) -> None:
        tokens = [3 + (new_tokens * 7 + place) % 200 for place in range(new_tokens)]
        if session is None:
            self.scheduler.submit(turn, tokens, output)
        else:
            self.scheduler.submit_turn(session, turn, tokens, output)


def note(board: Board, handover: Any) -> None:
    if handover is not None:
        board[SEEN] = handover.seen
        board[WAITED_BYTES] = max(board[WAITED_BYTES], handover.waiting_bytes)


# -- harm that is done inside --


def no_memory(_server: Any, _folder: Path) -> None:
    """The buffer gets no memory from now on, and no thread can be started."""
    import threading

    from kvproof.conformance.adapters.live import handover

    class Marshal:
        @staticmethod
        def dumps(value: Any) -> bytes:
            raise MemoryError

    handover.marshal = Marshal  # type: ignore[assignment]

    def start(_thread: Any) -> NoReturn:
        raise RuntimeError("can't start new thread")

    threading.Thread.start = start  # type: ignore[method-assign]


def clock_steps(_server: Any, _folder: Path, *, dice: list[float] = [-86400.0, 3600.0, -1e9, 1e9]) -> None:  # noqa: B006
    """Whoever asks for the time of day gets another one from now on."""
    step, real, real_ns = dice.pop(0), time.time, time.time_ns
    dice.append(step)
    time.time = lambda: max(0.0, real() + step)
    time.time_ns = lambda: max(0, real_ns() + int(step * 1e9))


def forks(server: Any, folder: Path) -> None:
    """Children of the server do what it does, for some steps, and two of them stay when it is gone."""
    for number in range(4):
        if os.fork() == 0:
            signal.alarm(20)
            if number >= 2:
                time.sleep(15)
                os._exit(0)
            return


HARM: dict[str, Callable[[Any, Path], None]] = {"no memory": no_memory, "clock": clock_steps, "fork": forks}


def child(server: Any, task: dict[str, Any]) -> None:
    """Serve as the task says: until `steps`, with harm of one kind at step `at`, and every `again` steps after it."""
    folder = Path(task["folder"])
    board, at, steps, again = Board(folder / "board"), task["at"], task["steps"], task.get("again", 0)
    harm = HARM[task["harm"]] if task.get("harm") else None
    if (buffer := task.get("buffer_bytes")) is not None:
        from kvproof.conformance.adapters.live import handover

        handover.BUFFER_BYTES = buffer
    if task.get("user"):
        os.setgid(task["user"])
        os.setuid(task["user"])
    if task.get("file_bytes"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (task["file_bytes"],) * 2)
    stop, pace = [False], task.get("pace", 0.0)
    signal.signal(signal.SIGTERM, lambda *_: stop.__setitem__(0, True))
    own = os.getpid()
    until: list[int | None] = [None]

    def between_steps(step: int) -> None:
        if until[0] is not None:
            if step >= until[0]:
                os._exit(0)
            return
        if harm is not None and step >= at and (not board[HARMED_AT] or (again and step % again == 0)):
            board[HARMED_AT] = board[HARMED_AT] or step
            harm(server, folder)
            if os.getpid() != own:
                board._numbers = memoryview(bytearray(8 * (HEAD + 2 * MOST_STEPS))).cast(
                    "d"
                )  # the board is the server's
                until[0] = 50
        if pace:
            time.sleep(pace)
        if stop[0] or step >= steps:
            board[RESIDENT_KB] = resident_kb()
            raise Enough

    server.serve(task["trace"], board, between_steps)


def resident_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def main() -> None:
    kind = sys.argv[1]
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    server = {"sglang": SGLang, "reference": Reference}[kind]()
    # As SGLang's own /freeze_gc does: to go through all that was loaded takes the collector 0.3 s, whoever records. What is made
    # from here on it goes through as ever.
    gc.collect()
    gc.freeze()
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        if "wait" in task:
            _, status = os.waitpid(task["wait"], 0)
            print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)
            continue
        Board(Path(task["folder"]) / "board", new=True)
        pid = os.fork()
        if pid == 0:
            os._exit(alone(server, task))
        print(json.dumps({"pid": pid}), flush=True)


def alone(server: Any, task: dict[str, Any]) -> int:
    """The life of a child: its exit code. What it says goes to a file of its own."""
    log = os.open(Path(task["folder"]) / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.setsid()
    try:
        child(server, task)
    except BaseException:
        logging.exception("the server broke")
        return 1
    return 0


if __name__ == "__main__":
    main()
