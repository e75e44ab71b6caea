"""What the parts of the scheduler share: the pools, the cache, the queues, and what was launched."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvproof.impl.assembly import Parts
from kvproof.impl.chunk_cache import ChunkCache
from kvproof.impl.config import EngineConfig
from kvproof.impl.device import Device
from kvproof.impl.observe import Observer, Reporter, Unheard
from kvproof.impl.page_moves import Moved, Pages, Pool
from kvproof.impl.pools import KVAllocator, RowPool
from kvproof.impl.radix_cache import RadixCache
from kvproof.impl.request import Request, Session
from kvproof.impl.runner import ForwardInput, Launch
from kvproof.impl.session import SessionController, StreamingSessionCache
from kvproof.impl.window_pool import WindowAllocator


@dataclass(frozen=True)
class Outcome:
    """How a request ended, and with which output."""

    finished: bool
    output_ids: tuple[int, ...]
    reason: str | None = None


@dataclass(frozen=True)
class Chunk:
    """A request's share of one prefill step: positions [prefix_len, seq_len)."""

    req: Request
    prefix_len: int
    seq_len: int

    @property
    def is_last(self) -> bool:
        return self.seq_len == len(self.req.fill_ids)

    def forward_input(self) -> ForwardInput:
        assert self.req.req_pool_idx is not None  # a chunk is made after its row was allocated
        return ForwardInput(self.req.req_pool_idx, self.prefix_len, self.req.fill_ids[: self.seq_len])


@dataclass(frozen=True)
class Launched:
    """A step whose forward was started, and whose results are still to be processed."""

    launch: Launch
    chunks: Sequence[Chunk]
    decodes: Sequence[Request]
    draft_pages: Sequence[Moved] = ()
    """Pages taken for the drafts of each decode (speculation v1)."""


@dataclass
class Batch:
    """What the next forward runs: shares of prefills, and requests that decode."""

    chunks: list[Chunk] = field(default_factory=list)
    decodes: list[Request] = field(default_factory=list)
    draft_pages: list[Moved] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.chunks or self.decodes)


class MemoryTerms(NamedTuple):
    """The terms of the memory check, in pages, of each pool; `total` is what the others add up to."""

    full: dict[str, int]
    window: dict[str, int] | None


