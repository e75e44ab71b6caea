"""Compares every kernel with its reference on random inputs: `TRITON_INTERPRET=1 python triton_twin.py`, or `… cuda`."""

from __future__ import annotations

import sys

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.kernels import reference, triton_attention, triton_store

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"
EXAMPLES = 200 if DEVICE == "cuda" else 12
TOLERANCE = 1e-4


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(
    page_size=st.sampled_from([1, 4, 16]),
    lengths=st.lists(st.integers(0, 70), min_size=1, max_size=3),
    kv_heads=st.integers(1, 2),
    group=st.sampled_from([1, 2, 4]),
    head_dim=st.sampled_from([8, 16, 24]),
    seed=st.integers(0, 2**16),
)
def decode_attention_agrees(
    page_size: int, lengths: list[int], kv_heads: int, group: int, head_dim: int, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    widest = max(1, max(-(-length // page_size) for length in lengths))
    pages = len(lengths) * widest
    table = (torch.randperm(pages, generator=random) + 1).view(len(lengths), widest).int()
    k_cache, v_cache = (torch.randn((pages + 1) * page_size, kv_heads, head_dim, generator=random) for _ in range(2))
    q = torch.randn(len(lengths), kv_heads * group, head_dim, generator=random)
    tensors = [tensor.to(DEVICE) for tensor in (q, k_cache, v_cache, table, torch.tensor(lengths))]
    expected = reference.paged_decode_attention(*tensors, page_size, head_dim**-0.5)
    got = triton_attention.paged_decode_attention(*tensors, page_size, head_dim**-0.5)
    assert float((got - expected).abs().max()) < TOLERANCE


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(
    tokens=st.integers(0, 9), kv_heads=st.integers(1, 3), head_dim=st.sampled_from([8, 24]), seed=st.integers(0, 999)
)
def store_agrees(tokens: int, kv_heads: int, head_dim: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    start = [torch.randn(20, kv_heads, head_dim, generator=random).to(DEVICE) for _ in range(2)]
    new = [torch.randn(tokens, kv_heads, head_dim, generator=random).to(DEVICE) for _ in range(2)]
    kv_indices = torch.randperm(20, generator=random)[:tokens].to(DEVICE)
    expected, got = [cache.clone() for cache in start], [cache.clone() for cache in start]
    reference.paged_kv_store(*expected, *new, kv_indices)
    triton_store.paged_kv_store(*got, *new, kv_indices)
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


if __name__ == "__main__":
    torch.set_num_threads(1)
    store_agrees()
    decode_attention_agrees()
    print("the kernels agree with their references")
