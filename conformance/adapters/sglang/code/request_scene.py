"""A turn or an ordinary request that gives back what it holds: the server's settings, and what a release and a retract ask."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.layout import BATCH, LENGTHS
from kvproof.conformance.adapters.sglang.code.session import SessionScene
from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.values import Class, Deferred, Function, Instance, Known, Record, Text
from kvproof.spec.state import Ledger

COMMON = "sglang.srt.mem_cache.common"
CONTEXT = "sglang.srt.runtime_context"
ASKS_SETTINGS = (
    "sglang.srt.server_args.get_global_server_args",
    f"{BATCH}.get_global_server_args",
    *(f"{CONTEXT}.{name}" for name in ("get_spec", "get_serving", "get_disagg")),
)
LEFT_ON_RECORD = ("kv_committed_len", "cache_protected_len")
"""The lengths that a release leaves on a record: what it had allocated, and the window's cursor, are 0."""


class RequestScene(SessionScene):
    """The session's turn; where the ledger is an ordinary request's, that request, which has no session and no slot."""

    def __init__(self, run: Interpreter, s: Ledger, p: SimpleNamespace, act: Callable[[SessionScene], Any]) -> None:
        super().__init__(run, s, p, act)
        run.given = {**run.given, **self._settings()}

    def _settings(self) -> Mapping[str, Any]:
        """What a release asks of the server beside the caches."""
        self.settings = Record(
            page_size=self.allocator.page_size,
            speculative_algorithm=Deferred(lambda: Text("a speculative algorithm") if self.drafts else None),
            strip_thinking_cache=False,
            disaggregation_mode="null",
        )
        common = self.run.sources.module(COMMON)
        hybrid = ast.parse("class HybridReqToTokenPool: pass").body[0]
        assert common is not None and isinstance(hybrid, ast.ClassDef)
        return {
            **dict.fromkeys(ASKS_SETTINGS, Known("the settings", lambda: self.settings)),
            # The row pool of a server with state spaces, which there are none of.
            f"{COMMON}.HybridReqToTokenPool": Class(hybrid, common, ()),
            f"{COMMON}.evict_from_tree_cache": Known("evict_from_tree_cache", lambda tree_cache, num_tokens: None),
        }

    @cached_property
    def drafts(self) -> bool:
        return self.run.paths.decide(z3.Or(self.d.spec_v1, self.d.spec_v2))

    def _request(self) -> Instance:
        req = super()._request()
        self.run.paths.assume(req.fields["full_untruncated_fill_ids"].count.is_well_formed())
        if self.run.paths.decide(self.s.plain):
            req.fields["session"] = None
        req.fields.setdefault("swa_prefix_lock_released", False)
        req.fields |= {
            "skip_radix_cache_insert": False,
            "retraction_count": 0,
            "input_embeds": None,
            "priority": 0,
        }
        return req

    def _cache(self) -> Instance:
        session_cache = super()._cache()
        if self.layout.is_owned:
            self.owner.fields["cache_controller"] = None
        return session_cache

    def _slot(self) -> Instance | None:
        return super()._slot() if self.req.fields["session"] is not None else None

    def turn_lengths(self) -> dict[str, Any]:
        """A request without a record has no lengths: the next one begins at 0."""
        gone = self.layout.on_record if self.req.fields.get("kv", self) is None else frozenset()
        kept = {name: self.length_of(self.req, name) for name in LENGTHS if name not in gone}
        return {**dict.fromkeys(gone, self.d.zero), **kept}

    def gave_row_back(self) -> None:
        """The request names its row no more, as a release leaves it."""
        layout = self.layout
        if layout.is_shared:
            left = {name: length for name, length in self._lengths().items() if name in LEFT_ON_RECORD}
            self.req.fields["kv"] = self._record(left, None)
        elif layout.on_record:
            self.req.fields["kv"] = None
        if not layout.row_is_on_record:
            self.req.fields["req_pool_idx"] = None

    def function(self, module_name: str, name: str) -> Function:
        module = self.run.sources.module(module_name)
        found = self.run.global_name(module, name) if module is not None else None
        if not isinstance(found, Function):
            raise NotUnderstoodError(f"{name} of {module_name}, which is no function")
        return found

    def release(self, keeps: bool) -> Any:
        """`release_kv_cache`. `keeps`: the tree is to take what it can."""
        release = self.function(COMMON, "release_kv_cache")
        flags = {name: keeps for name in ("is_insert", "checkpoint") if takes(release, name)}
        return self.run.call(release, [self.req, self.tree_cache], flags)

    def batch(self) -> Instance:
        """A batch with this request alone."""
        return self.new(
            BATCH,
            "ScheduleBatch",
            reqs=[self.req],
            tree_cache=self.tree_cache,
            req_to_token_pool=self.pool,
            token_to_kv_pool_allocator=self.allocator,
            hisparse_coordinator=None,
        )

    def retract(self) -> Any:
        """`ScheduleBatch.release_req`, of a batch with this request."""
        release_req = self.run.attribute(self.batch(), "release_req")
        settings = {"server_args": self.settings} if takes(release_req.function, "server_args") else {}
        return self.run.call(release_req, [0, z3.Int("requests left")], settings)


class CountsAhead(RequestScene):
    """C is the ledger's, also where a round in flight claims no position yet."""

    def _committed_len(self) -> Any:
        return self.s.kv_committed_len


def takes(function: Function, name: str) -> bool:
    spec = function.node.args
    return any(a.arg == name for a in (*spec.args, *spec.kwonlyargs))
