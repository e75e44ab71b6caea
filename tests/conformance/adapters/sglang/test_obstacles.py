"""Which configurations of a server are recorded, and which are refused by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.conformance.adapters.sglang.obstacles import obstacle_to_recording


def scheduler(algorithm: str = "NONE", top: int = 1, *, overlap: bool = True, mode: str = "null", **more: Any) -> Any:
    args = {"pp_size": 1, "speculative_eagle_topk": top, **more.pop("args", {})}
    return SimpleNamespace(
        spec_algorithm=SimpleNamespace(name=algorithm, is_none=lambda: algorithm == "NONE"),
        disaggregation_mode=SimpleNamespace(value=mode),
        server_args=SimpleNamespace(**args),
        enable_overlap=overlap,
        **more,
    )


@pytest.mark.parametrize("algorithm", ["NONE", "EAGLE", "EAGLE3"])
def test_a_plain_server_and_chains_of_drafts_are_recorded(algorithm: str) -> None:
    assert obstacle_to_recording(scheduler(algorithm)) is None
    assert obstacle_to_recording(scheduler(algorithm, device="cuda:0")) is None


@pytest.mark.parametrize(
    ("of", "named"),
    [
        (scheduler("EAGLE", 4), "speculative decoding with draft trees (top-k 4)"),
        (scheduler("EAGLE", overlap=False), "speculative decoding without overlap"),
        (scheduler("NGRAM"), "speculative decoding by NGRAM"),
        (scheduler(is_hybrid_ssm=True), "state spaces"),
        (scheduler(enable_hierarchical_cache=True), "a hierarchical cache"),
        (scheduler(mode="prefill"), "disaggregation"),
        (scheduler(args={"enable_lmcache": True}), "LMCache"),
        (scheduler(dllm_config=object()), "a diffusion language model"),
        (scheduler(model_config=SimpleNamespace(is_encoder_decoder=True)), "an encoder-decoder model"),
        (scheduler(args={"attn_cp_size": 2}), "context parallelism"),
        (scheduler(args={"enable_prefill_context_parallel": True}), "context parallelism"),
        (scheduler(args={"pp_size": 2}), "pipeline parallelism"),
        (scheduler(device="npu:0"), "page ids on a device of kind npu"),
        (scheduler("NGRAM", args={"pp_size": 2}), "speculative decoding by NGRAM and pipeline parallelism"),
    ],
)
def test_what_has_no_events_is_refused_by_name(of: Any, named: str) -> None:
    assert obstacle_to_recording(of) == f"{named} cannot be recorded yet"