class EngineState:
    def __init__(self, config: EngineConfig, parts: Parts, observer: Observer | None) -> None:
        self.config = config
        self.device = Device(config, observer) if config.pools == "device" else None
        """Where the pools are that the kernels use, if these here are its books."""
        keeps_moves = observer is not None and self.device is None
        self.window_pool: WindowAllocator | None = None
        """The allocator again, where the model has sliding-window layers."""
        if config.window and config.window_pages is not None:
            self.window_pool = WindowAllocator(
                config.pool_pages, config.window_pages, config.page_size, config.window, keeps_moves=keeps_moves
            )
        self.allocator = self.window_pool or KVAllocator(config.pool_pages, config.page_size, keeps_moves=keeps_moves)
        self.rows = RowPool(config.rows, config.row_width, config.row_order)
        if self.device is not None:
            self.allocator.device = self.rows.device = self.device.log
        self.prefixes: ChunkCache = parts.of(RadixCache if config.radix_cache else ChunkCache)(
            self.allocator, self.rows
        )
        self.cache = parts.of(StreamingSessionCache)(self.prefixes)
        self.controller = parts.of(SessionController)(self.cache, config.max_input_len)
        self.reporter = self._reporter_for(observer)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.chunked_req: Request | None = None
        """The one request whose prompt is partly prefilled."""
        self.launched: deque[Launched] = deque()
        """Steps whose results are still to be processed: with overlap one stays in flight between two steps."""
        self.ended_in_step: list[Request] = []
        """They still stand in the batch that this step's memory check looks at."""
        self.outcomes: dict[str, Outcome] = {}

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.running or self.chunked_req or self.launched)

    def live_requests(self) -> list[Request]:
        """The requests of the live batch: running, or between two chunks. Their rows count as theirs, not as the slots'."""
        return self.running if self.chunked_req is None else [*self.running, self.chunked_req]

    def obtainable_pages(self) -> int:
        """Pages that are free or can be evicted. Each takes one of the window pool, where there is one, as well."""
        page_size = self.config.page_size
        pages = self.allocator.available_pages + self.prefixes.tree.evictable_size // page_size
        if self.window_pool is None:
            return pages
        return min(
            pages, self.window_pool.available_window_pages + self.prefixes.tree.window_evictable_size // page_size
        )

    def memory_terms(self) -> dict[str, int]:
        """The terms of the memory check, in pages, from the running counters of pool, tree and slots."""
        page_size = self.config.page_size
        return {
            "available": self.allocator.available_pages,
            "evictable": self.prefixes.tree.evictable_size // page_size,
            "protected": self.prefixes.tree.protected_size // page_size,
            **self._terms_of_holders("full"),
            "total": self.config.pool_pages,
        }

    def window_terms(self) -> dict[str, int] | None:
        """The terms of the memory check of the window pool, in pages; None if there is no such pool."""
        page_size = self.config.page_size
        if self.window_pool is None:
            return None
        return {
            "available": self.window_pool.available_window_pages,
            "evictable": self.prefixes.tree.window_evictable_size // page_size,
            "protected": self.prefixes.tree.window_protected_size // page_size,
            **self._terms_of_holders("window"),
            "total": self.window_pool.window_pages,
        }

    def all_memory_terms(self) -> MemoryTerms:
        return MemoryTerms(self.memory_terms(), self.window_terms())

    def _terms_of_holders(self, pool: Pool) -> dict[str, int]:
        live = self.live_requests()
        return {
            "session_held": self.cache.session_held_pages({req.req_pool_idx for req in live}, pool),
            "uncached": self.cache.uncached_pages(live, self.ended_in_step, pool),
        }

    def make_available(self, pages: int) -> None:
        """Evict from the tree what is missing. Every page that the scheduler takes passes here first."""
        tree, page_size = self.prefixes.tree, self.config.page_size
        missing = pages - self.allocator.available_pages
        if was_short := missing > 0:
            tree.evict(missing * page_size)
        if self.window_pool is not None and (missing := pages - self.window_pool.available_window_pages) > 0:
            was_short = True
            tree.evict_window(missing * page_size)
        if was_short and self.config.radix_cache:
            self.reporter.evict()

    def back(self, row: int, start: int, end: int, *, is_decode: bool = False) -> None:
        """Take the pages that positions [start, end) of a row need, and write their KV indices into it."""
        allocator, entries = self.allocator, self.rows.table[row]
        self.make_available(allocator.pages_for(start, end))
        last_loc = int(entries[start - 1]) if start else -1
        if is_decode and end == start + 1:
            entries[start] = allocator.alloc_decode(end, last_loc)
        else:
            entries[start:end] = allocator.alloc_extend(start, end, last_loc)
        if self.device is not None:
            self.device.log.backed(row, start, end, is_decode=is_decode)

    def leading_pages(self, row: int, length: int) -> Pages:
        """The pages behind the leading `length` tokens of a row, in order; `length` is whole pages."""
        page_size = self.config.page_size
        if self.device is not None:
            return self.device.log.leading_pages(row, length // page_size)
        return tuple((self.rows.table[row, :length:page_size] // page_size).tolist())

    def free_list(self) -> Pages:
        """Every free page, as often as it is listed, in ascending order."""
        if self.device is not None:
            return self.device.log.free_list(self.allocator.available_pages)
        return self.allocator.free_list()

    def window_free_list(self) -> Pages | None:
        """Every free window page, as often as it is listed, in ascending order; None if there is no window pool."""
        pool = self.window_pool
        if pool is not None and self.device is not None:
            return self.device.log.free_list(pool.available_window_pages, of_window=True)
        return None if pool is None else pool.window_free_list()

    def slot_row(self, session: Session) -> int | None:
        slot = self.cache.slots.get(session.session_id)
        return slot.req_pool_idx if slot is not None else None

    def _reporter_for(self, observer: Observer | None) -> Reporter:
        moves = self.allocator.moves
        if self.device is not None:
            observer, moves = self.device.events, self.device.log.moves
        return Unheard() if observer is None or moves is None else Reporter(observer, self.cache, moves)
