"""Pages behind the rows and in the pools of a driven scheduler, read from the outside. It changes nothing.

A model with sliding-window layers has a second pool. One map serves both: from each index of the full pool to its index of the
window pool, 0 where there is none. The trace names window pages by what that map says when a page is taken and when it goes back,
so a wrong entry shows.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from kvproof.conformance.adapters.live.page_ids import PageIds
from kvproof.conformance.adapters.live.readings import Values

NAMESPACES = ("extra_key", "cache_salt")
"""Attributes of a request that the tree keeps apart by, beside its tokens; a release has the first or both."""
MOST_READ = 2**14
"""Tokens of a prefix that are looked at while the scheduler waits."""
MOST_PREFIXES = 2**16
"""Prefixes that a recorder tells apart, in about 10 MiB. Nothing is reported of others that come later."""


@dataclass(frozen=True)
class WindowPool:
    """The allocator of the second pool, and the map of both: of torch or of numpy."""

    allocator: Any
    map: Any
    _page_ids: PageIds

    def behind(self, indices: Any) -> list[int]:
        """The window page behind each of these indices of the full pool; 0 where the map has none."""
        return self._page_ids.read(self.map[indices])

    def go_back(self, indices: Any, into: list[int], gone: Any = None) -> None:
        """Each window page behind these indices once; those that left the window before have none. `gone`: indices whose pages
        went back before, though the map names them still."""
        behind = self.map[indices]
        if gone is not None:
            behind = behind.masked_fill(self._pages_of(gone)[indices // self.allocator.page_size], 0)
        self._page_ids.read(behind, into, once=True, set_only=True)

    def _pages_of(self, indices: Any) -> Any:
        """Of each page of the full pool whether one of these indices is in it. Nothing waits for the device."""
        size = self.allocator.page_size
        marks = self.map.new_zeros(len(self.map) // size + 1).bool()
        return marks.index_fill_(0, (indices // size).long(), True)


class RowPages:
    """What the observers of SGLang and of sglang-jax share. A subclass reads lengths as its release keeps them."""

    def __init__(self, scheduler: Any, *, has_window: bool, device: str = "cpu") -> None:
        self._scheduler = scheduler
        self.page_size: int = scheduler.page_size
        self.has_window = has_window
        self._prefixes: dict[bytes, int] = {}
        """Digest of the tokens of a prefix -> its number. Digests stay here: the trace has the numbers."""
        self.keys_are_pairs = False
        """the tree's key of a token is that token and the next, as for EAGLE: the token behind a prefix is a part of it"""
        self.page_ids = PageIds(scheduler.page_size, device_is_host=device == "cpu")
        self.window_pool: WindowPool | None = None
        """None where the trace does not name window pages."""

    def lengths(self, req: Any) -> Values:
        raise NotImplementedError

    def prefix_len(self, req: Any) -> int:
        return len(req.prefix_indices)

    def turn(self, req: Any, *, prefix: bool) -> Values:
        seen = {**self.lengths(req), "output_len": len(req.output_ids)}
        return {**seen, "prefix_len": self.prefix_len(req)} if prefix else seen

    def prefix_id(self, req: Any, length: int) -> Values:
        """The parameter `prefix_id`: the number of the leading whole pages of a request's tokens, the same for the same tokens.

        What sets prefixes apart whose tokens are the same counts, too (NAMESPACES). No number is given where there is no page,
        where not all tokens are known, and where they are so many that the scheduler would wait: it costs about 25 us for each
        1,000 tokens.
        """
        length -= length % self.page_size
        count = length + self.keys_are_pairs
        if not 0 < length <= MOST_READ or count > len(req.origin_input_ids) + len(req.output_ids):
            return {}
        tokens = array("q", req.origin_input_ids[:count])
        tokens.extend(req.output_ids[: count - len(tokens)])
        namespace = repr([getattr(req, name, None) or None for name in NAMESPACES]).encode()
        digest = blake2b(tokens.tobytes() + namespace, digest_size=16).digest()
        if digest not in self._prefixes and len(self._prefixes) >= MOST_PREFIXES:
            return {}
        return {"prefix_id": self._prefixes.setdefault(digest, len(self._prefixes) + 1)}

    def indices_of_row(self, row: int, start: int, end: int) -> Any:
        """The index at each row position in [start, end) that begins a page: position `start` is the first of its page."""
        return self._scheduler.req_to_token_pool.req_to_token[row, start : end : self.page_size]

    def pages_of_row(self, row: int, start: int, end: int) -> list[int]:
        """Pages behind the row positions [start, end) that begin in it."""
        return self.page_ids.read(self.indices_of_row(row, start, end)) if start < end else []

    def new_pages(self, row: int, start: int, end: int) -> list[int]:
        """Pages that an allocation for [start, end) opened: the page that holds `start - 1` was there before."""
        return self.pages_of_row(row, self.whole_pages(start), end)

    def window_pages_of_row(self, row: int | None, start: int, end: int) -> list[int]:
        """The window page behind each page of the row positions [start, end); 0 where there is none."""
        if self.window_pool is None or row is None or start >= end:
            return []
        return self.window_pool.behind(self.indices_of_row(row, start, end))

    def new_window_pages(self, row: int, start: int, end: int) -> list[int]:
        """The window page behind each of the `new_pages`."""
        return self.window_pages_of_row(row, self.whole_pages(start), end)

    def pages_of(self, indices: Any) -> list[int]:
        """The page of each of these indices of a decode batch."""
        return self.page_ids.read(indices)

    def window_pages_of(self, indices: Any) -> list[int] | None:
        """The window page behind each of these indices of a decode batch."""
        return self.window_pool.behind(indices) if self.window_pool is not None else None

    def whole_pages(self, length: int) -> int:
        """The first position that begins a page, from `length` on."""
        return -(-length // self.page_size) * self.page_size


def full_pool(allocator: Any) -> Any:
    """The allocator of the full-attention pool; with a sliding window it is one of two."""
    return getattr(allocator, "full_attn_allocator", allocator)
