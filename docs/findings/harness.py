"""Runs SGLang's scheduler in this process, for the scripts beside this file. It needs sglang and nothing else; in an
environment of make_env.py, which has no GPU packages, kvproof's stand-ins take their place.

The scheduler, the caches and the sessions are SGLang's own, and so is the event loop, which is left after every pass. The
model is a two-layer dummy whose forward is replaced by random tokens: what these scripts show does not depend on what a
model says. A GPU is used where there is one.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import random
import sys
import tempfile
import types
from array import array
from importlib.metadata import version
from pathlib import Path

if not Path("/dev/nvidia0").exists():
    os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    os.environ.setdefault("TRITON_INTERPRET", "1")
if "sgl_kernel" not in sys.modules and importlib.util.find_spec("sgl_kernel") is None:
    from kvproof.conformance.adapters import stand_ins

    stand_ins.install()

import torch

ON_GPU = torch.cuda.is_available()
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16" if ON_GPU else "float32",
}


class PassEnded(Exception):
    """Leaves the event loop at the top of its next pass."""


class Server:
    """What a client could do, and `step`: one pass of the event loop. `idle` is true when the pass found nothing to do."""

    def __init__(self, window=0, **server_args):
        """`window`: the sliding window of one of the model's two layers; 0: full attention."""
        self.folder = tempfile.TemporaryDirectory()
        (Path(self.folder.name) / "config.json").write_text(json.dumps(MODEL))
        module = importlib.import_module("sglang.srt.managers.scheduler")
        arguments = importlib.import_module("sglang.srt.server_args")
        defaults = {
            "model_path": self.folder.name,
            "load_format": "dummy",
            "skip_tokenizer_init": True,
            "grammar_backend": "none",
            "disable_cuda_graph": True,
            "disable_overlap_schedule": True,
            "enable_streaming_session": True,
            "mem_fraction_static": 0.5,
            "max_total_tokens": 512,
            "max_running_requests": 6,
            "context_length": 512,
            "page_size": 1,
        }
        if not ON_GPU:
            defaults |= {"device": "cpu", "attention_backend": "torch_native", "sampling_backend": "pytorch"}
        args = arguments.ServerArgs(**(defaults | server_args))
        if window:
            slide(window)
        publish(args)
        ranks = [
            name for name in inspect.signature(module.Scheduler).parameters if name not in ("server_args", "port_args")
        ]
        self.scheduler = module.Scheduler(
            args,
            arguments.PortArgs.init_new(args),
            **{name: None if name == "dp_rank" else 0 for name in ranks},
        )
        self.module, self.messages, self.alarms, self.idle = module, [], [], False
        self.random = random.Random(0)
        self._receive_now = None
        self.scheduler.tp_worker.forward_batch_generation = self._forward
        receiver = types.SimpleNamespace(recv_requests=self._receive)
        if hasattr(self.scheduler, "request_receiver"):
            self.scheduler.request_receiver = receiver
        else:
            self.scheduler.recv_requests = self._receive
        self._check_memory = self.scheduler.on_idle
        self.scheduler.on_idle = self._on_idle

    # -- what a client does --

    def open(self, session):
        io = importlib.import_module("sglang.srt.managers.io_struct")
        self.messages.append(io.OpenSessionReqInput(capacity_of_str_len=1 << 20, session_id=session, streaming=True))

    def close(self, session):
        io = importlib.import_module("sglang.srt.managers.io_struct")
        self.messages.append(io.CloseSessionReqInput(session_id=session))

    def abort(self, rid):
        io = importlib.import_module("sglang.srt.managers.io_struct")
        self.messages.append(io.AbortReq(rid=rid))

    def tokens(self, count):
        return [self.random.randrange(3, 512) for _ in range(count)]

    def send(self, rid, tokens, output, session=None, ignore_eos=False, **others):
        """A request of `tokens`, or so many random ones, that generates `output`; with a session, its next turn.

        `others`: fields of SGLang's own message.
        """
        io = importlib.import_module("sglang.srt.managers.io_struct")
        sampling = importlib.import_module("sglang.srt.sampling.sampling_params").SamplingParams
        ids = self.tokens(tokens) if isinstance(tokens, int) else tokens
        message = io.TokenizedGenerateReqInput
        as_array = "array" in str(message.__annotations__["input_ids"])
        params = sampling(max_new_tokens=output, temperature=0.0, ignore_eos=ignore_eos)
        params.normalize(None)
        fields = {
            "rid": rid,
            "input_text": "",
            "input_ids": array("q", ids) if as_array else ids,
            "sampling_params": params,
            "return_logprob": False,
            "logprob_start_len": -1,
            "top_logprobs_num": 0,
            "stream": False,
            "session_params": io.SessionParams(id=session) if session else None,
            "time_stats": importlib.import_module("sglang.srt.observability.req_time_stats").APIServerReqTimeStats(),
        }
        parameters = inspect.signature(message).parameters.values()
        required = [p.name for p in parameters if p.default is p.empty and p.name not in fields]
        self.messages.append(message(**dict.fromkeys(required), **fields, **others))

    # -- time --

    def step(self, retract=False):
        """One pass of the event loop; `retract`: SGLang's own test switch retracts all running requests but one."""
        self.module.TEST_RETRACT, self.module.TEST_RETRACT_INTERVAL = retract, 1
        self.scheduler.session_controller._last_reap_time = float("-inf")
        self.idle, self._asked = False, False
        with contextlib.suppress(PassEnded):
            self.scheduler.event_loop_normal()

    def steps(self, count):
        for _ in range(count):
            self.step()

    def drain(self, most=300):
        """Step until there is nothing left to do; whether that came."""
        for _ in range(most):
            self.step()
            if self.idle and not self.scheduler.waiting_queue:
                return True
        return False

    def overlapped(self, *passes):
        """Passes of the overlap loop, which keeps results from one to the next; each is a function, called before it."""
        plan = iter(passes)

        def receive(*_args, **_kwargs):
            before = next(plan, None)
            if before is None:
                raise PassEnded
            self.module.TEST_RETRACT, self.module.TEST_RETRACT_INTERVAL = False, 1
            before()
            messages, self.messages = self.messages, []
            return messages

        self._receive_now = receive
        with contextlib.suppress(PassEnded):
            self.scheduler.run_event_loop()

    def retract(self):
        """In this pass: see `step`."""
        self.module.TEST_RETRACT = True

    # -- what can be seen --

    def session(self, name):
        return self.scheduler.session_controller.sessions.get(name)

    def busy(self, name):
        """The session's in-flight marker."""
        session = self.session(name)
        return session is not None and session._inflight

    def running(self, rid):
        batches = (self.scheduler.last_batch, self.scheduler.running_batch)
        reqs = [req for batch in batches if batch is not None for req in batch.reqs]
        return next((req for req in reqs if req.rid == rid and not req.finished()), None)

    def queued(self, rid):
        return next((req for req in self.scheduler.waiting_queue if req.rid == rid), None)

    def row(self, rid):
        """The row of req_to_token that a running request writes to."""
        req = self.running(rid)
        if req is None:
            return None
        return req.req_pool_idx if hasattr(req, "req_pool_idx") else req.kv.req_pool_idx

    def slots(self, rid, count):
        """The first slots that a running request's row names."""
        return self.scheduler.req_to_token_pool.req_to_token[self.row(rid), :count].tolist()

    def free_tokens(self):
        return self.scheduler.token_to_kv_pool_allocator.available_size() + self.tree_tokens()

    def tree_tokens(self):
        return self.scheduler.tree_cache.evictable_size()

    def free_slots(self):
        """The allocator's free list, at page size 1."""
        allocator = self.scheduler.token_to_kv_pool_allocator
        allocator = getattr(allocator, "full_attn_allocator", allocator)
        return [*allocator.free_pages.tolist(), *allocator.release_pages.tolist()]

    # -- underneath --

    def _receive(self, *args, **kwargs):
        if self._receive_now is not None:
            return self._receive_now()
        if self._asked:
            raise PassEnded
        self._asked = True
        messages, self.messages = self.messages, []
        return messages

    def _on_idle(self):
        self.idle = True
        try:
            self._check_memory()
        except (AssertionError, ValueError) as alarm:  # SGLang's own memory check; in a server it ends the process
            self.alarms.append(str(alarm).splitlines()[0])

    def _forward(self, batch, *args, **kwargs):
        outputs = importlib.import_module("sglang.srt.layers.logits_processor").LogitsProcessorOutput(
            next_token_logits=None
        )
        result = importlib.import_module("sglang.srt.managers.utils").GenerationBatchResult
        ids = torch.tensor(self.tokens(len(batch.seq_lens)), device=batch.seq_lens.device)
        return result(logits_output=outputs, next_token_ids=ids, can_run_cuda_graph=False)


