"""What a request says of its own lengths: how far it may match, what it hands over at its end, and that a retract clears them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.claims import YES, Places, Release
from kvproof.conformance.adapters.sglang.code.layout import BATCH
from kvproof.conformance.adapters.sglang.code.request_scene import CountsAhead, RequestScene
from kvproof.conformance.adapters.sglang.code.session import SessionScene
from kvproof.model.code.claims import Claim, Expected, follows
from kvproof.model.symbolic import Symbols
from kvproof.spec.domain import Flag
from kvproof.spec.state import Ledger, fill_len, holds_row, is_live

RESET = {BATCH: "Req.reset_for_retract"}
LONGEST_MATCH = {BATCH: "Req._compute_max_prefix_len"}
HOLDS_KV = {BATCH: "ReqKvInfo.holds_kv"}
COMMITTED = {BATCH: "Req.pop_committed_kv_cache"}
ALLOCATED = {BATCH: "Req.pop_overallocated_kv_cache"}


NO_WINDOW_LOCK = "nothing is left of the window's lock"
LONGEST = "the longest match"
HOLDS = "the record holds a row"
ENDS_AT, BEGINS_AT, IS_MARKED = "where what is handed over ends", "where it begins", "it is marked as handed over"
ASKS_LOGPROBS, LOGPROBS_FROM = "logprobs are asked for", "where they begin"


def lengths(release: Release) -> Iterator[Claim]:
    """The claims about those of the functions that the release has."""
    parts = (
        (RESET, _reset),
        (LONGEST_MATCH, _longest_match),
        (HOLDS_KV, _holds_kv),
        (COMMITTED, _committed),
        (ALLOCATED, _allocated),
    )
    yield from (claim(release) for place, claim in parts if release.has_any(place))


def _reset(release: Release) -> Claim:
    """The row was given back before. What is left of the request's lengths is cleared."""
    action = release.actions["retract"]
    step = follows(action, values=lambda d, s, after: {NO_WINDOW_LOCK: YES}, given=release.given)

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        expected = step(d, s, p)
        return Expected(expected.assumptions, expected.after, (), expected.values)

    def reset(scene: RequestScene) -> Any:
        scene.gave_row_back()
        return scene.run.call(scene.run.attribute(scene.req, "reset_for_retract"), [], {})

    def shows(scene: RequestScene, result: Any) -> Mapping[str, Any]:
        output_len = scene.req.fields["output_ids"].length()
        return {**scene.turn_lengths(), "output_len": output_len, NO_WINDOW_LOCK: scene.knows_no_lock()}

    return _claim(release, "retract, lengths", RESET, rule, reset, shows, action="retract", params=action.params)


def _longest_match(release: Release) -> Claim:
    """At least one token is left to run, for its logits; where logprobs are asked for, all from the first of them."""

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        longest = fill_len(s) - d.one
        start = getattr(p, LOGPROBS_FROM)
        capped = z3.And(getattr(p, ASKS_LOGPROBS), start < longest)
        return Expected((is_live(d, s), *release.given(d, s)), s, (), {LONGEST: d.where(capped, start, longest)})

    def ask(scene: RequestScene) -> Any:
        scene.req.fields |= {
            "dllm_config": None,
            "return_logprob": getattr(scene.p, ASKS_LOGPROBS),
            "logprob_start_len": getattr(scene.p, LOGPROBS_FROM),
        }
        return scene.run.call(scene.run.attribute(scene.req, "_compute_max_prefix_len"), [fill_len(scene.s)], {})

    params = {ASKS_LOGPROBS: "flag", LOGPROBS_FROM: "length"}
    return _claim(
        release,
        "match_tree, longest",
        LONGEST_MATCH,
        rule,
        ask,
        lambda scene, result: {LONGEST: result},
        action="match_tree",
        params=params,
    )


def _holds_kv(release: Release) -> Claim:
    """A record holds a row while its turn runs, and as long as the session's slot keeps it."""

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        holds: Flag = z3.Or(is_live(d, s), z3.And(s.slot_held, s.lent))
        return Expected((d.no(s.plain), holds_row(d, s), *release.given(d, s)), s, (), {HOLDS: holds})

    def ask(scene: SessionScene) -> Any:
        scene.settle()
        return scene.run.attribute(scene.req.fields["kv"], "holds_kv")

    return release.claim(
        "check, a record's row", HOLDS_KV, rule, ask, lambda scene, result: {HOLDS: result}, action="check"
    )


def _committed(release: Release) -> Claim:
    return _handed_over(release, "finish, committed KV", COMMITTED, {ENDS_AT: "kv_committed_len"}, "kv_committed_freed")


def _allocated(release: Release) -> Claim:
    bounds = {BEGINS_AT: "kv_committed_len", ENDS_AT: "kv_allocated_len"}
    return _handed_over(release, "finish, KV behind it", ALLOCATED, bounds, "kv_overallocated_freed")


def _handed_over(release: Release, name: str, place: Places, bounds: Mapping[str, str], mark: str) -> Claim:
    """A request that ends hands over its committed KV and, apart from it, what was allocated behind; each once."""

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        values = {bound: getattr(s, length) for bound, length in bounds.items()}
        return Expected((is_live(d, s), *release.given(d, s)), s, (), {**values, IS_MARKED: YES})

    def pop(scene: RequestScene) -> Any:
        return scene.run.call(scene.run.attribute(scene.req, place[BATCH].removeprefix("Req.")), [], {})

    def shows(scene: RequestScene, result: Any) -> Mapping[str, Any]:
        handed = dict(zip(bounds, result if isinstance(result, tuple) else (result,), strict=True))
        return {**handed, **scene.turn_lengths(), IS_MARKED: scene.req.fields[mark] is True}

    return _claim(release, name, place, rule, pop, shows, action="finish")


ASSUMES = (
    "a request that is retracted has given its row back before its lengths are cleared, and has no input embeddings",
    "the model generates token by token (no dLLM), and thinking is not stripped from what is cached",
)


def _claim(release: Release, name: str, place: Places, *parts: Any, **more: Any) -> Claim:
    return release.claim(name, place, *parts, assumes=ASSUMES, kind=CountsAhead, **more)
