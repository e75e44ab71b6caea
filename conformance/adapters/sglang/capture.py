"""Records a scheduler of a running server: from its event loop's start to its end, and never at the server's cost.

Whatever goes wrong here is said once in the server's log and ends the recording; the server goes on as if nothing had been
asked for. `PATH` of `KVPROOF_TRACE` may hold `{pid}` and `{rank}`; a file that is there already is never touched.
"""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from kvproof.conformance.file_names import of_rank, with_word

from .handover import Handover, TraceLost, frame
from .header import header_of
from .recorder import Recorder
from .releases import full_pool, installed_release
from .writer import header_line, revoke_end

PATH_VARIABLE = "KVPROOF_TRACE"
# An idle check lists the free pages of pools up to this size; of larger ones it would be most of the trace.
LISTED_PAGES = 4096
# What the pipe holds beside the buffer, where the system allows it.
PIPE_BYTES = 1 << 20
# Runs into one name that are all kept. Who starts as many wants `{pid}` in the name, or another folder.
MOST_NAMES = 100
# The process that writes leaves its parent at once: SGLang kills its children and theirs when it stops.
WRITER = "import os; os.fork() and os._exit(0); from kvproof.conformance.adapters.sglang.writer import main; main()"

# The number of a scheduler's step.
STEP = attrgetter("forward_ct")

logger = logging.getLogger("kvproof")


