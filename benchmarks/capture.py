"""What recording costs SGLang's scheduler: the release's own event loop on a CPU with a made-up forward, with and without.

Six requests run, three of them turns of streaming sessions. Recording is switched on and off every few dozen steps within
one run, so both sides see the same machine and the same lengths; the difference of each pair of neighbouring windows is
taken. The median of these differences is the cost, the quartiles are its spread. The first steps after a switch do not
count: changing methods makes Python forget what it had learned about the code. Of each window the quickest sixteen steps
are taken, one batch of the recorder, so that what else runs on the machine stays out; beside it the CPU time of all its steps.

    python benchmarks/capture.py [--release 0.5.11]
"""

from __future__ import annotations

import argparse
import itertools
import json
import marshal
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ENVIRONMENT = Path(__file__).resolve().parents[1] / ".venv-sglang"
RUNNING, OF_SESSIONS = 6, 3
STEPS_OF_A_GROUP = 16
SETTLING_STEPS, STEPS_OF_A_WINDOW, WINDOWS = 48, 4 * STEPS_OF_A_GROUP, 100
STEPS = (SETTLING_STEPS + STEPS_OF_A_WINDOW) * WINDOWS
# In the second workload a request comes every so many steps and stays for so many.
STEPS_BETWEEN, STEPS_OF_A_REQUEST, TURNS_OF_A_SESSION = 5, 25, 20
REAL_STEP = 10_000.0
TARGET = 10.0

Switch = Callable[[], None]


@dataclass
class Cost:
    """Microseconds a step: of one without recording, and what is added to it as quartiles."""

    step: float
    floor: float
    """what is added on a quiet machine: the difference of the tenth percentiles of both sides' quickest steps"""
    quick: tuple[float, float, float]
    """by the wall, of the quickest steps of each window"""
    cpu: tuple[float, float, float]
    """by this process's CPU, of all steps"""


@dataclass
class Extent:
    """What the recording left behind, for each recorded step."""

    bytes: float
    writer_microseconds: float


class _Enough(BaseException):
    """Leaves the event loop."""


# -- in the environment of SGLang --


