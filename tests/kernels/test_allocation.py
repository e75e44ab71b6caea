"""Paged allocation and page-table writes: the references do what the words say, and the kernels do what they do."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.kernels import allocation, reference_allocation
from kvproof.kernels.reference_allocation import ExtendBatch

EXAMPLES = 150 if torch.cuda.is_available() else 25


@dataclass(frozen=True)
class Batch:
    """Requests whose prefixes lie in pages of their own; everything else is free, in random order."""

    page_size: int
    prefix_lens: list[int]
    new_tokens: list[int]
    spare_pages: int
    seed: int

    @property
    def seq_lens(self) -> list[int]:
        return [prefix + new for prefix, new in zip(self.prefix_lens, self.new_tokens, strict=True)]

    def ceil(self, length: int) -> int:
        return -(-length // self.page_size)

    def rows(self) -> tuple[list[list[int]], list[int]]:
        """The KV indices of every prefix, and the free list."""
        held = [self.ceil(prefix) for prefix in self.prefix_lens]
        needed = sum(self.ceil(end) for end in self.seq_lens) - sum(held)
        random = torch.Generator().manual_seed(self.seed)
        pages = (torch.randperm(sum(held) + needed + self.spare_pages, generator=random) + 1).tolist()
        rows = []
        for prefix, count in zip(self.prefix_lens, held, strict=True):
            own, pages = pages[:count], pages[count:]
            rows.append([own[i // self.page_size] * self.page_size + i % self.page_size for i in range(prefix)])
        return rows, pages


batches = st.integers(0, 5).flatmap(
    lambda count: st.builds(
        Batch,
        page_size=st.sampled_from([1, 2, 3, 4, 16, 64, 256]),
        prefix_lens=st.lists(st.integers(0, 40), min_size=count, max_size=count),
        new_tokens=st.lists(st.integers(0, 40), min_size=count, max_size=count),
        spare_pages=st.integers(0, 3),
        seed=st.integers(0, 2**16),
    )
)


def extend_inputs(batch: Batch, device: str) -> tuple[torch.Tensor, ...]:
    rows, free = batch.rows()
    last_loc = [row[-1] if row else -1 for row in rows]
    lists = (free, batch.prefix_lens, batch.seq_lens, last_loc)
    return tuple(torch.tensor(numbers, dtype=torch.int32, device=device) for numbers in lists)


@settings(max_examples=150, derandomize=True)
@given(batch=batches)
def test_an_extend_fills_the_last_page_up_and_then_takes_new_ones_in_order(batch: Batch) -> None:
    rows, free = batch.rows()
    kv_indices, taken = allocation.alloc_extend(*extend_inputs(batch, "cpu"), batch.page_size, sum(batch.new_tokens))
    pages, rest = free[: int(taken)], kv_indices.tolist()
    for row, prefix, new in zip(rows, batch.prefix_lens, batch.new_tokens, strict=True):
        extended, rest = row + rest[:new], rest[new:]
        assert all(kv % batch.page_size == i % batch.page_size for i, kv in enumerate(extended))
        of_page = [extended[first : first + batch.page_size] for first in range(0, len(extended), batch.page_size)]
        assert all(len({kv // batch.page_size for kv in page}) == 1 for page in of_page)
        fresh = [page[0] // batch.page_size for page in of_page][batch.ceil(prefix) :]
        assert fresh == pages[: len(fresh)]
        pages = pages[len(fresh) :]
    assert not rest and not pages
    assert 0 not in {kv // batch.page_size for kv in kv_indices.tolist()}


def assert_agrees(inputs: ExtendBatch) -> None:
    from kvproof.kernels import triton_allocation

    (expected, taken), (got, taken_by_kernel) = (of.alloc(inputs) for of in (reference_allocation, triton_allocation))
    assert got.tolist() == expected.tolist()
    assert (int(taken_by_kernel), got.dtype) == (int(taken), torch.int64)


@settings(max_examples=EXAMPLES, derandomize=True)
@given(batch=batches)
def test_the_extend_kernel_agrees_with_the_reference(device: str, batch: Batch) -> None:
    assert_agrees(ExtendBatch(*extend_inputs(batch, device), batch.page_size, sum(batch.new_tokens)))


@settings(max_examples=EXAMPLES, derandomize=True)
@given(batch=batches, tokens_each=st.sampled_from([1, 1, 2, 5]))
def test_the_decode_kernel_agrees_with_the_reference(device: str, batch: Batch, tokens_each: int) -> None:
    batch = Batch(batch.page_size, batch.prefix_lens, [tokens_each] * len(batch.prefix_lens), 0, batch.seed)
    free, _, *lens = extend_inputs(batch, device)
    count = tokens_each * len(batch.prefix_lens)
    assert_agrees(ExtendBatch(free, None, *lens, batch.page_size, count, tokens_each=tokens_each))


@settings(max_examples=EXAMPLES, derandomize=True)
@given(
    spans=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=5),
    int64=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_the_page_table_kernel_agrees_with_the_reference(
    device: str, spans: list[tuple[int, int]], int64: bool, seed: int
) -> None:
    from kvproof.kernels import triton_allocation

    random = torch.Generator().manual_seed(seed)
    dtype = torch.int64 if int64 else torch.int32
    rows = (torch.randperm(6, generator=random)[: len(spans)] + 1).to(device, dtype)
    starts = torch.tensor([start for start, _ in spans], dtype=dtype, device=device)
    ends = starts + torch.tensor([length for _, length in spans], dtype=dtype, device=device)
    kv_indices = torch.randperm(500, generator=random)[: sum(length for _, length in spans)].to(device, dtype)
    expected = torch.full((7, 42), -1, dtype=torch.int32, device=device)
    got = expected.clone()
    reference_allocation.write_req_to_token(expected, rows, starts, ends, kv_indices)
    triton_allocation.write_req_to_token(got, rows, starts, ends, kv_indices)
    assert torch.equal(expected, got)


def test_a_long_request_is_shared_by_several_programs(device: str) -> None:
    from kvproof.kernels import triton_allocation

    batch = Batch(16, [5, 0], [1300, 700], 0, 1)
    inputs = ExtendBatch(*extend_inputs(batch, device), 16, 2000)
    assert triton_allocation._splits(2, 2000) > 1
    assert_agrees(inputs)
    kv_indices = reference_allocation.alloc(inputs).kv_indices
    rows, starts, ends = (torch.tensor(numbers, device=device) for numbers in ([2, 1], [5, 0], batch.seq_lens))
    tables = [torch.zeros(3, 1400, dtype=torch.int32, device=device) for _ in range(2)]
    for table, implementation in zip(tables, (reference_allocation, triton_allocation), strict=True):
        implementation.write_req_to_token(table, rows, starts, ends, kv_indices)
    assert torch.equal(*tables)


def test_without_room_the_kernel_hands_out_the_padding_page_and_the_reference_refuses(device: str) -> None:
    from kvproof.kernels import triton_allocation

    inputs = ExtendBatch(*(torch.tensor(numbers, device=device) for numbers in ([7], [0], [8], [-1])), 4, 8)
    got, taken = triton_allocation.alloc(inputs)
    assert got.tolist() == [28, 29, 30, 31, 0, 1, 2, 3]
    assert int(taken) == 2
    with pytest.raises(ValueError, match=r"^2 pages are needed, but 1 are free$"):
        reference_allocation.alloc(inputs)


def test_what_does_not_fit_is_refused() -> None:
    free, one, two = torch.tensor([3, 4]), torch.tensor([1]), torch.tensor([1, 2])
    table = torch.zeros(3, 8, dtype=torch.int32)
    extend, decode, write = allocation.alloc_extend, allocation.alloc_decode, allocation.write_req_to_token
    for entry, arguments, sentence in (
        (extend, (free, one, one + 1, one, 4, 5), "the requests extend by 1 tokens, but num_tokens is 5"),
        (extend, (free, one, one, two, 4, 0), "last_loc has 2 entries, but the number of requests is 1"),
        (decode, (free, one, one, 4, 0), "tokens_each is 0, but must be at least 1"),
        (write, (table, one, one * 7, one * 9, two), "positions up to 9 are written, but a row is 8 wide"),
        (write, (table, one, one, one + 1, two), "the rows take 1 KV indices, but 2 are given"),
        (write, (table.long(), one, one, one + 1, one), "req_to_token is int64, but must be int32"),
    ):
        with pytest.raises(ValueError, match=f"^{sentence}$"):
            entry(*arguments)