def record_event_loop(run: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands around `Scheduler.run_event_loop`: record while it runs."""
    capture = Capture.of(scheduler)
    reason = None
    try:
        return run(scheduler, *args, **kwargs)
    except Exception as error:
        reason = f"crashed: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        raise
    finally:
        if capture is not None:
            capture.end(reason)


class Capture:
    """The recording of one scheduler: `start` it before the event loop, `end` it after. What it hooks in never raises."""

    _of_this_process: Capture | None = None

    @classmethod
    def of(cls, scheduler: Any) -> Capture | None:
        """Begin to record, once in a process and if that is possible; if not, the log says why."""
        path = os.environ.get(PATH_VARIABLE)
        if not path or cls._of_this_process is not None:
            return None
        try:
            capture = cls(scheduler, path)
        except Exception as error:
            logger.warning("kvproof records nothing: %s", _sentence(error))
            return None
        cls._of_this_process = capture
        capture.start()
        return capture

    def __init__(self, scheduler: Any, path: str) -> None:
        release = installed_release()
        self._scheduler = scheduler
        self._ended = False
        header = header_of(release, scheduler, scenario=None, extra=_settings(scheduler))
        self.path, file = _new_file(path, rank_of(scheduler))
        try:
            pipe = _start_writer(file)
        finally:
            os.close(file)
        os.write(pipe, frame((file, self.path.suffix == ".gz", scheduler.page_size, header_line(header))))
        self._handover = Handover(pipe)
        step = partial(STEP, scheduler)
        self._recorder = Recorder(release, scheduler, self._handover.put, step=step, on_error=self._fail)
        self._handover.page_ids = self._recorder.page_ids
        logger.info("kvproof records %s into %s", header.producer.target, self.path)

    def start(self) -> None:
        obstacle = obstacle_to_recording(self._scheduler)
        if obstacle is not None:
            self._stop(f"not recorded: {obstacle}", dropped=0)
            return
        recorder, scheduler = self._recorder, type(self._scheduler)
        try:
            recorder.start()
            recorder.watch.around(scheduler, recorder.release.idle_check, self._idle)
            if recorder.release.busy_check is not None:
                *owner, name = recorder.release.busy_check.split(".")
                checker = attrgetter(*owner)(self._scheduler) if owner else self._scheduler
                recorder.watch.around(type(checker), name, self._busy_check)
            recorder.watch.around(scheduler, "flush_cache", self._flush_cache)
        except Exception as error:
            self._stop(_sentence(error), dropped=0)

    def end(self, reason: str | None = None) -> None:
        """The event loop is over. Without a reason it was left regularly, or interrupted, as a server in a terminal is."""
        if self._ended:
            return
        self._ended = True
        try:
            self._recorder.stop()
            if reason is None:
                reason = "finished" if is_idle(self._scheduler) else "interrupted while requests ran"
            self._handover.end(reason, dropped=self._recorder.stray_frees)
        except Exception as error:
            logger.warning("kvproof could not close %s: %s", self.path, _sentence(error))

    # -- while it runs --

    def _idle(self, check: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        """The scheduler found nothing to run. It asks again thousands of times a second, so only the first is an event."""
        if self._handover.is_idle:
            return check(scheduler, *args, **kwargs)
        if not is_idle(scheduler):
            self._handover.flush()
            return check(scheduler, *args, **kwargs)
        self._handover.idle()  # before the check, which may put the process to sleep until the next request

        def record(passed: bool) -> None:
            self._recorder.check(busy=False, passed=passed, free_list=_lists_free_pages(scheduler))
            if passed:
                self._handover.idle()

        return _checked(lambda: check(scheduler, *args, **kwargs), record)

    def _busy_check(self, check: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def record(passed: bool) -> None:
            if self._scheduler.last_batch is not None:  # else the release looked at nothing
                self._recorder.check(busy=True, passed=passed, free_list=False)

        return _checked(lambda: check(*args, **kwargs), record)

    def _flush_cache(self, flush: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        """The pools are set up anew, which no event of a trace says. An attempt that fails leaves them as they are."""
        self._handover.flush()
        flushed = flush(scheduler, *args, **kwargs)
        if flushed:
            self._stop("the cache was flushed: what came after it was not recorded", dropped=0)
        return flushed

    def _fail(self, error: Exception) -> None:
        self._stop(_sentence(error), dropped=1)

    def _stop(self, reason: str, *, dropped: int) -> None:
        """Give up for good. A trace with a hole in the middle would judge nothing."""
        if self._ended:
            return
        self._ended = True
        logger.warning("kvproof stops recording into %s: %s", self.path, reason)
        with suppress(Exception):
            self._recorder.stop()
        with suppress(Exception):
            self._handover.end(reason, dropped=dropped, patience=0)
        if self.path.suffix != ".gz":
            with suppress(Exception):
                if not is_being_written(self.path):
                    revoke_end(self.path, reason, dropped)


def _checked(check: Callable[[], Any], record: Callable[[bool], None]) -> Any:
    """Run one of the release's own checks and record whether it passed. What it raises ends the server, as it would."""
    passed = False
    try:
        result = check()
        passed = True
        return result
    finally:
        record(passed)


def is_idle(scheduler: Any) -> bool:
    """Nothing runs, waits, or is on its way back from the device. Asked where the scheduler has no batch to run."""
    in_flight = scheduler.enable_overlap and getattr(scheduler, "result_queue", None)
    return not in_flight and not scheduler.waiting_queue and scheduler.running_batch.is_empty()


def obstacle_to_recording(scheduler: Any) -> str | None:
    """What of the configuration the trace has no events for, or None."""
    speculation = getattr(scheduler, "spec_algorithm", None)
    disaggregation = getattr(scheduler, "disaggregation_mode", None)
    obstacles = {
        "speculative decoding": speculation is not None and not speculation.is_none(),
        "state spaces": getattr(scheduler, "is_hybrid_ssm", False),
        "a hierarchical cache": getattr(scheduler, "enable_hierarchical_cache", False),
        "disaggregation": disaggregation is not None and disaggregation.value != "null",
        "pipeline parallelism": scheduler.server_args.pp_size > 1,
    }
    found = [name for name, is_there in obstacles.items() if is_there]
    return f"{' and '.join(found)} cannot be recorded yet" if found else None


def rank_of(scheduler: Any) -> str | None:
    """The scheduler's place among those of its server, or None if it is the only one."""
    args = scheduler.server_args
    if args.tp_size == 1 and args.dp_size == 1:
        return None
    return f"dp{scheduler.dp_rank or 0}-tp{scheduler.tp_rank}"


def _settings(scheduler: Any) -> dict[str, Any]:
    names = ("disable_overlap_schedule", "max_running_requests", "enable_mixed_chunk", "schedule_policy")
    return {name: getattr(scheduler.server_args, name, None) for name in names}


def _lists_free_pages(scheduler: Any) -> bool:
    """Of two pools the full one is the larger."""
    pool = full_pool(scheduler.token_to_kv_pool_allocator)
    return bool(pool.size // scheduler.page_size <= LISTED_PAGES)


def _new_file(wanted: str, rank: str | None) -> tuple[Path, int]:
    """Make the file; its path and descriptor. A name that is taken, by an earlier run or another server, gets words into it."""
    named = of_rank(wanted.replace("{pid}", str(os.getpid())), rank)
    named.parent.mkdir(parents=True, exist_ok=True)
    for path in (named, *_other_names(named)):
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            continue
        if path != named:
            logger.warning("kvproof: %s is there already and stays as it is; this server's trace is %s", named, path)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held by the process that writes: see `is_being_written`
        return path, file
    raise FileExistsError(f"{named} is there already, and so are all names that could stand for it")


def _other_names(named: Path) -> Iterator[Path]:
    """With the process id; in containers a server started again has the one that it had before, so then with a number too."""
    for number in range(1, MOST_NAMES):
        yield with_word(named, str(os.getpid()) if number == 1 else f"{os.getpid()}-{number}")


def is_being_written(path: Path) -> bool:
    """Whether a server writes its trace into this file now."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _start_writer(file: int) -> int:
    """Start the process that writes; the descriptor of the pipe to it."""
    environment = {name: value for name, value in os.environ.items() if name != PATH_VARIABLE}
    reading, writing = os.pipe()
    try:
        subprocess.run(
            [sys.executable, "-c", WRITER],
            stdin=reading,
            pass_fds=(file,),
            env=environment,
            start_new_session=True,
            check=True,
        )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    with suppress(OSError):
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return writing


def _sentence(error: Exception) -> str:
    message = str(error).strip().partition("\n")[0]
    return message if isinstance(error, TraceLost | OSError | RuntimeError) else f"{type(error).__name__}: {message}"
