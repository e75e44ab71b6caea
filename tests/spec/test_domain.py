"""Page arithmetic in numbers."""

from __future__ import annotations

import pytest

from kvproof.model.integers import Integers
from kvproof.spec.domain import ceil_align, floor_align, footprint, is_aligned, orphan_start


@pytest.mark.parametrize(
    ("page_size", "length", "floor", "ceil"),
    [(1, 5, 5, 5), (4, 5, 4, 8), (4, 8, 8, 8), (256, 0, 0, 0), (256, 1, 0, 256)],
)
def test_alignment(page_size: int, length: int, floor: int, ceil: int) -> None:
    d = Integers(page_size, 1024)
    assert floor_align(d, length) == floor
    assert ceil_align(d, length) == ceil
    assert is_aligned(d, length) == (floor == length)


def test_a_tail_free_never_starts_inside_the_last_kept_page() -> None:
    d = Integers(4, 64)
    assert orphan_start(d, 5) == 8
    assert orphan_start(d, 8) == 8


def test_a_footprint_counts_whole_pages_behind_the_protected_prefix() -> None:
    d = Integers(4, 64)
    assert footprint(d, 9, 4) == 2
    assert footprint(d, 4, 4) == 0
