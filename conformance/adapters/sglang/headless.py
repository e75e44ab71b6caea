"""SGLang's real scheduler, cache and sessions in this process: no GPU, no server, and a forward that makes up its tokens.

`Headless` turns the crank of the event loop by hand (`step`), so that a schedule is a sequence of calls and the same seed
gives the same run. Everything that decides about KV pages is the installed release; only the model's forward, the sockets
and two Triton kernels are replaced.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from kvproof.conformance.errors import UserError

from . import fast_alloc, stand_ins
from .releases import INSTALL_HINT, Release, installed_release

Checks = Literal["idle", "every"]

# Read by SGLang and its libraries when they are imported, so they are set before that.
ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "TRITON_INTERPRET": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}
VOCABULARY = 512
TINY_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}
# The forward never makes up a token that could end a request early: 0 to 2 are reserved, lengths alone decide.
FIRST_ORDINARY_TOKEN = 3
# A scheduler that has requests but ran no batch this often will not run them: nothing changes from step to step.
MANY_IDLE_STEPS = 20
# No scenario needs as many: some of them decode several pages.
MANY_STEPS, MANY_STEPS_PER_TOKEN_OF_A_PAGE = 2000, 200


@dataclass(frozen=True)
class Settings:
    """What a run depends on, the same for every release. Lengths are in tokens."""

    page_size: int = 1
    pool_tokens: int = 512
    max_running_requests: int = 6
    chunked_prefill_size: int | None = None
    mixed_chunk: bool = False
    context_length: int = 512
    seed: int = 0

    def but(self, **changes: Any) -> Settings:
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class NeverIdle(Exception):
    """Requests are left that the scheduler does not bring to an end."""


class Headless:
    """One scheduler. `on_check` is called after a step when checks are asked for: (busy, release's own check passed)."""

    def __init__(self, settings: Settings, *, checks: Checks = "idle") -> None:
        self.release: Release = import_sglang()
        self.settings = settings
        self.checks = checks
        self.on_check: Callable[[bool, bool], None] = lambda busy, passed: None
        self.on_step: Callable[[], Any] = lambda: None
        self.steps = 0
        self.replies: list[Any] = []
        self._random = random.Random(settings.seed)
        self._inbox: list[Any] = []
        self.scheduler = self._build_scheduler()

    # -- what a client does --

    def open(self, session: str) -> None:
        from sglang.srt.managers.io_struct import OpenSessionReqInput

        self._receive(OpenSessionReqInput(capacity_of_str_len=1 << 20, session_id=session, streaming=True))

    def send(
        self, turn: str, new_tokens: int, max_new_tokens: int, *, session: str | None = None, logprob: bool = False
    ) -> None:
        """A turn that appends `new_tokens` random tokens to its session, or an ordinary request without one."""
        self.send_tokens(turn, self.tokens(new_tokens), max_new_tokens, session=session, logprob=logprob)

    def send_tokens(
        self, turn: str, input_ids: list[int], max_new_tokens: int, *, session: str | None = None, logprob: bool = False
    ) -> None:
        from sglang.srt.managers.io_struct import SessionParams, TokenizedGenerateReqInput
        from sglang.srt.sampling.sampling_params import SamplingParams

        sampling = SamplingParams(max_new_tokens=max_new_tokens, temperature=0.0, ignore_eos=True)
        sampling.normalize(None)
        self._receive(
            TokenizedGenerateReqInput(
                rid=turn,
                input_text="",
                input_ids=input_ids,
                mm_inputs=None,
                sampling_params=sampling,
                return_logprob=logprob,
                logprob_start_len=0 if logprob else -1,
                top_logprobs_num=0,
                token_ids_logprob=None,
                stream=False,
                session_params=SessionParams(id=session) if session is not None else None,
                **_time_stats(),
            )
        )

    def abort(self, turn: str) -> None:
        """Abort by request id. SGLang aborts every id that starts with it: no id here may be the prefix of another."""
        from sglang.srt.managers.io_struct import AbortReq

        self._receive(AbortReq(rid=turn))

    def close(self, session: str) -> None:
        from sglang.srt.managers.io_struct import CloseSessionReqInput

        self._receive(CloseSessionReqInput(session_id=session))

    def tokens(self, count: int) -> list[int]:
        return [self._random.randrange(FIRST_ORDINARY_TOKEN, VOCABULARY) for _ in range(count)]

    # -- the event loop, one turn of the crank at a time --

    def step(self) -> bool:
        """One pass of the scheduler's event loop; whether it ran a batch."""
        scheduler = self.scheduler
        self.steps += 1
        # Deferred closes are carried out at most once a second; without a clock: at every step.
        scheduler.session_controller._last_reap_time = float("-inf")
        inbox, self._inbox = self._inbox, []
        scheduler.process_input_requests(inbox)
        batch = scheduler.get_next_batch_to_run()
        scheduler.cur_batch = batch
        if batch:
            scheduler.process_batch_result(batch, scheduler.run_batch(batch))
        else:
            self.on_check(False, _passes(getattr(scheduler, self.release.idle_check)))
        scheduler.last_batch = batch
        if batch and self.checks == "every":
            self.on_check(True, _passes(scheduler.self_check_during_busy))
        self.on_step()
        return bool(batch)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def drain(self) -> None:
        """Step until nothing runs, waits or arrives; the last step is the idle one that checks the memory."""
        idle_steps, limit = 0, MANY_STEPS + MANY_STEPS_PER_TOKEN_OF_A_PAGE * self.settings.page_size
        for _ in range(limit):
            idle_steps = 0 if self.step() else idle_steps + 1
            if idle_steps and not self.waiting():
                return
            if idle_steps == MANY_IDLE_STEPS:
                raise NeverIdle(f"nothing runs any more, but {', '.join(self.waiting())} still wait")
        raise NeverIdle(f"after {limit} steps {', '.join(self.running())} still run")

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

    # -- what can be read --

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
        return [*self.allocator.free_pages.tolist(), *self.allocator.release_pages.tolist()]

    def running(self) -> list[str]:
        batches = (self.scheduler.last_batch, self.scheduler.running_batch)
        reqs = {req.rid: req for batch in batches if batch is not None for req in batch.reqs}
        return [rid for rid, req in reqs.items() if not req.finished()]

    def waiting(self) -> list[str]:
        return [req.rid for req in self.scheduler.waiting_queue]

    def request(self, turn: str) -> Any:
        """The running or waiting request of a turn, or None."""
        batches = (self.scheduler.last_batch, self.scheduler.running_batch)
        reqs = [req for batch in batches if batch is not None for req in batch.reqs]
        return next((req for req in [*reqs, *self.scheduler.waiting_queue] if req.rid == turn), None)

    # -- building it --

    def _receive(self, message: Any) -> None:
        self._inbox.append(message)

    def _build_scheduler(self) -> Any:
        from sglang.srt.managers.scheduler import Scheduler
        from sglang.srt.server_args import PortArgs, set_global_server_args_for_scheduler

        _leave_earlier_distributed_groups()
        try:
            args = _server_args(self.settings)
        except (AssertionError, ValueError) as error:
            raise UserError(f"SGLang {self.release.version} refuses {self.settings}: {error}") from error
        set_global_server_args_for_scheduler(args)
        scheduler = Scheduler(args, PortArgs.init_new(args), 0, 0, 0, 0, 0, 0, None)
        for name in ("send_to_tokenizer", "send_to_detokenizer"):
            setattr(scheduler, name, _Collector(self.replies))
        scheduler.tp_worker.forward_batch_generation = self._made_up_forward
        scheduler.cur_batch = None
        return scheduler

    def _made_up_forward(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        import torch
        from sglang.srt.layers.logits_processor import LogitsProcessorOutput
        from sglang.srt.managers.utils import GenerationBatchResult

        ids = torch.tensor(self.tokens(len(batch.seq_lens)), dtype=torch.int64)
        logits = LogitsProcessorOutput(next_token_logits=None)
        logits.next_token_logprobs = torch.zeros(len(ids))
        return GenerationBatchResult(logits_output=logits, next_token_ids=ids, can_run_cuda_graph=False)


def import_sglang() -> Release:
    """Import the installed release on a bare CPU: stand-ins first, then the paged allocation without Triton."""
    os.environ.update(ENVIRONMENT)
    stand_ins.install()
    release = installed_release()
    logging.getLogger("sglang").setLevel(logging.CRITICAL)  # what it logs about a run is in the trace
    warnings.filterwarnings("ignore", module=r"sglang\.")  # it warns about every kernel that a CPU has not
    try:
        fast_alloc.install()
    except ImportError as error:
        raise UserError(
            f"SGLang {release.version} is installed but cannot be imported ({error}): {INSTALL_HINT}"
        ) from error
    return release


def _server_args(settings: Settings) -> Any:
    """A tiny model on a CPU, with everything that decides about pages as in a server; overlap is off."""
    from sglang.srt.server_args import ServerArgs

    return ServerArgs(
        model_path=_tiny_model_folder().name,
        load_format="dummy",
        device="cpu",
        attention_backend="torch_native",
        sampling_backend="pytorch",
        grammar_backend="none",
        skip_tokenizer_init=True,
        disable_cuda_graph=True,
        disable_overlap_schedule=True,
        enable_streaming_session=True,
        mem_fraction_static=0.5,
        max_total_tokens=settings.pool_tokens,
        max_running_requests=settings.max_running_requests,
        page_size=settings.page_size,
        chunked_prefill_size=settings.chunked_prefill_size or -1,
        enable_mixed_chunk=settings.mixed_chunk,
        context_length=settings.context_length,
        random_seed=settings.seed,
    )


def _leave_earlier_distributed_groups() -> None:
    """A process may hold several schedulers in turn, but only one set of (here: one-rank) process groups."""
    from sglang.srt.distributed import parallel_state

    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()


class _Collector:
    """Takes the place of a ZMQ sender and keeps what was sent."""

    def __init__(self, kept: list[Any]) -> None:
        self._kept = kept

    def send_output(self, output: Any, recv_obj: Any = None) -> None:
        self._kept.append(output)


def _passes(check: Callable[[], None]) -> bool:
    """Run one of the release's own checks, which raise. In a server that is its end; here the run goes on to show more."""
    try:
        check()
    except (AssertionError, ValueError):
        return False
    return True


def _time_stats() -> dict[str, Any]:
    """The request's clock, which the tokenizer process would have attached."""
    from sglang.srt.observability import req_time_stats

    return {"time_stats": req_time_stats.APIServerReqTimeStats()}


@functools.cache
def _tiny_model_folder() -> tempfile.TemporaryDirectory[str]:
    """Kept as long as the process lives, and removed with it."""
    folder = tempfile.TemporaryDirectory(prefix="kvproof-tiny-llama-")
    (Path(folder.name) / "config.json").write_text(json.dumps(TINY_LLAMA))
    return folder
