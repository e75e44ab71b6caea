"""What the functions of SGLang's session cache must do: each with the rule that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.layout import LENGTHS
from kvproof.conformance.adapters.sglang.code.session import KEEPS_LOCK, ON_BOUNDARY, SessionScene
from kvproof.model.code.claims import Claim, Expected, Rule, follows
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import Action
from kvproof.spec.domain import is_aligned
from kvproof.spec.state import Ledger, drop_slot, end_turn

Act = Callable[[SessionScene], Any]
Shows = Callable[[SessionScene, Any], Mapping[str, Any]]

ASSUMED = (
    "a slot is in `slots` exactly while it holds a row; where a cache owns the sessions, also while a first turn runs",
    "slot and turn hold the lock of one tree node",
    "there is no pool for state spaces, and no second window",
    "no module that is not read changes a function or a class that is read",
)


def _scene(act: Act, shows: Shows) -> Callable[[Interpreter, Ledger, SimpleNamespace], SessionScene]:
    class Shown(SessionScene):
        def observed(self, result: Any) -> Mapping[str, Any]:
            return shows(self, result)

    return lambda run, s, p: Shown(run, s, p, act)


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


def _finish(scene: SessionScene) -> Any:
    if scene.run.paths.decide(z3.Bool("finished_len is known")):
        scene.req.fields["finished_len"] = scene.p.finished_len
    else:
        scene.run.paths.assume(scene.p.finished_len == scene.s.output_len)
    return scene.method("cache_finished_req", scene.req)


def _ended(scene: SessionScene, result: Any) -> dict[str, Any]:
    """The session's and the slot's fields; the turn's own row is no longer named by the request."""
    kept = result is True if scene.layout.is_owned else scene.inner.asked == []
    ended = {LEFT: scene.row_left(), KEPT: kept}
    return {**scene.slot_fields(), **scene.session_fields(), **ended}


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


def _claim(function: str, name: str, rule: Rule, params: Mapping[str, str], act: Act, shows: Shows) -> Claim:
    return Claim(name, "", function, rule, params, _scene(act, shows), ASSUMED)


BORROWS = "the turn runs on the slot's row"
KEPT = "the tree is not asked as well"
LEFT = "row left the request"
HAS_ROW = "the request has the row and the lock"
RIGHT = dict.fromkeys(("window pages are freed once", "unlocked as locked", KEEPS_LOCK, ON_BOUNDARY), z3.BoolVal(True))
YES = z3.BoolVal(True)
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


def session_cache(
    actions: Mapping[str, Action], *, is_owned: bool = False, splits_at_cursor: bool = False
) -> tuple[Claim, ...]:
    """The claims about a session cache, each with the action of its name as its rule.

    `splits_at_cursor`: a release frees a row in two parts, below and above the window cursor. It relies on a cursor that stands
    on a page boundary: this is assumed, and that each function keeps it is part of each claim.
    """
    given = _cursor_on_boundary if splits_at_cursor else _nothing
    return tuple(_session_claim(name, actions[name], is_owned, given) for name in PARTS)


Given = Callable[[Symbols, Ledger], tuple[Any, ...]]


def _nothing(d: Symbols, s: Ledger) -> tuple[Any, ...]:
    return ()


def _cursor_on_boundary(d: Symbols, s: Ledger) -> tuple[Any, ...]:
    return is_aligned(d, s.swa_evicted_seqlen), is_aligned(d, s.slot_swa_evicted_seqlen)


def _session_claim(name: str, action: Action, is_owned: bool, given: Given) -> Claim:
    function, values, act, shows = PARTS[name]
    if is_owned and name in HANDED_BACK:
        return _claim(f"try_{function}", name, _hands_back(action, given), {}, act, _handed_back)
    rule = follows(action, values=lambda d, s, after: {**RIGHT, **values}, given=given)
    return _claim(f"try_{function}" if is_owned else function, name, rule, action.params, act, shows)


def _hands_back(action: Action, given: Given) -> Rule:
    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        after = end_turn(d, drop_slot(d, s)).but(inflight=d.false)
        lengths = {f"{name} of the request": getattr(s, name) for name in LENGTHS}
        assumptions = (action.applies(d, s), *given(d, s))
        return Expected(assumptions, after, (), {**RIGHT, **lengths, HAS_ROW: YES, KEPT: YES})

    return rule
