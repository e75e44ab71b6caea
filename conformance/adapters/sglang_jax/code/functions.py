"""The claims about the functions of sglang-jax: its radix cache, its chunk cache, and what retracts a request."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.claims import YES
from kvproof.conformance.adapters.sglang.code.insert_claims import ROW_IS_THE_TREES
from kvproof.conformance.adapters.sglang.code.plain_scene import prefilled
from kvproof.conformance.adapters.sglang.code.request_claims import has_kv, taken
from kvproof.conformance.adapters.sglang_jax.code.scene import (
    BATCH,
    CHUNK,
    MEM_CACHE,
    RADIX,
    RELEASE,
    JaxScene,
)
from kvproof.model.code import arithmetic
from kvproof.model.code.claims import Claim, Expected, follows
from kvproof.model.code.source import Sources
from kvproof.model.code.values import Record
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import Action
from kvproof.spec.domain import floor_align, implies
from kvproof.spec.state import Ledger, is_live

PACKAGE = "sgl_jax"
GIVEN = {"sgl_jax.global_config.global_config": Record(retract_decode_steps=1)}
LEFT, TAKES = "the request names no row", "the tree takes the same pages"
ASSUMES = (
    "an ordinary request of one rank, without drafts and without a window; a live one has the KV of at least one token",
    "`cache_protected_len`, before #994 `last_matched_prefix_len`, is what the tree owns of the row: match and extend set it",
    "an insert takes the leading pages of the row and says how many of them the tree had; a match finds what was inserted",
    "no slot that was handed out has the index 0; where there is no tree, there is nothing to unlock",
    "of the last match or chunk (`prefix_indices`) the tree owns the whole pages",
    "at most one result of a request that is retracted is late; an eviction takes only pages that nobody locks",
)
LENGTHS = ("kv_committed_len", "kv_allocated_len", "cache_protected_len")

Act = Callable[[JaxScene], Any]
Shows = Callable[[JaxScene, Any], Mapping[str, Any]]
Given = Callable[[Symbols, Ledger], tuple[Any, ...]]


def claims_of(sources: Sources, actions: Mapping[str, Action]) -> list[Claim]:
    """The claims; none where the tree has none of the caches."""
    if sources.module(RADIX[0]) is None:
        return []
    claims = [
        claim
        for name, cache in (("radix", RADIX), ("chunk", CHUNK))
        for claim in (_finish(sources, actions, name, cache), _retract(actions, name, cache))
    ]
    return [*claims, _insert(actions), _stash(actions)]


def _ordinary(d: Symbols, s: Ledger) -> tuple[Any, ...]:
    return (
        s.plain,
        d.no(d.spec_v1),
        d.no(d.spec_v2),
        d.no(d.windowed),
        has_kv(d, s),
        prefix_ends_behind_the_tree(d, s),
    )


def prefix_ends_behind_the_tree(d: Symbols, s: Ledger) -> Any:
    """Of the prefix the tree owns the whole pages; of a prompt that is in, the rest of the last page is the request's own."""
    of_tree = d.every(d.tree, s.plain, is_live(d, s))
    return implies(d, of_tree, s.cache_protected_len == floor_align(d, s.prefix_len))


def _claim(
    label: str,
    place: tuple[str, str],
    action: Action,
    cache: tuple[str, str],
    act: Act,
    shows: Shows,
    values: Mapping[str, Any],
    given: Given = lambda d, s: (),
) -> Claim:
    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        of_cache = d.no(d.tree) if cache is CHUNK else d.true
        plainly = follows(action, given=lambda d, s: (*_ordinary(d, s), of_cache, *given(d, s)))(d, s, p)
        return dataclasses.replace(plainly, values={**values, TAKES: taken(d, plainly.effects)})

    def scene(run: Any, s: Ledger, p: SimpleNamespace) -> JaxScene:
        return JaxScene(run, s, p, cache, act, shows)

    return Claim(label, *place, rule, action.params, scene, ASSUMES, action.name)


def _finish(sources: Sources, actions: Mapping[str, Action], name: str, cache: tuple[str, str]) -> Claim:
    """By the one entry of all releases, where there is one; else by the cache itself."""
    has_entry = sources.has(f"{MEM_CACHE}.common", RELEASE)
    place = (f"{MEM_CACHE}.common", RELEASE) if has_entry else (cache[0], f"{cache[1]}.cache_finished_req")

    def finish(scene: JaxScene) -> Any:
        scene.run.paths.assume(scene.p.inserted if scene.has_tree else z3.Not(scene.p.inserted))
        scene.release()
        scene.unlocks_nothing()

    return _claim(f"finish_plain, {name}", place, actions["finish_plain"], cache, finish, _gone, {LEFT: YES})


def _retract(actions: Mapping[str, Action], name: str, cache: tuple[str, str]) -> Claim:
    def retract(scene: JaxScene) -> Any:
        scene.retract()
        scene.unlocks_nothing()

    label, place = f"retract_plain, {name}", (BATCH, "ScheduleBatch.release_req")
    return _claim(
        label, place, actions["retract_plain"], cache, retract, _queued, {LEFT: YES}, lambda d, s: (s.pending <= 1,)
    )


def _gone(scene: JaxScene, result: Any) -> Mapping[str, Any]:
    return {LEFT: scene.req.fields["req_pool_idx"] is None, TAKES: taken(scene.d, scene.effects)}


def _queued(scene: JaxScene, result: Any) -> Mapping[str, Any]:
    """The lengths that a request has from #994 on begin anew."""
    lengths = {name: scene.req.fields[name] for name in LENGTHS} if scene.keeps_lengths() else {}
    return {**_gone(scene, result), **lengths}


def _insert(actions: Mapping[str, Action]) -> Claim:
    def insert(scene: JaxScene) -> Any:
        scene.run.paths.assume(arithmetic.equal(scene.d, scene.p.key_len, prefilled(scene.d, scene.s)))
        return scene.ask(scene.cache, "cache_unfinished_req", scene.req)

    def shows(scene: JaxScene, result: Any) -> Mapping[str, Any]:
        return {
            "cache_protected_len": scene.owned_by_tree(),
            "prefix_len": scene.req.fields["prefix_indices"].length(),
            ROW_IS_THE_TREES: scene.row_is_the_trees(),
            TAKES: taken(scene.d, scene.effects),
        }

    place = (RADIX[0], f"{RADIX[1]}.cache_unfinished_req")
    return _claim("insert, radix", place, actions["insert"], RADIX, insert, shows, {ROW_IS_THE_TREES: YES})


def _stash(actions: Mapping[str, Action]) -> Claim:
    def stash(scene: JaxScene) -> Any:
        return scene.ask(scene.cache, "cache_unfinished_req", scene.req)

    def shows(scene: JaxScene, result: Any) -> Mapping[str, Any]:
        prefix = scene.req.fields["prefix_indices"]
        return {"first position": prefix.start, "prefix_len": prefix.end}

    place = (CHUNK[0], f"{CHUNK[1]}.cache_unfinished_req")
    return _claim("stash, chunk", place, actions["stash"], CHUNK, stash, shows, {"first position": 0})