def slide(window):
    """SGLang knows by the architecture's name which models have a sliding window; the dummy is made one of them."""
    configs = importlib.import_module("sglang.srt.configs.model_config")
    configs.is_hybrid_swa_model = lambda *args, **kwargs: True
    configs.get_hybrid_layer_ids = lambda *args, **kwargs: ([0], [1])
    llama = importlib.import_module("sglang.srt.models.llama").LlamaForCausalLM
    llama.get_attention_sliding_window_size = lambda self: window


def publish(args):
    """Releases keep the process's configuration in different places."""
    try:
        context = importlib.import_module("sglang.srt.runtime_context")
    except ImportError:
        importlib.import_module("sglang.srt.server_args").set_global_server_args_for_scheduler(args)
        return
    if not hasattr(context, "publish"):
        importlib.import_module("sglang.srt.server_args").set_global_server_args_for_scheduler(args)
    elif "ranks" in inspect.signature(context.publish).parameters:
        context.publish(args, role="scheduler", ranks=context.SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0))
    else:
        context.publish(args, role="scheduler")


def report(findings):
    """Print what was looked at and end with 1 if any of it is there: {what: whether it is there}."""
    print(f"SGLang {version('sglang')}")
    for what, there in findings.items():
        print(f"{'there' if there else 'not there'}: {what}")
    sys.stdout.flush()
    os._exit(1 if any(findings.values()) else 0)
