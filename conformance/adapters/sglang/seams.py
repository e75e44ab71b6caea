"""Where SGLang's releases keep what is driven and watched: one row per seam, with the ways in which releases do it.

A release is not asked for its version but for what it has. Each row lists its ways, the newest first, and the first one that
the release has is taken. So a release that nobody has looked at yet is driven by the ways that it shares with those that are
known, and what fits none of them is named.
"""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from kvproof.conformance.adapters.sglang.memory_check_terms import (
    terms_by_components,
    terms_by_scheduler,
    terms_of_last_batch,
)
from kvproof.conformance.adapters.sglang.release_features import (
    Seam,
    Way,
    any_of,
    class_at,
    has,
    is_annotated,
    is_not,
    keeps,
    takes,
)
from kvproof.spec import gaps

Lengths = tuple[int, int, int]

# -- the process's configuration --


def _publish_with_ranks(server_args: Any) -> None:
    context = importlib.import_module("sglang.srt.runtime_context")
    ranks = context.SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0)
    context.publish(server_args, role="scheduler", ranks=ranks)


def _publish(server_args: Any) -> None:
    importlib.import_module("sglang.srt.runtime_context").publish(server_args, role="scheduler")


def _set_global(server_args: Any) -> None:
    importlib.import_module("sglang.srt.server_args").set_global_server_args_for_scheduler(server_args)


# -- the sockets of the event loop --


def _receive_from_component(scheduler: Any, receive: Callable[..., list[Any]]) -> None:
    scheduler.request_receiver = SimpleNamespace(recv_requests=receive)


def _receive_itself(scheduler: Any, receive: Callable[..., list[Any]]) -> None:
    scheduler.recv_requests = receive


def _send_through_channels(scheduler: Any, sender: Any) -> None:
    """Those that send hold the channels' own objects, so these are what is redirected."""
    channels = scheduler.ipc_channels
    for channel in (channels.send_to_tokenizer, channels.send_to_detokenizer):
        channel.send_output = sender.send_output


def _send_itself(scheduler: Any, sender: Any) -> None:
    scheduler.send_to_tokenizer = scheduler.send_to_detokenizer = sender


# -- the lengths of requests and slots --

# Read at every step of all that run, so written out: Python reads attributes faster so than by `attrgetter`.


def _their_own_lengths(owners: Iterable[Any]) -> list[Lengths]:
    return [(owner.kv_committed_len, owner.kv_allocated_len, owner.cache_protected_len) for owner in owners]


def _lengths_beside_records(owners: Iterable[Any]) -> list[Lengths]:
    """Without a record no KV is held."""
    return [
        (owner.kv_committed_len, owner.kv.kv_allocated_len if owner.kv is not None else 0, owner.cache_protected_len)
        for owner in owners
    ]


def _lengths_in_records(owners: Iterable[Any]) -> list[Lengths]:
    return [(kv.kv_committed_len, kv.kv_allocated_len, kv.cache_protected_len) for kv in [one.kv for one in owners]]


_COMMON = "sglang.srt.mem_cache.common"
_ALLOCATOR = "sglang.srt.mem_cache.allocator.base:BaseTokenToKVPoolAllocator"
_TWO_POOLS = "sglang.srt.mem_cache.allocator.swa:SWATokenToKVPoolAllocator"
_TWO_POOLS_BEFORE_0514 = "sglang.srt.mem_cache.swa_memory_pool:SWATokenToKVPoolAllocator"
_CACHE = "sglang.srt.mem_cache.base_prefix_cache:BasePrefixCache"
_SCHEDULER = "sglang.srt.managers.scheduler:Scheduler"
_BATCH = "sglang.srt.managers.schedule_batch:ScheduleBatch"
_REQ = "sglang.srt.managers.schedule_batch:Req"
_KV_INFO = "sglang.srt.managers.schedule_batch:ReqKvInfo"
_STREAMING = "sglang.srt.session.streaming_session:StreamingSession"
_AWARE = "sglang.srt.mem_cache.session_aware_cache:SessionAwareCache"
_INPUT = "sglang.srt.managers.io_struct:TokenizedGenerateReqInput"
_RECEIVER = "sglang.srt.managers.scheduler_components.request_receiver:SchedulerRequestReceiver.recv_requests"
_CHECKER = "sglang.srt.managers.scheduler_components.invariant_checker:SchedulerInvariantChecker"

_record_has_all = keeps(_KV_INFO, "req_pool_idx")
_record_has_some = keeps(_KV_INFO, "kv_allocated_len")
_the_request = has(_REQ)
_cache_has_cache_unfinished = any_of(has(f"{_STREAMING}.cache_unfinished_req"), has(f"{_AWARE}.cache_unfinished_req"))

