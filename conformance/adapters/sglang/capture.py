"""Records a scheduler of a running server: from its event loop's start to its end, and never at the server's cost.

Whatever goes wrong here is said once in the server's log and ends the recording; the server continues as if nothing had been
asked for. `PATH` of `KVPROOF_TRACE` may hold `{pid}` and `{rank}`; a file that is there already is never touched.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from kvproof.conformance.adapters.live.handover import TraceLost
from kvproof.conformance.adapters.live.idle_passes import IdlePasses
from kvproof.conformance.adapters.live.live_trace import PATH_VARIABLE, LiveTrace, sentence
from kvproof.conformance.adapters.row_pages import full_pool
from kvproof.conformance.adapters.sglang.header import header_of
from kvproof.conformance.adapters.sglang.obstacles import obstacle_to_recording
from kvproof.conformance.adapters.sglang.recorder import Recorder
from kvproof.conformance.adapters.sglang.releases import installed_release
from kvproof.spec.trace import FINISHED, STOPPED

# An idle check lists the free pages of pools up to this size; of larger ones it would be most of the trace.
LISTED_PAGES = 4096

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
            logger.warning("kvproof records nothing: %s", sentence(error))
            return None
        cls._of_this_process = capture
        capture.start()
        return capture

    def __init__(self, scheduler: Any, path: str) -> None:
        release = installed_release()
        self._scheduler = scheduler
        header = header_of(release, scheduler, scenario=None, extra=_settings(scheduler))
        self.trace = LiveTrace(path, rank_of(scheduler), header)
        self._handover = self.trace.handover
        self._idle_passes = IdlePasses()
        step = partial(STEP, scheduler)
        self._recorder = Recorder(release, scheduler, self._handover.put, step=step, on_error=self._fail)
        self._handover.page_ids = self._recorder.page_ids

    @property
    def path(self) -> Path:
        return self.trace.path

    def start(self) -> None:
        obstacle = obstacle_to_recording(self._scheduler)
        if obstacle is not None:
            self._stop(f"not recorded: {obstacle}", dropped=0)
            return
        recorder, scheduler = self._recorder, type(self._scheduler)
        try:
            recorder.start()
            recorder.hooks.around(scheduler, recorder.release.idle_check, self._idle)
            if recorder.release.busy_check is not None:
                *owner, name = recorder.release.busy_check.split(".")
                checker = attrgetter(*owner)(self._scheduler) if owner else self._scheduler
                recorder.hooks.around(type(checker), name, self._busy_check)
            recorder.hooks.around(scheduler, "flush_cache", self._flush_cache)
        except Exception as error:
            self._stop(sentence(error), dropped=0)

    def end(self, reason: str | None = None) -> None:
        """The event loop is over. Without a reason it was left regularly, or interrupted, as a server in a terminal is."""
        if self.trace.has_ended:
            self.trace.end(reason or FINISHED)
            return
        try:
            self._recorder.stop()
            if reason is None:
                reason = FINISHED if is_idle(self._scheduler) else STOPPED
            self.trace.end(reason, dropped=self._recorder.stray_frees)
        except Exception as error:
            logger.warning("kvproof could not close %s: %s", self.path, sentence(error))

    # -- while it runs --

    def _idle(self, check: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        """The scheduler found nothing to run. It asks again thousands of times a second, so only the first is an event."""
        self._count_idle_pass()
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

    def _count_idle_pass(self) -> None:
        if passes := self._idle_passes.one_more(self._handover.records):
            was_idle = self._handover.is_idle
            self._recorder.idle(passes)
            if was_idle:
                self._handover.idle()
            self._idle_passes.was_said(self._handover.records)

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
        # What the handover could not carry had been put; any other error kept an event from being put.
        self._stop(sentence(error), dropped=0 if isinstance(error, TraceLost) else 1)

    def _stop(self, reason: str, *, dropped: int) -> None:
        """Give up for good. `dropped`: events that were not even put."""
        if self.trace.has_ended:
            return
        with suppress(Exception):
            self._recorder.stop()
        self.trace.stop(reason, dropped=dropped)


def _leave_to_the_parent() -> None:
    """This process is a fork of one that is recorded (`live/trace.py`): what its scheduler does is no part of that."""
    capture, Capture._of_this_process = Capture._of_this_process, None
    if capture is not None:
        with suppress(Exception):
            capture._recorder.hooks.take_away()


os.register_at_fork(after_in_child=_leave_to_the_parent)


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
    """Nothing runs, waits, is prefilled in part, or is on its way back from the device. Asked where there is no batch to run."""
    in_flight = scheduler.enable_overlap and getattr(scheduler, "result_queue", None)
    waits = scheduler.waiting_queue or scheduler.chunked_req is not None
    return not in_flight and not waits and scheduler.running_batch.is_empty()


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
