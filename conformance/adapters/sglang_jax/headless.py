"""sglang-jax's real scheduler and cache layer in this process: no accelerator, no server, and a forward that makes up tokens.

The scheduler is built by its own constructor and runs its own event loop, one pass at a time. What stands in for the rest is
the model with its worker, the tokenizer, the watchdog and the socket; admission, batches, results, pools, trees and release
are the checkout's code.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kvproof.conformance.adapters.event_loop import EventLoop
from kvproof.conformance.adapters.headless_scheduler import VOCABULARY, HeadlessScheduler
from kvproof.conformance.adapters.sglang_jax.checkout import checkout, import_scheduler
from kvproof.conformance.adapters.sglang_jax.settings import Settings
from kvproof.conformance.adapters.sglang_jax.worker import Worker


class Headless(HeadlessScheduler):
    """One scheduler. `on_check` is called when it is idle: whether its own memory check passed."""

    def __init__(self, settings: Settings, *, counts_chunks: bool = False) -> None:
        super().__init__(settings.seed)
        self.settings = settings
        self._counts_chunks = counts_chunks
        self.on_check: Callable[[bool], None] = lambda passed: None
        self.prescribed: dict[str, list[int]] = {}
        """request -> tokens that the forward shall sample for it, in order; else they are random"""
        self.scheduler = self._build()
        loop = self.scheduler.event_loop_overlap if settings.overlap else self.scheduler.event_loop_normal
        self._loop = EventLoop(loop)
        self._take_hold_of_the_check()

    # -- what a client does --

    def send_tokens(self, turn: str, input_ids: list[int], max_new_tokens: int) -> None:
        messages = importlib.import_module("sgl_jax.srt.managers.io_struct")
        sampling = importlib.import_module("sgl_jax.srt.sampling.sampling_params").SamplingParams(
            max_new_tokens=max_new_tokens, temperature=0.0
        )
        sampling.normalize(None)
        self._inbox.append(
            messages.TokenizedGenerateReqInput(
                rid=turn,
                text="",
                input_ids=input_ids,
                sampling_params=sampling,
                return_logprob=False,
                return_output_logprob_only=False,
                top_logprobs_num=0,
                dp_rank=0,
            )
        )

    def running(self) -> list[str]:
        return [req.rid for req in self.scheduler.running_batch.reqs_info[0].reqs or []]

    def retract(self) -> None:
        """In the next decode step the scheduler finds the pool full, once: it retracts as it then does."""
        batch = self.scheduler.running_batch
        original = batch.check_decode_mem

        def refuses_once(*args: Any, **kwargs: Any) -> bool:
            batch.check_decode_mem = original
            return False

        batch.check_decode_mem = refuses_once
        self.step()

    @contextmanager
    def test_retract(self) -> Iterator[None]:
        """With the test switch that forces retracts, which a server reads from SGLANG_TEST_RETRACT."""
        module: Any = import_scheduler()
        module.TEST_RETRACT = True
        try:
            yield
        finally:
            module.TEST_RETRACT = False

    @property
    def sources(self) -> Path:
        """The folder of the checkout that is driven."""
        return checkout()

    # -- underneath --

    def _build(self) -> Any:
        logging.disable(logging.CRITICAL)  # what it logs about a run is in the trace
        module = import_scheduler()
        mesh_utils = importlib.import_module("sgl_jax.srt.utils.mesh_utils")
        mesh = mesh_utils.create_device_mesh(ici_parallelism=[1, 1], dcn_parallelism=[1, 1])
        worker = Worker(self.settings, mesh, self._make_tokens)
        for name in ("ModelWorker", "ModelWorkerClient"):
            setattr(module, name, lambda **_: worker)

        class Scheduler(module.Scheduler):  # type: ignore[name-defined]
            """Its own constructor and code; what needs a model's files, a process or a detokenizer is left out."""

            def init_tokenizer(self) -> None:
                self.model_config, self.is_generation = _model_config(settings), True
                self.tokenizer = self.processor = None

            def watchdog_thread(self) -> None:
                pass

            def stream_output(self, *args: Any, **kwargs: Any) -> None:
                pass

            def get_new_batch_prefill(self) -> Any:
                continued = self.chunked_reqs[0]
                counted = continued.is_chunked if continued is not None else 0
                batch = super().get_new_batch_prefill()
                goes_on = batch is not None and continued is not None and continued is self.chunked_reqs[0]
                if counts_chunks and goes_on and continued.is_chunked == counted:
                    continued.is_chunked += 1
                return batch

            def run_batch(self, batch: Any) -> Any:
                worker.batch = batch
                return super().run_batch(batch)

        settings, counts_chunks = self.settings, self._counts_chunks
        transport = SimpleNamespace(
            recv_requests=lambda: self._loop.receive(),
            wait_for_new_requests=lambda seconds: None,
            send_pyobj=lambda message: None,
        )
        return Scheduler(_server_args(settings), communication_backend=transport, mesh=mesh)

    def _make_tokens(self, turns: Sequence[str]) -> list[int]:
        return [self.prescribed[turn].pop(0) if self.prescribed.get(turn) else self.tokens(1)[0] for turn in turns]

    def _take_hold_of_the_check(self) -> None:
        scheduler, check_memory = self.scheduler, self.scheduler.check_memory

        def idle() -> None:
            self._was_idle = True
            try:
                check_memory()
            except (AssertionError, ValueError):  # in a server that is its end; here the run continues, to show more
                self.on_check(False)
            else:
                self.on_check(True)

        scheduler.check_memory = idle


def _server_args(settings: Settings) -> Any:
    server_args = importlib.import_module("sgl_jax.srt.server_args").ServerArgs
    return server_args(
        model_path="none",
        device="cpu",
        page_size=settings.page_size,
        chunked_prefill_size=settings.chunked_prefill_size or -1,
        enable_mixed_chunk=settings.mixed_chunk,
        disable_overlap_schedule=not settings.overlap,
        disable_radix_cache=settings.disable_radix_cache,
        disable_precompile=True,
        skip_tokenizer_init=True,
        random_seed=settings.seed,
        max_seq_len=settings.context_length,
    )


def _model_config(settings: Settings) -> Any:
    return SimpleNamespace(
        vocab_size=VOCABULARY,
        hf_eos_token_id={0},
        is_generation=True,
        num_hidden_layers=2,
        head_dim=128,
        get_num_kv_heads=lambda ranks: 1,
        sliding_window=settings.window or None,
    )
