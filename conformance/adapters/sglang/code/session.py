"""A session, its slot and its turn as SGLang's objects, made from the symbols of an arbitrary ledger.

Where a release keeps what is read from its source (`layout.py`): lengths on the request and on the slot, or on a record
`kv` that both have, or on one record that the slot lends to the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import z3

from kvproof.conformance.adapters.sglang.code.layout import (
    BATCH,
    CACHES,
    CONTROLLERS,
    LENGTHS,
    OWNERS,
    WINDOW,
    Layout,
    class_at,
    layout_of,
)
from kvproof.conformance.adapters.sglang.code.stand_ins import (
    Allocator,
    Indices,
    InnerCache,
    Lock,
    Row,
    RowPool,
    Slots,
    Tokens,
)
from kvproof.model.code import arithmetic
from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.values import Instance, Known, Name, Opaque, Record, StandIn
from kvproof.spec.actions.finish import kv_of_known_tokens
from kvproof.spec.domain import is_aligned
from kvproof.spec.effects import Effect
from kvproof.spec.state import RUNNING, Ledger, fill_len, is_live

NO_STATE_SPACE = {
    "mamba_pool_idx": None,
    "mamba_ping_pong_track_buffer": None,
    "mamba_next_track_idx": None,
    "mamba_last_track_seqlen": None,
    "mamba_last_track_idx": None,
    "mamba_branching_seqlen": None,
}


KEEPS_LOCK = "slot keeps the lock"
HANDS_ON = "the slot's node is handed on"
NO_EMPTY_SLOT = "no slot is left without a row"
ON_BOUNDARY = "the window cursor stands on a page boundary"


class Key(StandIn):
    """The key that a match looks up: the tokens to run without the last one."""

    members = frozenset({"token_ids"})

    def __init__(self, tokens: Tokens) -> None:
        self.token_ids = tokens

    def length(self) -> Any:
        return self.token_ids.length()


class SessionScene:
    """The objects, and what they show of the ledger. `act` is what the claim calls."""

    allocator_kind: ClassVar[type[Allocator]] = Allocator

    def __init__(self, run: Interpreter, s: Ledger, p: SimpleNamespace, act: Callable[[SessionScene], Any]) -> None:
        self.run, self.s, self.p, self.d = run, s, p, run.d
        self._act = act
        self.effects: list[Effect] = []
        self.layout: Layout = layout_of(run)
        self.row, self.node = Row(), Opaque("the tree node")
        self.pool = RowPool(run, self.row, self.effects)
        self.allocator = self.allocator_kind(run, self.effects, s)
        self.lock = Lock(self.node, self._lock_fields(), run.d.floor_pages(s.cache_protected_len))
        self.inner = InnerCache(run, self.pool, self.allocator, self.lock, self.effects)
        self.session_id = Name("the session's id")
        self.session = self._session()
        self.slots = Slots(self.session_id, None)
        self.owner: Instance
        """Where a cache owns the sessions: that cache."""
        self.committed_len: Any
        self.runs = True
        self.controller: Instance
        """Of functions that are the controller's."""
        self.cache = self._cache()
        self.req = self._request()
        self.slots.slot = self._slot()
        if self.slots.slot is not None and self.run.paths.decide(s.slot_held):
            self.req.fields["last_node"] = self.slots.slot.fields["virtual_node"]

    def call(self) -> Any:
        return self._act(self)

    def method(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        """Calls a method of the session cache; of one that its owner asks, the part that is the session's."""
        if self.layout.is_owned:
            return self.run.call(self.run.attribute(self.cache, f"try_{name}"), list(arguments), {})
        return self.run.call(self.run.attribute(self.cache, name), list(arguments), keywords)

    # The objects.

    def new(self, module: str, name: str, **fields: Any) -> Instance:
        return Instance(class_at(self.run, {module: name}), fields)

    def _cache(self) -> Instance:
        kind = class_at(self.run, CACHES)
        if not self.layout.is_owned:
            return Instance(kind, {"inner": self.inner, "slots": self.slots})
        described = ("req_to_token_pool", "token_to_kv_pool_allocator")
        fields = {name: getattr(self.inner, name) for name in described}
        fields["dec_lock_ref"] = Known("dec_lock_ref", self.inner.dec_lock_ref)
        fields["tree_core"] = Record(page_size=self.inner.page_size)
        self.owner = Instance(class_at(self.run, OWNERS), fields)
        self.owner.fields["session_refs"] = Record(release_radix_session=Known("release_radix_session", lambda _: 0))
        self.owner.fields["session"] = Instance(kind, {"cache": self.owner, "slots": self.slots})
        return self.owner.fields["session"]

    def _lock_fields(self) -> dict[str, Any]:
        """What a holder of the tree lock keeps to undo it, by the name of its attribute."""
        fields: dict[str, Any] = {"last_node": self.node, "skip_lock_node_ids": {}}
        fields["lock_receipt"] = Opaque("the receipt of the lock")
        covers_window = "swa_uuid_for_lock" in self.layout.slot_fields
        covers_window = covers_window and self.run.paths.decide(z3.Bool("the lock covers the window"))
        fields["swa_uuid_for_lock"] = Opaque("the window lock") if covers_window else None
        has_flag = "swa_prefix_lock_released" in self.layout.slot_fields
        fields["swa_prefix_lock_released"] = has_flag and self.run.paths.decide(z3.Bool("the window lock is released"))
        if "lock" in self.layout.slot_fields:
            receipt, released = fields["lock_receipt"], False
            return {"lock": self.new(*self.layout.lock_at, node=self.node, receipt=receipt, swa_released=released)}
        return {name: value for name, value in fields.items() if name in self.layout.slot_fields}

    def _record(self, lengths: Mapping[str, Any], row: Row | None) -> Instance:
        """The record `kv` with what this release keeps on it."""
        layout = self.layout
        fields = {name: value for name, value in lengths.items() if name in layout.on_record}
        if layout.by_component:
            fields.pop("swa_evicted_seqlen", None)
        if layout.row_is_on_record:
            fields["req_pool_idx"] = row
        if layout.by_component:
            fields["component_evicted_seqlens"] = self._cursors(lengths.get("swa_evicted_seqlen", self.d.zero))
        assert layout.record is not None
        made = self.run.construct(layout.record, [], fields)
        assert isinstance(made, Instance)
        return made

    def _cursors(self, cursor: Any) -> dict[int, Any]:
        return {WINDOW: cursor} if self.run.paths.decide(arithmetic.less(self.d, 0, cursor)) else {}

    def _lengths(self, prefix: str = "") -> dict[str, Any]:
        return {name: getattr(self.s, f"{prefix}{name}") for name in LENGTHS}

    def _slot(self) -> Instance | None:
        """The session's slot. Where a turn runs on the slot's own record, that is one object."""
        s, layout = self.s, self.layout
        is_live = self.req.fields.get("kv") is not None and self._row_of(self.req) is self.row
        is_held = self.run.paths.decide(s.slot_held)
        if not is_held and not (layout.is_owned and is_live):
            return None
        if layout.is_owned:
            self.req.fields["lock"] = None
        is_lent = layout.is_shared and is_live
        return self._slot_of(self._lengths("slot_"), self.row, self.req.fields["kv"] if is_lent else None)

    def _slot_of(self, lengths: Mapping[str, Any], row: Row, record: Instance | None = None) -> Instance:
        """A slot that holds a row and a lock. `record`: the turn's own, if the turn runs on the slot's."""
        layout = self.layout
        fields: dict[str, Any] = {
            "virtual_node": Opaque("the virtual node"),
            "publishes_prompt": False,
            **self.lock.fields,
        }
        fields |= {**NO_STATE_SPACE, **lengths}
        if layout.on_record:
            fields["kv"] = record or self._record(lengths, row)
        if not layout.row_is_on_record:
            fields["req_pool_idx"] = row
        kind = class_at(self.run, dict.fromkeys(CACHES, "SessionSlot"))
        return Instance(kind, {name: value for name, value in fields.items() if name in layout.slot_fields})

    def add_slot(self, lengths: Mapping[str, Any]) -> None:
        """Another session's slot, in no batch. Functions that go over all slots meet it; it stands for each of the others."""
        self.slots.others.append((Name("another session's id"), self._slot_of(lengths, Row())))

    def _session(self) -> Instance:
        kind = class_at(self.run, dict.fromkeys(CONTROLLERS, "Session"))
        fields = {
            "session_id": self.session_id,
            "streaming": True,
            "req_nodes": self._last_success(),
            "_inflight": self.s.inflight,
            "committed_origin_len": None,
        }
        return Instance(kind, {**fields, "close_on_finish": self.s.closing})

    def _last_success(self) -> dict[Any, Any]:
        """The node of the last turn that finished with success: the checkpoint. None before the first."""
        if self.run.paths.decide(self.s.checkpoint_len == self.d.zero):
            return {}
        last = Record(
            session=Opaque("the session"),
            tokens=self.s.checkpoint_len,
            finished=Known("finished", lambda: True),
            multimodal_inputs=None,
        )
        return {Opaque("an earlier turn"): Record(req=last)}

    def _request(self) -> Instance:
        """A turn that runs, with its row and the lock; `waits` makes a queued one of it."""
        s, layout = self.s, self.layout
        kind = class_at(self.run, {BATCH: "Req"})
        unread = self.run.d.parameters({"unpadded tokens": "length", "tokens to fill": "length"})
        known = {
            "rid": Opaque("the turn's id"),
            "session": self.session,
            **self.lock.fields,
            "last_node": self.node,
            "origin_input_ids": Tokens(self.run, s.origin_len),
            "origin_input_ids_unpadded": Tokens(self.run, getattr(unread, "unpadded tokens")),
            "full_untruncated_fill_ids": Tokens(self.run, getattr(unread, "tokens to fill")),
            "output_ids": Tokens(self.run, s.output_len),
            "fill_ids": Tokens(self.run, s.kv_committed_len),
            "finished_reason": None,
            "to_finish": None,
            "finished_len": None,
            "kv_committed_freed": False,
            "kv_overallocated_freed": False,
            "reasoning_tokens": 0,
            "extra_key": None,
            "cache_salt": None,
            "multimodal_inputs": None,
            "_session_mm_items": [],
        }
        self.committed_len = self._committed_len()
        of_turn = {**self._lengths(), "kv_committed_len": self.committed_len}
        lengths = {name: value for name, value in of_turn.items() if name not in layout.on_record}
        if layout.on_record:
            known["kv"] = self._record(of_turn, self.row)
        if not layout.row_is_on_record:
            known["req_pool_idx"] = self.row
        return Instance(kind, {**known, **lengths, **({} if layout.row_is_on_record else NO_STATE_SPACE)})

    def _committed_len(self) -> Any:
        """C of the turn. Where a round claims no position, it is behind the ledger's by the rounds in flight."""
        if self.layout.claims_ahead or not self.run.paths.decide(self._has_rounds()):
            return self.s.kv_committed_len
        return kv_of_known_tokens(self.d, self.s)

    def _has_rounds(self) -> Any:
        """Before the first result only the prompt is in flight, which is claimed."""
        return z3.And(self.d.spec_v2, self.s.phase == RUNNING, self.d.one <= self.s.output_len)

    def waits(self) -> None:
        """The turn is queued: it has no row. It may have borrowed the slot's record in an earlier try."""
        layout, fields = self.layout, self.req.fields
        fields["swa_uuid_for_lock"] = None
        if not layout.row_is_on_record:
            fields["req_pool_idx"] = None
        if layout.is_owned:
            fields["lock"] = None
        if layout.is_shared:
            fields["kv"] = self._record({}, None)
            self.slots.slot = self._slot()
            slot = self.slots.slot
            if slot is not None and self.run.paths.decide(self.s.lent):
                fields["kv"] = slot.fields["kv"]
        elif layout.on_record:
            fields["kv"] = None

    def settle(self) -> None:
        """The turn stands where its phase says: one that does not run has no row."""
        self.runs = self.run.paths.decide(is_live(self.d, self.s))
        if not self.runs:
            self.waits()

    def finishes(self) -> None:
        """The request has ended by itself; its length stands for every reason but an abort."""
        self.req.fields["finished_reason"] = self.new(BATCH, "FINISH_LENGTH")

    def abort_reason(self) -> Instance:
        return self.new(BATCH, "FINISH_ABORT")

    def match_params(self) -> Record:
        key_len = arithmetic.subtract(self.d, fill_len(self.s), 1)
        return Record(req=self.req, key=Key(Tokens(self.run, key_len)))

    # What the objects show.

    def observed(self, result: Any) -> Mapping[str, Any]:
        return {**self.slot_fields(), **self.session_fields()}

    def length_of(self, holder: Instance, name: str) -> Any:
        """A length of a request or a slot, wherever this release keeps it."""
        record = holder.fields.get("kv")
        if name not in self.layout.on_record:
            return holder.fields[name]
        assert isinstance(record, Instance)
        if name == "swa_evicted_seqlen" and self.layout.by_component:
            return record.fields["component_evicted_seqlens"].get(WINDOW, self.d.zero)
        return record.fields[name]

    def _row_of(self, holder: Instance) -> Any:
        if not self.layout.row_is_on_record:
            return holder.fields["req_pool_idx"]
        record = holder.fields["kv"]
        return record.fields["req_pool_idx"] if isinstance(record, Instance) else None

    @property
    def tree_cache(self) -> Instance:
        """What the scheduler calls its tree cache: around which the sessions are kept, or which keeps them."""
        return self.owner if self.layout.is_owned else self.cache

    def slot(self) -> Instance | None:
        """The slot that holds a row by itself, if there is one."""
        if self.cache.fields["slots"] is not self.slots:
            raise NotUnderstoodError("the table of the slots is replaced")
        slot = self.slots.slot
        row = self._row_of(slot) if slot is not None else None
        if slot is None or row is None:
            return None
        if row is not self.row:
            raise NotUnderstoodError("a slot with another row than the session's")
        return slot

    def slot_fields(self) -> dict[str, Any]:
        slot = self.slot()
        lengths = {f"slot_{name}": self.length_of(slot, name) for name in LENGTHS} if slot is not None else {}
        kept = {KEEPS_LOCK: self._keeps_lock(slot)} if slot is not None else {}
        right = {**self.window_and_lock(), NO_EMPTY_SLOT: slot is not None or self.slots.slot is None}
        if slot is not None and self.layout.splits_at_cursor:
            right[ON_BOUNDARY] = is_aligned(self.d, self.length_of(slot, "swa_evicted_seqlen"))
        return {"slot_held": slot is not None, **lengths, **kept, **right}

    def held(self) -> dict[str, Any]:
        """`slot_fields`. While a turn runs on its slot's own record, the lengths on that are the turn's."""
        if not (self.runs and self.layout.is_shared):
            return self.slot_fields()
        rights = {name: value for name, value in self.slot_fields().items() if not name.startswith("slot_")}
        return {**rights, **self.turn_lengths()}

    def window_and_lock(self) -> dict[str, Any]:
        return {
            "window pages are freed once": self.allocator.window_is_right,
            "unlocked as locked": self.inner.is_undone,
        }

    def _keeps_lock(self, holder: Instance) -> bool:
        return all(holder.fields[name] is value for name, value in self.lock.fields.items())

    def session_fields(self) -> dict[str, Any]:
        """The marker, which no session had before #22790, and the checkpoint as the next turn will read it."""
        return {"inflight": self.session.fields.get("_inflight", self.d.false), "checkpoint_len": self._checkpoint()}

    def _checkpoint(self) -> Any:
        nodes = list(self.session.fields["req_nodes"].values())
        if not nodes:
            return self.d.zero
        if len(nodes) > 1:
            raise NotUnderstoodError("a session with more than one last turn")
        req = self.run.attribute(nodes[0], "req")
        if isinstance(req, Record) and "tokens" in req.fields:
            return req.fields["tokens"]
        origin, output = (self.run.attribute(req, name).length() for name in ("origin_input_ids", "output_ids"))
        committed = self.session.fields["committed_origin_len"]
        return arithmetic.add(self.d, origin if committed is None else committed, output)

    def turn_lengths(self) -> dict[str, Any]:
        """As the ledger counts them: C that nobody changed is the ledger's, also where it is behind by rounds in flight."""
        lengths = {name: self.length_of(self.req, name) for name in LENGTHS}
        if lengths["kv_committed_len"] is self.committed_len:
            lengths["kv_committed_len"] = self.s.kv_committed_len
        return lengths

    def names_no_row(self) -> bool:
        """The request names neither the row nor the slot's record any more."""
        record, slot = self.req.fields.get("kv"), self.slots.slot
        if self._row_of(self.req) is not None or (record is not None and not self.layout.is_shared):
            return False
        return record is None or slot is None or slot.fields["kv"] is not record

    def knows_no_lock(self) -> bool:
        """What a request that is queued again kept of the window's lock would be undone with its next one."""
        return self.req.fields.get("swa_uuid_for_lock") is None

    def row_left(self) -> bool:
        """The request names no row, and its KV counts as freed."""
        if not self.names_no_row():
            return False
        flags = ("kv_committed_freed", "kv_overallocated_freed") if self.layout.has_freed_flags else ()
        return all(self.req.fields[flag] is True for flag in flags)

    def has_row_and_lock(self) -> bool:
        return self._row_of(self.req) is self.row and self._keeps_lock(self.req)

    def knows_window_lock(self) -> bool:
        """Where slot and turn keep the lock of the window apart from the node's: the turn has the slot's."""
        slot = self.slot()
        kept = slot.fields.get("swa_uuid_for_lock") if slot is not None else None
        return self.req.fields.get("swa_uuid_for_lock") is kept

    def borrows(self) -> bool:
        """The turn runs on the slot's row: on the slot's record or on a copy, as the release has it."""
        slot = self.slot()
        if slot is None or self._row_of(self.req) is not self.row:
            return False
        return not self.layout.on_record or (self.req.fields["kv"] is slot.fields["kv"]) == self.layout.is_shared

    def prefix_of(self, result: Any) -> dict[str, Any]:
        """What a match hands on: the leading positions of the row, and a node whose lock means nothing."""
        slot = self.slot()
        names = ("last_device_node", "last_host_node", "best_match_node")
        nodes = [result.fields[name] for name in names if name in result.fields]
        stands_in = slot is not None and all(node is slot.fields["virtual_node"] for node in nodes)
        stands = {HANDS_ON: z3.BoolVal(stands_in)}
        if "device_prefix_len" in result.fields:
            return {"prefix_len": result.fields["device_prefix_len"], **stands}
        indices = self.run.attribute(result, "device_indices")
        if not isinstance(indices, Indices):
            raise NotUnderstoodError("a match that hands on something other than the row")
        return {"first position": indices.start, "prefix_len": indices.end, **stands}
