"""Pages behind the rows and in the pools of a driven scheduler, read from the outside. It changes nothing."""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import Any

from kvproof.conformance.adapters.live.page_ids import PageIds
from kvproof.conformance.adapters.live.readings import Values
from kvproof.conformance.traces.columnar_schema import LARGEST_NUMBER

MOST_HASHED = 2**14
"""Tokens of a prefix that are hashed while the scheduler waits."""


class RowPages:
    """What the observers of SGLang and of sglang-jax share. A subclass reads lengths as its release keeps them."""

    def __init__(self, scheduler: Any, *, has_window: bool, device: str = "cpu", hash_key: bytes = b"") -> None:
        self._scheduler = scheduler
        self.page_size: int = scheduler.page_size
        self.has_window = has_window
        self._hash_key = hash_key
        self.page_ids = PageIds(scheduler.page_size, device_is_host=device == "cpu")

    def lengths(self, req: Any) -> Values:
        raise NotImplementedError

    def prefix_len(self, req: Any) -> int:
        return len(req.prefix_indices)

    def turn(self, req: Any, *, prefix: bool) -> Values:
        seen = {**self.lengths(req), "output_len": len(req.output_ids)}
        return {**seen, "prefix_len": self.prefix_len(req)} if prefix else seen

    def prefix_hash(self, req: Any, length: int) -> Values:
        """The parameter `prefix_hash`: a hash of the leading whole pages of a request's tokens, and of what sets its prefixes
        apart from equal ones of others (`extra_key`). Nothing where there is no page, where not all of its tokens are known, and
        where they are so many that the scheduler would wait: it costs about 25 us for each 1,000 tokens.
        """
        length -= length % self.page_size
        if not 0 < length <= min(MOST_HASHED, len(req.origin_input_ids) + len(req.output_ids)):
            return {}
        tokens = array("q", req.origin_input_ids[:length])
        tokens.extend(req.output_ids[: length - len(tokens)])
        text = str(getattr(req, "extra_key", None) or "").encode()
        digest = blake2b(tokens.tobytes() + text, key=self._hash_key, digest_size=8).digest()
        return {"prefix_hash": int.from_bytes(digest, "big") % LARGEST_NUMBER + 1}

    def indices_of_row(self, row: int, start: int, end: int) -> Any:
        """The index at each row position in [start, end) that begins a page: position `start` is the first of its page."""
        return self._scheduler.req_to_token_pool.req_to_token[row, start : end : self.page_size]

    def pages_of_row(self, row: int, start: int, end: int) -> list[int]:
        """Pages behind the row positions [start, end) that begin in it."""
        return self.page_ids.read(self.indices_of_row(row, start, end)) if start < end else []

    def new_pages(self, row: int, start: int, end: int) -> list[int]:
        """Pages that an allocation for [start, end) opened: the page that holds `start - 1` was there before."""
        return self.pages_of_row(row, self.whole_pages(start), end)

    def whole_pages(self, length: int) -> int:
        """The first position that begins a page, from `length` on."""
        return -(-length // self.page_size) * self.page_size


def full_pool(allocator: Any) -> Any:
    """The allocator of the full-attention pool; with a sliding window it is one of two."""
    return getattr(allocator, "full_attn_allocator", allocator)
