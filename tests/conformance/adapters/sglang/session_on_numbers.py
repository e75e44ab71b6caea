"""A session cache, run by CPython: a state in numbers becomes the objects of the server, one function is called, and what it left
becomes numbers again. Also run where a release lives, by its own Python.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

LENGTHS = ("kv_committed_len", "kv_allocated_len", "cache_protected_len", "swa_evicted_seqlen")
CACHES = (
    ("session.streaming_session", "StreamingSession"),
    ("mem_cache.session_aware_cache", "SessionAwareCache"),
)
CONTROLLERS = ("session.session_controller", "managers.session_controller")
OBSERVER = "managers.scheduler_components.pool_stats_observer"
WAITING = ("match_slot", "detach", "match_tree, asked", "close, slot")
"""Rules of a turn that waits: it has no row yet."""
SUMS = {
    "check, slots": ("session_held_tokens", "the sum over the slots"),
    "check, slots' window": ("session_held_swa_tokens", "the sum over the slots"),
    "check, slots' rows": ("session_held_req_count", "the number of rows"),
}
HOLDS = "check, a record's row"
WINDOW = 1
"""Key of the window cursor, where cursors are kept by component."""
ROW, OTHER_ROW = 7, 8
NO_STATE_SPACE = dict.fromkeys(
    ("mamba_pool_idx", "mamba_ping_pong_track_buffer", "mamba_next_track_idx", "mamba_last_track_seqlen")
)

Numbers = dict[str, Any]
Outcome = tuple[Numbers, list[tuple[Any, ...]]]
"""What is to be seen of session, slot and turn, and what was done to the pools and the tree, in order."""


class Code(NamedTuple):
    """What is taken of a release."""

    cache: type
    slot: type
    session: type
    batch: ModuleType

    @property
    def on_record(self) -> frozenset[str]:
        """What is on the record `kv` of a turn and a slot."""
        return _fields(self.batch.ReqKvInfo) if hasattr(self.batch, "ReqKvInfo") else frozenset()

    @property
    def is_shared(self) -> bool:
        """A turn runs on its slot's own record."""
        return "req_pool_idx" in self.on_record

    @property
    def is_owned(self) -> bool:
        """The cache that owns the sessions asks them first."""
        return "lock" in _fields(self.slot)


def _fields(kind: Any) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))


def code() -> Code:
    """The release that can be imported here."""
    for module_name, name in CACHES:
        try:
            module = importlib.import_module(f"sglang.srt.{module_name}")
        except ModuleNotFoundError:
            continue
        return Code(
            getattr(module, name),
            module.SessionSlot,
            _session_class(),
            importlib.import_module("sglang.srt.managers.schedule_batch"),
        )
    raise ModuleNotFoundError("no session cache that is known here")


def _session_class() -> type:
    for module_name in CONTROLLERS:
        try:
            return importlib.import_module(f"sglang.srt.{module_name}").Session
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError("no session controller that is known here")


# --- Pools and tree -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Positions:
    """Positions of the row, as the row table gives them."""

    start: int
    stop: int

    def __getitem__(self, positions: slice) -> Positions:
        start, stop, _ = positions.indices(self.numel())
        return Positions(self.start + start, self.start + max(start, stop))

    def __len__(self) -> int:
        return self.stop - self.start

    numel = __len__

    def to(self, **_: Any) -> Positions:
        return self


