"""What of a server's configuration a trace has no events for: such a server is refused by name and not judged wrongly."""

from __future__ import annotations

from functools import partial
from typing import Any

CONTEXT_PARALLEL = ("enable_prefill_context_parallel", "enable_nsa_prefill_context_parallel")
CONTEXT_SIZES = ("attn_cp_size", "dcp_size")
CHAINS = ("EAGLE", "EAGLE3")
"""Algorithms of speculation whose rounds are recorded, if each draft continues the one before it."""
DEVICES = ("cpu", "cuda")
"""From whose memory page ids are read; torch calls ROCm cuda, too."""


def obstacle_to_recording(scheduler: Any) -> str | None:
    """What of the configuration the trace has no events for, or None."""
    asked = partial(_asked, scheduler.server_args)
    disaggregation = getattr(scheduler, "disaggregation_mode", None)
    device = str(getattr(scheduler, "device", DEVICES[0])).partition(":")[0]
    obstacles = {
        **_of_speculation(scheduler),
        "state spaces": getattr(scheduler, "is_hybrid_ssm", False),
        "a hierarchical cache": getattr(scheduler, "enable_hierarchical_cache", False),
        "LMCache": asked("enable_lmcache"),
        "a diffusion language model": getattr(scheduler, "dllm_config", None) is not None,
        "an encoder-decoder model": getattr(getattr(scheduler, "model_config", None), "is_encoder_decoder", False),
        "context parallelism": any(map(asked, CONTEXT_PARALLEL))
        or any((asked(name) or 1) > 1 for name in CONTEXT_SIZES),
        "disaggregation": disaggregation is not None and disaggregation.value != "null",
        "pipeline parallelism": scheduler.server_args.pp_size > 1,
        f"page ids on a device of kind {device}": device not in DEVICES,
    }
    found = [name for name, is_there in obstacles.items() if is_there]
    return f"{' and '.join(found)} cannot be recorded yet" if found else None


def _asked(server_args: Any, name: str) -> Any:
    """What the server was started with; None in a release that does not know it."""
    return getattr(server_args, name, None)


def _of_speculation(scheduler: Any) -> dict[str, bool]:
    """What of a scheduler's speculation has no events: draft trees, rounds that do not overlap, and other algorithms."""
    algorithm = getattr(scheduler, "spec_algorithm", None)
    if algorithm is None or algorithm.is_none():
        return {}
    top = getattr(scheduler.server_args, "speculative_eagle_topk", None) or 1
    return {
        f"speculative decoding by {algorithm.name}": algorithm.name not in CHAINS,
        f"speculative decoding with draft trees (top-k {top})": top > 1,
        "speculative decoding without overlap": not scheduler.enable_overlap,
    }
