"""A session cache, run by CPython: a state in numbers becomes the objects of the server, one function is called, and what it left
is told in numbers again. Also run where a release lives, by its own Python.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

LENGTHS = ("kv_committed_len", "kv_allocated_len", "cache_protected_len", "swa_evicted_seqlen")
CACHES = (
    ("session.streaming_session", "StreamingSession"),
    ("mem_cache.session_aware_cache", "SessionAwareCache"),
)
CONTROLLERS = ("session.session_controller", "managers.session_controller")
WAITING = ("match_slot", "detach")
"""Rules of a turn that waits: it has no row yet."""
LENGTHS_OF_REQUEST = {
    "match_tree, longest": ("_compute_max_prefix_len", ("the longest match",)),
    "finish, committed KV": ("pop_committed_kv_cache", ("where what is handed over ends",)),
    "finish, KV behind it": ("pop_overallocated_kv_cache", ("where it begins", "where what is handed over ends")),
}
"""Claims about what a request says of its lengths: the function, and what it gives."""
ROW = 7
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
    def has_records(self) -> bool:
        """The lengths of a turn are on its record `kv`, which is the slot's own."""
        return hasattr(self.batch, "ReqKvInfo")


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


class Positions(NamedTuple):
    """Positions of the row, as the row table gives them."""

    start: int
    stop: int

    def to(self, **_: Any) -> Positions:
        return self


class Server:
    """Row table, pools and tree, which note what is done to them."""

    def __init__(self, page_size: int, row_width: int) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.page_size, self._width = page_size, row_width
        returned = SimpleNamespace(append=self._row_returned)
        self.req_to_token_pool = SimpleNamespace(req_to_token=self, free=self._free_row, free_slots=returned)
        self.token_to_kv_pool_allocator = SimpleNamespace(free=self._free)
        self.asked = False

    def __getitem__(self, key: tuple[int, slice]) -> Positions:
        row, positions = key
        assert row == ROW
        start, stop, _ = positions.indices(self._width)
        return Positions(start, max(start, stop))

    def _free(self, positions: Positions) -> None:
        self.done += [("free", positions.start, positions.stop)] if positions.start < positions.stop else []

    def _free_row(self, holder: Any) -> None:
        record = getattr(holder, "kv", holder)
        self._row_returned(record.req_pool_idx)
        record.req_pool_idx = None

    def _row_returned(self, row: int) -> None:
        assert row == ROW
        self.done.append(("row",))

    def dec_lock_ref(self, node: str, *_: Any) -> None:
        assert node == "node"
        self.done.append(("unlock",))

    def match_prefix(self, params: Any) -> None:
        self.asked = True


def outcome(of: Code, rule: str, s: Numbers) -> Outcome:
    """Calls the function that a rule is about, in this state."""
    if rule in LENGTHS_OF_REQUEST:
        return _lengths_told(of, rule, s), []
    inner = Server(s["page_size"], s["row_width"])
    cache = of.cache(inner)
    session = _session(of, s)
    req, slot = _turn_and_slot(of, rule, s)
    req.session = session
    if slot is not None:
        cache.slots["s"] = slot
    result = _called(of, rule, s, cache, req)
    shows: Numbers = {"inflight": session._inflight, "checkpoint_len": _checkpoint(session)}
    held = _on(of, cache.slots.get("s"))
    shows["slot_held"] = held is not None and held.req_pool_idx is not None
    if shows["slot_held"]:
        shows |= {f"slot_{name}": getattr(held if hasattr(held, name) else cache.slots["s"], name) for name in LENGTHS}
    if rule == "match_slot":
        shows |= {name: getattr(_on(of, req), name) for name in LENGTHS if name != "cache_protected_len"}
        shows |= {"first position": result.device_indices.start, "prefix_len": result.device_indices.stop}
        shows["cache_protected_len"] = result.cache_protected_len
    if rule == "detach":
        shows |= {"the turn leaves its session": req.session is None, "asked the tree": inner.asked}
    return shows, inner.done


def _lengths_told(of: Code, rule: str, s: Numbers) -> Numbers:
    req, _ = _turn_and_slot(of, rule, s)
    req.dllm_config, req.dllm_block_offset = None, 0
    req.return_logprob, req.logprob_start_len = s.get("logprobs are asked for"), s.get("where they begin")
    function, names = LENGTHS_OF_REQUEST[rule]
    result = getattr(req, function)(*([s["fill_len"]] if function == "_compute_max_prefix_len" else []))
    return dict(zip(names, result if isinstance(result, tuple) else (result,), strict=True))