class Server:
    """Row table, pools and tree, which note what is done to them."""

    def __init__(self, page_size: int, row_width: int) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.page_size, self._row = page_size, Positions(0, row_width)
        returned = SimpleNamespace(append=self._row_returned)
        self.req_to_token_pool = SimpleNamespace(req_to_token=self, free=self._free_row, free_slots=returned)
        self.token_to_kv_pool_allocator = SimpleNamespace(
            page_size=page_size, free=self._free, free_segments=self._also, free_full_segments=self._also
        )
        self.asked = False

    def __getitem__(self, key: Any) -> Positions:
        row, positions = key if isinstance(key, tuple) else (key, slice(None))
        assert row == ROW
        return self._row[positions]

    def _free(self, positions: Positions) -> None:
        self.done += [("free", positions.start, positions.stop)] if positions.start < positions.stop else []

    def _also(self, segments: list[tuple[Positions, int]]) -> None:
        """One release in several calls is one free where they meet."""
        for positions, start in segments:
            assert start == positions.start
            if self.done and self.done[-1][0] == "free" and self.done[-1][2] == start:
                positions = Positions(self.done.pop()[1], positions.stop)
            self._free(positions)

    def free_kv_row(self, kv: Any, ranges: list[tuple[int, int]]) -> None:
        """The release's own, of the cache that owns the sessions."""
        importlib.import_module("sglang.srt.mem_cache.base_prefix_cache").BasePrefixCache.free_kv_row(self, kv, ranges)

    def _free_row(self, holder: Any) -> None:
        record = holder if hasattr(holder, "req_pool_idx") else holder.kv
        self._row_returned(record.req_pool_idx)
        record.req_pool_idx = None

    def _row_returned(self, row: int) -> None:
        assert row == ROW
        self.done.append(("row",))

    def dec_lock_ref(self, node: str, *_: Any) -> None:
        assert node == "node"
        self.done.append(("unlock",))

    def unlock(self, lock: Any) -> None:
        self.dec_lock_ref(lock.node)

    def match_prefix(self, params: Any) -> None:
        self.asked = True


# --- Session, slot and turn -----------------------------------------------------------------------------------------


def _session(of: Code, s: Numbers) -> Any:
    session = of.session.__new__(of.session)
    earlier = SimpleNamespace(req=SimpleNamespace(session=session, tokens=s["checkpoint_len"], multimodal_inputs=None))
    session.__dict__.update(session_id="s", streaming=True, _inflight=s["inflight"], committed_origin_len=None)
    session.req_nodes = {"earlier": earlier} if s["checkpoint_len"] else {}
    return session


def _record(of: Code, lengths: Mapping[str, int], row: int | None) -> Any:
    known: dict[str, Any] = {**lengths, "req_pool_idx": row}
    if "component_evicted_seqlens" in of.on_record:
        known["component_evicted_seqlens"] = {WINDOW: lengths["swa_evicted_seqlen"]} if lengths else {}
    return of.batch.ReqKvInfo(**{name: value for name, value in known.items() if name in of.on_record})


def _held(of: Code, lengths: Mapping[str, int], row: int | None, record: Any = None) -> Numbers:
    """Lengths and row, wherever the release keeps them. `record`: the one that they are on already."""
    if not of.on_record:
        return {**lengths, "req_pool_idx": row}
    own = {name: value for name, value in lengths.items() if name not in of.on_record}
    has_own_row = {} if of.is_shared else {"req_pool_idx": row}
    return {**own, **has_own_row, "kv": record or _record(of, lengths, row)}


def _slot(of: Code, s: Numbers, lengths: Mapping[str, int], row: int, record: Any = None) -> Any:
    known = {**_lock(of, s), **_held(of, lengths, row, record)}
    return of.slot(**{name: value for name, value in known.items() if name in _fields(of.slot)})


def _lock(of: Code, s: Numbers) -> Numbers:
    lock: Numbers = {
        "last_node": "node",
        "swa_uuid_for_lock": "window lock" if s["the lock covers the window"] else None,
        "swa_prefix_lock_released": s["the window lock is released"],
        "lock_receipt": "receipt",
        "skip_lock_node_ids": {},
    }
    return {**lock, "lock": SimpleNamespace(node="node")} if of.is_owned else lock


def _turn(of: Code, rule: str, s: Numbers) -> Any:
    """One that runs, with its row and the lock."""
    req = of.batch.Req.__new__(of.batch.Req)
    known = {**NO_STATE_SPACE, **_lock(of, s), "mamba_branching_seqlen": None, "mamba_last_track_idx": None}
    known |= {"rid": "turn", "to_finish": None, "finished_reason": None, "finished_len": None}
    known |= {"kv_committed_freed": False, "kv_overallocated_freed": False, "lock": None}
    known |= {"multimodal_inputs": None, "_session_mm_items": [], "input_embeds": None, "retraction_count": 0}
    known |= {"origin_input_ids": [0] * s["origin_len"], "output_ids": [0] * s["output_len"]}
    known |= {"origin_input_ids_unpadded": [0] * s["origin_len"], "full_untruncated_fill_ids": [0] * s["fill_len"]}
    known |= {"return_logprob": s.get("logprobs are asked for"), "logprob_start_len": s.get("where they begin")}
    known |= {"dllm_config": None, "dllm_block_offset": 0}
    if rule == "stash":
        done = s["kv_committed_len"]
        chunk = SimpleNamespace(start=s["prefix_len"], end=done)
        known |= {"fill_ids": [0] * done, "fill_len": done, "extend_range": chunk}
    lengths = {name: s["committed_len" if name == "kv_committed_len" else name] for name in LENGTHS}
    for name, value in {**known, **_held(of, lengths, ROW)}.items():
        setattr(req, name, value)
    return req


