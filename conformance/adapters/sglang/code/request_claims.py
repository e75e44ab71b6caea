"""What must be given back when a request ends or is retracted: by a session's turn and by an ordinary request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.claims import RIGHT, YES, Release
from kvproof.conformance.adapters.sglang.code.layout import BATCH
from kvproof.conformance.adapters.sglang.code.request_scene import COMMON, RequestScene
from kvproof.conformance.adapters.sglang.code.session_claims import ENDS, ended, finishes
from kvproof.model.code.claims import Claim, follows
from kvproof.model.symbolic import Symbols
from kvproof.spec.domain import Flag, implies
from kvproof.spec.state import Ledger, is_live

RELEASE = {COMMON: "release_kv_cache"}
RETRACT = {BATCH: "ScheduleBatch.release_req"}


def _finish(scene: RequestScene) -> Any:
    finishes(scene)
    return scene.release(keeps=True)


def _abort(scene: RequestScene) -> Any:
    scene.req.fields["finished_reason"] = scene.abort_reason()
    return scene.release(keeps=scene.run.paths.decide(z3.Bool("is_insert")))


def _released(scene: RequestScene, result: Any) -> Mapping[str, Any]:
    return ended(scene, scene.inner.asked == [])


def _queued(scene: RequestScene, result: Any) -> Mapping[str, Any]:
    """The turn is queued again with its tokens: its lengths are 0, and it names no row."""
    own = {GIVEN_BACK: scene.names_no_row(), "output_len": scene.req.fields["output_ids"].length()}
    return {**scene.slot_fields(), **scene.session_fields(), **scene.turn_lengths(), **own}


GIVEN_BACK = "the request names no row"

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
    """The claims about whole releases of rows, each with the action of its name as its rule."""
    for action_name, (place, values, act, shows) in PARTS.items():
        action = release.actions[action_name]
        rule = follows(
            action,
            values=lambda d, s, after, own=values: {**RIGHT, **own},
            given=lambda d, s: (has_kv(d, s), *release.given(d, s)),
        )
        name = f"{action_name}, released"
        yield release.claim(name, place, rule, act, shows, params=action.params, action=action_name, kind=RequestScene)
