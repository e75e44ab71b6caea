"""What recording costs SGLang's scheduler: the release's own event loop with a made-up forward, with and without, on the CUDA
device or, where there is none, on a CPU.

Six requests run, three of them turns of streaming sessions. Recording is switched on and off every few dozen steps within
one run, so both sides see the same machine and the same lengths; the difference of each pair of neighbouring windows is
taken. The median of these differences is the cost, the quartiles are its spread. The first steps after a switch do not
count: changing methods makes Python forget what it had learned about the code, and where a line runs once a step it takes
some sixty steps to learn anew. Of each window the quickest 32 steps are taken, one batch of the recorder, so that what
else runs on the machine stays out; beside it the CPU time of the scheduler's thread over all its steps.

The account says where the microseconds go: each part alone in a tight loop, and timed where it runs, with the caches
and the branch predictors as the scheduler leaves them.

Bytecodes of Python are counted as well: those of a step, and those that recording adds. They are the same on every machine.

A round of speculation takes tens of milliseconds here, because its kernels are interpreted on a CPU: no difference of windows
shows microseconds. So the time inside the recorder's wrappers is taken itself: in rounds, and in steps that decode.

Writes benchmarks/results/capture.md.

    python benchmarks/capture.py [--release 0.5.11]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import marshal
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from measuring import machine, writer_of

RESULT = Path(__file__).parent / "results" / "capture.md"
ENVIRONMENT = Path(__file__).resolve().parents[1] / ".venv-sglang"
RUNNING, OF_SESSIONS = 6, 3
STEPS_OF_A_GROUP = 32
SETTLING_STEPS, STEPS_OF_A_WINDOW, WINDOWS = 128, 4 * STEPS_OF_A_GROUP, 80
STEPS = (SETTLING_STEPS + STEPS_OF_A_WINDOW) * WINDOWS
COUNTED_STEPS = 10 * STEPS_OF_A_GROUP
ROUNDS, DRAFTS = 300, 2
"""Of the measurement inside the wrappers, with the first ones, which do not count; drafts of each round."""
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
    """by the CPU of the scheduler's thread, of all steps"""


@dataclass
class Extent:
    """What the recording left behind, for each recorded step."""

    bytes: float
    writer_microseconds: float


READING, RESULTS, HANDING, PACKING = (
    "reading a decode step",
    "reading its results",
    "handing over",
    "packing and sending",
)


class _Enough(BaseException):
    """Leaves the event loop."""


# -- in the environment of SGLang --


