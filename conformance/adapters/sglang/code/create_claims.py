"""What a session does with a turn that is asked of it: an idle session admits it, a busy one refuses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.claims import RIGHT, YES, Release
from kvproof.conformance.adapters.sglang.code.layout import CONTROLLERS
from kvproof.conformance.adapters.sglang.code.session import SessionScene
from kvproof.conformance.adapters.sglang.code.session_claims import LEAVES
from kvproof.conformance.adapters.sglang.code.stand_ins import Tokens
from kvproof.model.code import arithmetic
from kvproof.model.code.claims import Claim, Expected, Rule
from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.values import Known, Opaque, Record
from kvproof.model.symbolic import Symbols
from kvproof.spec.state import Ledger

REFUSED, TOKENS = "the turn is refused", "input tokens of the turn"
OF_LAST = {"last_output": "length", "unconfirmed": "length"}
"""Of the last turn that succeeded: its output tokens, and what a turn that was aborted later has left on its input."""
ASSUMED = (
    "the constructor of a request keeps what it is given",
    "a turn asks for nothing but to append, and no token is cut from its input",
    "tokens to fill are made anew for each turn",
)
ASKS_NOTHING_ELSE = {"replace": False, "drop_previous_output": False, "offset": None, "rid": None}


def created(release: Release) -> Iterator[Claim]:
    """The claims about creating a turn."""
    for name in ("create", "refuse"):
        params = {**release.actions["create"].params, **OF_LAST}
        places = dict.fromkeys(CONTROLLERS, "Session.create_req")
        shows = _admitted if name == "create" else _turn
        yield release.claim(name, places, _rule(release, name), _create, shows, params=params, assumes=ASSUMED)
    yield _passes_by(release)


def _passes_by(release: Release) -> Claim:
    """A turn that was refused is matched before it is answered: it takes nothing of the session then, and ends no turn of it."""
    refused, action = _rule(release, "refuse"), release.actions["pass_by"]

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        step = action.run(d, s, p)
        assumptions = (action.applies(d, s), *refused(d, s, p).assumptions, *release.given(d, s))
        return Expected(assumptions, step.after, step.effects, {**RIGHT, REFUSED: YES, LEAVES: YES})

    params = {**release.actions["create"].params, **OF_LAST}
    matched = release.of_cache("try_match_prefix" if release.is_owned else "match_prefix")
    return release.claim("pass_by", matched, rule, _refused_and_matched, _unchanged, params=params, assumes=ASSUMED)


def _rule(release: Release, name: str) -> Rule:
    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        action = release.actions[name]
        step = action.run(d, s, p)
        given = (d.no(p.too_long), s.checkpoint_len < p.origin_len, p.last_output <= s.checkpoint_len)
        assumptions = (action.applies(d, s), *(guard.holds for guard in step.guards), *given)
        is_refused = name == "refuse"
        tokens = {} if is_refused else {TOKENS: p.origin_len}
        return Expected(assumptions, step.after, step.effects, {REFUSED: z3.BoolVal(is_refused), **tokens})

    return rule


def _create(scene: SessionScene) -> Any:
    run, d, s, p = scene.run, scene.d, scene.s, scene.p
    scene.waits()
    run.given = {
        **run.given,
        f"{scene.session.kind.module.name}.Req": Known("Req", lambda **given: _request(run, given)),
    }
    if scene.session.fields["req_nodes"]:
        scene.session.fields["req_nodes"] = {Opaque("an earlier turn"): Record(req=_last_turn(scene))}
    asked = _asked(Tokens(run, arithmetic.subtract(d, p.origin_len, s.checkpoint_len)))
    return run.call(run.attribute(scene.session, "create_req"), [asked, None, Opaque("the vocabulary")], {})


def _refused_and_matched(scene: SessionScene) -> Any:
    scene.req = refused = _create(scene)
    refused.fields |= {"to_finish": scene.abort_reason(), "finished_reason": None, "is_retracted": False}
    refused.fields["release_mm_inputs_on_abort"] = Known("release_mm_inputs_on_abort", lambda: None)
    return scene.method("match_prefix", Record(req=refused, key=Opaque("the key of the refused turn")))


def _unchanged(scene: SessionScene, result: Any) -> dict[str, Any]:
    refused = scene.req.fields
    own = {REFUSED: refused["is_refused"], LEAVES: refused["session"] is None}
    return {**scene.slot_fields(), **scene.session_fields(), **own}


def _last_turn(scene: SessionScene) -> Record:
    run, d, p = scene.run, scene.d, scene.p
    confirmed = arithmetic.subtract(d, scene.s.checkpoint_len, p.last_output)
    is_shared = scene.session.kind.member("_share_token_arrays") is not None
    if is_shared:
        scene.session.fields |= {"committed_origin_len": confirmed, "committed_unpadded_len": confirmed}
    there = arithmetic.add(d, confirmed, p.unconfirmed) if is_shared else confirmed
    return Record(
        session=scene.session,
        origin_input_ids=Tokens(run, there),
        origin_input_ids_unpadded=Tokens(run, there),
        output_ids=Tokens(run, p.last_output),
        full_untruncated_fill_ids=None,
        sampling_params=Record(max_new_tokens=p.last_output),
        multimodal_inputs=None,
        finished=Known("finished", lambda: True),
    )


class Asked(Record):
    """A request as it comes in. What nobody of the cache reads of it is only handed on."""

    def attribute(self, name: str) -> Any:
        return self.fields[name] if name in self.fields else Opaque(f"{name} of what is asked")


def _asked(tokens: Tokens) -> Asked:
    return Asked(session_params=Record(**ASKS_NOTHING_ELSE), input_ids=tokens, mm_inputs=None)


def _request(run: Interpreter, given: Mapping[str, Any]) -> Record:
    made = Record(
        **given,
        output_ids=Tokens(run, 0),
        multimodal_inputs=None,
        tokenizer=None,
        full_untruncated_fill_ids=None,
        is_refused=False,
    )
    made.fields["set_finish_with_abort"] = Known("set_finish_with_abort", lambda _: _refuse(made), prints=True)
    made.fields["inherit_mm_token_counts"] = Known("inherit_mm_token_counts", lambda _: None)
    return made


def _refuse(made: Record) -> None:
    made.fields["is_refused"] = True


def _turn(scene: SessionScene, result: Any) -> dict[str, Any]:
    if not isinstance(result, Record) or not _may_be_of(result, scene.session):
        raise NotUnderstoodError("a turn that is not the session's")
    return {**scene.session_fields(), REFUSED: result.fields["is_refused"]}


def _may_be_of(turn: Record, session: Any) -> bool:
    """A refused turn may have no session: what it does later is then none of the session's steps."""
    return turn.fields["session"] is session or (turn.fields["session"] is None and turn.fields["is_refused"] is True)


def _admitted(scene: SessionScene, result: Any) -> dict[str, Any]:
    return {**_turn(scene, result), TOKENS: result.fields["origin_input_ids"].length()}
