"""What a run of sglang-jax's scheduler depends on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Settings:
    """Lengths are in tokens."""

    page_size: int = 1
    pool_tokens: int = 512
    max_running_requests: int = 4
    chunked_prefill_size: int | None = None
    mixed_chunk: bool = False
    overlap: bool = False
    window: int = 0
    """sliding window of one of the model's two layers; 0: full attention"""
    disable_radix_cache: bool = False
    """a chunk cache in place of the tree"""
    context_length: int = 256
    seed: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
