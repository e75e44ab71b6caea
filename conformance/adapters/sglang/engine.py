"""Builds SGLang's scheduler in this process: a tiny model, and a forward that makes up its tokens unless the real one is wanted.

Everything that decides about KV pages is the installed release; only the model's forward, the sockets and, on a CPU, up to
the releases that have torch versions of them, two Triton kernels are replaced. On a CUDA device nothing of the cache is.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvproof.conformance.adapters import stand_ins
from kvproof.conformance.adapters.headless_scheduler import VOCABULARY
from kvproof.conformance.adapters.sglang import draft_model, fresh_schedulers, paged_alloc_in_torch
from kvproof.conformance.adapters.sglang.releases import INSTALL_HINT, Release, installed_release, installed_version
from kvproof.conformance.adapters.sglang.settings import Device, Settings
from kvproof.conformance.errors import UserError

# Read by SGLang and its libraries when they are imported, so they are set before that.
OFFLINE = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}
BARE_CPU = {
    **OFFLINE,
    "SGLANG_USE_CPU_ENGINE": "1",
    "TRITON_INTERPRET": "1",
}
OF_EACH_DEVICE = {"cpu": BARE_CPU, "cuda": OFFLINE}
WINDOWS_AT_EACH_STEP = {
    # Else slots behind the window are freed only every 128 steps, or once per window: longer than these runs.
    "SGLANG_SWA_EVICTION_INTERVAL": "1",
    "SGLANG_SWA_EVICTION_INTERVAL_MULTIPLIER": "0.125",
}
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
# Of the two layers one has the window, so that both pools are used.
WINDOW_LAYERS, FULL_LAYERS = [0], [1]

# The device that SGLang was imported for; empty as long as it was not.
_settled: list[Device] = []

MakeTokens = Callable[[int], list[int]]


@functools.cache
def import_sglang(device: Device = "cpu") -> Release:
    """Import the installed release: stand-ins first, then, on a CPU, the paged allocation without Triton.

    SGLang asks for its device when it is imported, so a process has one.
    """
    _settle_on(device)
    os.environ.update({**OF_EACH_DEVICE[device], **WINDOWS_AT_EACH_STEP})
    stand_ins.install(stand_ins.ON_A_DEVICE if device == "cuda" else stand_ins.GPU_ONLY_PACKAGES)
    version = installed_version()
    logging.getLogger("sglang").setLevel(logging.CRITICAL)  # what it logs about a run is in the trace
    warnings.filterwarnings("ignore", module=r"sglang\.")  # it warns about every kernel that a CPU has not
    try:
        # First, so that transformers finds one whatever SGLang imports next: 0.5.21 registers processors of images that need it.
        importlib.import_module("torchvision")
        if device == "cpu":
            paged_alloc_in_torch.install()
        with stand_ins.operators_left_out("sgl_kernel"):
            importlib.import_module("sglang.srt.managers.scheduler")
    except ImportError as error:
        raise UserError(f"SGLang {version} is installed but cannot be imported ({error}): {INSTALL_HINT}") from error
    fresh_schedulers.prepare()
    return installed_release()


def _settle_on(device: Device) -> None:
    if device == "cuda" and not _has_cuda():
        raise UserError("there is no CUDA device here, or its torch is one for a CPU: device=cpu runs without")
    if not _settled:
        _settled.append(device)
    if _settled != [device]:
        raise UserError(f"this process has imported SGLang for {_settled[0]}: for {device} it takes another one")


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def build_scheduler(release: Release, settings: Settings, make_tokens: MakeTokens, replies: list[Any]) -> Any:
    """A scheduler of the installed release. What it would send goes to `replies`."""
    module = importlib.import_module("sglang.srt.managers.scheduler")
    arguments = importlib.import_module("sglang.srt.server_args")
    fresh_schedulers.leave_the_last_one()
    _give_the_model_a_window(settings.window)
    if settings.real_forward:
        _let_layers_use_torch(settings.device)
    if settings.drafts:
        draft_model.prepare()
    try:
        server_args = _server_args(arguments.ServerArgs, settings)
    except (AssertionError, ValueError) as error:
        raise UserError(f"SGLang {release.version} refuses {settings}: {error}") from error
    release.publish(server_args)
    # Ranks and the GPU are 0, the data-parallel rank is none; newer releases take them from what was published.
    ranks = [
        name for name in inspect.signature(module.Scheduler).parameters if name not in ("server_args", "port_args")
    ]
    try:
        scheduler = module.Scheduler(
            server_args,
            _ports(arguments.PortArgs, server_args),
            **{name: None if name == "dp_rank" else 0 for name in ranks},
        )
    except ValueError as error:  # from 0.5.23 on: a window pool that is too small for the window
        raise UserError(f"SGLang {release.version} refuses {settings}: {error}") from error
    release.send(scheduler, _Collector(replies))
    if not settings.real_forward:
        made_up = functools.partial(_made_up_forward, settings.device, make_tokens)
        scheduler.tp_worker.forward_batch_generation = made_up
        if settings.drafts:
            draft_model.make_up_forwards(scheduler, settings, make_tokens, made_up)
    return scheduler


def _ports(port_args: Any, server_args: Any) -> Any:
    """Names of sockets that nobody opens. SGLang makes an empty file for each, so a fuzzer would leave thousands."""
    ports = port_args.init_new(server_args)
    for name in vars(ports).values():
        if isinstance(name, str) and name.startswith("ipc://"):
            Path(name.removeprefix("ipc://")).unlink(missing_ok=True)
    return ports


def _let_layers_use_torch(device: Device) -> None:
    """Where SGLang's kernels are stood in for, each layer takes the forward that it has in plain torch."""
    norm = importlib.import_module("sglang.srt.layers.layernorm").RMSNorm
    if stand_ins.stand_for("sgl_kernel"):
        for layer in norm.__mro__:
            for chooses in ("dispatch_forward", "_resolve_forward_method"):  # the second from 0.5.20 on
                if chooses in vars(layer):
                    setattr(layer, chooses, lambda self: self.forward_native)
        if device == "cuda":
            # It asks the package whether the device can start a kernel early; what a stand-in answers is not False.
            backend: Any = importlib.import_module("sglang.srt.layers.attention.triton_backend")
            backend.is_arch_support_pdl = lambda: False


