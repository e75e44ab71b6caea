"""Where SGLang's releases keep what is driven and watched: one row per seam, with the ways in which releases do it.

A release is not asked for its version but for what it has: of each row the first way that is there is taken, newest
first. So a release that nobody has looked at yet is driven by the ways that it shares with those that are known, and
what fits none of them is named.
"""

from __future__ import annotations

import importlib
import inspect
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from .terms import terms_by_components, terms_by_scheduler, terms_of_last_batch


@dataclass(frozen=True)
class Way:
    name: str
    since: str
    """the first release, of those looked at, that does it so"""
    is_there: Callable[[], bool]
    value: Any


@dataclass(frozen=True)
class Seam:
    name: str
    what: str
    ways: tuple[Way, ...]
    otherwise: str | None = None
    """what the trace lacks where no way is there; None: without it nothing can be driven or recorded"""


def named(place: str) -> Any:
    """What `module:name.name` names; LookupError where a release does not have it."""
    module, _, name = place.partition(":")
    try:
        return attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise LookupError(place) from error


def has(place: str) -> Callable[[], bool]:
    def is_there() -> bool:
        try:
            named(place)
        except LookupError:
            return False
        return True

    return is_there


def _takes(place: str, parameter: str) -> Callable[[], bool]:
    return lambda: has(place)() and parameter in inspect.signature(named(place)).parameters


def _keeps(place: str, field: str) -> Callable[[], bool]:
    """Whether the dataclass at `place` has this field."""
    return lambda: has(place)() and field in getattr(named(place), "__dataclass_fields__", {})


def _is_annotated(place: str, field: str, name: str) -> Callable[[], bool]:
    return lambda: has(place)() and name in str(named(place).__annotations__.get(field))


