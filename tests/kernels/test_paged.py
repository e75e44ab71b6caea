"""The store and attention references mean what they say, and the entries in front of them refuse what does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.kernels import paged, reference
from kvproof.kernels.reference import PagedKV


@settings(max_examples=25)
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
    kv = PagedKV(k_cache, v_cache, pages[None].int(), torch.tensor([length]), page_size)
    got = paged.paged_decode_attention(q, kv, scale=0.3)
    line = [int(pages[i // page_size]) * page_size + i % page_size for i in range(length)]
    for head in range(2 * group):
        weights = torch.softmax(k_cache[line, head // group] @ q[0, head] * 0.3, dim=0)
        assert torch.allclose(got[0, head], weights @ v_cache[line, head // group], atol=1e-5)


def test_a_request_without_positions_gets_zeros() -> None:
    cache = torch.ones(8, 1, 4)
    table, lengths = torch.zeros(1, 1, dtype=torch.int32), torch.tensor([0])
    got = reference.paged_decode_attention(torch.ones(1, 2, 4), PagedKV(cache, cache, table, lengths, 4), 1.0)
    assert got.tolist() == torch.zeros(1, 2, 4).tolist()


def test_a_store_touches_its_indices_only() -> None:
    k_cache, v_cache = torch.zeros(8, 1, 2), torch.zeros(8, 1, 2)
    paged.paged_kv_store(k_cache, v_cache, torch.ones(2, 1, 2), 2 * torch.ones(2, 1, 2), torch.tensor([5, 2]))
    assert k_cache.sum(dim=(1, 2)).tolist() == [0, 0, 2, 0, 0, 2, 0, 0]
    assert v_cache.sum(dim=(1, 2)).tolist() == [0, 0, 4, 0, 0, 4, 0, 0]


def attend(q: torch.Tensor | None = None, window: int = 0, **of_kv: Any) -> torch.Tensor:
    """A decode of one request that fits, but for what is given."""
    cache = torch.zeros(8, 2, 16)
    kv = PagedKV(cache, cache, torch.tensor([[1]], dtype=torch.int32), torch.tensor([2]), 4)
    q = torch.zeros(1, 4, 16) if q is None else q
    return paged.paged_decode_attention(q, replace(kv, **of_kv), 1.0, window)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"q": torch.zeros(1, 3, 16)}, "3 query heads cannot share 2 kv heads evenly"),
        ({"q": torch.zeros(1, 4, 8)}, "q has head size 8, but the cache has 16"),
        ({"q": torch.zeros(2, 4, 16)}, "q has 2 entries, but the number of requests is 1"),
        ({"q": torch.zeros(1, 4, 16).half()}, "k_cache is float32, but q is float16"),
        ({"q": torch.zeros(1, 16)}, r"q has 2 dimensions, but needs 3: \[tokens, heads, head size\]"),
        ({"page_size": 0}, "page_size is 0, but must be at least 1"),
        ({"window": -1}, "window is -1, but must be at least 0"),
        ({"page_table": torch.zeros(1, 1)}, "page_table is float32, but must be int32 or int64"),
        ({"seq_lens": torch.tensor([2, 2])}, "seq_lens has 2 entries, but the number of rows of page_table is 1"),
        ({"seq_lens": torch.tensor([9])}, "a request is 9 tokens long, but its row of the page table holds 4"),
        ({"v_cache": torch.zeros(9, 2, 16)}, r"k_cache is \(8, 2, 16\), but v_cache is \(9, 2, 16\)"),
        ({"q": torch.zeros(1, 16, 4).mT}, "q has stride 4 in its last dimension, but must have 1"),
        ({"q": torch.zeros(1, 4, 16, device="meta")}, "k_cache is on cpu, but q is on meta"),
    ],
)
def test_attention_refuses_what_does_not_fit(wrong: dict[str, Any], sentence: str) -> None:
    attend()
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        attend(**wrong)


def test_heads_that_are_too_large_are_refused() -> None:
    cache = torch.zeros(8, 1, 1032)
    table, lengths = torch.ones(1, 1, dtype=torch.int32), torch.tensor([2])
    with pytest.raises(ValueError, match=r"^head size is 1032, but the kernels hold at most 1024$"):
        paged.paged_decode_attention(torch.zeros(1, 1, 1032), PagedKV(cache, cache, table, lengths, 4), 1.0)


def test_an_extend_needs_a_query_for_every_new_token() -> None:
    cache, table = torch.zeros(8, 1, 16), torch.ones(1, 1, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"^q holds 3 tokens, but the requests extend by 2$"):
        kv = PagedKV(cache, cache, table, torch.tensor([3]), 4)
        paged.paged_extend_attention(torch.zeros(3, 1, 16), kv, torch.tensor([1]), 1.0)


def test_a_store_refuses_lines_of_another_width() -> None:
    with pytest.raises(ValueError, match=r"^k has 6 values a token, but k_cache holds 4$"):
        paged.paged_kv_store(
            torch.zeros(8, 2, 2), torch.zeros(8, 2, 2), torch.zeros(1, 2, 3), torch.zeros(1, 2, 2), torch.tensor([1])
        )
    with pytest.raises(ValueError, match=r"^kv_indices has 2 entries, but the number of lines in latent is 1$"):
        paged.paged_latent_store(torch.zeros(8, 4), torch.zeros(1, 4), torch.tensor([1, 2]))
