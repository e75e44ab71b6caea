"""The settings of one engine, refused in one sentence where they cannot work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RowOrder = Literal["lifo", "fifo"]
Forward = Literal["transformer", "none"]


class ConfigError(ValueError):
    """A setting that no engine can run with: change the setting that the message names."""


@dataclass(frozen=True)
class EngineConfig:
    """Lengths are in tokens unless a name says pages. Page ids run from 1 to `pool_pages`, rows from 1 to `rows`."""

    page_size: int = 4
    pool_pages: int = 64
    rows: int = 8
    row_width: int = 128
    chunked_prefill_size: int | None = None
    """Prefill tokens of one step, shared by its requests; None: a prompt is never cut into chunks."""
    max_prefill_tokens: int = 4096
    """Prefill tokens of one step when nothing is cut: a step takes the next prompt only while it fits."""
    max_running_requests: int | None = None
    """Requests that decode together; None: as many as there are rows."""
    row_order: RowOrder = "fifo"
    retract_after_prepare: bool = False
    """Retract a request when its next decode step is already prepared, as a scheduler that overlaps steps does."""
    retract_interval: int | None = None
    """Force a retract every so many decode steps while others run, as SGLANG_TEST_RETRACT_INTERVAL does; None: never."""
    forward: Forward = "transformer"
    seed: int = 0
    check_every_step: bool = False
    device: str = "cpu"
    faults: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("page_size", "pool_pages", "rows", "max_prefill_tokens"):
            self._require_at_least(1, name)
        self._require_at_least(2, "row_width")
        for name in ("chunked_prefill_size", "max_running_requests"):
            if getattr(self, name) is not None:
                self._require_at_least(1, name)
        if self.retract_interval is not None:
            self._require_at_least(2, "retract_interval")  # with 1, a retracted request would prefill for ever (F994e)
        for name in ("retract_after_prepare", "check_every_step"):
            self._require_one_of((True, False), name)
        self._require_one_of(("lifo", "fifo"), "row_order")
        self._require_one_of(("transformer", "none"), "forward")
        if self.chunked_prefill_size is not None and self.chunked_prefill_size < self.page_size:
            raise ConfigError(
                f"chunked_prefill_size {self.chunked_prefill_size} is smaller than page_size {self.page_size}: "
                "a chunk holds at least one whole page"
            )

    @property
    def max_input_len(self) -> int:
        """The longest input that leaves room for one output token, in the row and in the pool."""
        return min(self.row_width, self.pool_pages * self.page_size) - 1

    @property
    def max_batch(self) -> int:
        return self.rows if self.max_running_requests is None else min(self.rows, self.max_running_requests)

    def _require_at_least(self, least: int, name: str) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(f"{name} {value!r}: must be a whole number")
        if value < least:
            raise ConfigError(f"{name} {value}: must be {least} or more")

    def _require_one_of(self, valid: tuple[str | bool, ...], name: str) -> None:
        value = getattr(self, name)
        if value not in valid:
            raise ConfigError(f"unknown {name} {value!r}; valid: {', '.join(map(str, valid))}")
