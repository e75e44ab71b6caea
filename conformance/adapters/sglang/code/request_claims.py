"""What must be given back when a request ends or is retracted: by a session's turn and by an ordinary request."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.claims import RIGHT, YES, Release
from kvproof.conformance.adapters.sglang.code.layout import BATCH
from kvproof.conformance.adapters.sglang.code.plain_scene import REFRESH, PlainScene, in_cache
from kvproof.conformance.adapters.sglang.code.request_scene import COMMON, RequestScene
from kvproof.conformance.adapters.sglang.code.session_claims import ENDS, LEFT, ended, finishes
from kvproof.conformance.adapters.sglang.code.unified_scene import UnifiedScene, is_there
from kvproof.model.code.claims import Claim, Expected, Rule, follows
from kvproof.model.symbolic import Symbols
from kvproof.spec.domain import Count, Flag, implies
from kvproof.spec.effects import Effect, Insert
from kvproof.spec.state import Ledger, fill_len, is_live

RELEASE = {COMMON: "release_kv_cache"}
RETRACT = {BATCH: "ScheduleBatch.release_req"}


def _finish(scene: RequestScene) -> Any:
    finishes(scene)
    return scene.release(keeps=True)


def _abort(scene: RequestScene) -> Any:
    scene.req.fields["finished_reason"] = scene.abort_reason()
    return scene.release(keeps=scene.run.paths.decide(z3.Bool("is_insert")))


def _abort_into_tree(scene: PlainScene) -> Any:
    scene.req.fields["finished_reason"] = scene.abort_reason()
    scene.release(keeps=scene.keeps())
    scene.unlocks_nothing()


def _abort_in_another_namespace(scene: PlainScene) -> Any:
    differs = "extra_key" if scene.run.paths.decide(z3.Bool("the turn has another extra_key")) else "cache_salt"
    scene.req.fields |= {"finished_reason": scene.abort_reason(), differs: "another"}
    scene.ends = True
    scene.run.paths.assume(z3.Not(scene.p.inserted))
    scene.release(keeps=True)
    scene.unlocks_nothing()


def _released(scene: RequestScene, result: Any) -> Mapping[str, Any]:
    return ended(scene, scene.inner.asked == [])


def _queued(scene: RequestScene, result: Any) -> Mapping[str, Any]:
    """The turn is queued again with its tokens: its lengths are 0, and it names no row."""
    own = {
        GIVEN_BACK: scene.names_no_row() and scene.knows_no_lock(),
        "output_len": scene.req.fields["output_ids"].length(),
    }
    return {**scene.slot_fields(), **scene.session_fields(), **scene.turn_lengths(), **own}


ASSUMES = (
    "a turn whose row is released has the KV of at least one token",
    "the server's page size is the allocator's, and thinking is not stripped from what is cached",
    "requests have no input embeddings; there is no hisparse coordinator and no disaggregation",
    "where only the request says that the window's part of its lock was released early, it was not",
    "an eviction takes only pages that the tree has and nobody locks",
)
PLAIN_ASSUMES = (
    *ASSUMES,
    "an insert takes the leading pages of the row and says how many of them the tree had; with a window it frees those copies",
    "a key is as long as its tokens, and one less in pairs; the tree owns no more of a row than such a key",
    "where there is no tree, there is nothing to unlock",
    "at most one result of a request that is retracted is late",
    "`refresh_fill_ids`, where a request has it, does what the claim about it says",
)
UNIFIED_ASSUMES = (
    *PLAIN_ASSUMES,
    "a prompt that parts from one without its window does so behind what the tree has of it, and within its tokens",
    "no rank's calls are compared with another's (`rank_consensus`), and keys are of one rotation",
)
GIVEN_BACK = "the request names no row and no lock of the window"

PARTS = {
    "finish": (RELEASE, ENDS, _finish, _released),
    "abort_first": (RELEASE, ENDS, _abort, _released),
    "abort_nth": (RELEASE, ENDS, _abort, _released),
    "retract": (RETRACT, {GIVEN_BACK: YES}, RequestScene.retract, _queued),
}


def has_kv(d: Symbols, s: Ledger) -> Flag:
    """Each chunk runs at least one token."""
    return implies(d, is_live(d, s), d.one <= s.kv_committed_len)


def requests(release: Release) -> Iterator[Claim]:
    """The claims about whole releases of rows: by a session's turn, and by an ordinary request in each cache that there is."""
    for name in PARTS:
        yield _abort_claim(release, name) if name in ABORTS and is_there(release) else _released_claim(release, name)
    if is_there(release):
        yield _abort_claim(release, "abort_nth", IN_ANOTHER)
    if release.has_any(FILLS):
        yield _fills(release)
    for cache, (scene, _) in CACHES.items():
        if is_there(release) if scene is UnifiedScene else release.has_any(scene.kind):
            yield from (_plain_claim(release, name, cache) for name in PLAIN)


FILLS = {BATCH: f"Req.{REFRESH}"}
TO_FILL = "tokens to fill"


def _fills(release: Release) -> Claim:
    """Before a match and before a checkpoint a request gets its tokens anew: the input and all of the output."""

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        return Expected((is_live(d, s), *release.given(d, s)), s, (), {TO_FILL: fill_len(s)})

    def fill(scene: RequestScene) -> Any:
        if scene.run.paths.decide(z3.Bool("the tokens to fill are the input itself")):
            scene.req.fields["full_untruncated_fill_ids"] = scene.req.fields["origin_input_ids"]
        return scene.run.call(scene.run.attribute(scene.req, REFRESH), [], {})

    def shows(scene: RequestScene, result: Any) -> Mapping[str, Any]:
        fields = scene.req.fields
        kept = {"origin_len": fields["origin_input_ids"].length(), "output_len": fields["output_ids"].length()}
        return {TO_FILL: fields["full_untruncated_fill_ids"].length(), **kept}

    return release.claim("refresh, tokens to fill", FILLS, rule, fill, shows, action="match_tree", kind=RequestScene)


