"""The header of a trace: what of a scheduler's configuration fixes the arithmetic, and what its release is known for."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Literal

from kvproof.conformance.adapters.row_pages import full_pool
from kvproof.conformance.adapters.sglang.releases import Release
from kvproof.conformance.adapters.sglang.window_pool import window_allocator
from kvproof.spec import SPEC_VERSION
from kvproof.spec.gaps import WINDOW_PAGES
from kvproof.spec.trace import Config, Header, Producer


def drafts_of(scheduler: Any) -> int:
    """Draft tokens of each round of speculation; 0: none, or of a kind that says nothing of them."""
    algorithm = getattr(scheduler, "spec_algorithm", None)
    if algorithm is None or algorithm.is_none():
        return 0
    return max(0, (scheduler.server_args.speculative_num_draft_tokens or 0) - 1)


def speculation_of(scheduler: Any) -> Literal[0, 1, 2]:
    """Its version: the second overlaps. 0: none."""
    if not drafts_of(scheduler):
        return 0
    return 2 if scheduler.enable_overlap else 1


def header_of(release: Release, scheduler: Any, *, scenario: str | None, extra: dict[str, Any]) -> Header:
    page_size, rows = scheduler.page_size, scheduler.req_to_token_pool
    chunk = scheduler.chunked_prefill_size
    named, drafts = window_allocator(release, scheduler), drafts_of(scheduler)
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
            speculation=speculation_of(scheduler),
            drafts=drafts or 1,
            window=scheduler.sliding_window_size if scheduler.is_hybrid_swa else 0,
            window_pages=named.size // page_size if named is not None else 0,
            tree=release.has_tree(scheduler.tree_cache),
        ),
        scenario=scenario,
        gaps=(
            *release.gaps,
            *([WINDOW_PAGES] if scheduler.is_hybrid_swa and named is None else []),
        ),
        known_deviations=release.known_deviations,
        extra=extra,
    )