SEAMS: tuple[Seam, ...] = (
    Seam(
        "publish",
        "where the process keeps the server's arguments",
        Way("runtime_context, with ranks", takes("sglang.srt.runtime_context:publish", "ranks"), _publish_with_ranks),
        Way("runtime_context", has("sglang.srt.runtime_context:publish"), _publish),
        Way("server_args", has("sglang.srt.server_args:set_global_server_args_for_scheduler"), _set_global),
    ),
    Seam(
        "receive",
        "where the event loop gets its requests",
        Way("request_receiver", has(_RECEIVER), _receive_from_component),
        Way("Scheduler.recv_requests", has(f"{_SCHEDULER}.recv_requests"), _receive_itself),
    ),
    Seam(
        "send",
        "where replies go",
        Way(
            "ipc_channels",
            has("sglang.srt.managers.scheduler_components.ipc_channels:SchedulerIpcChannels"),
            _send_through_channels,
        ),
        Way("Scheduler", has(_SCHEDULER), _send_itself),
    ),
    Seam(
        "input_ids",
        "what a request's token ids come as",
        Way("array", is_annotated(_INPUT, "input_ids", "array"), lambda ids: array("q", ids)),
        Way("list", has(_INPUT), list),
    ),
    Seam(
        "session_cache",
        "the cache layer that keeps the slots of streaming sessions",
        class_at(_STREAMING),
        class_at(_AWARE),
    ),
    Seam(
        "session",
        "a session",
        class_at("sglang.srt.session.session_controller:Session"),
        class_at("sglang.srt.managers.session_controller:Session"),
    ),
    Seam(
        "session_controller",
        "all sessions",
        class_at("sglang.srt.session.session_controller:SessionController"),
        class_at("sglang.srt.managers.session_controller:SessionController"),
    ),
    Seam(
        "keeps_unfinished",
        "the function that keeps the KV of a request that continues; modules imported it by name",
        Way("checkpoint_kv_cache", has(f"{_COMMON}:checkpoint_kv_cache"), "checkpoint_kv_cache"),
        Way("a method of the cache", _cache_has_cache_unfinished, None),
    ),
    Seam(
        "is_chunk",
        "whether what is kept ends in the middle of the input",
        Way(
            "extend_end",
            has(f"{_COMMON}:checkpoint_kv_cache"),
            lambda req, kwargs: req.extend_end < len(req.full_untruncated_fill_ids),
        ),
        Way("chunked=True", _cache_has_cache_unfinished, lambda req, kwargs: bool(kwargs.get("chunked"))),
    ),
    Seam(
        "kept_len",
        "the tokens whose KV is kept",
        Way("get_fill_ids", has(f"{_REQ}.get_fill_ids"), lambda req: len(req.get_fill_ids())),
        Way("fill_ids", _the_request, lambda req: len(req.fill_ids)),
    ),
    Seam(
        "has_tree",
        "whether the cache is a tree; else a chunk cache",
        Way(
            "supports_prefix_sharing",
            has(f"{_CACHE}.supports_prefix_sharing"),
            lambda cache: bool(cache.supports_prefix_sharing()),
        ),
        Way("is_chunk_cache", has(f"{_CACHE}.is_chunk_cache"), lambda cache: not cache.is_chunk_cache()),
    ),
    Seam(
        "row",
        "the row of a request or a slot",
        Way("kv.req_pool_idx", _record_has_all, attrgetter("kv.req_pool_idx")),
        Way("req_pool_idx", _the_request, attrgetter("req_pool_idx")),
    ),
    Seam(
        "lengths",
        "kv_committed_len, kv_allocated_len and cache_protected_len of each of some requests or slots",
        Way("all in its kv record", _record_has_all, _lengths_in_records),
        Way("allocated length in its kv record", _record_has_some, _lengths_beside_records),
        Way("its own", _the_request, _their_own_lengths),
    ),
    Seam(
        "window_cursor",
        "how far slots behind the window were freed, of a request or a slot",
        Way("kv.max_evicted_seqlen", has(f"{_KV_INFO}.max_evicted_seqlen"), attrgetter("kv.max_evicted_seqlen")),
        Way(
            "kv.swa_evicted_seqlen",
            _record_has_some,
            lambda owner: owner.kv.swa_evicted_seqlen if owner.kv is not None else 0,
        ),
        Way("swa_evicted_seqlen", _the_request, attrgetter("swa_evicted_seqlen")),
    ),
    Seam(
        "evicts_window",
        "the function that frees a request's slots behind the window; modules imported it by name",
        Way(
            "free_swa_out_of_window_slots",
            has(f"{_COMMON}:free_swa_out_of_window_slots"),
            "free_swa_out_of_window_slots",
        ),
        Way("ScheduleBatch._evict_swa", has(f"{_BATCH}._evict_swa"), None),
    ),
    Seam(
        "window_map",
        "the map of an allocator of two pools, from each full index to its window index",
        Way(
            "full_to_swa_index_mapping",
            any_of(has(f"{_TWO_POOLS}.free_swa"), has(f"{_TWO_POOLS_BEFORE_0514}.free_swa")),
            lambda allocator: getattr(allocator, "full_to_swa_index_mapping", None),
        ),
        otherwise=gaps.WINDOW_MAP,
    ),
    Seam(
        "holds_row",
        "whether a slot holds a row",
        Way("kv.holds_kv", _record_has_all, attrgetter("kv.holds_kv")),
        Way("is_holding_kv", is_not(_record_has_all), attrgetter("is_holding_kv")),
    ),
    Seam(
        "one_record",
        "whether a turn that runs on its session's slot shares the slot's record of lengths",
        Way("one record", _record_has_all, True),
        Way("a copy", is_not(_record_has_all), False),
    ),
    Seam(
        "prefix_len",
        "the tokens whose KV the next extend reuses",
        Way(
            "prefix_len",
            takes("sglang.srt.mem_cache.base_prefix_cache:MatchResult", "device_prefix_len"),
            attrgetter("prefix_len"),
        ),
        Way("prefix_indices", _the_request, lambda req: len(req.prefix_indices)),
    ),
    Seam(
        "parts",
        "whether a prompt that parts from one without its window pages is at first inserted up to there only",
        Way(
            "swa_branching_seqlen",
            takes("sglang.srt.mem_cache.base_prefix_cache:MatchResult", "swa_branching_seqlen"),
            True,
        ),
        Way("it is inserted whole", _the_request, False),
    ),
    Seam(
        "fill_len",
        "the tokens that a request is to have KV for",
        Way("full_untruncated_fill_ids", has(f"{_REQ}.get_fill_ids"), lambda req: len(req.full_untruncated_fill_ids)),
        Way("fill_ids", _the_request, lambda req: len(req.fill_ids)),
    ),
    Seam(
        "free_pages",
        "the ids of an allocator's free pages",
        Way(
            "get_all_free_pages",
            has(f"{_ALLOCATOR}.get_all_free_pages"),
            lambda allocator: allocator.get_all_free_pages().tolist(),
        ),
        Way(
            "free_pages and release_pages",
            lambda: True,
            lambda allocator: [*allocator.free_pages.tolist(), *allocator.release_pages.tolist()],
        ),
    ),
    Seam(
        "idle_check",
        "the idle branch of the event loop, which checks the memory",
        Way("on_idle", has(f"{_SCHEDULER}.on_idle"), "on_idle"),
        Way("self_check_during_idle", has(f"{_SCHEDULER}.self_check_during_idle"), "self_check_during_idle"),
    ),
    Seam(
        "busy_check",
        "the memory check after every step, from the scheduler",
        Way("invariant_checker", has(f"{_CHECKER}.self_check_during_busy"), "invariant_checker.self_check_during_busy"),
        Way("Scheduler", has(f"{_SCHEDULER}.self_check_during_busy"), "self_check_during_busy"),
        otherwise=gaps.BUSY_CHECK,
    ),
    Seam(
        "terms",
        "how the terms of the memory check are computed",
        Way("invariant_checker", has(f"{_CHECKER}._get_total_uncached_sizes"), terms_by_components),
        Way("get_pool_stats", has(f"{_SCHEDULER}._get_total_uncached_sizes"), terms_by_scheduler),
        Way("_get_token_info", has(f"{_SCHEDULER}._get_batch_uncached_size"), terms_of_last_batch),
        otherwise=gaps.CHECK_TERMS,
    ),
    Seam(
        "marker",
        "a session's in-flight marker",
        Way("_inflight", has("sglang.srt.session.session_controller:Session.finish_req"), "_inflight"),
        otherwise=gaps.INFLIGHT,
    ),
    Seam(
        "closing",
        "whether a close waits for a turn",
        Way("close_on_finish", has("sglang.srt.session.session_controller:Session.finish_req"), "close_on_finish"),
        otherwise=gaps.CLOSING,
    ),
)


def find_seams(seams: Sequence[Seam] = SEAMS) -> dict[str, Way | None]:
    """For each seam the way of the release that can be imported here, or None where it has none of the known ones."""
    return {seam.name: next((way for way in seam.ways if way.is_there()), None) for seam in seams}
