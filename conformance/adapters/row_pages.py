"""Pages behind the rows and in the pools of a driven scheduler, read from the outside. It changes nothing."""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import Any

from kvproof.conformance.adapters.live.page_ids import PageIds
from kvproof.conformance.adapters.live.readings import Values

MOST_READ = 2**14
"""Tokens of a prefix that are looked at while the scheduler waits."""
MOST_PREFIXES = 2**16
"""Prefixes that a recorder tells apart, in about 10 MiB. Nothing is reported of others that come later."""


class RowPages:
    """What the observers of SGLang and of sglang-jax share. A subclass reads lengths as its release keeps them."""

    def __init__(self, scheduler: Any, *, has_window: bool, device: str = "cpu") -> None:
        self._scheduler = scheduler
        self.page_size: int = scheduler.page_size
        self.has_window = has_window
        self._prefixes: dict[bytes, int] = {}
        """Digest of the tokens of a prefix -> its number. Digests stay here: the trace has the numbers."""
        self.page_ids = PageIds(scheduler.page_size, device_is_host=device == "cpu")

    def lengths(self, req: Any) -> Values:
        raise NotImplementedError

    def prefix_len(self, req: Any) -> int:
        return len(req.prefix_indices)

    def turn(self, req: Any, *, prefix: bool) -> Values:
        seen = {**self.lengths(req), "output_len": len(req.output_ids)}
        return {**seen, "prefix_len": self.prefix_len(req)} if prefix else seen

    def prefix_id(self, req: Any, length: int) -> Values:
        """The parameter `prefix_id`: the number of the leading whole pages of a request's tokens, the same for the same tokens.

        What sets prefixes apart whose tokens are the same counts, too (`extra_key`). No number is given where there is no page,
        where not all tokens are known, and where they are so many that the scheduler would wait: it costs about 25 us for each
        1,000 tokens.
        """
        length -= length % self.page_size
        if not 0 < length <= min(MOST_READ, len(req.origin_input_ids) + len(req.output_ids)):
            return {}
        tokens = array("q", req.origin_input_ids[:length])
        tokens.extend(req.output_ids[: length - len(tokens)])
        text = str(getattr(req, "extra_key", None) or "").encode()
        digest = blake2b(tokens.tobytes() + text, digest_size=16).digest()
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

    def whole_pages(self, length: int) -> int:
        """The first position that begins a page, from `length` on."""
        return -(-length // self.page_size) * self.page_size


def full_pool(allocator: Any) -> Any:
    """The allocator of the full-attention pool; with a sliding window it is one of two."""
    return getattr(allocator, "full_attn_allocator", allocator)
