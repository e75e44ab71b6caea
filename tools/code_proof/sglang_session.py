"""A session, its slot and its turn as SGLang's objects, made from the symbols of an arbitrary ledger.

For releases that keep lengths on the request and on the slot (0.5.10.post1 to 0.5.14).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import z3

from code_proof import arithmetic
from code_proof.errors import NotUnderstoodError
from code_proof.interpreter import Interpreter
from code_proof.sglang_objects import Allocator, Indices, InnerCache, Row, RowPool, Slots, Tokens
from code_proof.values import Class, Instance, Opaque, Record, StandIn
from kvproof.spec.effects import Effect
from kvproof.spec.state import Ledger, fill_len

BATCH = "sglang.srt.managers.schedule_batch"
CACHES = {
    "sglang.srt.session.streaming_session": "StreamingSession",
    "sglang.srt.mem_cache.session_aware_cache": "SessionAwareCache",
}
CONTROLLERS = ("sglang.srt.session.session_controller", "sglang.srt.managers.session_controller")
LENGTHS = ("kv_committed_len", "kv_allocated_len", "cache_protected_len", "swa_evicted_seqlen")
NO_STATE_SPACE = {
    "mamba_pool_idx": None,
    "mamba_ping_pong_track_buffer": None,
    "mamba_next_track_idx": None,
    "mamba_last_track_seqlen": None,
    "mamba_branching_seqlen": None,
}


class Key(StandIn):
    """The key that a match looks up: the tokens to run without the last one."""

    members = frozenset({"token_ids"})

    def __init__(self, tokens: Tokens) -> None:
        self.token_ids = tokens

    def length(self) -> Any:
        return self.token_ids.length()


class SessionScene:
    """The objects, and what they show of the ledger. `act` is what the claim calls."""

    def __init__(self, run: Interpreter, s: Ledger, p: SimpleNamespace, act: Callable[[SessionScene], Any]) -> None:
        self.run, self.s, self.p, self.d = run, s, p, run.d
        self._act = act
        self.effects: list[Effect] = []
        self.row, self.node = Row(), Opaque("the tree node")
        self.pool = RowPool(run, self.row, self.effects)
        self.allocator = Allocator(run, self.effects)
        self.inner = InnerCache(run, self.pool, self.allocator, self.node, self.effects)
        self.session_id = Opaque("the session's id")
        has_window_lock = z3.Bool("the lock covers the window")
        self.window_lock = Opaque("the window lock") if run.paths.decide(has_window_lock) else None
        self.slots = Slots(self.session_id, self._slot() if run.paths.decide(s.slot_held) else None)
        self.cache = Instance(self.class_of(CACHES), {"inner": self.inner, "slots": self.slots})
        self.session = self._session()
        self.req = self._request()

    def call(self) -> Any:
        return self._act(self)

    def class_of(self, places: Mapping[str, str]) -> Class:
        """A class at the first of several places that this tree has."""
        for module_name, name in places.items():
            module = self.run.sources.module(module_name)
            if module is not None and name in module.definitions:
                found = self.run.global_name(module, name)
                assert isinstance(found, Class)
                return found
        raise NotUnderstoodError(f"none of {', '.join(places.values())} is there")

    def new(self, module: str, name: str, **fields: Any) -> Instance:
        return Instance(self.class_of({module: name}), fields)

    def _slot(self) -> Instance:
        s = self.s
        fields = {name: getattr(s, f"slot_{name}") for name in LENGTHS}
        kind = self.class_of(dict.fromkeys(CACHES, "SessionSlot"))
        kept = {
            "virtual_node": Opaque("the virtual node"),
            "last_node": self.node,
            "swa_uuid_for_lock": self.window_lock,
        }
        return Instance(kind, {"req_pool_idx": self.row, **fields, **kept, **NO_STATE_SPACE})

    def _session(self) -> Instance:
        kind = self.class_of(dict.fromkeys(CONTROLLERS, "Session"))
        fields = {
            "session_id": self.session_id,
            "streaming": True,
            "req_nodes": self._last_success(),
            "_inflight": self.s.inflight,
        }
        return Instance(kind, {**fields, "close_on_finish": self.s.closing})

    def _last_success(self) -> dict[Any, Any]:
        """The node of the last turn that finished with success: the checkpoint. None before the first."""
        if self.run.paths.decide(self.s.checkpoint_len == self.d.zero):
            return {}
        last = Record(session=Opaque("the session"), tokens=self.s.checkpoint_len)
        return {Opaque("an earlier turn"): Record(req=last)}

    def _request(self) -> Instance:
        s = self.s
        kind = self.class_of({BATCH: "Req"})
        lengths = {name: getattr(s, name) for name in LENGTHS}
        known = {
            "rid": Opaque("the turn's id"),
            "session": self.session,
            "req_pool_idx": self.row,
            "last_node": self.node,
            "swa_uuid_for_lock": self.window_lock,
            "origin_input_ids": Tokens(self.run, s.origin_len),
            "output_ids": Tokens(self.run, s.output_len),
            "fill_ids": Tokens(self.run, s.kv_committed_len),
            "finished_reason": None,
            "to_finish": None,
            "finished_len": None,
            "kv_committed_freed": False,
            "kv_overallocated_freed": False,
            "reasoning_tokens": 0,
        }
        return Instance(kind, {**known, **lengths, **NO_STATE_SPACE})

    def abort_reason(self) -> Instance:
        return self.new(BATCH, "FINISH_ABORT")

    def match_params(self) -> Record:
        key_len = arithmetic.subtract(self.d, fill_len(self.s), 1)
        return Record(req=self.req, key=Key(Tokens(self.run, key_len)))

    def method(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        """Calls a method of the session cache."""
        return self.run.call(self.run.attribute(self.cache, name), list(arguments), keywords)

    # What the objects show.

    def observed(self, result: Any) -> Mapping[str, Any]:
        return {**self.slot_fields(), **self.session_fields()}

    def slot_fields(self) -> dict[str, Any]:
        slot = self.slots.slot
        held = slot is not None and slot.fields["req_pool_idx"] is not None
        lengths = {f"slot_{name}": slot.fields[name] for name in LENGTHS} if held else {}
        return {"slot_held": held, **lengths}

    def session_fields(self) -> dict[str, Any]:
        """The marker, and the checkpoint as the next turn will read it."""
        return {"inflight": self.session.fields["_inflight"], "checkpoint_len": self._checkpoint()}

    def _checkpoint(self) -> Any:
        nodes = list(self.session.fields["req_nodes"].values())
        if not nodes:
            return self.d.zero
        if len(nodes) > 1:
            raise NotUnderstoodError("a session with more than one last turn")
        req = self.run.attribute(nodes[0], "req")
        if isinstance(req, Record):
            return req.fields["tokens"]
        origin, output = (self.run.attribute(req, name) for name in ("origin_input_ids", "output_ids"))
        return arithmetic.add(self.d, origin.length(), output.length())

    def turn_lengths(self) -> dict[str, Any]:
        return {name: self.req.fields[name] for name in LENGTHS}

    def prefix_of(self, result: Any) -> dict[str, Any]:
        """What a match hands on: the leading positions of the row, and no others."""
        indices = self.run.attribute(result, "device_indices")
        if not isinstance(indices, Indices):
            raise NotUnderstoodError("a match that hands on something other than the row")
        return {"first position": indices.start, "prefix_len": indices.end}
