"""The store kernels write what the torch references write, and nothing else."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.kernels import reference

EXAMPLES = 100 if torch.cuda.is_available() else 10
# Triton's interpreter cuts float32 to bfloat16 where a device rounds: that cast is left to CUDA devices.
CAST_TO = [torch.float32, torch.float16] + [torch.bfloat16] * torch.cuda.is_available()


@settings(max_examples=EXAMPLES, derandomize=True)
@given(
    tokens=st.integers(0, 9),
    kv_heads=st.integers(1, 3),
    head_dims=st.tuples(st.sampled_from([8, 24]), st.sampled_from([8, 24])),
    cache_dtype=st.sampled_from(CAST_TO),
    seed=st.integers(0, 999),
)
def test_keys_and_values_are_stored_as_the_reference_does(
    device: str, tokens: int, kv_heads: int, head_dims: tuple[int, int], cache_dtype: torch.dtype, seed: int
) -> None:
    from kvproof.kernels import triton_store

    random = torch.Generator().manual_seed(seed)
    caches = [torch.randn(20, kv_heads, head_dim, generator=random).to(device, cache_dtype) for head_dim in head_dims]
    lines = [torch.randn(tokens, kv_heads, head_dim, generator=random).to(device) for head_dim in head_dims]
    kv_indices = torch.randperm(20, generator=random)[:tokens].to(device)
    expected, got = [cache.clone() for cache in caches], [cache.clone() for cache in caches]
    reference.paged_kv_store(*expected, *lines, kv_indices)
    triton_store.paged_kv_store(*got, *lines, kv_indices)
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


@settings(max_examples=EXAMPLES, derandomize=True)
@given(
    tokens=st.integers(0, 5),
    width=st.sampled_from([1, 72, 576, 1500]),
    int64=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    seed=st.integers(0, 999),
)
def test_a_latent_line_is_stored_as_the_reference_does(
    device: str, tokens: int, width: int, int64: bool, dtype: torch.dtype, seed: int
) -> None:
    from kvproof.kernels import triton_store

    random = torch.Generator().manual_seed(seed)
    expected = torch.randn(12, 1, width, generator=random).to(device, dtype)
    got = expected.clone()
    latent = torch.randn(tokens, width, generator=random).to(device, dtype)
    kv_indices = torch.randperm(12, generator=random)[:tokens].to(device, torch.int64 if int64 else torch.int32)
    reference.paged_latent_store(expected, latent, kv_indices)
    triton_store.paged_latent_store(got, latent, kv_indices)
    assert torch.equal(expected, got)
