"""What a prompt's chunk leaves in a prefix cache: its whole pages in a tree, or, without one, in its row alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from kvproof.conformance.adapters.sglang.code.claims import RIGHT, YES, Release
from kvproof.conformance.adapters.sglang.code.layout import BATCH
from kvproof.conformance.adapters.sglang.code.plain_scene import PlainScene, prefilled
from kvproof.conformance.adapters.sglang.code.request_claims import (
    CACHES,
    PLAIN_ASSUMES,
    TAKES,
    UNIFIED_ASSUMES,
    has_kv,
    is_there,
    taken,
)
from kvproof.conformance.adapters.sglang.code.stand_ins import Indices
from kvproof.conformance.adapters.sglang.code.unified_scene import UnifiedScene
from kvproof.model.code.claims import Claim, Expected, follows
from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.source import MENTIONS
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import ACTIONS
from kvproof.spec.state import Ledger

ENTRIES = ("cache_unfinished_req", "checkpoint")
"""By which a chunk is kept: up to 0.5.20, and from then on."""
ROW_IS_THE_TREES = "the row names the tree's pages from what it owned on"
ASSUMES = (
    "the tokens of the request that were prefilled are those that it has to fill",
    "what leaves the window at a chunk is another claim's",
)


def inserts(release: Release) -> Iterator[Claim]:
    """The claims about a chunk of an ordinary request, in each cache that there is."""
    for cache, (scene, is_of_cache) in CACHES.items():
        place = _place(release, scene)
        if place is None:
            continue
        name = "stash" if cache.endswith("chunk") else "insert"
        yield _claim(release, f"{name}, {cache}", name, place, scene, is_of_cache)


def _place(release: Release, scene: type[PlainScene]) -> tuple[str, str] | None:
    places = [(module, f"{kind}.{entry}") for module, kind in scene.kind.items() for entry in ENTRIES]
    found = next((place for place in places if release.sources.has(*place)), None)
    return found if scene is not UnifiedScene or is_there(release) else None


def _claim(
    release: Release, label: str, name: str, place: tuple[str, str], kind: type[PlainScene], is_of_cache: Any
) -> Claim:
    action = release.actions[name]
    values = {**RIGHT, ROW_IS_THE_TREES: YES, "first position": 0}

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        given = [s.plain, has_kv(d, s), is_of_cache(d), *release.given(d, s)]
        if action is ACTIONS["insert"]:  # the model's own tree has no keys in pairs
            given.append(p.key_len == prefilled(d, s))
        plainly = follows(action, given=lambda d, s: tuple(given))(d, s, p)
        return dataclasses.replace(plainly, values={**values, TAKES: taken(d, plainly.effects)})

    def keep(scene: PlainScene) -> Any:
        scene.has_filled()
        entry = place[1].rpartition(".")[2]
        told = {"up_to": prefilled(scene.d, scene.s)} if entry == "checkpoint" else {}
        return scene.run.call(scene.run.attribute(scene.tree_cache, entry), [scene.req], told)

    assumes = (*(UNIFIED_ASSUMES if kind is UnifiedScene else PLAIN_ASSUMES), *ASSUMES)
    shows = _in_tree if name == "insert" else _in_row
    return release.claim(
        label, dict([place]), rule, keep, shows, params=action.params, action=name, assumes=assumes, kind=kind
    )


def _in_tree(scene: PlainScene, result: Any) -> Mapping[str, Any]:
    """From the release on that reads a prefix off the tree, no request keeps a copy of it."""
    keeps_copy = scene.run.sources.fact(MENTIONS, BATCH, "prefix_indices")
    return {
        **(_in_row(scene, result) if keeps_copy else {}),
        "cache_protected_len": scene.length_of(scene.req, "cache_protected_len"),
        ROW_IS_THE_TREES: scene.row_is_the_trees(),
        TAKES: taken(scene.d, scene.effects),
        **scene.window_and_lock(),
    }


def _in_row(scene: PlainScene, result: Any) -> Mapping[str, Any]:
    prefix = scene.req.fields.get("prefix_indices")
    if not isinstance(prefix, Indices):
        raise NotUnderstoodError("a chunk that is kept in another way than by a copy of its row")
    return {"first position": prefix.start, "prefix_len": prefix.end}
