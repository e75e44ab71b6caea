"""The attention kernels compute what the torch references say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.kernels import reference
from kvproof.kernels.reference import PagedKV

TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}
EXAMPLES = 150 if torch.cuda.is_available() else 12
LONGEST = 1500 if torch.cuda.is_available() else 200
# Triton's interpreter multiplies bfloat16 matrices as if they were integers: they are left to CUDA devices.
KERNEL_DTYPES = [dtype for dtype in TOLERANCE if torch.cuda.is_available() or dtype != torch.bfloat16]


@dataclass(frozen=True)
class Shapes:
    """The sizes of one attention problem; its numbers are drawn from `seed`."""

    page_size: int
    prefix_lens: list[int]
    new_tokens: list[int]
    kv_heads: int
    group: int
    head_dim: int
    window: int
    dtype: torch.dtype
    seed: int

    @property
    def seq_lens(self) -> list[int]:
        return [prefix + new for prefix, new in zip(self.prefix_lens, self.new_tokens, strict=True)]

    @property
    def scale(self) -> float:
        return self.head_dim**-0.5

    def inputs(self, queries: int, device: str) -> tuple[torch.Tensor, PagedKV]:
        """Queries and rows: pages in random order, and noise on every line that no row names."""
        random = torch.Generator().manual_seed(self.seed)
        widest = max(1, max(-(-length // self.page_size) for length in self.seq_lens))
        pages = len(self.seq_lens) * widest
        table = (torch.randperm(pages, generator=random) + 1).view(len(self.seq_lens), widest).int()
        cache = ((pages + 1) * self.page_size, self.kv_heads, self.head_dim)
        k_cache, v_cache = (torch.randn(cache, generator=random).to(self.dtype) for _ in range(2))
        q = torch.randn(queries, self.kv_heads * self.group, self.head_dim, generator=random).to(self.dtype)
        tensors = (k_cache, v_cache, table, torch.tensor(self.seq_lens))
        return q.to(device), PagedKV(*(tensor.to(device) for tensor in tensors), self.page_size)


def shapes(longest: int) -> st.SearchStrategy[Shapes]:
    requests = st.integers(1, 3)
    return requests.flatmap(
        lambda count: st.builds(
            Shapes,
            page_size=st.sampled_from([1, 3, 4, 16, 64, 256]),
            prefix_lens=st.lists(st.integers(0, longest), min_size=count, max_size=count),
            new_tokens=st.lists(st.integers(0, 20), min_size=count, max_size=count),
            kv_heads=st.integers(1, 2),
            group=st.sampled_from([1, 2, 3, 4]),
            head_dim=st.sampled_from([16, 24, 64, 80, 128]),
            window=st.sampled_from([0, 0, 1, 7, 40]),
            dtype=st.sampled_from(KERNEL_DTYPES),
            seed=st.integers(0, 2**16),
        )
    )


def assert_close(got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    worst = float((got.float() - expected.float()).abs().max()) if got.numel() else 0.0
    assert worst < TOLERANCE[dtype], worst


def assert_agrees(case: Shapes, device: str, *, extends: bool) -> None:
    """The kernel with the reference: an extend of all new tokens, or a decode of one token of each request."""
    from kvproof.kernels import triton_attention

    arguments: tuple[Any, ...] = case.inputs(sum(case.new_tokens) if extends else len(case.seq_lens), device)
    if extends:
        arguments += (torch.tensor(case.prefix_lens, device=device),)
    name = "paged_extend_attention" if extends else "paged_decode_attention"
    expected, got = (getattr(of, name)(*arguments, case.scale, case.window) for of in (reference, triton_attention))
    assert_close(got, expected, case.dtype)


@pytest.mark.parametrize("extends", [False, True], ids=["decode", "extend"])
@settings(max_examples=EXAMPLES, derandomize=True)
@given(case=shapes(longest=LONGEST))
def test_the_kernel_agrees_with_the_reference(device: str, extends: bool, case: Shapes) -> None:
    assert_agrees(case, device, extends=extends)


@pytest.mark.parametrize("extends", [False, True], ids=["decode", "extend"])
@pytest.mark.parametrize("dtype", KERNEL_DTYPES)
@pytest.mark.parametrize("head_dim", [192, 256, 576])
def test_wide_heads_agree_with_the_reference(device: str, head_dim: int, dtype: torch.dtype, extends: bool) -> None:
    """Those of a latent cache: 512 and 64 rotary lanes, in tiles of another length."""
    assert_agrees(Shapes(16, [0, 37], [5, 18], 1, 4, head_dim, 0, dtype, seed=7), device, extends=extends)


@settings(max_examples=30, derandomize=True)
@given(case=shapes(longest=60))
def test_an_extend_is_the_decodes_of_its_positions(case: Shapes) -> None:
    """Two references that share only the definition of what a query sees."""
    q, kv = case.inputs(sum(case.new_tokens), "cpu")
    together = reference.paged_extend_attention(q, kv, torch.tensor(case.prefix_lens), case.scale, case.window)
    of_request = torch.repeat_interleave(torch.tensor(case.new_tokens))
    ends = [
        position + 1
        for prefix, end in zip(case.prefix_lens, case.seq_lens, strict=True)
        for position in range(prefix, end)
    ]
    rows = replace(kv, page_table=kv.page_table[of_request], seq_lens=torch.tensor(ends, dtype=torch.int64))
    one_by_one = reference.paged_decode_attention(q, rows, case.scale, case.window)
    assert_close(together, one_by_one, case.dtype)


@pytest.mark.parametrize("scale", [0.25, 40.0], ids=["even", "far beyond what an exponential holds"])
@pytest.mark.parametrize("window", [0, 300])
def test_a_row_is_split_over_programs_when_the_batch_is_small(device: str, window: int, scale: float) -> None:
    from kvproof.kernels import triton_attention

    case = Shapes(16, [1400], [1], 1, 2, 16, window, torch.float32, 5)
    longest = window or 1400
    assert triton_attention.splits_for(1, longest, triton_attention.PROCESSORS_WITHOUT_A_DEVICE) == longest // 256
    arguments = (*case.inputs(1, device), scale, case.window)
    expected = reference.paged_decode_attention(*arguments)
    assert_close(triton_attention.paged_decode_attention(*arguments), expected, case.dtype)


def test_enough_programs_leave_the_rows_whole() -> None:
    pytest.importorskip("triton")
    from kvproof.kernels.triton_attention import splits_for

    assert splits_for(programs=64 * 8, longest=8192, processors=132) == 2
    assert splits_for(programs=1000, longest=8192, processors=132) == 1
    assert splits_for(programs=8, longest=8192, processors=132) == 32
    assert splits_for(programs=1, longest=200, processors=132) == 1


@pytest.mark.parametrize(("seen", "window"), [([4], 0), ([3, 4], 1), ([2, 3, 4], 2)])
def test_a_window_shows_that_many_tokens_before_the_query_and_itself(seen: list[int], window: int) -> None:
    """Every value is its position as a power of two, and all scores are equal: the mean tells what was seen."""
    v_cache = (2.0 ** torch.arange(8)).view(8, 1, 1)
    q, k_cache, table = torch.zeros(1, 1, 1), torch.zeros(8, 1, 1), torch.arange(8).int()[None]
    got = reference.paged_decode_attention(q, PagedKV(k_cache, v_cache, table, torch.tensor([5]), 1), 1.0, window)
    seen = list(range(5)) if window == 0 else seen
    assert float(got) == pytest.approx(sum(2.0**position for position in seen) / len(seen))