def _turn_and_slot(of: Code, rule: str, s: Numbers) -> tuple[Any, Any]:
    """The turn, and the slot if there is one: on one record where a release has it so."""
    req, waits = _turn(of, rule, s), rule in WAITING or (rule in (*SUMS, HOLDS) and not s["is live"])
    kept = {name: s[f"slot_{name}"] for name in LENGTHS}
    if waits:
        req.swa_uuid_for_lock = None
        for name, value in {"req_pool_idx": None, "kv": _record(of, {}, None) if of.is_shared else None}.items():
            if name not in of.on_record:
                setattr(req, name, value)
    slot = _slot(of, s, kept, ROW, None if waits or not of.is_shared else req.kv)
    if waits and of.is_shared and s["slot_held"] and s["lent"]:
        req.kv = slot.kv
    if rule == "retract, lengths":
        _row_given_back(of, req)
    return req, slot if s["slot_held"] or (of.is_owned and not waits) else None


def _row_given_back(of: Code, req: Any) -> None:
    if of.is_shared:
        req.kv.req_pool_idx = None
    else:
        req.req_pool_idx = None
        if of.on_record:
            req.kv = None


def _row_of(of: Code, holder: Any) -> Any:
    return holder.kv.req_pool_idx if of.is_shared else holder.req_pool_idx


def _length(of: Code, holder: Any, name: str) -> Any:
    if name == "swa_evicted_seqlen" and "component_evicted_seqlens" in of.on_record:
        return holder.kv.component_evicted_seqlens.get(WINDOW, 0)
    return getattr(holder.kv if name in of.on_record else holder, name)


