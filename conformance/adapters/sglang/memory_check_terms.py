"""The terms of SGLang's memory check, pool by pool, in each of the ways in which releases compute them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TokenTerms:
    """The terms of the memory check of one pool in tokens, as the release computes them."""

    available: int
    evictable: int
    protected: int
    session_held: int
    uncached: int
    total: int


def terms_by_components(scheduler: Any, busy: bool) -> dict[str, TokenTerms]:
    stats = scheduler.pool_stats_observer
    held = stats.session_held_tokens(), stats.session_held_swa_tokens() if stats.is_hybrid_swa else 0
    uncached = scheduler.invariant_checker._get_total_uncached_sizes() if busy else (0, 0)
    return _terms_of_pools(stats, scheduler.tree_cache, held, uncached)


def terms_by_scheduler(scheduler: Any, busy: bool) -> dict[str, TokenTerms]:
    """The scheduler itself has what newer releases keep in its components."""
    if scheduler.is_hybrid_swa:
        held = scheduler._session_held_full_tokens(), scheduler._session_held_swa_tokens()
    else:
        held = scheduler._session_held_tokens(), 0
    uncached = scheduler._get_total_uncached_sizes() if busy else (0, 0)
    return _terms_of_pools(scheduler, scheduler.tree_cache, held, uncached)


def _terms_of_pools(stats: Any, tree: Any, held: tuple[int, int], uncached: tuple[int, int]) -> dict[str, TokenTerms]:
    """`held` and `uncached` are those of the full and of the window pool, where there is one."""
    pools, hybrid = stats.get_pool_stats(), stats.is_hybrid_swa
    terms = {
        "full": TokenTerms(
            pools.full_available_size,
            pools.full_evictable_size,
            tree.full_protected_size() if hybrid else tree.protected_size(),
            held[0],
            uncached[0],
            stats.full_tokens_per_layer if hybrid else stats.max_total_num_tokens,
        )
    }
    if hybrid:
        terms["window"] = TokenTerms(
            pools.swa_available_size,
            pools.swa_evictable_size,
            tree.swa_protected_size(),
            held[1],
            uncached[1],
            stats.swa_tokens_per_layer,
        )
    return terms


def terms_of_last_batch(scheduler: Any, busy: bool) -> dict[str, TokenTerms]:
    """Its busy check counts the last batch, and after a prefill the running one too; the window pool only when idle."""
    tree, held = scheduler.tree_cache, scheduler._session_held_tokens()
    if scheduler.is_hybrid_swa:
        available, evictable, window_available, window_evictable = scheduler._get_swa_token_info()[4:]
        protected, total = tree.full_protected_size(), scheduler.full_tokens_per_layer
    else:
        _, _, available, evictable = scheduler._get_token_info()
        protected, total = tree.protected_size(), scheduler.max_total_num_tokens
    uncached = 0
    if busy:
        last, running = scheduler.last_batch, scheduler.running_batch
        uncached = scheduler._get_batch_uncached_size(last)
        if last.forward_mode.is_extend() and running is not None and not running.is_empty():
            uncached += scheduler._get_batch_uncached_size(running)
    terms = {"full": TokenTerms(available, evictable, protected, held, int(uncached), total)}
    if scheduler.is_hybrid_swa and not busy:
        window_held = scheduler._session_held_swa_tokens()
        terms["window"] = TokenTerms(
            window_available,
            window_evictable,
            tree.swa_protected_size(),
            window_held,
            0,
            scheduler.swa_tokens_per_layer,
        )
    return terms
