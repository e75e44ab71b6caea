"""Where a release of SGLang keeps the lengths of a slot and a turn, read from its classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.objects import dataclass_fields
from kvproof.model.code.source import SETS, Sources
from kvproof.model.code.values import Class

BATCH = "sglang.srt.managers.schedule_batch"
PREFIX_CACHE = "sglang.srt.mem_cache.base_prefix_cache"
CACHES = {
    "sglang.srt.session.streaming_session": "StreamingSession",
    "sglang.srt.session.session_aware_cache": "SessionAwareCache",
    "sglang.srt.mem_cache.session_aware_cache": "SessionAwareCache",
}
CONTROLLERS = ("sglang.srt.session.session_controller", "sglang.srt.managers.session_controller")
OWNERS = {"sglang.srt.mem_cache.unified_radix_cache": "UnifiedRadixCache"}
LENGTHS = ("kv_committed_len", "kv_allocated_len", "cache_protected_len", "swa_evicted_seqlen")
EAGLE = "sglang.srt.speculative.eagle"
PREPARES_ROUND = (
    (f"{EAGLE}_info_v2", "EagleDraftInputV2Mixin.prepare_for_decode"),
    (f"{EAGLE}_utils", "eagle_prepare_for_decode"),
)
WINDOW = 1
"""`ComponentType.SWA`, the key of the window cursor."""


@dataclass(frozen=True)
class Layout:
    """What is kept where. Before 0.5.17 there is no record, and `on_record` is empty."""

    record: Class | None
    """`ReqKvInfo`, which requests and slots have as `kv`."""
    on_record: frozenset[str]
    """The lengths that the record has."""
    row_is_on_record: bool
    by_component: bool
    """The window cursor is an entry of `component_evicted_seqlens`."""
    is_owned: bool
    """The session is asked by the cache that owns it, and a slot is there from the first turn's row on."""
    splits_at_cursor: bool
    """A row is freed in two parts, below and above the window cursor."""
    has_freed_flags: bool
    """The session cache itself marks a request whose KV it took, by two flags; else its caller does."""
    slot_fields: frozenset[str]
    claims_ahead: bool
    """A round of speculation claims its bonus position when it is prepared. If not, C waits for the result."""
    lock_at: tuple[str, str] = (PREFIX_CACHE, "TreeLock")

    @property
    def is_shared(self) -> bool:
        """A turn runs on its slot's own record: the record names the row, and a row has one."""
        return self.row_is_on_record


def class_at(run: Interpreter, places: Mapping[str, str]) -> Class:
    """A class at the first of several places that this tree has."""
    for module_name, name in places.items():
        module = run.sources.module(module_name)
        if module is not None and name in module.definitions:
            found = run.global_name(module, name)
            assert isinstance(found, Class)
            return found
    raise NotUnderstoodError(f"none of {', '.join(places.values())} is there")


def layout_of(run: Interpreter) -> Layout:
    batch = run.sources.module(BATCH)
    record = class_at(run, {BATCH: "ReqKvInfo"}) if batch is not None and "ReqKvInfo" in batch.definitions else None
    on_record = _fields(record) if record is not None else frozenset()
    by_component = "component_evicted_seqlens" in on_record
    lengths = {name for name in LENGTHS if name in on_record or (by_component and name == "swa_evicted_seqlen")}
    slot_fields = _fields(class_at(run, dict.fromkeys(CACHES, "SessionSlot")))
    return Layout(
        record,
        frozenset(lengths),
        "req_pool_idx" in on_record,
        by_component,
        "lock" in slot_fields,
        splits_at_cursor(run.sources),
        class_at(run, CACHES).member("_mark_kv_freed") is not None,
        slot_fields,
        claims_ahead(run.sources),
    )


def splits_at_cursor(sources: Sources) -> bool:
    return sources.has(BATCH, "ReqKvInfo.swa_dead_lo")


def claims_ahead(sources: Sources) -> bool:
    """Whether a round of speculation claims the bonus position when it is prepared, as the rule has it. If not, C waits for the
    result. A tree without such rounds has nothing that waits."""
    prepares = [place for place in PREPARES_ROUND if sources.has(*place)]
    return not prepares or any("kv_committed_len" in sources.fact(SETS, *place) for place in prepares)


def _fields(kind: Class) -> frozenset[str]:
    return frozenset(node.target.id for _, node in dataclass_fields(kind) if hasattr(node.target, "id"))
