"""The settings of one engine, refused in one sentence where they cannot work."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

RowOrder = Literal["lifo", "fifo"]
Forward = Literal["transformer", "none"]
Attention = Literal["gqa", "mla"]
Pools = Literal["host", "device"]
Drafter = Literal["model", "ngram"]
Speculation = Literal[0, 1, 2]

# The least that each takes, in bytes: an entry of the page table, a page id in a list, the KV of a token in two layers.
BYTES_OF_A_POSITION, BYTES_OF_A_PAGE = 4, 36
BYTES_OF_A_TOKEN = {"transformer": 256, "none": 0}
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class ConfigError(ValueError):
    """A setting that no engine can run with: change the setting that the message names."""


@dataclass(frozen=True)
class EngineConfig:
    """Lengths are in tokens unless a name says pages. Page ids run from 1 to `pool_pages`, rows from 1 to `rows`."""

    page_size: int = 4
    pool_pages: int = 64
    rows: int = 8
    row_width: int = 128
    radix_cache: bool = True
    """Prompts and finished requests share their whole pages through a tree; False: a chunk cache, nothing is shared."""
    chunked_prefill_size: int | None = None
    """Prefill tokens of one step, shared by its requests; None: a prompt is never cut into chunks."""
    mixed_chunk: bool = False
    """A prefill step also carries one decode of every request that runs."""
    max_prefill_tokens: int = 4096
    """Prefill tokens of one step when nothing is cut: a step takes the next prompt only while it fits."""
    max_running_requests: int | None = None
    """Requests that decode together; None: as many as there are rows."""
    new_token_estimate: int = 0
    """Output tokens that an admission sets aside pages for, per request: fewer retracts for fewer requests at a time."""
    overlap: bool = False
    """Step k+1 is prepared and launched before the result of step k is processed."""
    speculation: Speculation = 0
    """0: none; 1: drafted and verified within one step; 2: verified one step later, so it needs `overlap`."""
    drafts: int = 1
    """Draft tokens of one round."""
    drafter: Drafter = "model"
    draft_accuracy: float = 0.6
    """The share of drafts that are right when no model runs."""
    attention: Attention = "gqa"
    """What the KV buffers hold per position: keys and values per head, or one latent vector for all of them."""
    window: int = 0
    """Tokens that a sliding-window layer looks back; 0: every layer attends to everything."""
    window_pages: int | None = None
    """Pages of the pool of sliding-window layers; None, with a window: half of `pool_pages`, or what one request needs."""
    row_order: RowOrder = "fifo"
    retract_after_prepare: bool = False
    """Retract a request when its next decode step is already prepared, as `overlap` does of itself. Speculation prepares
    no single steps and is left as it is."""
    retract_interval: int | None = None
    """Force a retract every so many decode steps while others run, as SGLANG_TEST_RETRACT_INTERVAL does; None: never."""
    forward: Forward = "transformer"
    seed: int = 0
    check_every_step: bool = False
    """Report the terms of the memory check after every step."""
    census_every_step: bool = False
    """Count the owners of every page after every step, and stop at the first page that has not exactly one."""
    device: str = "cpu"
    pools: Pools | None = None
    """Where the page table and the free lists are that the kernels use; None: on the host for the CPU, else on the device.
    `device` on the CPU runs what a device runs, on tensors of the CPU."""
    faults: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._require_at_least(0, "new_token_estimate", "window")
        self._require_at_least(1, "page_size", "pool_pages", "rows", "max_prefill_tokens", "drafts")
        self._require_at_least(1, "chunked_prefill_size", "max_running_requests", "window_pages")
        self._require_at_least(
            2, "row_width", "retract_interval"
        )  # retracted on each step, a request would never end (F994e)
        if not self.window and self.window_pages is not None:
            raise ConfigError(
                f"window {self.window} with window_pages {self.window_pages}: a window has a pool of its own"
            )
        if not isinstance(self.draft_accuracy, int | float) or not 0 <= self.draft_accuracy <= 1:
            raise ConfigError(f"draft_accuracy {self.draft_accuracy!r}: must be a number from 0 to 1")
        self._require_device()
        if self.pools is None:
            self._choose("pools", "host" if self.device == "cpu" else "device")
        for name, valid in VALID.items():
            self._require_one_of(valid, name)
        if self.pools == "host" and self.device != "cpu":
            raise ConfigError(f"pools host with device {self.device}: the pages are where the KV is; use pools device")
        self._require_a_way_to_schedule()
        self._require_space_for_two_tokens()
        self._require_memory()
        if self.window:
            if self.window_pages is None:
                self._choose("window_pages", max(self.least_window_pages, self.pool_pages // 2))
            self._require_least_window_pages()

    def _choose(self, name: str, value: str | int) -> None:
        """Set what the user left open: the object is frozen, but nobody has seen it yet."""
        object.__setattr__(self, name, value)

    @property
    def overshoot(self) -> int:
        """Positions behind the last output token that a row must have: a round is backed before its outcome is known."""
        return {0: 0, 1: self.drafts, 2: 2 * self.drafts + 1}[self.speculation]

    @property
    def max_input_len(self) -> int:
        """The longest input that leaves room for one output token, in the row and in the pool."""
        return min(self.max_total_len, self.pool_pages * self.page_size) - 1 - self.overshoot

    @property
    def max_total_len(self) -> int:
        """The most positions of one request. Without chunks all of them have to fit the window pool at once: a request that
        was retracted after it had decoded past its window comes back as one long prompt."""
        if self.window_pages is None or self.chunked_prefill_size is not None:
            return self.row_width
        return min(self.row_width, self.window_pages * self.page_size)

    @property
    def least_window_pages(self) -> int:
        """Window pages that one request needs to get on: what its next token looks back to, which begins up to two pages
        later, its next chunk and round, and as much again as its window protects in the tree."""
        chunk = self.page_size if self.chunked_prefill_size is None else self.chunked_prefill_size
        row = (self.window + chunk + self.overshoot + 2 + 3 * self.page_size - 2) // self.page_size
        protected = -(-self.window // self.page_size) if self.radix_cache else 0
        return min(row + protected, self.pool_pages)

    @property
    def max_batch(self) -> int:
        return self.rows if self.max_running_requests is None else min(self.rows, self.max_running_requests)

    def _require_a_way_to_schedule(self) -> None:
        if self.speculation == 1 and self.overlap:
            raise ConfigError(
                "speculation 1 with overlap True: its rounds are verified within one step; use speculation 2"
            )
        if self.speculation == 2 and not self.overlap:
            raise ConfigError(
                "speculation 2 with overlap False: its rounds are verified one step later; set overlap True"
            )
        if self.mixed_chunk and self.speculation:
            raise ConfigError(
                f"mixed_chunk True with speculation {self.speculation}: a prefill step carries single decodes, no rounds"
            )
        if self.mixed_chunk and self.chunked_prefill_size is None:
            raise ConfigError(
                "mixed_chunk True with chunked_prefill_size None: there are no chunks to mix decodes into"
            )

    def _require_space_for_two_tokens(self) -> None:
        if self.chunked_prefill_size is not None and self.chunked_prefill_size < self.page_size:
            raise ConfigError(
                f"chunked_prefill_size {self.chunked_prefill_size} is smaller than page_size {self.page_size}: "
                "a chunk holds at least one whole page"
            )
        least = 2 + self.overshoot
        pool = self.pool_pages * self.page_size
        for size, words in ((self.row_width, f"row_width {self.row_width}"), (pool, f"a pool of {pool} tokens")):
            if size < least:
                raise ConfigError(
                    f"{words} is less than the {least} positions of one token in, one out, and {self.overshoot} that a "
                    "round of drafts may overshoot"
                )

    def _require_device(self) -> None:
        kind, _, number = self.device.partition(":") if isinstance(self.device, str) else ("", "", "")
        if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
            raise ConfigError(f"unknown device {self.device!r}; valid: cpu, cuda, cuda:N")

    def _require_memory(self) -> None:
        """A lower bound: the page table, the free list, and the least that the KV of a token takes, if it is kept here."""
        table = BYTES_OF_A_POSITION * self.rows * self.row_width
        kv = BYTES_OF_A_TOKEN[self.forward] if self.device == "cpu" else 0
        pool = self.pool_pages * (BYTES_OF_A_PAGE + kv * self.page_size)
        for size, words in (
            (pool, f"pool_pages {self.pool_pages} of page_size {self.page_size}"),
            (table, f"rows {self.rows} of row_width {self.row_width}"),
        ):
            if size > MEMORY:
                raise ConfigError(
                    f"{words} take {size / 2**30:,.0f} GiB or more; this machine has {MEMORY / 2**30:,.0f} GiB"
                )

    def _require_least_window_pages(self) -> None:
        assert self.window_pages is not None  # it was chosen if the user left it open
        if self.window_pages < self.least_window_pages:
            raise ConfigError(
                f"window_pages {self.window_pages} is less than the {self.least_window_pages} pages that one request needs "
                f"with window {self.window}"
            )

    def _require_at_least(self, least: int, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is None and getattr(EngineConfig, name) is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(f"{name} {value!r}: must be a whole number")
            if value < least:
                raise ConfigError(f"{name} {value}: must be {least} or more")

    def _require_one_of(self, valid: tuple[str | bool | int, ...], name: str) -> None:
        value = getattr(self, name)
        if not any(type(value) is type(choice) and value == choice for choice in valid):
            raise ConfigError(f"unknown {name} {value!r}; valid: {', '.join(map(str, valid))}")


def _valid_values(hint: Any) -> tuple[str | bool | int, ...]:
    """The values of a switch or of a Literal, also of one that may be None; nothing for other types."""
    options = get_args(hint) if get_origin(hint) is not Literal else (hint,)
    return (True, False) if hint is bool else sum((get_args(option) for option in options), ())


VALID = {name: valid for name, hint in get_type_hints(EngineConfig).items() if (valid := _valid_values(hint))}
"""The settings that have a list of valid values, by their types."""
