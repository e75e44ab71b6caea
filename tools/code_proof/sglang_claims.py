"""What the functions of SGLang's session cache must do: each with the rule that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import z3

from code_proof.claims import Claim, Rule, follows
from code_proof.interpreter import Interpreter
from code_proof.sglang_session import SessionScene
from kvproof.spec.actions import ACTIONS
from kvproof.spec.state import Ledger

Act = Callable[[SessionScene], Any]
Shows = Callable[[SessionScene, Any], Mapping[str, Any]]

ONE_SLOT = "a slot is in `slots` exactly while it holds a row"
ONE_NODE = "slot and turn hold the lock of one tree node"


def _scene(act: Act, shows: Shows) -> Callable[[Interpreter, Ledger, SimpleNamespace], SessionScene]:
    class Shown(SessionScene):
        def observed(self, result: Any) -> Mapping[str, Any]:
            return shows(self, result)

    return lambda run, s, p: Shown(run, s, p, act)


def _matched(scene: SessionScene, result: Any) -> dict[str, Any]:
    lengths = scene.turn_lengths()
    lengths["cache_protected_len"] = scene.run.attribute(result, "cache_protected_len")
    return {**scene.slot_fields(), **scene.session_fields(), **lengths, **scene.prefix_of(result)}


def _match(scene: SessionScene) -> Any:
    scene.req.fields["req_pool_idx"] = None
    if scene.run.paths.decide(scene.s.pre_aborted):
        scene.req.fields["to_finish"] = scene.abort_reason()
    return scene.method("match_prefix", scene.match_params())


def _handed_on(scene: SessionScene, result: Any) -> dict[str, Any]:
    """The turn goes on as an ordinary request, or with a match of the tree: the slot stays as it is."""
    return {**scene.slot_fields(), **scene.session_fields(), "asked the tree": scene.inner.asked == ["match_prefix"]}


def _finish(scene: SessionScene) -> Any:
    if scene.run.paths.decide(z3.Bool("finished_len is known")):
        scene.req.fields["finished_len"] = scene.p.finished_len
    else:
        scene.run.paths.assume(scene.p.finished_len == scene.s.output_len)
    return scene.method("cache_finished_req", scene.req)


def _ended(scene: SessionScene, result: Any) -> dict[str, Any]:
    """The session's and the slot's fields; the turn's own row is no longer named by the request."""
    gone = scene.req.fields["req_pool_idx"] is None
    return {**scene.slot_fields(), **scene.session_fields(), "row left the request": gone}


def _abort(scene: SessionScene) -> Any:
    scene.req.fields["finished_reason"] = scene.abort_reason()
    return scene.method("cache_finished_req", scene.req)


def _retract(scene: SessionScene) -> Any:
    return scene.method("cache_finished_req", scene.req, is_insert=False)


def _slot_and_row(scene: SessionScene, result: Any) -> dict[str, Any]:
    return {**scene.slot_fields(), "row left the request": scene.req.fields["req_pool_idx"] is None}


def _claim(function: str, name: str, rule: Rule, params: Mapping[str, str], act: Act, shows: Shows) -> Claim:
    return Claim(name, "", function, rule, params, _scene(act, shows), (ONE_SLOT, ONE_NODE))


def _action(name: str, **values: Any) -> tuple[Rule, Mapping[str, str]]:
    action = ACTIONS[name]
    return follows(action, values=lambda d, s, after: values), action.params


YES = z3.BoolVal(True)

SESSION_CACHE: tuple[Claim, ...] = (
    _claim("match_prefix", "match_slot", *_action("match_slot", **{"first position": 0}), _match, _matched),
    _claim("match_prefix", "detach", *_action("detach", **{"asked the tree": YES}), _match, _handed_on),
    _claim("cache_finished_req", "finish", *_action("finish", **{"row left the request": YES}), _finish, _ended),
    _claim(
        "cache_finished_req", "abort_first", *_action("abort_first", **{"row left the request": YES}), _abort, _ended
    ),
    _claim("cache_finished_req", "abort_nth", *_action("abort_nth", **{"row left the request": YES}), _abort, _ended),
    _claim(
        "cache_finished_req", "retract", *_action("retract", **{"row left the request": YES}), _retract, _slot_and_row
    ),
)
