"""The cache that owns the sessions, from the release on in which a checkpoint puts a request's KV into its tree.

A request of its own ends in it, and so does a session's turn that is aborted: it has its record and its lock back by then.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import z3

from kvproof.conformance.adapters.sglang.code.batch_stand_ins import NOTHING
from kvproof.conformance.adapters.sglang.code.layout import OWNERS, WINDOW
from kvproof.conformance.adapters.sglang.code.plain_scene import PlainScene
from kvproof.model.code import arithmetic
from kvproof.model.code.values import Deferred, Instance, Opaque, Record
from kvproof.model.symbolic import PagedLength
from kvproof.spec.effects import Insert

COMPONENTS = "sglang.srt.mem_cache.unified_cache.components"
PARTS_AT = "where the prompt parts from one without its window"


class UnifiedScene(PlainScene):
    """Sessions and tree are one cache: what a turn's own release leaves, it inserts, frees and unlocks."""

    kind = OWNERS
    frees_duplicates: ClassVar[bool] = True

    def _plain_cache(self) -> Instance:
        windowed = self.has_tree and self.run.paths.decide(self.d.windowed)
        described = {"free_out_of_window_slots": NOTHING}
        components = [self.new(f"{COMPONENTS}.full", "FullComponent", **described)]
        tree_core = Record(page_size=self.allocator.page_size, is_eagle=Deferred(lambda: self.pairs))
        if windowed:
            components.append(
                self.new(f"{COMPONENTS}.swa", "SWAComponent", cache=self.owner, tree_core=tree_core, **described)
            )
        self.owner.fields |= {
            "disable": not self.has_tree,
            "tree_core": tree_core,
            "_components_tuple": tuple(components),
            "enable_session_radix_cache": False,
            "is_mamba_enabled": False,
            **self._described(),
        }
        return self.owner

    def _cursors(self, cursor: Any) -> dict[int, Any]:
        """One at 0 stands for none: each reader takes the one for the other."""
        return {WINDOW: cursor}

    def _request(self) -> Instance:
        req = super()._request()
        req.fields |= {"session_id": None, "kv_rotation_base": None}
        req.fields["swa_branching_seqlen"] = Deferred(lambda: self.parts_at)
        return req

    @cached_property
    def parts_at(self) -> PagedLength | None:
        """Where the prompt parts from one that has lost its window, if it does."""
        if not (self.run.paths.decide(self.d.windowed) and self.run.paths.decide(z3.Bool("the prompt parts"))):
            return None
        at: PagedLength = getattr(self.d.parameters({PARTS_AT: "length"}), PARTS_AT)
        self.run.paths.assume(at.is_well_formed())
        return at

    def _last_success(self) -> dict[Any, Any]:
        """A release reads nothing of it, so one that has no tokens yet stands for none."""
        return {Opaque("an earlier turn"): Record(req=Record(tokens=self.s.checkpoint_len))}

    def _insert(self, params: Any) -> Any:
        """It gets the window's cursor: what lies below has lost its window pages."""
        is_first = not any(isinstance(effect, Insert) for effect in self.effects)
        result = super()._insert(params)
        told = params.fields["component_evicted_seqlens"].get(WINDOW, self.d.zero)
        right = z3.Or(z3.Not(self.d.windowed), arithmetic.equal(self.d, told, self.s.swa_evicted_seqlen))
        self.allocator.window_is_right = z3.And(self.allocator.window_is_right, right)
        if is_first:
            self.matched = params.fields["key"].length()
        result.fields["last_device_node"] = self.node
        return result

    def _key_len_of(self, count: Any) -> Any:
        """All of them, or up to where they part from others."""
        whole = super()._key_len_of(count)
        if self.parts_at is None:
            return whole
        self.run.paths.assume(z3.And(self.s.cache_protected_len < self.parts_at, self.parts_at <= whole))
        return self.parts_at


def is_there(release: Any) -> bool:
    return any(release.sources.has(module, f"{name}.checkpoint_into_tree") for module, name in OWNERS.items())
