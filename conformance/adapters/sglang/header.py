"""The header of a trace: what of a scheduler's configuration fixes the arithmetic, and what its release is known for."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from kvproof.spec import SPEC_VERSION
from kvproof.spec.trace import Config, Header, Producer

from .releases import Release, full_pool


def header_of(release: Release, scheduler: Any, *, scenario: str | None, extra: dict[str, Any]) -> Header:
    page_size, rows = scheduler.page_size, scheduler.req_to_token_pool
    chunk = scheduler.chunked_prefill_size
    allocator = scheduler.token_to_kv_pool_allocator
    window_pool = getattr(allocator, "swa_attn_allocator", None)
    return Header(
        spec=SPEC_VERSION,
        producer=Producer(name="kvproof-sglang", version=version("kvproof"), target=f"sglang {release.version}"),
        config=Config(
            page_size=page_size,
            pool_pages=full_pool(allocator).size // page_size,
            rows=rows.size,
            row_width=rows.req_to_token.shape[1],
            chunked_prefill_size=chunk if chunk is not None and chunk > 0 else None,
            overlap=scheduler.enable_overlap,
            window=scheduler.sliding_window_size if window_pool is not None else 0,
            window_pages=window_pool.size // page_size if window_pool is not None else 0,
            tree=release.has_tree(scheduler.tree_cache),
        ),
        scenario=scenario,
        gaps=release.gaps,
        known_deviations=release.known_deviations,
        extra=extra,
    )
