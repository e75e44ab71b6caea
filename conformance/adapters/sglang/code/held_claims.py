"""What the memory check counts as held by slots: the terms of `check`, in tokens, as SGLang's functions sum them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from kvproof.conformance.adapters.sglang.code.claims import Places, Release
from kvproof.conformance.adapters.sglang.code.layout import CACHES, LENGTHS, class_at
from kvproof.conformance.adapters.sglang.code.session import SessionScene
from kvproof.conformance.adapters.sglang.code.stand_ins import ActiveRows
from kvproof.model.code.claims import Claim, Expected, Rule
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions.memory_check import session_held, window_held
from kvproof.spec.domain import is_aligned
from kvproof.spec.effects import Report
from kvproof.spec.state import Ledger, holds_row, is_live, owner_is_slot, pristine

SUM, COUNT = "the sum over the slots", "the number of rows"
OBSERVER = "sglang.srt.managers.scheduler_components.pool_stats_observer"
OTHER = {name: f"other_{name}" for name in LENGTHS}
"""The lengths of another session's slot, as parameters of the claim."""
ASSUMED = ("of all other slots one stands for each: it holds a row, and no batch uses it",)

Term = Callable[[Report], Any]


def held(release: Release) -> Iterator[Claim]:
    """The claims about the sums over slots: pages of both pools, and rows."""
    yield _claim(release, "check, slots", "session_held_tokens", _sum(release, lambda r: r.session_held, session_held))
    swa = _sum(release, lambda r: r.window_held, window_held, is_window=True)
    yield _claim(release, "check, slots' window", "session_held_swa_tokens", swa)
    yield _claim(release, "check, slots' rows", "session_held_req_count", _rows(release))


def _claim(release: Release, name: str, function: str, rule: Rule) -> Claim:
    params = {**release.actions["check"].params, **dict.fromkeys(OTHER.values(), "length")}
    shown = COUNT if name.endswith("rows") else SUM
    return release.claim(
        name,
        _places(release, function),
        rule,
        lambda scene: _summed(scene, function),
        lambda scene, result: {shown: result},
        params=params,
        action="check",
        assumes=ASSUMED,
    )


def _places(release: Release, function: str) -> Places:
    return {**release.of_cache(function), OBSERVER: f"SchedulerPoolStatsObserver.{function}"}


def _summed(scene: SessionScene, function: str) -> Any:
    scene.settle()
    scene.add_slot({name: getattr(scene.p, other) for name, other in OTHER.items()})
    run, d = scene.run, scene.d
    method = class_at(run, CACHES).member(function)
    if method is not None:
        assert isinstance(method[1], ast.FunctionDef)
        knows_batches = len(method[1].args.args) > 1  # before #22213 it gets none
        active = [ActiveRows(scene.row, is_live(d, scene.s))] if knows_batches else []
        return run.call(run.attribute(scene.cache, function), active, {})
    observer = scene.new(OBSERVER, "SchedulerPoolStatsObserver", tree_cache=scene.owner)
    return run.call(run.attribute(observer, function), [], {})


def _others(d: Symbols, p: SimpleNamespace) -> Ledger:
    """The ledger of another session, idle with a slot of these lengths."""
    lengths = {f"slot_{name}": getattr(p, other) for name, other in OTHER.items()}
    return pristine(d).but(is_open=d.true, slot_held=d.true, **lengths)


def _sum(release: Release, term: Term, of_slot: Callable[..., Any], *, is_window: bool = False) -> Rule:
    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        [report] = release.actions["check"].run(d, s, p).effects
        assert isinstance(report, Report)
        other = _others(d, p)
        total = d.tokens(term(report) + of_slot(d, other))
        return Expected(_given(release, d, s, other, is_window), s, (), {SUM: total})

    return rule


def _rows(release: Release) -> Rule:
    """Where a turn runs on its slot's own record, the row counts as the slot's also while the turn runs."""

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        counts = holds_row(d, s) if release.is_owned else owner_is_slot(d, s)
        return Expected(_given(release, d, s, _others(d, p), False), s, (), {COUNT: d.where(counts, 1, 0) + 1})

    return rule


def _given(release: Release, d: Symbols, s: Ledger, other: Ledger, is_window: bool) -> tuple[Any, ...]:
    """A pool without a window has no term of it. The other slot's lengths are such as every slot's are between turns."""
    protected, evicted, allocated = (
        getattr(other, f"slot_{name}") for name in ("cache_protected_len", "swa_evicted_seqlen", "kv_allocated_len")
    )
    others = (is_aligned(d, protected), is_aligned(d, evicted), protected <= allocated, evicted <= allocated)
    return (d.no(s.plain), *others, *((d.windowed,) if is_window else ()), *release.given(d, s))
