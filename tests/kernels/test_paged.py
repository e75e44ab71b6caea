"""The Triton kernels compute what the torch references say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.kernels import paged, reference

TWIN = Path(__file__).with_name("triton_twin.py")


def test_triton_agrees_with_the_reference() -> None:
    """In a process of its own: Triton reads TRITON_INTERPRET when it is first imported."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run([sys.executable, str(TWIN)], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    assert "agree" in run.stdout


@settings(max_examples=25, deadline=None)
@given(
    page_size=st.sampled_from([1, 3, 4, 16]),
    length=st.integers(1, 20),
    group=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_the_reference_is_softmax_attention_over_the_row(page_size: int, length: int, group: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    pages = torch.randperm(12 * page_size, generator=random)[: -(-length // page_size)] % 30 + 1
    pages = torch.unique(pages)
    length = min(length, len(pages) * page_size)
    k_cache, v_cache = (torch.randn(31 * page_size, 2, 8, generator=random) for _ in range(2))
    q = torch.randn(1, 2 * group, 8, generator=random)
    got = paged.paged_decode_attention(
        q, k_cache, v_cache, pages[None].int(), torch.tensor([length]), page_size, scale=0.3
    )
    line = [int(pages[i // page_size]) * page_size + i % page_size for i in range(length)]
    for head in range(2 * group):
        weights = torch.softmax(k_cache[line, head // group] @ q[0, head] * 0.3, dim=0)
        assert torch.allclose(got[0, head], weights @ v_cache[line, head // group], atol=1e-5)


def test_a_request_without_positions_gets_zeros() -> None:
    cache = torch.ones(8, 1, 4)
    table, lengths = torch.zeros(1, 1, dtype=torch.int32), torch.tensor([0])
    got = reference.paged_decode_attention(torch.ones(1, 2, 4), cache, cache, table, lengths, 4, 1.0)
    assert got.tolist() == torch.zeros(1, 2, 4).tolist()


def test_a_store_touches_its_indices_only() -> None:
    k_cache, v_cache = torch.zeros(8, 1, 2), torch.zeros(8, 1, 2)
    paged.paged_kv_store(k_cache, v_cache, torch.ones(2, 1, 2), 2 * torch.ones(2, 1, 2), torch.tensor([5, 2]))
    assert k_cache.sum(dim=(1, 2)).tolist() == [0, 0, 2, 0, 0, 2, 0, 0]
    assert v_cache.sum(dim=(1, 2)).tolist() == [0, 0, 4, 0, 0, 4, 0, 0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_cuda_device_triton_agrees_with_the_reference() -> None:
    run = subprocess.run([sys.executable, str(TWIN), "cuda"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