# --- Rules ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Called:
    """What a function was called on, and what it gave."""

    of: Code
    s: Numbers
    inner: Server
    cache: Any
    session: Any
    req: Any
    result: Any = None

    def method(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Of the session cache; where a cache owns the sessions, the part that is the session's."""
        return getattr(self.cache, f"try_{name}" if self.of.is_owned else name)(*arguments, **named)


Act, Shows = Callable[[Called], Any], Callable[[Called], Numbers]


class Key(list[int]):
    """The key that a match looks up."""

    @property
    def token_ids(self) -> list[int]:
        return self


def _match(on: Called) -> Any:
    on.req.to_finish = on.of.batch.FINISH_ABORT() if on.s["pre_aborted"] else None
    return on.method("match_prefix", SimpleNamespace(req=on.req, key=Key([0] * (on.s["fill_len"] - 1))))


def _finish(on: Called) -> Any:
    if on.s["finished_len is known"]:
        on.req.finished_len = on.s["finished_len"]
    on.req.finished_reason = on.of.batch.FINISH_LENGTH(0)
    return on.method("cache_finished_req", on.req)


def _abort(on: Called) -> Any:
    on.req.finished_reason = on.of.batch.FINISH_ABORT()
    return on.method("cache_finished_req", on.req)


def _retract(on: Called) -> Any:
    return on.method("cache_finished_req", on.req, **({} if on.of.is_owned else {"is_insert": False}))


def _sum(function: str) -> Callable[[Called], Any]:
    def call(on: Called) -> Any:
        s, of = on.s, on.of
        other = {name: s[f"other_{name}"] for name in LENGTHS}
        on.cache.slots["another"] = _slot(of, s, other, OTHER_ROW)
        if hasattr(on.cache, function):
            summed = getattr(on.cache, function)
            is_told = summed.__code__.co_argcount > 1
            return summed(*([{ROW} if s["is live"] else set()] if is_told else []))
        kind = importlib.import_module(f"sglang.srt.{OBSERVER}").SchedulerPoolStatsObserver
        records = {name: slot.kv for name, slot in on.cache.slots.items()}
        observer = kind.__new__(kind)
        tree = SimpleNamespace(page_size=s["page_size"], session_records=lambda: records)
        object.__setattr__(observer, "tree_cache", tree)  # it is frozen
        return getattr(observer, function)()

    return call


def _told(name: str) -> Shows:
    return lambda on: {name: on.result}


def _of_session(on: Called) -> Numbers:
    slot = on.cache.slots.get("s")
    is_held = slot is not None and _row_of(on.of, slot) is not None
    kept = {f"slot_{name}": _length(on.of, slot, name) for name in LENGTHS} if is_held else {}
    return {"slot_held": is_held, **kept, "inflight": on.session._inflight, "checkpoint_len": _checkpoint(on.session)}


def _of_turn(on: Called) -> Numbers:
    return {name: _length(on.of, on.req, name) for name in LENGTHS}


def _matched(on: Called) -> Numbers:
    prefix = on.result.device_indices if hasattr(on.result, "device_indices") else None
    told = {"prefix_len": on.result.device_prefix_len} if prefix is None else _prefix(prefix)
    return {**_of_session(on), **_of_turn(on), **told, "cache_protected_len": on.result.cache_protected_len}


def _prefix(positions: Positions) -> Numbers:
    return {"first position": positions.start, "prefix_len": positions.stop}


def _handed_on(on: Called) -> Numbers:
    asked = on.result is None if on.of.is_owned else on.inner.asked
    return {**_of_session(on), "the turn leaves its session": on.req.session is None, "asked the tree": asked}


RULES: Mapping[str, tuple[Act, Shows]] = {
    "match_slot": (_match, _matched),
    "detach": (_match, _handed_on),
    "match_tree, asked": (_match, _handed_on),
    "finish": (_finish, _of_session),
    "abort_first": (_abort, _of_session),
    "abort_nth": (_abort, _of_session),
    "retract": (_retract, _of_session),
    "close, slot": (lambda on: on.cache.release_session("s"), lambda on: {"slot_held": "s" in on.cache.slots}),
    "stash": (
        lambda on: on.cache.cache_unfinished_req(on.req, chunked=True),
        lambda on: _prefix(on.req.prefix_indices),
    ),
    **{name: (_sum(function), _told(total)) for name, (function, total) in SUMS.items()},
    HOLDS: (lambda on: on.req.kv.holds_kv, _told("the record holds a row")),
    "retract, lengths": (
        lambda on: on.req.reset_for_retract(),
        lambda on: {
            "kv_committed_len": _length(on.of, on.req, "kv_committed_len"),
            "output_len": len(on.req.output_ids),
        },
    ),
    "match_tree, longest": (
        lambda on: on.req._compute_max_prefix_len(on.s["fill_len"]),
        _told("the longest match"),
    ),
    "finish, committed KV": (
        lambda on: on.req.pop_committed_kv_cache(),
        _told("where what is handed over ends"),
    ),
    "finish, KV behind it": (
        lambda on: on.req.pop_overallocated_kv_cache(),
        lambda on: {"where it begins": on.result[0], "where what is handed over ends": on.result[1]},
    ),
}
"""Of each claim: the function that is called, and what is reported of it."""


def outcome(of: Code, rule: str, s: Numbers) -> Outcome:
    """Calls the function that a rule is about, in this state."""
    inner = Server(s["page_size"], s["row_width"])
    session, (req, slot) = _session(of, s), _turn_and_slot(of, rule, s)
    req.session = session
    on = Called(of, s, inner, of.cache(inner), session, req)
    if slot is not None:
        on.cache.slots["s"] = slot
    act, shows = RULES[rule]
    return shows(replace(on, result=act(on))), inner.done


def outcomes_in(path: str) -> list[Outcome]:
    """The outcome of each state in a file, on the release of this environment: a JSON list of rules and states."""
    from kvproof.conformance.adapters.sglang.engine import import_sglang

    import_sglang()
    of = code()
    vars(of.batch)["get_global_server_args"] = lambda: SimpleNamespace(strip_thinking_cache=False)
    return [outcome(of, rule, numbers) for rule, numbers in json.loads(Path(path).read_text(encoding="utf-8"))]


def _checkpoint(session: Any) -> int:
    """Tokens of the last turn that finished with success."""
    if not session.req_nodes:
        return 0
    [node] = session.req_nodes.values()
    if hasattr(node.req, "tokens"):
        return int(node.req.tokens)
    origin_len = getattr(session, "committed_origin_len", None)
    return int(len(node.req.origin_input_ids) if origin_len is None else origin_len) + len(node.req.output_ids)