def _made_up_forward(device: Device, make_tokens: MakeTokens, batch: Any, *args: Any, **kwargs: Any) -> Any:
    import torch
    from sglang.srt.layers.logits_processor import LogitsProcessorOutput
    from sglang.srt.managers.utils import GenerationBatchResult

    ids = torch.tensor(make_tokens(len(batch.seq_lens)), dtype=torch.int64, device=device)
    logits = LogitsProcessorOutput(next_token_logits=None)
    logits.next_token_logprobs = torch.zeros(len(ids), device=device)
    return GenerationBatchResult(logits_output=logits, next_token_ids=ids, can_run_cuda_graph=False)


def _server_args(server_args: Any, settings: Settings) -> Any:
    """A tiny model, with everything that decides about pages as in a server."""
    return server_args(
        model_path=_tiny_model_folder().name,
        load_format="dummy",
        device=settings.device,
        attention_backend="torch_native" if settings.device == "cpu" else "triton",
        sampling_backend="pytorch",
        grammar_backend="none",
        skip_tokenizer_init=True,
        disable_cuda_graph=True,
        **_without_graphs_of_prefills(server_args),
        disable_overlap_schedule=not settings.overlap,
        disable_radix_cache=settings.disable_radix_cache,
        enable_streaming_session=settings.streaming_sessions,
        mem_fraction_static=0.5,
        max_total_tokens=settings.pool_tokens,
        max_running_requests=settings.max_running_requests,
        page_size=settings.page_size,
        chunked_prefill_size=settings.chunked_prefill_size or -1,
        enable_mixed_chunk=settings.mixed_chunk,
        swa_full_tokens_ratio=settings.swa_full_tokens_ratio,
        schedule_conservativeness=settings.schedule_conservativeness,
        context_length=settings.context_length,
        random_seed=settings.seed,
        **(draft_model.speculation(settings, _tiny_model_folder(is_draft=True).name) if settings.drafts else {}),
    )


def _without_graphs_of_prefills(server_args: Any) -> dict[str, bool]:
    """Up to 0.5.12 a device captures prefills even if told to capture no graph, by operators that a stand-in has not."""
    return {"disable_piecewise_cuda_graph": True} if hasattr(server_args, "disable_piecewise_cuda_graph") else {}


def _give_the_model_a_window(window: int) -> None:
    """SGLang knows by the architecture's name which models have a sliding window; the tiny Llama is made one of them."""
    configs: Any = importlib.import_module("sglang.srt.configs.model_config")
    llama = importlib.import_module("sglang.srt.models.llama").LlamaForCausalLM
    originals = _originals_of_a_model_without_window(configs)
    if window:
        configs.is_hybrid_swa_model = lambda *args, **kwargs: True
        configs.get_hybrid_layer_ids = lambda *args, **kwargs: (WINDOW_LAYERS, FULL_LAYERS)
        llama.get_attention_sliding_window_size = lambda self: window
    else:
        configs.is_hybrid_swa_model, configs.get_hybrid_layer_ids = originals
        llama.get_attention_sliding_window_size = lambda self: None


@functools.cache
def _originals_of_a_model_without_window(configs: Any) -> tuple[Any, Any]:
    return configs.is_hybrid_swa_model, configs.get_hybrid_layer_ids


class _Collector:
    """Takes the place of a ZMQ sender and keeps what was sent."""

    def __init__(self, kept: list[Any]) -> None:
        self._kept = kept

    def send_output(self, output: Any, recv_obj: Any = None) -> None:
        self._kept.append(output)


@functools.cache
def _tiny_model_folder(*, is_draft: bool = False) -> tempfile.TemporaryDirectory[str]:
    """Kept as long as the process lives, and removed with it."""
    folder = tempfile.TemporaryDirectory(prefix="kvproof-tiny-llama-")
    config = {**TINY_LLAMA, **draft_model.EAGLE} if is_draft else TINY_LLAMA
    (Path(folder.name) / "config.json").write_text(json.dumps(config))
    return folder