def _released_claim(release: Release, name: str) -> Claim:
    place, values, act, shows = PARTS[name]
    action = release.actions[name]
    rule = follows(
        action,
        values=lambda d, s, after: {**RIGHT, **values},
        given=lambda d, s: (has_kv(d, s), *release.given(d, s)),
    )
    label, params = f"{name}, released", action.params
    return release.claim(label, place, rule, act, shows, params=params, action=name, assumes=ASSUMES, kind=RequestScene)


def _no_more(d: Symbols, s: Ledger) -> tuple[Flag, ...]:
    return ()


def _shares(d: Symbols, s: Ledger) -> tuple[Flag, ...]:
    """Pages of the tree, which has them under the namespace of the session's first turn."""
    return (d.one <= s.cache_protected_len,)


ABORTS = ("abort_first", "abort_nth")
IN_OWN, IN_ANOTHER = "released", "another namespace"
NAMESPACES = {IN_OWN: (_abort_into_tree, _no_more), IN_ANOTHER: (_abort_in_another_namespace, _shares)}
"""How such a turn ends in the tree, and what is given beside. In another namespace nothing goes in: else pages would be in the
tree twice."""


def _abort_claim(release: Release, name: str, namespace: str = IN_OWN) -> Claim:
    """Where one cache owns sessions and tree, an aborted turn ends in the tree as a request does."""
    action = release.actions[name]
    act, more = NAMESPACES[namespace]
    rule = follows(
        action,
        values=lambda d, s, after: {**RIGHT, **ENDS},
        given=lambda d, s: (has_kv(d, s), *more(d, s), *release.given(d, s)),
    )
    return release.claim(
        f"{name}, {namespace}",
        RELEASE,
        _with_taken(rule),
        act,
        _released_into_tree,
        params=action.params,
        action=name,
        assumes=UNIFIED_ASSUMES,
        kind=UnifiedScene,
    )


def _released_into_tree(scene: PlainScene, result: Any) -> Mapping[str, Any]:
    return {**_released(scene, result), TAKES: taken(scene.d, scene.effects)}


def _finish_plain(scene: PlainScene) -> Any:
    scene.finishes()
    scene.release(keeps=scene.keeps())
    scene.unlocks_nothing()


def _retract_plain(scene: PlainScene) -> Any:
    scene.retract()
    scene.unlocks_nothing()


def _gone(scene: PlainScene, result: Any) -> Mapping[str, Any]:
    return {LEFT: scene.row_left(), TAKES: taken(scene.d, scene.effects), **scene.window_and_lock()}


def _queued_plain(scene: PlainScene, result: Any) -> Mapping[str, Any]:
    own = {GIVEN_BACK: scene.names_no_row() and scene.knows_no_lock(), TAKES: taken(scene.d, scene.effects)}
    return {**own, **scene.turn_lengths(), **scene.window_and_lock()}


TAKES = "the tree takes the same pages"
"""Once the row is returned, no field of the ledger tells pages that went to the tree from pages that were freed."""


def taken(d: Symbols, effects: Iterable[Effect]) -> Count:
    """The row's leading pages that an insert gives to the tree; 0 without one."""
    inserts = [effect for effect in effects if isinstance(effect, Insert)]
    return d.where(inserts[0].when, inserts[0].pages, z3.IntVal(0)) if inserts else z3.IntVal(0)


def _with_taken(rule: Rule) -> Rule:
    def with_taken(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        expected = rule(d, s, p)
        return dataclasses.replace(expected, values={**expected.values, TAKES: taken(d, expected.effects)})

    return with_taken


Given = Callable[[Symbols], Flag]
MEM_CACHE = "sglang.srt.mem_cache"
CACHES: Mapping[str, tuple[type[PlainScene], Given]] = {
    "radix": (in_cache({f"{MEM_CACHE}.radix_cache": "RadixCache"}), lambda d: d.no(d.windowed)),
    "chunk": (in_cache({f"{MEM_CACHE}.chunk_cache": "ChunkCache"}), lambda d: d.every(d.no(d.windowed), d.no(d.tree))),
    "swa radix": (
        in_cache({f"{MEM_CACHE}.swa_radix_cache": "SWARadixCache"}, frees=True),
        lambda d: d.every(d.windowed, d.tree),
    ),
    "swa chunk": (in_cache({f"{MEM_CACHE}.chunk_cache": "SWAChunkCache"}), lambda d: d.every(d.windowed, d.no(d.tree))),
    "unified": (UnifiedScene, lambda d: d.true),
}
PLAIN = {
    "finish_plain": (RELEASE, lambda s: YES, {LEFT: YES}, _finish_plain, _gone),
    "retract_plain": (RETRACT, lambda s: s.pending <= 1, {GIVEN_BACK: YES}, _retract_plain, _queued_plain),
}


def _plain_claim(release: Release, name: str, cache: str) -> Claim:
    place, also, values, act, shows = PLAIN[name]
    kind, is_of_cache = CACHES[cache]
    action = release.actions[name]
    rule = follows(
        action,
        values=lambda d, s, after: {**RIGHT, **values},
        given=lambda d, s: (has_kv(d, s), is_of_cache(d), also(s), *release.given(d, s)),
    )
    label, params = f"{name}, {cache}", action.params
    assumes = UNIFIED_ASSUMES if kind is UnifiedScene else PLAIN_ASSUMES
    return release.claim(
        label, place, _with_taken(rule), act, shows, params=params, action=name, assumes=assumes, kind=kind
    )
