"""What a run of the headless scheduler depends on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Settings:
    """The same for every release. Lengths are in tokens."""

    page_size: int = 1
    pool_tokens: int = 512
    max_running_requests: int = 6
    chunked_prefill_size: int | None = None
    mixed_chunk: bool = False
    overlap: bool = False
    window: int = 0
    """sliding window of one of the model's two layers; 0: full attention"""
    drafts: int = 0
    """draft tokens of each round of speculation (`draft_model.py`), v2 with `overlap` and v1 without; 0: none"""
    disable_radix_cache: bool = False
    """a chunk cache in place of the tree"""
    swa_full_tokens_ratio: float = 0.8
    """size of the window pool, as a part of the other's"""
    schedule_conservativeness: float = 1.0
    """less than 1: more is admitted than will fit, so that requests are retracted"""
    streaming_sessions: bool = True
    context_length: int = 512
    seed: int = 0
    device: Device = "cpu"
    real_forward: bool = False
    """the tiny model's own forward, with random weights; else the tokens are made up"""

    def but(self, **changes: Any) -> Settings:
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