def _any(*checks: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: any(check() for check in checks)


def _not(check: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: not check()


def class_at(place: str, since: str) -> Way:
    return Way(place.rpartition(":")[0].removeprefix("sglang.srt."), since, has(place), place)


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
    scheduler.request_receiver = _Receiver(receive)


def _receive_itself(scheduler: Any, receive: Callable[..., list[Any]]) -> None:
    scheduler.recv_requests = receive


class _Receiver:
    def __init__(self, recv_requests: Callable[..., list[Any]]) -> None:
        self.recv_requests = recv_requests


def _send_through_channels(scheduler: Any, sender: Any) -> None:
    """Those that send hold the channels' own objects, so these are what is redirected."""
    channels = scheduler.ipc_channels
    for channel in (channels.send_to_tokenizer, channels.send_to_detokenizer):
        channel.send_output = sender.send_output


def _send_itself(scheduler: Any, sender: Any) -> None:
    scheduler.send_to_tokenizer = scheduler.send_to_detokenizer = sender


# -- requests and slots --


def _lengths_beside_a_record(owner: Any) -> tuple[int, int, int]:
    """Without a record no KV is held."""
    allocated = owner.kv.kv_allocated_len if owner.kv is not None else 0
    return owner.kv_committed_len, allocated, owner.cache_protected_len


_COMMON = "sglang.srt.mem_cache.common"
_ALLOCATOR = "sglang.srt.mem_cache.allocator.base:BaseTokenToKVPoolAllocator"
_CACHE = "sglang.srt.mem_cache.base_prefix_cache:BasePrefixCache"
_SCHEDULER = "sglang.srt.managers.scheduler:Scheduler"
_INPUT = "sglang.srt.managers.io_struct:TokenizedGenerateReqInput"
_BATCH = "sglang.srt.managers.schedule_batch:ScheduleBatch"
_REQ = "sglang.srt.managers.schedule_batch:Req"
_KV_INFO = "sglang.srt.managers.schedule_batch:ReqKvInfo"
_STREAMING = "sglang.srt.session.streaming_session:StreamingSession"
_SLOT = "sglang.srt.session.streaming_session:SessionSlot"
_AWARE = "sglang.srt.mem_cache.session_aware_cache:SessionAwareCache"
_RECEIVER = "sglang.srt.managers.scheduler_components.request_receiver:SchedulerRequestReceiver.recv_requests"
_CHECKER = "sglang.srt.managers.scheduler_components.invariant_checker:SchedulerInvariantChecker"

_record_has_all = _keeps(_KV_INFO, "req_pool_idx")
_record_has_some = _keeps(_KV_INFO, "kv_allocated_len")
_the_request = has(_REQ)
_cache_has_cache_unfinished = _any(has(f"{_STREAMING}.cache_unfinished_req"), has(f"{_AWARE}.cache_unfinished_req"))

SEAMS: tuple[Seam, ...] = (
    Seam(
        "publish",
        "where the process keeps the server's arguments",
        (
            Way(
                "runtime_context, with ranks",
                "0.5.23",
                _takes("sglang.srt.runtime_context:publish", "ranks"),
                _publish_with_ranks,
            ),
            Way("runtime_context", "0.5.17", has("sglang.srt.runtime_context:publish"), _publish),
            Way(
                "server_args",
                "0.5.10.post1",
                has("sglang.srt.server_args:set_global_server_args_for_scheduler"),
                _set_global,
            ),
        ),
    ),
    Seam(
        "receive",
        "where the event loop gets its requests",
        (
            Way("request_receiver", "0.5.14", has(_RECEIVER), _receive_from_component),
            Way("Scheduler.recv_requests", "0.5.10.post1", has(f"{_SCHEDULER}.recv_requests"), _receive_itself),
        ),
    ),
    Seam(
        "send",
        "where replies go",
        (
            Way(
                "ipc_channels",
                "0.5.14",
                has("sglang.srt.managers.scheduler_components.ipc_channels:SchedulerIpcChannels"),
                _send_through_channels,
            ),
            Way("Scheduler", "0.5.10.post1", has(_SCHEDULER), _send_itself),
        ),
    ),
    Seam(
        "input_ids",
        "what a request's token ids come as",
        (
            Way("array", "0.5.14", _is_annotated(_INPUT, "input_ids", "array"), lambda ids: array("q", ids)),
            Way("list", "0.5.10.post1", has(_INPUT), list),
        ),
    ),
    Seam(
        "session_cache",
        "the cache layer that keeps the slots of streaming sessions",
        (class_at(_STREAMING, "0.5.11"), class_at(_AWARE, "0.5.10.post1")),
    ),
    Seam(
        "session",
        "a session",
        (
            class_at("sglang.srt.session.session_controller:Session", "0.5.11"),
            class_at("sglang.srt.managers.session_controller:Session", "0.5.10.post1"),
        ),
    ),
    Seam(
        "session_controller",
        "all sessions",
        (
            class_at("sglang.srt.session.session_controller:SessionController", "0.5.11"),
            class_at("sglang.srt.managers.session_controller:SessionController", "0.5.10.post1"),
        ),
    ),
    Seam(
        "keeps_unfinished",
        "the function that keeps the KV of a request that goes on; modules imported it by name",
        (
            Way("checkpoint_kv_cache", "0.5.23", has(f"{_COMMON}:checkpoint_kv_cache"), "checkpoint_kv_cache"),
            Way("a method of the cache", "0.5.10.post1", _cache_has_cache_unfinished, None),
        ),
    ),
    Seam(
        "is_chunk",
        "whether what is kept ends in the middle of the input",
        (
            Way(
                "extend_end",
                "0.5.23",
                has(f"{_COMMON}:checkpoint_kv_cache"),
                lambda req, kwargs: req.extend_end < len(req.full_untruncated_fill_ids),
            ),
            Way(
                "chunked=True",
                "0.5.10.post1",
                _cache_has_cache_unfinished,
                lambda req, kwargs: bool(kwargs.get("chunked")),
            ),
        ),
    ),
    Seam(
        "kept_len",
        "the tokens whose KV is kept",
        (
            Way("get_fill_ids", "0.5.14", has(f"{_REQ}.get_fill_ids"), lambda req: len(req.get_fill_ids())),
            Way("fill_ids", "0.5.10.post1", _the_request, lambda req: len(req.fill_ids)),
        ),
    ),
    Seam(
        "has_tree",
        "whether the cache is a tree; else a chunk cache",
        (
            Way(
                "supports_prefix_sharing",
                "0.5.23",
                has(f"{_CACHE}.supports_prefix_sharing"),
                lambda cache: bool(cache.supports_prefix_sharing()),
            ),
            Way(
                "is_chunk_cache",
                "0.5.10.post1",
                has(f"{_CACHE}.is_chunk_cache"),
                lambda cache: not cache.is_chunk_cache(),
            ),
        ),
    ),
    Seam(
        "row",
        "the row of a request or a slot",
        (
            Way("kv.req_pool_idx", "0.5.20", _record_has_all, attrgetter("kv.req_pool_idx")),
            Way("req_pool_idx", "0.5.10.post1", _the_request, attrgetter("req_pool_idx")),
        ),
    ),
    Seam(
        "lengths",
        "kv_committed_len, kv_allocated_len and cache_protected_len of a request or a slot",
        (
            Way(
                "all in its kv record",
                "0.5.20",
                _record_has_all,
                attrgetter("kv.kv_committed_len", "kv.kv_allocated_len", "kv.cache_protected_len"),
            ),
            Way("allocated length in its kv record", "0.5.17", _record_has_some, _lengths_beside_a_record),
            Way(
                "its own",
                "0.5.10.post1",
                _the_request,
                attrgetter("kv_committed_len", "kv_allocated_len", "cache_protected_len"),
            ),
        ),
    ),
    Seam(
        "window_cursor",
        "how far slots behind the window were freed, of a request or a slot",
        (
            Way(
                "kv.max_evicted_seqlen",
                "0.5.23",
                has(f"{_KV_INFO}.max_evicted_seqlen"),
                attrgetter("kv.max_evicted_seqlen"),
            ),
            Way(
                "kv.swa_evicted_seqlen",
                "0.5.17",
                _record_has_some,
                lambda owner: owner.kv.swa_evicted_seqlen if owner.kv is not None else 0,
            ),
            Way("swa_evicted_seqlen", "0.5.10.post1", _the_request, attrgetter("swa_evicted_seqlen")),
        ),
    ),
    Seam(
        "evicts_window",
        "the function that frees a request's slots behind the window; modules imported it by name",
        (
            Way(
                "free_swa_out_of_window_slots",
                "0.5.14",
                has(f"{_COMMON}:free_swa_out_of_window_slots"),
                "free_swa_out_of_window_slots",
            ),
            Way("ScheduleBatch._evict_swa", "0.5.10.post1", has(f"{_BATCH}._evict_swa"), None),
        ),
    ),
    Seam(
        "holds_row",
        "whether a slot holds a row",
        (
            Way("kv.holds_kv", "0.5.20", _record_has_all, attrgetter("kv.holds_kv")),
            Way("is_holding_kv", "0.5.10.post1", _not(_record_has_all), attrgetter("is_holding_kv")),
        ),
    ),
    Seam(
        "one_record",
        "whether a turn that runs on its session's slot shares the slot's record of lengths",
        (
            Way("one record", "0.5.20", _record_has_all, True),
            Way("a copy", "0.5.10.post1", _not(_record_has_all), False),
        ),
    ),
    Seam(
        "prefix_len",
        "the tokens whose KV the next extend reuses",
        (
            Way(
                "prefix_len",
                "0.5.23",
                _takes("sglang.srt.mem_cache.base_prefix_cache:MatchResult", "device_prefix_len"),
                attrgetter("prefix_len"),
            ),
            Way("prefix_indices", "0.5.10.post1", _the_request, lambda req: len(req.prefix_indices)),
        ),
    ),
    Seam(
        "fill_len",
        "the tokens that a request is to have KV for",
        (
            Way(
                "full_untruncated_fill_ids",
                "0.5.14",
                has(f"{_REQ}.get_fill_ids"),
                lambda req: len(req.full_untruncated_fill_ids),
            ),
            Way("fill_ids", "0.5.10.post1", _the_request, lambda req: len(req.fill_ids)),
        ),
    ),
    Seam(
        "free_pages",
        "the ids of an allocator's free pages",
        (
            Way(
                "get_all_free_pages",
                "0.5.20",
                has(f"{_ALLOCATOR}.get_all_free_pages"),
                lambda allocator: allocator.get_all_free_pages().tolist(),
            ),
            Way(
                "free_pages and release_pages",
                "0.5.10.post1",
                lambda: True,
                lambda allocator: [*allocator.free_pages.tolist(), *allocator.release_pages.tolist()],
            ),
        ),
    ),
    Seam(
        "idle_check",
        "the idle branch of the event loop, which checks the memory",
        (
            Way("on_idle", "0.5.11", has(f"{_SCHEDULER}.on_idle"), "on_idle"),
            Way(
                "self_check_during_idle",
                "0.5.10.post1",
                has(f"{_SCHEDULER}.self_check_during_idle"),
                "self_check_during_idle",
            ),
        ),
    ),
    Seam(
        "busy_check",
        "the memory check after every step, from the scheduler",
        (
            Way(
                "invariant_checker",
                "0.5.14",
                has(f"{_CHECKER}.self_check_during_busy"),
                "invariant_checker.self_check_during_busy",
            ),
            Way("Scheduler", "0.5.10.post1", has(f"{_SCHEDULER}.self_check_during_busy"), "self_check_during_busy"),
        ),
        otherwise="the release's own memory check while busy",
    ),
    Seam(
        "terms",
        "how the terms of the memory check are computed",
        (
            Way("invariant_checker", "0.5.14", has(f"{_CHECKER}._get_total_uncached_sizes"), terms_by_components),
            Way("get_pool_stats", "0.5.11", has(f"{_SCHEDULER}._get_total_uncached_sizes"), terms_by_scheduler),
            Way("_get_token_info", "0.5.10.post1", has(f"{_SCHEDULER}._get_batch_uncached_size"), terms_of_last_batch),
        ),
        otherwise="the terms of the memory check",
    ),
    Seam(
        "marker",
        "a session's in-flight marker",
        (Way("_inflight", "0.5.11", has("sglang.srt.session.session_controller:Session.finish_req"), "_inflight"),),
        otherwise="inflight: this release has no in-flight marker",
    ),
    Seam(
        "closing",
        "whether a close waits for a turn",
        (
            Way(
                "close_on_finish",
                "0.5.11",
                has("sglang.srt.session.session_controller:Session.finish_req"),
                "close_on_finish",
            ),
        ),
        otherwise="closing: this release does not say whether a close waits",
    ),
)


def find_seams(seams: Sequence[Seam] = SEAMS) -> dict[str, Way | None]:
    """For each seam the way of the release that can be imported here, or None where it has none of the known ones."""
    return {seam.name: next((way for way in seam.ways if way.is_there()), None) for seam in seams}
