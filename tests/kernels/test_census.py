"""The page census finds every page that has not exactly one owner, and the kernels find what the reference finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.kernels import census
from kvproof.kernels.census import Census, PageOwners, Violation, describe, page_census, unpack_verdict
from kvproof.kernels.reference_census import page_census as reference_page_census

EXAMPLES = 200 if torch.cuda.is_available() else 25
ROWS, COLUMNS = 4, 8


@dataclass
class Pool:
    """A pool of 40 pages: row k of holder k, the tree, the free list. `columns` are the pages of each row."""

    page_size: int = 4
    pool_pages: int = 40
    columns: dict[int, list[int]] = field(default_factory=dict)
    spans: list[tuple[int, int, int]] = field(default_factory=list)
    prefix: list[int] = field(default_factory=list)
    tree: list[int] = field(default_factory=list)
    free: list[int] = field(default_factory=list)

    def owners(self, device: str = "cpu") -> PageOwners:
        table = torch.zeros((ROWS + 1, COLUMNS * self.page_size), dtype=torch.int32)
        for row, pages in self.columns.items():
            for column, page in enumerate(pages):
                start = column * self.page_size
                table[row, start : start + self.page_size] = torch.arange(self.page_size) + page * self.page_size
        rows, first, last = zip(*self.spans, strict=True) if self.spans else ((), (), ())
        vectors = (rows, first, last, self.tree, self.free)
        tensors = [torch.tensor(numbers, dtype=torch.int32, device=device) for numbers in vectors]
        prefix = torch.tensor(self.prefix, dtype=torch.int32, device=device)
        return PageOwners(table.to(device), *tensors, self.pool_pages, self.page_size, prefix)

    def census(self) -> Census:
        return page_census(self.owners())


def healthy() -> Pool:
    """Two holders behind two pages of the tree, and a third with nothing in the tree; every page has one owner."""
    return Pool(
        columns={1: [5, 6, 1, 2], 2: [5, 6, 3], 3: [4, 7]},
        spans=[(1, 2, 4), (2, 2, 3), (3, 0, 2)],
        prefix=[2, 2, 0],
        tree=[6, 5],
        free=list(range(40, 7, -1)),
    )


def test_a_healthy_pool_is_clean() -> None:
    found = healthy().census()
    assert int(found.verdict) == 0
    assert found.counters.tolist() == [0] * 8
    assert found.owners.tolist() == [0] + [1] * 40
    assert found.owner_code[:9].tolist() == [0, 3, 3, 4, 5, 2, 2, 5, 1]
    assert describe(found) == []


def exchange(pages: list[int], place: int, page: int) -> None:
    pages[place] = page


def lengthen_a_row(pool: Pool) -> None:
    pool.spans[2] = (3, 0, 9)
    pool.columns[3] += [9, 10, 11, 12, 13, 14]
    pool.free = [page for page in pool.free if not 9 <= page <= 14]


def name_a_row_that_is_none(pool: Pool) -> None:
    pool.spans.append((9, 0, 1))
    pool.prefix.append(0)


def evict_under_a_reader(pool: Pool) -> None:
    pool.tree.remove(6)
    pool.free.append(6)


def give_a_page_three_owners(pool: Pool) -> None:
    pool.columns[1][2] = pool.columns[3][0] = 3


NAMED = "page id {} is out of range, the pool has pages 1 to 40: 1 time, named by {}"
BROKEN: dict[str, tuple[Callable[[Pool], None], Violation, int, list[str]]] = {
    "lost": (lambda p: p.free.remove(9), Violation.NO_OWNER, 9, ["page 9 has no owner"]),
    "double free": (
        lambda p: p.free.append(9),
        *(Violation.DUPLICATE_FREE, 9, ["page 9 is 2 times in the free list"]),
    ),
    "shared": (
        lambda p: exchange(p.columns[2], 2, 2),
        *(Violation.TWO_OWNERS, 2, ["page 2 has 2 owners: holder 0 and holder 1", "page 3 has no owner"]),
    ),
    "freed under a reader": (
        lambda p: p.free.append(7),
        *(Violation.FREE_AND_REFERENCED, 7, ["page 7 is free and in use: the free list and holder 2"]),
    ),
    "tree page not handed over": (
        lambda p: exchange(p.spans, 0, (1, 1, 4)),
        *(Violation.TWO_OWNERS, 6, ["page 6 has 2 owners: holder 0 and the tree"]),
    ),
    "padding in the free list": (
        lambda p: p.free.append(0),
        *(Violation.PAGE_ZERO, 0, ["page 0 is padding, but the free list has it"]),
    ),
    "row never written": (
        lambda p: exchange(p.spans, 2, (3, 0, 3)),
        *(Violation.PAGE_ZERO, 0, ["page 0 is padding, but holder 2 has it"]),
    ),
    "unknown page": (lambda p: p.free.append(41), Violation.OUT_OF_RANGE, 41, [NAMED.format(41, "the free list")]),
    "negative page": (lambda p: p.tree.append(-3), Violation.OUT_OF_RANGE, -3, [NAMED.format(-3, "the tree")]),
    "longer than its row": (lengthen_a_row, Violation.OUT_OF_RANGE, -1, [NAMED.format(-1, "holder 2")]),
    "no such row": (name_a_row_that_is_none, Violation.OUT_OF_RANGE, -1, [NAMED.format(-1, "holder 3")]),
    "evicted under a reader": (
        evict_under_a_reader,
        *(Violation.FOREIGN_PREFIX, 6),
        [f"holder {n} builds on 1 leading page that the tree does not own: page 6" for n in (0, 1)],
    ),
    "three owners": (
        give_a_page_three_owners,
        *(Violation.TWO_OWNERS, 3),
        [
            "page 3 has 3 owners: holder 0 and holder 2, and others between them",
            *("page 1 has no owner", "page 4 has no owner"),
        ],
    ),
}
"""What goes wrong, the verdict with the page that it names, and all that is said."""


def broken(change: str) -> Pool:
    """A healthy pool after one thing went wrong."""
    pool = healthy()
    BROKEN[change][0](pool)
    return pool


@pytest.mark.parametrize("change", BROKEN)
def test_what_went_wrong_is_told_with_pages_and_owners(change: str) -> None:
    found = broken(change).census()
    _, violation, page, sentences = BROKEN[change]
    assert describe(found) == sentences
    assert unpack_verdict(int(found.verdict)) == (violation, page)


@pytest.mark.parametrize("change", [None, *BROKEN])
def test_the_kernels_tell_the_same(device: str, change: str | None) -> None:
    assert_same(*both(broken(change) if change else healthy(), device))


def test_holders_are_called_by_their_names_and_long_lists_are_cut() -> None:
    pool = broken("shared")
    assert (
        describe(pool.census(), ["request 7", "request 8", "slot a"])[0]
        == "page 2 has 2 owners: request 7 and request 8"
    )
    pool.free = []
    sentences = describe(pool.census(), limit=2)
    assert sentences[1:] == ["page 3 has no owner", "page 8 has no owner", "and 32 more of this kind (NO_OWNER)"]


def test_without_prefix_pages_leading_pages_are_nobodys_business() -> None:
    owners = broken("evicted under a reader").owners()
    assert int(page_census(owners).verdict) != 0
    assert int(page_census(replace(owners, prefix_pages=None)).verdict) == 0


# Tables of any content: pages out of range and on top of each other are the rule here.
any_page = st.one_of(st.integers(1, 12), st.integers(-2, 14))
span = st.tuples(st.integers(0, ROWS + 1), st.integers(0, COLUMNS + 1), st.integers(-1, COLUMNS + 1))
pools = st.integers(0, 4).flatmap(
    lambda holders: st.builds(
        Pool,
        page_size=st.sampled_from([1, 3, 4, 16, 256]),
        pool_pages=st.sampled_from([1, 10, 12]),
        columns=st.fixed_dictionaries(
            {row: st.lists(any_page, min_size=COLUMNS, max_size=COLUMNS) for row in range(1, ROWS + 1)}
        ),
        spans=st.lists(span, min_size=holders, max_size=holders),
        prefix=st.lists(st.integers(0, COLUMNS + 1), min_size=holders, max_size=holders),
        tree=st.lists(any_page, max_size=6),
        free=st.lists(any_page, max_size=6),
    )
)


@settings(max_examples=200, derandomize=True)
@given(pool=pools)
def test_the_reference_counts_every_mention(pool: Pool) -> None:
    """Against a count in plain Python, page by page."""
    named: list[tuple[int, int]] = [(page, 1) for page in pool.free] + [(page, 2) for page in pool.tree]
    for holder, (row, first, last) in enumerate(pool.spans):
        for column in range(first, last):
            exists = row <= ROWS and column < COLUMNS
            page = (pool.columns[row][column] if row else 0) if exists else -1
            named.append((page if page >= 0 else -1, 3 + holder))
    found = pool.census()
    counters = dict.fromkeys(Violation, 0)
    counters[Violation.OUT_OF_RANGE] = sum(not 0 <= page <= pool.pool_pages for page, _ in named)
    counters[Violation.PAGE_ZERO] = sum(page == 0 for page, _ in named)
    for page in range(1, pool.pool_pages + 1):
        codes = [code for named_page, code in named if named_page == page]
        free = codes.count(1)
        assert (int(found.owners[page]), int(found.free_count[page])) == (len(codes), free)
        if len(codes) == 1:
            assert (int(found.owner_code[page]), int(found.other_code[page])) == (codes[0], 0)
        elif codes:
            # The tree is the highest of owners, though its code is not.
            ranked = sorted(codes, key=lambda code: 99 if code == 2 else code)
            assert (int(found.owner_code[page]), int(found.other_code[page])) == (ranked[-1], ranked[0])
        counters[Violation.TWO_OWNERS] += len(codes) - free > 1
        counters[Violation.FREE_AND_REFERENCED] += 0 < free < len(codes)
        counters[Violation.DUPLICATE_FREE] += free > 1
        counters[Violation.NO_OWNER] += not codes
    for (row, _, _), count in zip(pool.spans, pool.prefix, strict=True):
        for column in range(count):
            exists = row <= ROWS and column < COLUMNS
            page = (pool.columns[row][column] if row else 0) if exists else -1
            counters[Violation.FOREIGN_PREFIX] += page not in pool.tree or not 0 <= page <= pool.pool_pages
    assert found.counters.tolist() == [0, *counters.values()]
    assert (int(found.verdict) == 0) == (not any(counters.values()))
    if (verdict := unpack_verdict(int(found.verdict))) is not None:
        assert verdict[0] == min(kind for kind, count in counters.items() if count)


@settings(max_examples=EXAMPLES, derandomize=True)
@given(pool=pools)
def test_the_kernels_agree_with_the_reference_on_any_tables(device: str, pool: Pool) -> None:
    assert_same(*both(pool, device))


def test_long_rows_are_shared_by_several_programs(device: str) -> None:
    """600 columns of one row, every page on its own but the last, which is the first again."""
    pages = torch.randperm(599, generator=torch.Generator().manual_seed(0)).int() + 1
    table = torch.cat((pages, pages[:1]))[None].repeat(2, 1).to(device)
    vectors = [torch.tensor(numbers, dtype=torch.int32, device=device) for numbers in ([1], [0], [600], [], [], [3])]
    owners = PageOwners(table, *vectors[:5], 599, 1, vectors[5])
    expected = reference_page_census(owners)
    from kvproof.kernels import triton_census

    got = triton_census.page_census(owners)
    assert unpack_verdict(int(got.verdict)) == (Violation.TWO_OWNERS, int(pages[0]))
    assert_same(expected, got)


def both(pool: Pool, device: str) -> tuple[Census, Census]:
    from kvproof.kernels import triton_census

    return reference_page_census(pool.owners(device)), triton_census.page_census(pool.owners(device))


def assert_same(expected: Census, got: Census) -> None:
    tensors = {name: value for name, value in vars(expected).items() if name != "pool_pages"}
    for name, tensor in tensors.items():
        assert getattr(got, name).tolist() == tensor.tolist(), name
        assert getattr(got, name).dtype == tensor.dtype, name


def test_a_verdict_is_read_one_step_later_on_the_cpu_too() -> None:
    reader = census.VerdictReader("cpu")
    reader.submit(healthy().census())
    assert reader.read() is None
    bad = broken("lost").census()
    reader.submit(bad)
    assert reader.read() is None
    reader.submit(healthy().census())
    assert reader.read() is bad
    assert reader.drain() is None
    reader.submit(bad)
    assert reader.drain() is bad


class DeviceEvent:
    """Stands in for torch.cuda.Event on a machine without a device."""

    def record(self) -> None: ...

    def synchronize(self) -> None: ...


def test_on_a_device_a_verdict_is_read_one_step_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", DeviceEvent)
    reader = census.VerdictReader("cpu")
    reader._on_cuda = True
    bad, clean = broken("lost").census(), healthy().census()
    reader.submit(bad)
    assert reader.read() is None
    reader.submit(clean)
    assert reader.read() is bad
    reader.submit(bad)
    assert reader.read() is None
    assert reader.drain() is bad
    reader.submit(clean)
    reader.submit(clean)
    with pytest.raises(
        ValueError, match=r"^2 verdicts wait to be read, and there is room for 2: read between submits$"
    ):
        reader.submit(clean)


def test_what_does_not_fit_is_refused() -> None:
    owners = healthy().owners()
    with pytest.raises(ValueError, match=r"^first has 2 entries, but the number of holders in rows is 3$"):
        page_census(replace(owners, first=owners.first[:2]))
    with pytest.raises(ValueError, match=r"^req_to_token is int64, but must be int32$"):
        page_census(replace(owners, req_to_token=owners.req_to_token.long()))
    with pytest.raises(ValueError, match=r"^page_size is 0, but must be at least 1$"):
        page_census(replace(owners, page_size=0))
