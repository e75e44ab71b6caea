"""What the functions of SGLang's session cache must do: each with the rule that says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.claims import RIGHT, YES, Act, Release, Shows
from kvproof.conformance.adapters.sglang.code.layout import LENGTHS
from kvproof.conformance.adapters.sglang.code.session import SessionScene
from kvproof.model.code.claims import Claim, Expected, Rule, follows
from kvproof.model.symbolic import Symbols
from kvproof.spec.state import Ledger, drop_slot, end_turn


def _matched(scene: SessionScene, result: Any) -> dict[str, Any]:
    lengths = scene.turn_lengths()
    lengths["cache_protected_len"] = scene.run.attribute(result, "cache_protected_len")
    own = {BORROWS: scene.borrows(), KEPT: scene.inner.asked == []}
    return {**scene.slot_fields(), **scene.session_fields(), **lengths, **scene.prefix_of(result), **own}


def _match(scene: SessionScene) -> Any:
    scene.waits()
    if scene.run.paths.decide(scene.s.pre_aborted):
        scene.req.fields["to_finish"] = scene.abort_reason()
    return scene.method("match_prefix", scene.match_params())


def _handed_on(scene: SessionScene, result: Any) -> dict[str, Any]:
    """The turn goes on as an ordinary request, or with a match of the tree: the slot stays as it is."""
    asked = result is None if scene.layout.is_owned else scene.inner.asked == ["match_prefix"]
    is_plain = scene.req.fields["session"] is None
    return {**scene.slot_fields(), **scene.session_fields(), LEAVES: is_plain, "asked the tree": asked}


def finishes(scene: SessionScene) -> None:
    """The turn has ended with `finished_len` tokens: all that it generated, where that is not said."""
    if scene.run.paths.decide(z3.Bool("finished_len is known")):
        scene.req.fields["finished_len"] = scene.p.finished_len
    else:
        scene.run.paths.assume(scene.p.finished_len == scene.s.output_len)


def _finish(scene: SessionScene) -> Any:
    finishes(scene)
    return scene.method("cache_finished_req", scene.req)


def _ended(scene: SessionScene, result: Any) -> dict[str, Any]:
    return ended(scene, result is True if scene.layout.is_owned else scene.inner.asked == [])


def ended(scene: SessionScene, is_kept: bool) -> dict[str, Any]:
    """The session's and the slot's fields; the turn's own row is no longer named by the request."""
    return {**scene.slot_fields(), **scene.session_fields(), LEFT: scene.row_left(), KEPT: is_kept}


def _abort(scene: SessionScene) -> Any:
    scene.req.fields["finished_reason"] = scene.abort_reason()
    return scene.method("cache_finished_req", scene.req)


def _retract(scene: SessionScene) -> Any:
    return scene.method("cache_finished_req", scene.req, is_insert=False)


def _handed_back(scene: SessionScene, result: Any) -> dict[str, Any]:
    """The slot is gone, and the request has row, lengths and lock as an ordinary request has them."""
    lengths = {f"{name} of the request": value for name, value in scene.turn_lengths().items()}
    own = {HAS_ROW: scene.has_row_and_lock(), KEPT: result is False}
    return {**scene.slot_fields(), **scene.session_fields(), **lengths, **own}


BORROWS = "the turn runs on the slot's row"
KEPT = "the tree is not asked as well"
LEFT = "row left the request"
HAS_ROW = "the request has the row and the lock"
ENDS = {LEFT: YES, KEPT: YES}
MATCHES = {
    "first position": 0,
    BORROWS: YES,
    KEPT: YES,
    "the slot's node is handed on": YES,
}
LEAVES = "the turn leaves its session"
ASKS = {"asked the tree": YES, LEAVES: YES}

# Claim: function, what is seen beside the fields of the ledger, what is called, what is looked at.
PARTS: Mapping[str, tuple[str, Mapping[str, Any], Act, Shows]] = {
    "match_slot": ("match_prefix", MATCHES, _match, _matched),
    "detach": ("match_prefix", ASKS, _match, _handed_on),
    "finish": ("cache_finished_req", ENDS, _finish, _ended),
    "abort_first": ("cache_finished_req", ENDS, _abort, _ended),
    "abort_nth": ("cache_finished_req", ENDS, _abort, _ended),
    "retract": ("cache_finished_req", ENDS, _retract, _ended),
}
HANDED_BACK = ("abort_first", "abort_nth")
"""Where a cache owns the sessions, an aborted turn's row and lock go back to the request, and its caller releases them."""


def session_cache(release: Release) -> Iterator[Claim]:
    """The claims about the session cache, each with the action of its name as its rule."""
    for name, (function, values, act, shows) in PARTS.items():
        action = release.actions[name]
        if release.is_owned and name in HANDED_BACK:
            yield release.claim(
                name, release.of_cache(f"try_{function}"), _hands_back(release, name), act, _handed_back
            )
            continue
        rule = follows(action, values=lambda d, s, after, own=values: {**RIGHT, **own}, given=release.given)
        place = release.of_cache(f"try_{function}" if release.is_owned else function)
        yield release.claim(name, place, rule, act, shows, params=action.params)


def _hands_back(release: Release, name: str) -> Rule:
    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        after = end_turn(d, drop_slot(d, s)).but(inflight=d.false)
        lengths = {f"{name} of the request": getattr(s, name) for name in LENGTHS}
        assumptions = (release.actions[name].applies(d, s), *release.given(d, s))
        return Expected(assumptions, after, (), {**RIGHT, **lengths, HAS_ROW: YES, KEPT: YES})

    return rule
