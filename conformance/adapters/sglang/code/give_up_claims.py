"""What `retract_decode` must do with the last request of a batch that does not fit: end it as an aborted one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.claims import RIGHT, YES, Release
from kvproof.conformance.adapters.sglang.code.layout import BATCH
from kvproof.conformance.adapters.sglang.code.request_claims import (
    ASSUMES,
    GIVEN_BACK,
    TAKES,
    UNIFIED_ASSUMES,
    has_kv,
    taken,
)
from kvproof.conformance.adapters.sglang.code.request_scene import RequestScene, takes
from kvproof.conformance.adapters.sglang.code.session import SessionScene
from kvproof.conformance.adapters.sglang.code.unified_scene import UnifiedScene, is_there
from kvproof.model.code.claims import Claim, follows
from kvproof.model.code.source import MENTIONS
from kvproof.model.code.values import Deferred, Instance, Known, Record
from kvproof.model.symbolic import Symbols
from kvproof.spec.domain import Flag
from kvproof.spec.state import RUNNING, Ledger


class GivenUp(UnifiedScene):
    """What is released may be a turn that has finished, as its session sees it: its last success is read."""

    _last_success = SessionScene._last_success


RETRACTS = {BATCH: "ScheduleBatch.retract_decode"}
IS_LAST = (
    "the batch has this request alone, which is no member of a beam, and the pool has no pages for its next step",
    "`filter_batch` leaves in the batch the requests whose places it gets",
)
RATIO = "NewTokenRatioTracker"
EAGLE = "EAGLE"
"""Up to 0.5.14 it is asked whether an algorithm has a name."""
ANSWERED = "the turn is among those that are answered as aborted"


def given_up(release: Release) -> Iterator[Claim]:
    """A session's turn that is given up, its first one and a later one. None where the function itself estimates a ratio."""
    if release.has_any(RETRACTS) and release.sources.fact(MENTIONS, BATCH, RATIO):
        for name in ("abort_first", "abort_nth"):
            yield _claim(release, name)


def _claim(release: Release, name: str) -> Claim:
    action = release.actions[name]
    kind, assumes = (GivenUp, UNIFIED_ASSUMES) if is_there(release) else (RequestScene, ASSUMES)

    def given(d: Symbols, s: Ledger) -> tuple[Flag, ...]:
        return d.no(s.plain), s.phase == RUNNING, has_kv(d, s), *release.given(d, s)

    values = {**RIGHT, GIVEN_BACK: YES, ANSWERED: YES, TAKES: z3.IntVal(0)}
    rule = follows(action, values=lambda d, s, after: values, given=given)
    return release.claim(
        f"{name}, given up",
        RETRACTS,
        rule,
        _give_up,
        _seen,
        params=action.params,
        action=name,
        assumes=(*assumes, *IS_LAST),
        kind=kind,
    )


def _give_up(scene: RequestScene) -> Any:
    if hasattr(scene.p, "inserted"):
        scene.run.paths.assume(z3.Not(scene.p.inserted))
    batch = _batch_of(scene)
    retract = scene.run.attribute(batch, "retract_decode")
    settings = {"server_args": scene.settings} if takes(retract.function, "server_args") else {}
    result = scene.run.call(retract, [], settings)
    if isinstance(scene, UnifiedScene):
        scene.unlocks_nothing()
    return result


def _batch_of(scene: RequestScene) -> Instance:
    ratio = Record(estimate_new_token_ratio_after_retract=Known("estimate", lambda reqs: 1))
    scene.run.given = {
        **scene.run.given,
        "http.HTTPStatus": Record(INTERNAL_SERVER_ERROR=500),
        f"{BATCH}.{RATIO}": ratio,
        f"{BATCH}.beam_retraction_order": Known("beam_retraction_order", lambda places, reqs: places),
    }
    scene.req.fields["beam_group"] = None
    scene.settings.fields["speculative_algorithm"] = Deferred(lambda: EAGLE if scene.drafts else None)
    batch = scene.batch()
    described = {
        "_get_decode_retraction_order": Known("order", lambda *_: [0]),
        "check_decode_mem": Known("check_decode_mem", lambda selected_indices=None: False),
        "filter_batch": Known("filter_batch", lambda keep_indices: _filter(batch, keep_indices)),
    }
    batch.fields |= described
    return batch


def _filter(batch: Instance, places: list[int]) -> None:
    batch.fields["reqs"] = [batch.fields["reqs"][place] for place in places]


def _seen(scene: RequestScene, result: Any) -> Mapping[str, Any]:
    retracted, _, aborted = result
    own = {
        GIVEN_BACK: scene.names_no_row() and scene.knows_no_lock(),
        TAKES: taken(scene.d, scene.effects),
        ANSWERED: not retracted and len(aborted) == 1 and aborted[0] is scene.req,
    }
    return {**scene.slot_fields(), **scene.session_fields(), **own}
