"""SGLang's real scheduler, cache and sessions in this process: no server, and as a rule no GPU and made-up tokens.

`Headless` plays the clients and runs SGLang's own event loop one pass at a time (`step`), so that a schedule is a sequence
of calls and the same seed gives the same run.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from kvproof.conformance.adapters.event_loop import EventLoop
from kvproof.conformance.adapters.headless_scheduler import MANY_STEPS, HeadlessScheduler
from kvproof.conformance.adapters.row_pages import full_pool
from kvproof.conformance.adapters.sglang.engine import build_scheduler, import_sglang
from kvproof.conformance.adapters.sglang.releases import Release
from kvproof.conformance.adapters.sglang.settings import Settings

Checks = Literal["idle", "every"]

MANY_STEPS_PER_TOKEN_OF_A_PAGE = 200


class Headless(HeadlessScheduler):
    """One scheduler. `on_check` is called after a step when checks are asked for: (busy, release's own check passed)."""

    def __init__(self, settings: Settings, *, checks: Checks = "idle") -> None:
        super().__init__(settings.seed)
        self.release: Release = import_sglang(settings.device)
        self.settings = settings
        self.checks = checks
        self.on_check: Callable[[bool, bool], None] = lambda busy, passed: None
        self.alarm = ""
        """what the release's own check said last, if it was not content"""
        self.many_steps = MANY_STEPS + MANY_STEPS_PER_TOKEN_OF_A_PAGE * settings.page_size
        self.replies: list[Any] = []
        self.scheduler = build_scheduler(self.release, settings, self.tokens, self.replies)
        self._loop = self._take_hold_of_the_loop()

    # -- what a client does --

    def open(self, session: str) -> None:
        from sglang.srt.managers.io_struct import OpenSessionReqInput

        self._inbox.append(OpenSessionReqInput(capacity_of_str_len=1 << 20, session_id=session, streaming=True))

    def send_tokens(
        self,
        turn: str,
        input_ids: list[int],
        max_new_tokens: int,
        *,
        session: str | None = None,
        logprob: bool = False,
        ignore_eos: bool = False,
    ) -> None:
        """A turn that appends these tokens to its session, or an ordinary request without one.

        `ignore_eos` changes no length, as no end token is ever made up; but SGLang admits such requests by other rules.
        """
        from sglang.srt.managers.io_struct import SessionParams, TokenizedGenerateReqInput
        from sglang.srt.sampling.sampling_params import SamplingParams

        sampling = SamplingParams(max_new_tokens=max_new_tokens, temperature=0.0, ignore_eos=ignore_eos)
        sampling.normalize(None)
        fields = {
            "rid": turn,
            "input_text": "",
            "input_ids": self.release.input_ids(input_ids),
            "sampling_params": sampling,
            "return_logprob": logprob,
            "logprob_start_len": 0 if logprob else -1,
            "top_logprobs_num": 0,
            "stream": False,
            "session_params": SessionParams(id=session) if session is not None else None,
            "time_stats": _time_stats(),
        }
        others = dict.fromkeys(_required_fields(TokenizedGenerateReqInput) - fields.keys())
        self._inbox.append(TokenizedGenerateReqInput(**others, **fields))

    def abort(self, turn: str) -> None:
        """Abort by request id. SGLang aborts every id that starts with it: no id here may be the prefix of another."""
        from sglang.srt.managers.io_struct import AbortReq

        self._inbox.append(AbortReq(rid=turn))

    def close(self, session: str) -> None:
        from sglang.srt.managers.io_struct import CloseSessionReqInput

        self._inbox.append(CloseSessionReqInput(session_id=session))

    # -- the event loop, one turn of the crank at a time --

    def step(self) -> bool:
        # Deferred closes are carried out at most once a second; without a clock: at every step.
        self.scheduler.session_controller._last_reap_time = float("-inf")
        return super().step()

    def after_pass(self) -> None:
        scheduler = self.scheduler
        if self.checks == "every" and scheduler.last_batch is not None and self.release.busy_check is not None:
            self.on_check(True, self._passes(attrgetter(self.release.busy_check)(scheduler)))

    @contextmanager
    def force_retract(self) -> Iterator[None]:
        """Within it each decode step retracts, by SGLang's own test switch: every running request but one."""
        import sglang.srt.managers.scheduler as module

        before = module.TEST_RETRACT, module.TEST_RETRACT_INTERVAL
        module.TEST_RETRACT, module.TEST_RETRACT_INTERVAL = True, 1
        try:
            yield
        finally:
            module.TEST_RETRACT, module.TEST_RETRACT_INTERVAL = before

    def retract(self) -> None:
        """One step that retracts if it decodes."""
        with self.force_retract():
            self.step()

    # -- what can be read --

    @property
    def sources(self) -> Path:
        """The folder of the SGLang that is driven."""
        return Path(str(importlib.import_module("sglang").__file__)).parent

    @property
    def tree(self) -> Any:
        return self.scheduler.tree_cache

    @property
    def allocator(self) -> Any:
        return self.scheduler.token_to_kv_pool_allocator

    @property
    def rows(self) -> Any:
        return self.scheduler.req_to_token_pool

    def free_pages(self) -> list[int]:
        return self.release.free_pages(full_pool(self.allocator))

    def running(self) -> list[str]:
        batches = (self.scheduler.last_batch, self.scheduler.running_batch)
        reqs = {req.rid: req for batch in batches if batch is not None for req in batch.reqs}
        return [rid for rid, req in reqs.items() if not req.finished()]

    def request(self, turn: str) -> Any:
        """The running or waiting request of a turn, or None."""
        batches = (self.scheduler.last_batch, self.scheduler.running_batch)
        reqs = [req for batch in batches if batch is not None for req in batch.reqs]
        return next((req for req in [*reqs, *self.scheduler.waiting_queue] if req.rid == turn), None)

    # -- underneath --

    def _take_hold_of_the_loop(self) -> EventLoop:
        scheduler = self.scheduler
        loop = EventLoop(scheduler.run_event_loop)
        self.release.receive(scheduler, loop.receive)
        check_memory = getattr(scheduler, self.release.idle_check)

        def idle() -> None:
            self._was_idle = True
            passed = self._passes(check_memory)
            # A prompt that waits for pages for its next chunk has pages already: SGLang looks at nothing.
            if scheduler.chunked_req is None or not passed:
                self.on_check(False, passed)

        setattr(scheduler, self.release.idle_check, idle)
        return loop

    def _passes(self, check: Callable[[], None]) -> bool:
        """Run one of the release's own checks, which raise. In a server that is its end; here the run continues, to show more."""
        self.alarm = ""
        try:
            check()
        except (AssertionError, ValueError) as error:
            self.alarm = str(error) or type(error).__name__
        return not self.alarm


def _time_stats() -> Any:
    """The request's clock, which the tokenizer process would have attached."""
    return importlib.import_module("sglang.srt.observability.req_time_stats").APIServerReqTimeStats()


def _required_fields(message: Any) -> set[str]:
    """Fields of a message (a dataclass, in newer releases a msgspec struct) that have no default."""
    parameters = inspect.signature(message).parameters.values()
    return {parameter.name for parameter in parameters if parameter.default is parameter.empty}
