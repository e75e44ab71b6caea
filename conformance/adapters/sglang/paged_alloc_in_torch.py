"""Paged allocation without Triton, whose interpreter runs 100 steps a second where torch runs thousands.

The paged allocator launches two kernels, in newer releases only where the platform has Triton. The extend kernel is replaced
by the release's own torch version, the decode kernel by a few lines of torch. Both write the same indices into `out` as the
kernels do; the allocator then takes the pages off its free list itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

# Where the paged allocator lives, newest first.
ALLOCATORS = ("sglang.srt.mem_cache.allocator.paged", "sglang.srt.mem_cache.allocator")


class _Launch:
    """Stands where a kernel stood: `kernel[grid](*args)` calls the function."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self._function


def install() -> None:
    allocator = _module_of_the_paged_allocator()

    def extend(
        prefix_lens: Any, seq_lens: Any, last_loc: Any, free_pages: Any, out: Any, _bs_upper: int, page_size: int
    ) -> None:
        pages = (seq_lens + page_size - 1) // page_size - (prefix_lens + page_size - 1) // page_size
        if int(pages.sum()) > len(free_pages):
            return  # too few pages: the allocator finds that out next and drops `out`
        allocator.alloc_extend_naive(prefix_lens, seq_lens, last_loc, free_pages, out, page_size, free_pages.device)

    def decode(seq_lens: Any, last_loc: Any, free_pages: Any, out: Any, _bs_upper: int, page_size: int) -> None:
        opens_page = (seq_lens - 1) % page_size == 0
        if int(opens_page.sum()) > len(free_pages):
            return
        out.copy_(last_loc.to(out.dtype) + 1)
        out[opens_page] = free_pages[: int(opens_page.sum())] * page_size

    allocator.alloc_extend_kernel = _Launch(extend)
    allocator.alloc_decode_kernel = _Launch(decode)


def _module_of_the_paged_allocator() -> Any:
    for name in ALLOCATORS:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    raise ImportError(f"none of {', '.join(ALLOCATORS)} is there")
