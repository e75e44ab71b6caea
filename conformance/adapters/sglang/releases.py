"""What differs between the SGLang releases that can be driven and recorded: one row per release, no branches elsewhere.

A row names where things live and how the release computes the terms of its own memory check. The functions below read
those terms exactly as the release's check does, also where the release is known to count wrongly: a recorder shows what
the implementation believes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from kvproof.conformance.errors import UserError

INSTALL_HINT = "run `make test-sglang` once, or `python tests/sglang/make_env.py`, and use the environment it names"


@dataclass(frozen=True)
class TokenTerms:
    """The terms of the memory check in tokens, as the release computes them."""

    available: int
    evictable: int
    protected: int
    session_held: int
    uncached: int
    total: int


@dataclass(frozen=True)
class Release:
    version: str
    session_cache: str
    """module:class of the cache layer that keeps the slots of streaming sessions"""
    session: str
    """module:class of a session"""
    session_controller: str
    idle_check: str
    """Scheduler method of the event loop's idle branch, which checks the memory"""
    available_and_evictable: Callable[[Any], tuple[int, int]]
    busy_uncached: Callable[[Any], int]
    marker: str | None
    """attribute of a session that holds its in-flight marker"""
    closing: str | None
    """attribute of a session that says that a close waits"""
    checkpoint_is_stable: bool
    """the checkpoint changes only when a turn ends, so it may be read at any time"""
    retract_clears_protected_len: bool
    """a retract sets cache_protected_len to 0; else the old value stays until the next match overwrites it"""
    known_deviations: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()

    def load(self, place: str) -> Any:
        """The class behind one of this row's module:class names."""
        module, _, name = getattr(self, place).partition(":")
        return getattr(importlib.import_module(module), name)


def _from_token_info(scheduler: Any) -> tuple[int, int]:
    _, _, available, evictable = scheduler._get_token_info()
    return available, evictable


def _from_pool_stats(scheduler: Any) -> tuple[int, int]:
    stats = scheduler.get_pool_stats()
    return stats.full_available_size, stats.full_evictable_size


def _uncached_per_batch(scheduler: Any) -> int:
    last, running = scheduler.last_batch, scheduler.running_batch
    uncached = scheduler._get_batch_uncached_size(last)
    if last.forward_mode.is_extend() and running is not None and not running.is_empty():
        uncached += scheduler._get_batch_uncached_size(running)
    return int(uncached)


def _uncached_of_active_batches(scheduler: Any) -> int:
    return int(scheduler._get_total_uncached_sizes()[0])


RELEASES: tuple[Release, ...] = (
    Release(
        version="0.5.10.post1",
        session_cache="sglang.srt.mem_cache.session_aware_cache:SessionAwareCache",
        session="sglang.srt.managers.session_controller:Session",
        session_controller="sglang.srt.managers.session_controller:SessionController",
        idle_check="self_check_during_idle",
        available_and_evictable=_from_token_info,
        busy_uncached=_uncached_per_batch,
        marker=None,
        closing=None,
        checkpoint_is_stable=False,
        retract_clears_protected_len=False,
        gaps=(
            "inflight: this release has no in-flight marker",
            "checkpoint_len: observed after finish, abort and close only, as the session names its turn in flight "
            "where later releases keep the last successful one",
            "cache_protected_len after a retract: the value of before stays and is not read until the next match sets it",
        ),
    ),
    Release(
        version="0.5.11",
        session_cache="sglang.srt.session.streaming_session:StreamingSession",
        session="sglang.srt.session.session_controller:Session",
        session_controller="sglang.srt.session.session_controller:SessionController",
        idle_check="on_idle",
        available_and_evictable=_from_pool_stats,
        busy_uncached=_uncached_of_active_batches,
        marker="_inflight",
        closing="close_on_finish",
        checkpoint_is_stable=True,
        retract_clears_protected_len=True,
        known_deviations=("S0511a", "S0511b"),
    ),
)


def installed_release() -> Release:
    """The row of the SGLang that this interpreter would import; nothing of it is imported yet."""
    try:
        return release_named(metadata.version("sglang"))
    except metadata.PackageNotFoundError as error:
        raise UserError(f"SGLang is not installed in this environment: {INSTALL_HINT}") from error


def release_named(version: str) -> Release:
    for release in RELEASES:
        if release.version == version:
            return release
    known = ", ".join(release.version for release in RELEASES)
    raise UserError(f"no adapter for SGLang {version}; known releases: {known}. {INSTALL_HINT.capitalize()}")


def read_terms(release: Release, scheduler: Any, *, busy: bool) -> TokenTerms:
    """The terms right now. While busy, the tokens of the live batches count too, as in the release's busy check."""
    available, evictable = release.available_and_evictable(scheduler)
    return TokenTerms(
        available=available,
        evictable=evictable,
        protected=scheduler.tree_cache.protected_size(),
        session_held=scheduler._session_held_tokens(),
        uncached=release.busy_uncached(scheduler) if busy else 0,
        total=scheduler.max_total_num_tokens,
    )