class Bench:
    """One scheduler with six running requests. `turnover`: they come and go; else they only decode."""

    def __init__(self, page_size: int, *, turnover: bool) -> None:
        from kvproof.conformance.adapters.sglang.headless import Headless
        from kvproof.conformance.adapters.sglang.settings import Settings

        longest = STEPS + 512
        self._headless = Headless(
            Settings(
                page_size=page_size,
                pool_tokens=-(-longest * (RUNNING + 1) // page_size) * page_size,
                max_running_requests=2 * RUNNING,
                context_length=longest,
            )
        )
        self.scheduler = self._headless.scheduler
        self._passes = 0
        self._turnover = turnover
        if not turnover:
            for place in range(RUNNING):
                self._send(place, STEPS + 256)

    def _send(self, place: int, output_len: int) -> None:
        number, session = self._passes // (STEPS_BETWEEN * RUNNING), None
        if place < OF_SESSIONS:
            session = f"s{place}.{number // TURNS_OF_A_SESSION}"
            if number % TURNS_OF_A_SESSION == 0:
                if number:  # else those that are over hold their rows until none is left
                    self._headless.close(f"s{place}.{number // TURNS_OF_A_SESSION - 1}")
                self._headless.open(session)
        self._headless.send(f"turn/{place}/{number:06}", 16, output_len, session=session)

    def _inbox(self) -> list[Any]:
        if self._turnover and self._passes % STEPS_BETWEEN == 0:
            self._send(self._passes // STEPS_BETWEEN % RUNNING, STEPS_OF_A_REQUEST)
        self._passes += 1
        inbox, self._headless._inbox = self._headless._inbox, []
        return inbox

    def paired(self, switch_on: Switch, switch_off: Switch) -> Cost:
        """Windows without it and with it in turn. The switches themselves are outside the time that is taken."""
        windows: list[tuple[float, float]] = []
        step, is_on, cpu, marks = -SETTLING_STEPS, False, 0.0, list[float]()

        def receive(*_args: Any) -> list[Any]:
            nonlocal step, is_on, cpu, marks
            step += 1
            if step >= 0 and step % STEPS_OF_A_GROUP == 0:
                marks.append(time.perf_counter())
            if step == STEPS_OF_A_WINDOW:
                quickest = min(later - earlier for earlier, later in itertools.pairwise(marks))
                windows.append((quickest / STEPS_OF_A_GROUP, (time.process_time() - cpu) / STEPS_OF_A_WINDOW))
                if len(windows) == WINDOWS:
                    raise _Enough
                (switch_off if is_on else switch_on)()
                step, is_on, marks = -SETTLING_STEPS, not is_on, []
            inbox = self._inbox()
            if step == 0:
                cpu = time.process_time()
            return inbox

        self._headless.release.receive(self.scheduler, receive)
        with suppress(_Enough):
            self.scheduler.event_loop_normal()
        if is_on:
            switch_off()
        pairs = list(zip(windows[0::2], windows[1::2], strict=True))
        return Cost(
            step=1e6 * _tenth([off[0] for off, _ in pairs]),
            floor=1e6 * (_tenth([on[0] for _, on in pairs]) - _tenth([off[0] for off, _ in pairs])),
            quick=_quartiles([1e6 * (on[0] - off[0]) for off, on in pairs]),
            cpu=_quartiles([1e6 * (on[1] - off[1]) for off, on in pairs]),
        )

    def recorder(self, put: Callable[[Any], Any]) -> Any:
        from kvproof.conformance.adapters.sglang.recorder import Recorder

        release, scheduler = self._headless.release, self.scheduler
        return Recorder(release, scheduler, put, step=lambda: scheduler.forward_ct, on_error=_raise)

    def recording(self, put: Callable[[Any], Any], began: Callable[[Any], None] = lambda recorder: None) -> Cost:
        """The cost of a recorder that puts down what it saw by `put`."""
        recorder: Any = None

        def on() -> None:
            nonlocal recorder
            recorder = self.recorder(put)
            began(recorder)
            recorder.start()

        return self.paired(on, lambda: recorder.stop())

    def hooks(self) -> Cost:
        """The cost of being called at all: everything is wrapped, and nothing is looked at."""
        from kvproof.conformance.adapters.sglang.watch import Watch

        watch = Watch(_raise)
        recorder = self.recorder(lambda record: None)

        def nothing(*_args: Any, **_kwargs: Any) -> None:
            pass

        def on() -> None:
            nonlocal watch
            watch = Watch(_raise)
            for owner, name, _ in recorder._watched():
                watch.around(owner, name, lambda original, *args, **kwargs: original(*args, **kwargs))
            for owner, name, before, _ in recorder._listened():
                watch.between(owner, name, nothing if before else None, nothing)

        return self.paired(on, lambda: watch.take_away())

    def busy_check(self) -> Cost:
        """SGLang's own check of its memory at every step."""
        variable = "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY"

        def on() -> None:
            os.environ[variable] = "1"

        return self.paired(on, lambda: os.environ.update({variable: "0"}))

    def whole(self) -> tuple[Cost, Extent]:
        """All of it: what is seen goes to a process that writes it."""
        from kvproof.conformance.adapters.sglang import capture as module

        with tempfile.TemporaryDirectory() as folder:
            capture = module.Capture(self.scheduler, str(Path(folder) / "trace.jsonl"))
            handover = capture._handover

            def began(recorder: Any) -> None:
                handover.page_ids = recorder.page_ids

            cost = self.recording(handover.put, began)
            handover.flush()
            cpu = _cpu_of_writer(capture.path)
            handover.end("finished")
            while module.is_being_written(capture.path):
                time.sleep(0.05)
            steps = STEPS / 2
            return cost, Extent(capture.path.stat().st_size / steps, 1e6 * cpu / steps)

    def account(self) -> dict[str, float]:
        """Where the microseconds of a step go, each part alone in a tight loop: the best of many, whatever else runs."""
        from kvproof.conformance.adapters.sglang.handover import Handover
        from kvproof.conformance.adapters.sglang.watch import Watch

        passes = 0

        def receive(*_args: Any) -> list[Any]:
            nonlocal passes
            passes += 1
            if passes == SETTLING_STEPS:
                raise _Enough
            return self._inbox()

        self._headless.release.receive(self.scheduler, receive)
        with suppress(_Enough):
            self.scheduler.event_loop_normal()
        batch, records = self.scheduler.running_batch, list[Any]()
        recorder = self.recorder(records.append)
        recorder.steps.prepared_for_decode(batch)

        def results() -> None:
            recorder.steps.results_come(self.scheduler, batch)
            recorder.steps.lens_before = shorter
            recorder.steps.results_came(self.scheduler, batch)

        shorter = [len(req.output_ids) - 1 for req in batch.reqs]
        records.clear()
        recorder.steps.prepared_for_decode(batch)
        results()
        decode, result = records
        handover = Handover(os.open(os.devnull, os.O_WRONLY))
        handover.page_ids = recorder.page_ids
        recorder.notes.put = lambda record: None

        # Packing tells the same object from an equal one, and in a server no two steps share any.
        steps = itertools.cycle([marshal.loads(marshal.dumps((decode, result))) for _ in range(STEPS_OF_A_GROUP)])

        def hand_over() -> None:
            decode, result = next(steps)
            handover.put(decode)
            handover.put(result)

        class Watched:
            def call(self, _batch: Any) -> None:
                pass

        bare, watched, watch = _best(lambda: Watched().call(batch)), Watched(), Watch(_raise)
        watch.between(Watched, "call", lambda *_: None, lambda *_: None)
        listeners = len(list(recorder._listened()))
        parts = {
            "reading a decode step": _best(lambda: recorder.steps.prepared_for_decode(batch)),
            "reading its results": _best(results),
            "packing and writing to the pipe": _best(hand_over),
            f"{listeners} listeners": listeners * (_best(lambda: watched.call(batch)) - bare),
        }
        return {**parts, "sum": sum(parts.values())}


def _best(function: Callable[[], Any]) -> float:
    return 1e6 * min(timeit.repeat(function, number=320, repeat=200)) / 320


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def _tenth(values: list[float]) -> float:
    return statistics.quantiles(values, n=10)[0]


def _raise(error: Exception) -> None:
    raise error


def _cpu_of_writer(trace: Path) -> float:
    """Seconds that the process which writes the trace has used, once it has caught up."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and trace in [link.readlink() for link in (entry / "fd").iterdir()]:
                size = -1
                while (now := trace.stat().st_size) != size:
                    size = now
                    time.sleep(0.5)
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    raise SystemExit(f"no process writes {trace}")


def measure(what: str, page_size: int) -> None:
    """One measurement, as JSON on the last line of the output."""
    turnover = what.endswith(" with turnover")
    bench = Bench(page_size, turnover=turnover)
    extent: Extent | None = None
    match what.removesuffix(" with turnover"):
        case "recorded":
            cost, extent = bench.whole()
        case "seen and thrown away":
            cost = bench.recording(lambda record: None)
        case "called and not looked":
            cost = bench.hooks()
        case "account":
            print(json.dumps(bench.account()))
            return
        case "nothing":
            cost = bench.paired(lambda: None, lambda: None)
        case _:
            cost = bench.busy_check()
    print(json.dumps({"cost": asdict(cost), "extent": asdict(extent) if extent is not None else None}))


MEASUREMENTS = (
    ("nothing", 64),
    ("called and not looked", 64),
    ("seen and thrown away", 64),
    ("recorded", 64),
    ("recorded", 1),
    ("recorded with turnover", 64),
    ("SGLang's own busy check", 64),
)


# -- outside of it --


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="0.5.11", help="an SGLang that tests/sglang/make_env.py installed")
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "PAGE_SIZE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure[0], int(arguments.measure[1]))
        return
    site = ENVIRONMENT / "site" / arguments.release
    if not site.exists():
        sys.exit(f"error: no SGLang {arguments.release} in {ENVIRONMENT.name}: run python tests/sglang/make_env.py")
    print(f"SGLang {arguments.release}, {RUNNING} running requests, {OF_SESSIONS} of them turns of sessions;")
    print(f"{WINDOWS // 2} pairs of windows of {STEPS_OF_A_WINDOW} steps; microseconds a step, median [quartiles]")
    for page_size in (64, 1):
        parts = measured(site, "account", page_size).items()
        print(f"page size {page_size}, warm: " + ", ".join(f"{part} {cost:.1f}" for part, cost in parts), flush=True)
    columns = f"{'quiet':>6} {'quickest of a window':>21} {'CPU, all steps':>21} {'of 10 ms':>9}"
    print(f"{'what is added':34} {'page':>4} {'a step':>7} {columns}  on disk, writer")
    for what, page_size in MEASUREMENTS:
        print(line_of(what, page_size, measured(site, what, page_size)), flush=True)


def measured(site: Path, what: str, page_size: int) -> dict[str, Any]:
    """One measurement in a process of its own."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(site)]))
    done = subprocess.run(
        [str(ENVIRONMENT / "bin" / "python"), "-W", "ignore", __file__, "--measure", what, str(page_size)],
        env={**os.environ, "PYTHONPATH": path, "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"error: {what} failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def line_of(what: str, page_size: int, result: dict[str, Any]) -> str:
    cost, extent = result["cost"], result["extent"]
    share = 100 * cost["floor"] / REAL_STEP
    line = f"{what:34} {page_size:4} {cost['step']:7.1f} {cost['floor']:6.1f}"
    line += f" {_spread(cost['quick'])} {_spread(cost['cpu'])} {share:7.3f} %"
    if extent is not None:
        line += f"  {extent['bytes']:.0f} bytes a step, {extent['writer_microseconds']:.0f} us"
        line += f"  ({'within' if cost['floor'] < TARGET else 'over'} {TARGET:.0f} us)"
    return line


def _spread(quartiles: list[float]) -> str:
    low, middle, high = quartiles
    return f"{middle:6.1f} [{low:5.1f} {high:5.1f}]"


if __name__ == "__main__":
    main()
