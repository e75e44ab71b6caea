"""What the functions of SGLang's session cache must do: each with the rule that says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.claims import RIGHT, YES, Act, Given, Places, Release, Shows
from kvproof.conformance.adapters.sglang.code.layout import LENGTHS
from kvproof.conformance.adapters.sglang.code.session import HANDS_ON, SessionScene
from kvproof.conformance.adapters.sglang.code.stand_ins import Indices
from kvproof.model.code.claims import Claim, Expected, Rule, follows
from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.values import Deferred, Record
from kvproof.model.symbolic import Symbols
from kvproof.spec.state import Ledger, drop_slot, end_turn


def _matched(scene: SessionScene, result: Any) -> dict[str, Any]:
    if result is None:
        return {**scene.slot_fields(), HANDS_ON: z3.BoolVal(False)}
    lengths = scene.turn_lengths()
    lengths["cache_protected_len"] = scene.run.attribute(result, "cache_protected_len")
    own = {BORROWS: scene.borrows(), KEPT: scene.inner.asked == [], KNOWS_LOCK: scene.knows_window_lock()}
    return {**scene.slot_fields(), **scene.session_fields(), **lengths, **scene.prefix_of(result), **own}


def _match(scene: SessionScene) -> Any:
    scene.waits()
    if scene.run.paths.decide(scene.s.pre_aborted):
        scene.req.fields |= {"to_finish": scene.abort_reason(), "is_retracted": False}  # it never ran
    else:
        scene.req.fields["is_retracted"] = Deferred(lambda: scene.run.paths.decide(z3.Bool("is_retracted")))
    return scene.method("match_prefix", scene.match_params())


def _handed_on(scene: SessionScene, result: Any) -> dict[str, Any]:
    """The turn continues as an ordinary request, or with a match of the tree: the slot stays as it is."""
    asked = result is None if scene.layout.is_owned else scene.inner.asked == ["match_prefix"]
    is_plain = scene.req.fields["session"] is None
    return {**scene.slot_fields(), **scene.session_fields(), LEAVES: is_plain, "asked the tree": asked}


def finishes(scene: SessionScene) -> None:
    """The turn has ended with `finished_len` tokens: all that it generated, where that is not said."""
    scene.finishes()
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


def _release(scene: SessionScene) -> Any:
    scene.waits()
    return scene.run.call(scene.run.attribute(scene.cache, "release_session"), [scene.session_id], {})


def _released(scene: SessionScene, result: Any) -> dict[str, Any]:
    return scene.slot_fields()


def _stash(scene: SessionScene) -> Any:
    """A chunk that does not end the input is kept: what was prefilled so far is the next chunk's prefix."""
    done = scene.s.kv_committed_len
    scene.req.fields |= {"fill_len": done, "extend_range": Record(start=scene.s.prefix_len, end=done)}
    return scene.method("cache_unfinished_req", scene.req, chunked=True)


def _stashed(scene: SessionScene, result: Any) -> dict[str, Any]:
    prefix = scene.req.fields.get("prefix_indices")
    if not isinstance(prefix, Indices):
        raise NotUnderstoodError("a chunk that is kept in another way than by a copy of its row")
    kept = {"first position": prefix.start, "prefix_len": prefix.end, KEPT: scene.inner.asked == []}
    return {**scene.held(), **scene.session_fields(), **scene.turn_lengths(), **kept}


def _handed_back(scene: SessionScene, result: Any) -> dict[str, Any]:
    """The slot is gone, and the request has row, lengths and lock as an ordinary request has them."""
    lengths = {f"{name} of the request": value for name, value in scene.turn_lengths().items()}
    own = {HAS_ROW: scene.has_row_and_lock(), KEPT: result is False}
    return {**scene.slot_fields(), **scene.session_fields(), **lengths, **own}


BORROWS = "the turn runs on the slot's row"
KNOWS_LOCK = "the turn knows the window's lock"
KEPT = "the tree is not asked as well"
LEFT = "row left the request"
HAS_ROW = "the request has the row and the lock"
ENDS = {LEFT: YES, KEPT: YES}
MATCHES = {
    "first position": 0,
    BORROWS: YES,
    KEPT: YES,
    KNOWS_LOCK: YES,
    HANDS_ON: YES,
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
    "stash": ("cache_unfinished_req", {"first position": 0, KEPT: YES}, _stash, _stashed),
}
HANDED_BACK = ("abort_first", "abort_nth")
"""Where a cache owns the sessions, an aborted turn's row and lock go back to the request, and its caller releases them."""


def session_cache(release: Release) -> Iterator[Claim]:
    """The claims about the session cache."""
    for name in PARTS:
        if name in HANDED_BACK and release.is_owned:
            yield _handed_back_claim(release, name)
        elif name != "stash" or not release.is_owned:  # where a cache owns the sessions, a chunk goes into the tree
            yield _claim(release, name)
    match = _place(release, "match_prefix")
    yield release.claim("match_tree, asked", match, _asks_the_tree(release), _match, _handed_on, action="match_tree")
    close = follows(release.actions["close"], values=lambda d, s, after: RIGHT, given=release.given)
    yield release.claim("close, slot", release.of_cache("release_session"), close, _release, _released, action="close")


def _claim(release: Release, name: str) -> Claim:
    """The claim whose rule is the action of its name."""
    function, values, act, shows = PARTS[name]
    action = release.actions[name]
    rule = follows(action, values=lambda d, s, after: {**RIGHT, **values}, given=_of_a_session(release))
    return release.claim(name, _place(release, function), rule, act, shows, params=action.params)


def _handed_back_claim(release: Release, name: str) -> Claim:
    function, _, act, _ = PARTS[name]
    return release.claim(name, _place(release, function), _hands_back(release, name), act, _handed_back)


def _place(release: Release, function: str) -> Places:
    return release.of_cache(f"try_{function}" if release.is_owned else function)


def _asks_the_tree(release: Release) -> Rule:
    """A session without a slot: its turn is matched with the tree, and stays in its session."""

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        waits = (release.actions["match_tree"].applies(d, s), s.is_open)
        return Expected((*waits, *release.given(d, s)), s, (), {**RIGHT, **ASKS, LEAVES: z3.BoolVal(False)})

    return rule


def _of_a_session(release: Release) -> Given:
    return lambda d, s: (d.no(s.plain), *release.given(d, s))


def _hands_back(release: Release, name: str) -> Rule:
    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        after = end_turn(d, drop_slot(d, s)).but(inflight=d.false)
        lengths = {f"{name} of the request": getattr(s, name) for name in LENGTHS}
        assumptions = (release.actions[name].applies(d, s), *release.given(d, s))
        return Expected(assumptions, after, (), {**RIGHT, **lengths, HAS_ROW: YES, KEPT: YES})

    return rule
