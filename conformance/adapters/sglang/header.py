"""The header of a trace: what of a scheduler's configuration fixes the arithmetic, and what its release is known for."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from kvproof.spec import SPEC_VERSION
from kvproof.spec.trace import Config, Header, Producer

from .releases import Release, full_pool
from .window_pool import window_allocator

WINDOW_GAP = "pages of the window pool: the trace has the cursor and the terms of the check, not the page ids"
SPECULATION_GAP = (
    "speculation is emulated: each round reserves real slots ahead, no draft was run, and none was accepted"
)


def header_of(
    release: Release, scheduler: Any, *, scenario: str | None, extra: dict[str, Any], emulated_drafts: int = 0
) -> Header:
    page_size, rows = scheduler.page_size, scheduler.req_to_token_pool
    chunk = scheduler.chunked_prefill_size
    named = window_allocator(release, scheduler)
    return Header(
        spec=SPEC_VERSION,
        producer=Producer(name="kvproof-sglang", version=version("kvproof"), target=f"sglang {release.version}"),
        config=Config(
            page_size=page_size,
            pool_pages=full_pool(scheduler.token_to_kv_pool_allocator).size // page_size,
            rows=rows.size,
            row_width=rows.req_to_token.shape[1],
            chunked_prefill_size=chunk if chunk is not None and chunk > 0 else None,
            overlap=scheduler.enable_overlap,
            speculation=2 if emulated_drafts else 0,
            drafts=emulated_drafts or 1,
            window=scheduler.sliding_window_size if scheduler.is_hybrid_swa else 0,
            window_pages=named.size // page_size if named is not None else 0,
            tree=release.has_tree(scheduler.tree_cache),
        ),
        scenario=scenario,
        gaps=(
            *release.gaps,
            *([WINDOW_GAP] if scheduler.is_hybrid_swa and named is None else []),
            *([SPECULATION_GAP] if emulated_drafts else []),
        ),
        known_deviations=release.known_deviations,
        extra=extra,
    )