class Bench:
    """One scheduler with six running requests. `turnover`: they come and go; else they only decode. `drafts`: of each round of
    speculation, with the overlap scheduler, for ROUNDS rounds; 0: no speculation."""

    def __init__(self, page_size: int, *, turnover: bool = False, drafts: int = 0) -> None:
        import torch

        from kvproof.conformance.adapters.sglang.headless import Headless
        from kvproof.conformance.adapters.sglang.settings import Settings

        longest = (ROUNDS * (drafts + 1) if drafts else STEPS) + 512
        self._headless = Headless(
            Settings(
                device="cuda" if torch.cuda.is_available() else "cpu",
                page_size=page_size,
                pool_tokens=-(-longest * (RUNNING + 1) // page_size) * page_size,
                max_running_requests=2 * RUNNING,
                context_length=longest,
                overlap=drafts > 0,
                drafts=drafts,
            )
        )
        self.scheduler = self._headless.scheduler
        self._loop = self.scheduler.run_event_loop if drafts else self.scheduler.event_loop_normal
        self._passes = 0
        self._turnover = turnover
        if not turnover:
            for place in range(RUNNING):
                self._send(place, longest - 256)

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

        def receive(*_args: Any, **_kwargs: Any) -> list[Any]:
            nonlocal step, is_on, cpu, marks
            step += 1
            if step >= 0 and step % STEPS_OF_A_GROUP == 0:
                marks.append(time.perf_counter())
            if step == STEPS_OF_A_WINDOW:
                quickest = min(later - earlier for earlier, later in itertools.pairwise(marks))
                windows.append((quickest / STEPS_OF_A_GROUP, (time.thread_time() - cpu) / STEPS_OF_A_WINDOW))
                if len(windows) == WINDOWS:
                    raise _Enough
                (switch_off if is_on else switch_on)()
                step, is_on, marks = -SETTLING_STEPS, not is_on, []
            inbox = self._inbox()
            if step == 0:
                cpu = time.thread_time()
            return inbox

        self._headless.release.receive(self.scheduler, receive)
        with suppress(_Enough):
            self._loop()
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
        from kvproof.conformance.adapters.sglang.capture import STEP
        from kvproof.conformance.adapters.sglang.recorder import Recorder

        step = functools.partial(STEP, self.scheduler)
        return Recorder(self._headless.release, self.scheduler, put, step=step, on_error=_no_figure)

    def recording(
        self,
        put: Callable[[Any], Any],
        began: Callable[[Any], None] = lambda recorder: None,
        ended: Callable[[], None] = lambda: None,
    ) -> Cost:
        """The cost of a recorder that puts down what it saw by `put`."""
        recorder: Any = None

        def on() -> None:
            nonlocal recorder
            recorder = self.recorder(put)
            began(recorder)
            recorder.start()

        def off() -> None:
            recorder.stop()
            ended()

        return self.paired(on, off)

    def hooks(self) -> Cost:
        """The cost of being called at all: everything is wrapped, and nothing is looked at."""
        from kvproof.conformance.adapters.method_hooks import MethodHooks

        watch = MethodHooks(_no_figure)
        recorder = self.recorder(lambda record: None)

        def nothing(*_args: Any, **_kwargs: Any) -> None:
            pass

        def on() -> None:
            nonlocal watch
            watch = MethodHooks(_no_figure)
            for owner, name, _ in recorder._watched():
                watch.around(owner, name, lambda original, *args, **kwargs: original(*args, **kwargs))
            watch.after(type(self.scheduler.running_batch), "prepare_for_decode", nothing)
            watch.between(type(self.scheduler), "process_batch_result", nothing, nothing)

        return self.paired(on, lambda: watch.take_away())

    def own_checks(self, *variables: str) -> Cost:
        """SGLang's own checks of its memory at every step."""

        def switched(value: str) -> None:
            os.environ.update(dict.fromkeys(variables, value))

        return self.paired(lambda: switched("1"), lambda: switched("0"))

    def whole(self, *, writer_stopped: bool = False) -> tuple[Cost, Extent]:
        """All of it: what is seen goes to a process that writes it. `writer_stopped`: between the windows only."""
        from kvproof.conformance.adapters.live import live_trace
        from kvproof.conformance.adapters.sglang import capture as module

        with tempfile.TemporaryDirectory() as folder:
            capture = module.Capture(self.scheduler, str(Path(folder) / "trace.jsonl"))
            while capture.path.stat().st_size == 0:  # until the process that writes it has begun
                time.sleep(0.05)
            handover, writer = capture._handover, writer_of(capture.path, os.getpid())

            def began(recorder: Any) -> None:
                handover.page_ids = recorder.page_ids
                if writer_stopped:
                    os.kill(writer, signal.SIGSTOP)

            def ended() -> None:
                handover.page_ids.settle(wait=True)  # the next recorder has page ids of its own
                handover.flush()
                os.kill(writer, signal.SIGCONT)
                if writer_stopped:
                    time.sleep(0.02)

            cost = self.recording(handover.put, began, ended)
            handover.flush()
            cpu = _cpu_of_writer(writer, capture.path)
            handover.end("finished")
            while live_trace.is_being_written(capture.path):
                time.sleep(0.05)
            steps = STEPS / 2
            return cost, Extent(capture.path.stat().st_size / steps, 1e6 * cpu / steps)

    def inside(self) -> tuple[float, float, float]:
        """Microseconds a pass of the loop inside the recorder's wrappers, as quartiles."""
        handover, clock, spent = self._to_nowhere(), WrapperClock(), list[float]()
        recorder = self.recorder(handover.put)
        handover.page_ids = recorder.page_ids
        recorder.hooks._put = clock.of(recorder.hooks._put)
        recorder.start()
        self._run(ROUNDS, lambda: spent.append(clock.seconds))
        recorder.stop()
        return _quartiles([1e6 * (after - before) for before, after in itertools.pairwise(spent[SETTLING_STEPS:])])

    def bytecodes(self) -> tuple[float, float]:
        """Bytecodes of Python that a step runs without recording, and that recording adds."""
        handover = self._to_nowhere()
        recorder = self.recorder(handover.put)
        handover.page_ids = recorder.page_ids
        self._run(STEPS_OF_A_GROUP)
        without = self._bytecodes_of_a_step()
        recorder.start()
        self._run(STEPS_OF_A_GROUP)
        recorded = self._bytecodes_of_a_step()
        recorder.stop()
        return without, recorded - without

    def _bytecodes_of_a_step(self) -> float:
        count = 0

        def each_bytecode(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal count
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            count += event == "opcode"
            return each_bytecode

        sys.settrace(each_bytecode)
        self._run(COUNTED_STEPS)
        sys.settrace(None)
        return count / COUNTED_STEPS

    def _run(self, steps: int, at_each: Callable[[], None] = lambda: None) -> None:
        passes = 0

        def receive(*_args: Any, **_kwargs: Any) -> list[Any]:
            nonlocal passes
            passes += 1
            at_each()
            if passes == steps:
                raise _Enough
            return self._inbox()

        self._headless.release.receive(self.scheduler, receive)
        with suppress(_Enough):
            self._loop()

    def account(self) -> dict[str, dict[str, float]]:
        """Where the microseconds of a step go."""
        self._run(SETTLING_STEPS)
        return {"alone": self._parts_alone(), "in the loop": self._parts_in_the_loop()}

    def _parts_in_the_loop(self) -> dict[str, float]:
        """Each part timed where it runs: medians."""
        handover = self._to_nowhere()
        spent: dict[str, list[float]] = {READING: [], RESULTS: [], HANDING: [], PACKING: []}
        inside = 0.0

        def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any) -> None:
                nonlocal inside
                inside, began = 0.0, time.perf_counter()
                function(*args)
                took = time.perf_counter() - began
                spent[part].append(took - inside)
                inside = took

            return call

        handover.flush = timed(PACKING, handover.flush)
        recorder = self.recorder(timed(HANDING, handover.put))
        handover.page_ids, steps = recorder.page_ids, recorder.steps
        steps.prepared_for_decode = timed(READING, steps.prepared_for_decode)
        steps.results_come, steps.results_came = timed(RESULTS, steps.results_come), timed(RESULTS, steps.results_came)
        recorder.start()
        self._run(SETTLING_STEPS + 2000)
        recorder.stop()
        calls = {READING: 1, RESULTS: 1, HANDING: 1, PACKING: 1 / STEPS_OF_A_GROUP}
        spent[RESULTS] = [come + came for come, came in zip(spent[RESULTS][0::2], spent[RESULTS][1::2], strict=True)]
        parts = {part: 1e6 * calls[part] * statistics.median(times) for part, times in spent.items()}
        return {**parts, "sum": sum(parts.values())}

    def _to_nowhere(self) -> Any:
        from kvproof.conformance.adapters.live.handover import Handover

        return Handover(os.open(os.devnull, os.O_WRONLY))

    def _parts_alone(self) -> dict[str, float]:
        """Each part in a tight loop, where everything is warm: the best of many, whatever else runs."""
        from kvproof.conformance.adapters.method_hooks import MethodHooks

        batch, records = self.scheduler.running_batch, list[Any]()
        recorder = self.recorder(records.append)
        steps, shorter = recorder.steps, [len(req.output_ids) - 1 for req in batch.reqs]
        steps.prepared_for_decode(batch)

        def decodes() -> None:
            steps._steps_to_opening = 1 if batch.tree_cache.page_size == 1 else 2
            steps.prepared_for_decode(batch)

        def results() -> None:
            steps._output_lens = shorter
            steps.results_come(self.scheduler, batch)
            steps.results_came(self.scheduler, batch)

        results()
        records.clear()
        decodes()
        [record] = records
        handover = self._to_nowhere()
        handover.page_ids = recorder.page_ids
        steps._put = lambda record: None

        # Packing tells the same object from an equal one, and in a server no two steps share any.
        of_steps = itertools.cycle([marshal.loads(marshal.dumps(record)) for _ in range(STEPS_OF_A_GROUP)])

        class Watched:
            def call(self, _batch: Any) -> None:
                pass

        bare, watched, watch = _best(lambda: Watched().call(batch)), Watched(), MethodHooks(_no_figure)
        watch.between(Watched, "call", lambda *_: None, lambda *_: None)
        parts = {
            READING: _best(decodes),
            RESULTS: _best(results),
            f"{HANDING}, {PACKING}": _best(lambda: handover.put(next(of_steps))),
            "being called twice": 2 * (_best(lambda: watched.call(batch)) - bare),
        }
        return {**parts, "sum": sum(parts.values())}


class WrapperClock:
    """What methods take beyond their originals, all together, once they are wrapped. The clock's own part of that is about a
    microsecond in four calls."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def of(self, put: Callable[[Any, str, Any], None]) -> Callable[[Any, str, Any], None]:
        """`MethodHooks._put`, so that what it puts is clocked."""

        def clocked(owner: Any, name: str, wrapped: Callable[..., Any]) -> None:
            put(owner, name, lambda original: self._counted(wrapped(self._counted(original, -1)), 1))

        return clocked

    def _counted(self, function: Callable[..., Any], sign: int) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += sign * (time.perf_counter() - began)

        return call


def _best(function: Callable[[], Any]) -> float:
    return 1e6 * min(timeit.repeat(function, number=320, repeat=200)) / 320


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def _tenth(values: list[float]) -> float:
    return statistics.quantiles(values, n=10)[0]


def _no_figure(error: Exception) -> None:
    """A recorder that has failed is idle from then on, and costs nothing."""
    raise SystemExit(f"the recorder failed: {type(error).__name__}: {error}")


def _cpu_of_writer(writer: int, trace: Path) -> float:
    """Seconds that it has used, once it has caught up."""
    size = -1
    while (now := trace.stat().st_size) != size:
        size = now
        time.sleep(0.5)
    fields = Path(f"/proc/{writer}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(what: str, page_size: int) -> None:
    """One measurement, as JSON on the last line of the output."""
    what, _, how = what.partition(" with ")
    bench = Bench(page_size, turnover=how == "turnover", drafts=DRAFTS if how == "speculation" else 0)
    extent: Extent | None = None
    match what:
        case "recorded":
            cost, extent = bench.whole()
        case "recorded, writer stopped":
            cost, _ = bench.whole(writer_stopped=True)
        case "seen and thrown away":
            cost = bench.recording(lambda record: None)
        case "called and not looked":
            cost = bench.hooks()
        case "account":
            print(json.dumps(bench.account()))
            return
        case "inside":
            print(json.dumps(bench.inside()))
            return
        case "bytecodes":
            print(json.dumps(bench.bytecodes()))
            return
        case "nothing":
            cost = bench.paired(lambda: None, lambda: None)
        case "SGLang's own busy check":
            cost = bench.own_checks(BUSY_CHECK)
        case "its page invariants as well":
            cost = bench.own_checks(BUSY_CHECK, PAGE_INVARIANTS)
        case _:
            raise SystemExit(f"nothing measures {what!r}")
    print(json.dumps({"cost": asdict(cost), "extent": asdict(extent) if extent is not None else None}))


BUSY_CHECK = "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY"
PAGE_INVARIANTS = "SGLANG_CHECK_KV_PAGE_INVARIANTS"
"""Looked at within the busy check, from 0.5.17 on."""
MEASUREMENTS = (
    ("nothing", 64),
    ("called and not looked", 64),
    ("seen and thrown away", 64),
    ("recorded, writer stopped", 64),
    ("recorded", 64),
    ("recorded", 1),
    ("recorded with turnover", 64),
    ("SGLang's own busy check", 64),
)


# -- outside of it --

# Measured too where they are installed: what recording costs there, and SGLang's checks that the first release has not.
ELSEWHERE = (
    ("0.5.10.post1", "recorded"),
    ("0.5.23", "recorded"),
    ("0.5.23", "SGLang's own busy check"),
    ("0.5.23", "its page invariants as well"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--release", default="0.5.11", help="an SGLang that tests/conformance/adapters/sglang/make_env.py installed"
    )
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "PAGE_SIZE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure[0], int(arguments.measure[1]))
        return
    site = ENVIRONMENT / "site" / arguments.release
    if not site.exists():
        sys.exit(
            f"error: no SGLang {arguments.release} in {ENVIRONMENT.name}: "
            "run python tests/conformance/adapters/sglang/make_env.py"
        )
    load, lines = os.getloadavg()[0], []
    for line in report(site):
        print(line, flush=True)
        lines.append(line)
    RESULT.write_text(
        "\n".join(
            [
                "# What recording costs SGLang's scheduler",
                "",
                f"Written by `make bench-capture`. {machine()}, shared with other work; load before {load:.1f}, "
                f"after {os.getloadavg()[0]:.1f}. `benchmarks/capture.py` says how it measures, `docs/capture.md` what it means.",
                "",
                "```",
                *lines,
                "```",
                "",
            ]
        )
    )


def report(site: Path) -> Iterator[str]:
    yield f"SGLang {site.name}, {RUNNING} running requests, {OF_SESSIONS} of them turns of sessions;"
    yield f"{WINDOWS // 2} pairs of windows of {STEPS_OF_A_WINDOW} steps; microseconds a step, median [quartiles]"
    for page_size in (64, 1):
        for where, parts in measured(site, "account", page_size).items():
            costs = ", ".join(f"{part} {cost:.1f}" for part, cost in parts.items())
            yield f"page size {page_size}, {where}: {costs}"
        without, added = measured(site, "bytecodes", page_size)
        yield f"page size {page_size}, bytecodes of Python: {without:,.0f} a step without recording, {added:,.0f} more with it"
    for what in ("inside", "inside with speculation"):
        of = (
            f"a round of speculation with {DRAFTS} drafts, overlapped"
            if "speculation" in what
            else "a step that decodes"
        )
        yield f"page size 64, inside the wrappers in {of}: {_spread(measured(site, what, 64))}"
    columns = f"{'quiet':>6} {'quickest of a window':>21} {'CPU of its thread':>21} {'of 10 ms':>9}"
    yield f"{'what is added':36} {'page':>4} {'a step':>7} {columns}  on disk, writer"
    for what, page_size in MEASUREMENTS:
        yield line_of(what, page_size, measured(site, what, page_size))
    for release, what in ELSEWHERE:
        other = site.with_name(release)
        if other.exists() and other != site:
            yield line_of(f"{what}, {release}", 64, measured(other, what, 64))


def measured(site: Path, what: str, page_size: int) -> Any:
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
    return json.loads(done.stdout.splitlines()[-1])


def line_of(what: str, page_size: int, result: dict[str, Any]) -> str:
    cost, extent = result["cost"], result["extent"]
    share = 100 * cost["floor"] / REAL_STEP
    line = f"{what:36} {page_size:4} {cost['step']:7.1f} {cost['floor']:6.1f}"
    line += f" {_spread(cost['quick'])} {_spread(cost['cpu'])} {share:7.3f} %"
    if extent is not None:
        line += f"  {extent['bytes']:.0f} bytes a step, {extent['writer_microseconds']:.0f} us"
        line += f"  ({'within' if cost['floor'] < TARGET else 'over'} {TARGET:.0f} us)"
    return line


def _spread(quartiles: Sequence[float]) -> str:
    low, middle, high = quartiles
    return f"{middle:6.1f} [{low:5.1f} {high:5.1f}]"


if __name__ == "__main__":
    main()