def outcomes_in(path: str) -> list[Outcome]:
    """The outcome of each state in a file, on the release of this environment: a JSON list of rules and states."""
    from kvproof.conformance.adapters.sglang.engine import import_sglang

    import_sglang()
    of = code()
    vars(of.batch)["get_global_server_args"] = lambda: SimpleNamespace(strip_thinking_cache=False)
    return [outcome(of, rule, numbers) for rule, numbers in json.loads(Path(path).read_text(encoding="utf-8"))]


def _on(of: Code, holder: Any) -> Any:
    """Where a turn or a slot has its lengths and its row."""
    return holder.kv if of.has_records and holder is not None else holder


def _session(of: Code, s: Numbers) -> Any:
    session = of.session.__new__(of.session)
    earlier = SimpleNamespace(req=SimpleNamespace(session=session, tokens=s["checkpoint_len"]))
    session.__dict__.update(session_id="s", streaming=True, _inflight=s["inflight"], committed_origin_len=None)
    session.req_nodes = {"earlier": earlier} if s["checkpoint_len"] else {}
    return session


def _turn_and_slot(of: Code, rule: str, s: Numbers) -> tuple[Any, Any]:
    """The turn, and the slot if there is one: on one record where a release has records."""
    waits = rule in WAITING
    lock = {"swa_uuid_for_lock": "window lock" if s["the lock covers the window"] else None, "lock_receipt": "receipt"}
    of_turn = {name: s["committed_len" if name == "kv_committed_len" else name] for name in LENGTHS}
    of_slot = {name: s[f"slot_{name}"] for name in LENGTHS}
    req = of.batch.Req.__new__(of.batch.Req)
    known = {
        "rid": "turn",
        "last_node": "node",
        **lock,
        "to_finish": None,
        "finished_reason": None,
        "finished_len": None,
    }
    known |= {
        "kv_committed_freed": False,
        "kv_overallocated_freed": False,
        **NO_STATE_SPACE,
        "mamba_branching_seqlen": None,
    }
    known |= {"origin_input_ids": [0] * s["origin_len"], "output_ids": [0] * s["output_len"]}
    for name, value in known.items():
        setattr(req, name, value)
    if of.has_records:
        record = _made(of.batch.ReqKvInfo, req_pool_idx=ROW, **(of_slot if waits else of_turn))
        has_row = not waits or (s["slot_held"] and s["lent"])
        req.kv = record if has_row else of.batch.ReqKvInfo()
        slot = _made(of.slot, kv=record, last_node="node", lock_receipt="receipt")
    else:
        for name, value in {"req_pool_idx": None if waits else ROW, **of_turn}.items():
            setattr(req, name, value)
        slot = of.slot(req_pool_idx=ROW, last_node="node", swa_uuid_for_lock=lock["swa_uuid_for_lock"], **of_slot)
    return req, slot if s["slot_held"] else None


def _made(kind: Any, **fields: Any) -> Any:
    """With those of the fields that the release has."""
    return kind(**{name: value for name, value in fields.items() if name in kind.__dataclass_fields__})


def _called(of: Code, rule: str, s: Numbers, cache: Any, req: Any) -> Any:
    if rule in WAITING:
        req.to_finish = of.batch.FINISH_ABORT() if s["pre_aborted"] else None
        key = SimpleNamespace(token_ids=[0] * (s["fill_len"] - 1))
        return cache.match_prefix(SimpleNamespace(req=req, key=key))
    if rule == "finish" and s["finished_len is known"]:
        req.finished_len = s["finished_len"]
    if rule.startswith("abort"):
        req.finished_reason = of.batch.FINISH_ABORT()
    return cache.cache_finished_req(req, is_insert=rule != "retract")


def _checkpoint(session: Any) -> int:
    """Tokens of the last turn that finished with success."""
    if not session.req_nodes:
        return 0
    [node] = session.req_nodes.values()
    if hasattr(node.req, "tokens"):
        return int(node.req.tokens)
    origin_len = getattr(session, "committed_origin_len", None)
    return int(len(node.req.origin_input_ids) if origin_len is None else origin_len) + len(node.req.output_ids)
