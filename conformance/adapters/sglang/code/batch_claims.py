"""What the functions of a batch must do with the lengths and the pages of each request: each with the rule that says so."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from kvproof.conformance.adapters.sglang.code.batch_scene import (
    ALL_WRITTEN,
    EVICTS,
    SEQ_LENS,
    SLOTS_FIT,
    BatchScene,
)
from kvproof.conformance.adapters.sglang.code.claims import YES, Given, Release
from kvproof.conformance.adapters.sglang.code.layout import BATCH, PREPARES_ROUND, claims_ahead
from kvproof.model.code import arithmetic
from kvproof.model.code.claims import Claim, Expected, follows
from kvproof.model.code.source import SETS, TAKES
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions.finish import kv_of_known_tokens
from kvproof.spec.domain import implies
from kvproof.spec.effects import Lock, Report
from kvproof.spec.state import WAITING, Ledger

ONE_REQUEST = (
    "what a loop over the requests of a batch does to one it does to each, and no request stands in two batches"
)


def batch(release: Release) -> Iterator[Claim]:
    """The claims about a batch; none where the tree has no batch."""
    if not release.sources.has(BATCH, "ScheduleBatch"):
        return
    yield _evict_window(release)
    yield _when_to_evict(release)
    yield from _check(release)
    yield _decode(release)
    yield _extend(release)
    yield from _prepare_for_extend(release)
    yield from _results(release)
    yield _prepare_round(release)


# The window.

COMMITTED = "kv_committed_len stays"
NO_SHIELD = "no request keeps its prompt from eviction (`swa_evict_floor` is 0)"
IS_DUE = "on a tree, a window is evicted only when a token has left it (`maybe_evict_swa` asks that first)"


def _evict_window(release: Release) -> Claim:
    action = release.actions["evict_window"]
    asks_interval = "eviction_interval" in release.sources.fact(TAKES, BATCH, "ScheduleBatch._evict_swa")

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        given = list(release.given(d, s))
        if asks_interval:
            given.append(d.some(d.no(d.tree), s.swa_evicted_seqlen + d.window + d.one <= p.pre_len))
        plain = follows(action, values=lambda *_: {COMMITTED: YES}, given=lambda *_: tuple(given))
        return plain(d, s, p)

    return release.claim(
        "evict_window",
        {BATCH: "ScheduleBatch._evict_swa"},
        rule,
        _evict,
        _lengths_after_eviction,
        params=action.params,
        assumes=(NO_SHIELD, *((IS_DUE,) if asks_interval else ())),
        kind=BatchScene,
    )


def _when_to_evict(release: Release) -> Claim:
    """Whenever the batch evicts of a window, what leaves it has its KV and is read no more: the rule's guards hold."""
    action = release.actions["evict_window"]
    asks_interval = "eviction_interval" in release.sources.fact(TAKES, BATCH, "ScheduleBatch._evict_swa")

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        return Expected((action.applies(d, s), *release.given(d, s)), s, (), {MAY_EVICT: YES})

    def decide(scene: BatchScene) -> list[Any]:
        evicted: list[Any] = []

        def evict(req: Any, pre_len: Any, eviction_interval: Any = 1) -> None:
            evicted.append(arithmetic.as_length(scene.d, pre_len))

        scene.ask(scene.window_batch(evict), "maybe_evict_swa")
        return evicted

    def shows(scene: BatchScene, evicted: Any) -> dict[str, Any]:
        d, s, holds = scene.d, scene.s, []
        for pre_len in evicted:
            holds += [guard.holds for guard in action.run(d, s, SimpleNamespace(pre_len=pre_len)).guards]
            if asks_interval:
                holds.append(d.some(d.no(d.tree), s.swa_evicted_seqlen + d.window + d.one <= pre_len))
        return {MAY_EVICT: d.every(*holds) if len(evicted) <= 1 else d.false, **scene.turn_lengths()}

    return release.claim(
        "evict_window, when",
        {BATCH: "ScheduleBatch.maybe_evict_swa"},
        rule,
        decide,
        shows,
        params={"chunk": "length"},
        action="evict_window",
        assumes=(ONE_REQUEST, EACH_TIME),
        kind=BatchScene,
    )


MAY_EVICT = "what is evicted has its KV and has left the window"
EACH_TIME = "the interval of evictions is one token or one window, and no lock of a window is released early"


def _evict(scene: BatchScene) -> Any:
    return scene.ask(scene.batch(), "_evict_swa", scene.req, scene.p.pre_len)


def _lengths_after_eviction(scene: BatchScene, result: Any) -> dict[str, Any]:
    lengths = scene.turn_lengths()
    committed = lengths.pop("kv_committed_len")
    return {**lengths, COMMITTED: arithmetic.equal(scene.d, committed, scene.s.kv_committed_len)}


# The memory check.

CHECKERS = {
    "sglang.srt.managers.scheduler_components.invariant_checker": "SchedulerInvariantChecker",
    "sglang.srt.managers.scheduler_runtime_checker_mixin": "SchedulerRuntimeCheckerMixin",
}
BOTH_POOLS, OF_A_BATCH = "_get_total_uncached_sizes", "_get_batch_uncached_size"
FULL, WINDOW = "tokens of the live turn", "tokens of the live turn in the window pool"
STANDS = (
    "a live turn stands in the last batch or in the running batch, or is the request whose next chunk waits",
    "no request is a member of a beam, and the tree owns no window pages beside its nodes",
)


def _check(release: Release) -> Iterator[Claim]:
    """The terms of live turns, in each pool. What a release counts in the first pool alone has no claim on the second."""
    both = {module: f"{name}.{BOTH_POOLS}" for module, name in CHECKERS.items()}
    if any(release.sources.has(*place) for place in both.items()):
        yield _counts(release, "check, live turns", both, FULL, BOTH_POOLS)
        yield _counts(release, "check, live turns' window", both, WINDOW, BOTH_POOLS)
    else:
        of_batch = {module: f"{name}.{OF_A_BATCH}" for module, name in CHECKERS.items()}
        yield _counts(release, "check, live turns", of_batch, FULL, OF_A_BATCH)


def _counts(release: Release, name: str, places: Mapping[str, str], pool: str, function: str) -> Claim:
    action = release.actions["check"]

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        report = action.run(d, s, p).effects[0]
        assert isinstance(report, Report)
        window = d.where(d.windowed, d.tokens(report.window_uncached), d.zero)
        values = {FULL: d.tokens(report.uncached), WINDOW: window}
        return Expected((action.applies(d, s), *release.given(d, s)), s, (), {pool: values[pool]})

    def count(scene: BatchScene) -> Any:
        module = next(module for module, name in places.items() if release.sources.has(module, name))
        if not scene.is_running():
            scene.has_ended()
        checker = scene.checker(module, CHECKERS[module])
        if function == OF_A_BATCH:
            return scene.ask(checker, function, scene.batch()), 0
        return scene.ask(checker, function)

    def shows(scene: BatchScene, result: Any) -> dict[str, Any]:
        return {pool: result[0 if pool == FULL else 1]}

    params = {**action.params, "stale_len": "length"}
    return release.claim(
        name, places, rule, count, shows, params=params, action="check", assumes=(ONE_REQUEST, *STANDS), kind=BatchScene
    )


# A decode step.

OTHERS = {"others": "count"}
"""How many requests stand in the batch beside the one that is looked at."""
HAS_ROW = "the request has the row"
TAKEN = {SLOTS_FIT: YES, ALL_WRITTEN: YES, EVICTS: YES}
SUMS = "`seq_lens_sum` grows by one for each request, or is left to be summed later"
STEPS = "the batches in which the request ran are counted: by them a window waits for the batch in flight"
IN_FLIGHT = "with overlap, the lengths that the step in flight reads stay as they are"
NO_WINDOW_HERE = "what the step evicts of the window before it takes its slots is another claim's"
IN_STEP = "before the step, `seq_lens` of the batch says of each request its kv_committed_len"
PLAINLY = (
    "no encoder, no penalties, no beams and no second KV pool; CUDA's allocator",
    "the KV pool has the pages that are asked for",
)


def _decode(release: Release) -> Claim:
    action = release.actions["decode"]

    def values(d: Symbols, s: Ledger, after: Ledger) -> Mapping[str, Any]:
        return {**TAKEN, **dict.fromkeys(SEQ_LENS, after.kv_committed_len), SUMS: YES, IN_FLIGHT: YES, STEPS: YES}

    def prepare(scene: BatchScene) -> Any:
        batch = scene.decode_batch()
        before = [batch.fields[name] for name in SEQ_LENS]
        scene.ask(batch, "prepare_for_decode")
        return batch, before

    def shows(scene: BatchScene, result: Any) -> dict[str, Any]:
        (batch, before), d = result, scene.d
        total = batch.fields["seq_lens_sum"]
        sums = total is None or arithmetic.equal(d, total, scene.count)
        stay = [arithmetic.equal(d, tensor.value, scene.s.kv_committed_len) for tensor in before]
        own = {
            SUMS: sums,
            IN_FLIGHT: implies(d, d.overlap, d.every(*stay)),
            STEPS: scene.req.fields["decode_batch_idx"] == 2,
        }
        return {**scene.turn_lengths(), **scene.slots_taken(), **scene.seq_lens(batch), **own}

    return release.claim(
        "decode",
        {BATCH: "ScheduleBatch.prepare_for_decode"},
        follows(action, values=values, given=release.given),
        prepare,
        shows,
        params={**action.params, **OTHERS},
        assumes=(ONE_REQUEST, IN_STEP, NO_WINDOW_HERE, *PLAINLY),
        kind=BatchScene,
    )


# An extend.

LENGTHS_SET = {"kv_committed_len", "kv_allocated_len"}
ALLOCATES = dict.fromkeys(("sglang.srt.mem_cache.allocation", "sglang.srt.mem_cache.common"), "alloc_for_extend")
BEFORE = (
    "`prepare_for_extend` gives the batch its lengths: of each request the prefix, and up to where it runs",
    "the lock of a matched prefix is taken when the request is admitted",
    "`write_cache_indices` writes the prefix and the new slots into the row: what CUDA's kernel does is described",
    "the pool of rows has a row for a request that has none",
)


def _extend(release: Release) -> Claim:
    """Rows and pages; and those lengths that the caller leaves to the function: up to 0.5.14 it sets them itself."""
    action = release.actions["extend"]
    of_caller = release.sources.fact(SETS, BATCH, "ScheduleBatch.prepare_for_extend")
    lengths = sorted(LENGTHS_SET - of_caller)

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        whole = follows(action, values=lambda *_: {**TAKEN, HAS_ROW: YES}, given=release.given)(d, s, p)
        return dataclasses.replace(whole, effects=tuple(e for e in whole.effects if not isinstance(e, Lock)))

    def shows(scene: BatchScene, result: Any) -> dict[str, Any]:
        found = {name: scene.length_of(scene.req, name) for name in lengths}
        return {**found, **scene.slots_taken(), HAS_ROW: scene.has_row()}

    def allocate(scene: BatchScene) -> Any:
        module = next(m for m, f in ALLOCATES.items() if release.sources.has(m, f))
        return scene.run.call(scene.run.imported(module, "alloc_for_extend"), [scene.extend_batch()], {})

    return release.claim(
        "extend",
        ALLOCATES,
        rule,
        allocate,
        shows,
        params={**action.params, **OTHERS, "others_extend": "length"},
        assumes=(
            ONE_REQUEST,
            NO_WINDOW_HERE,
            *PLAINLY,
            *BEFORE,
            *(f"`prepare_for_extend` sets {name}" for name in sorted(LENGTHS_SET & of_caller)),
        ),
        kind=BatchScene,
    )


PREPARES = "ScheduleBatch.prepare_for_extend"
ASKS_NOTHING = (
    "the request has text tokens alone, and asks for no logprobs; statistics are not kept (`retracted_stain` is set)"
)


def _prepare_for_extend(release: Release) -> Iterator[Claim]:
    """The whole preparation, where it sets lengths itself."""
    if not LENGTHS_SET & release.sources.fact(SETS, BATCH, PREPARES):
        return
    action = release.actions["extend"]

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        lens = {"seq_lens": p.seq_len, "seq_lens_cpu": p.seq_len}
        none_else = (p.others_extend == d.zero,)
        values = {**TAKEN, HAS_ROW: YES, STEPS: YES, "seq_lens_sum": p.seq_len, **lens}
        whole = follows(action, values=lambda *_: values, given=lambda d, s: (*release.given(d, s), *none_else))(
            d, s, p
        )
        return dataclasses.replace(whole, effects=tuple(e for e in whole.effects if not isinstance(e, Lock)))

    def prepare(scene: BatchScene) -> Any:
        batch = scene.whole_extend_batch()
        scene.ask(batch, "prepare_for_extend")
        return batch

    def shows(scene: BatchScene, batch: Any) -> dict[str, Any]:
        found = {name: scene.length_of(scene.req, name) for name in LENGTHS_SET}
        lens = {name: batch.fields[name].value for name in ("seq_lens", "seq_lens_cpu")}
        own = {HAS_ROW: scene.has_row(), STEPS: scene.req.fields["extend_batch_idx"] == 1}
        return {**found, **lens, **scene.slots_taken(), **own, "seq_lens_sum": batch.fields["seq_lens_sum"]}

    yield release.claim(
        "extend, whole",
        {BATCH: PREPARES},
        rule,
        prepare,
        shows,
        params={**action.params, "others_extend": "length"},
        action="extend",
        assumes=(RESERVE[2], NO_WINDOW_HERE, *PLAINLY, *BEFORE[1:], ASKS_NOTHING),
        kind=BatchScene,
    )


# Results of speculation v2.

PROCESSOR = ("sglang.srt.managers.scheduler_components.batch_result_processor", "SchedulerBatchResultProcessor")
MIXIN = ("sglang.srt.managers.scheduler_output_processor_mixin", "SchedulerOutputProcessorMixin")
RESOLVES = (
    (*PROCESSOR, "_resolve_spec_v2_tokens"),
    (*MIXIN, "_resolve_spec_overlap_tokens"),
    (*MIXIN, "_resolve_spec_overlap_token_ids"),
)
"""Module, class, method: the first that a release has."""
OF_ROUND = (
    "a round of EAGLE; no grammar ends the output within it",
    "where `prepare_for_decode` of a round claims no position, kv_committed_len is the model's without the steps in flight",
)


def _results(release: Release) -> Iterator[Claim]:
    found = [place for place in RESOLVES if release.sources.has(place[0], f"{place[1]}.{place[2]}")]
    module, kind, method = found[0] if found else RESOLVES[0]

    def resolve(scene: BatchScene) -> Any:
        if scene.is_running():
            tokens = scene.p.tokens
        else:
            tokens = scene.p.late_tokens
            scene.is_queued_again()
        result = scene.verified(tokens)
        return scene.ask(scene.processor(module, kind), method, result, scene.batch())

    def shows(scene: BatchScene, result: Any) -> dict[str, Any]:
        own = "kv_committed_len" if scene.layout.claims_ahead or not scene.is_running() else BY_RESULTS
        return {own: scene.length_of(scene.req, "kv_committed_len"), TOKENS: result[0].length()}

    def claim(name: str, given: Given, tokens: str) -> Claim:
        action = release.actions[name]

        def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
            def values(d: Symbols, s: Ledger, after: Ledger) -> Mapping[str, Any]:
                return {TOKENS: getattr(p, tokens), BY_RESULTS: kv_of_known_tokens(d, after)}

            given_here = (*given(d, s), d.one <= getattr(p, tokens), getattr(p, tokens) <= d.drafts + d.one)
            return follows(action, values=values, given=lambda *_: (*release.given(d, s), *given_here))(d, s, p)

        params = {"tokens": "length", "late_tokens": "length"}
        place = {module: f"{kind}.{method}"}
        assumes = (ONE_REQUEST, *OF_ROUND)
        return release.claim(name, place, rule, resolve, shows, params=params, assumes=assumes, kind=BatchScene)

    yield claim("result", lambda d, s: (d.spec_v2,), "tokens")
    yield claim("late_result", lambda d, s: (d.spec_v2, s.phase == WAITING, d.no(s.lent)), "late_tokens")


BY_RESULTS = "kv_committed_len, by the results that are in"
TOKENS = "tokens that the result gives"


# A round of speculation v2.

STAYS, ALLOCATED = "what is allocated stays", "every position that the round may write is allocated"
"""Guards of the rule that the function itself must see to: how much it allocates is its own choice."""
RESERVE = (
    "`get_alloc_len_per_decode` gives at least what a round drafts and its bonus; each draft has one branch (topk is 1)",
    "a row is wide enough for what is reserved",
    "the batch has one request: what several need is summed up",
)
NO_MORE = "no more is allocated to a request than two rounds reserve: it is so after each round"


def _prepare_round(release: Release) -> Claim:
    action = release.actions["prepare_round"]
    places = dict(PREPARES_ROUND)
    module, function = release.place_of(places)
    is_clamped = module == PREPARES_ROUND[1][0]

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        step = action.run(d, s, p)
        own = {guard.sentence for guard in step.guards} & {STAYS, ALLOCATED}
        others = (guard.holds for guard in step.guards if guard.sentence not in own)
        given = [*release.given(d, s), d.drafts + d.one <= p.alloc_len]
        if not is_clamped:
            committed = s.kv_committed_len if claims_ahead(release.sources) else kv_of_known_tokens(d, s)
            given.append(s.kv_allocated_len <= committed + p.alloc_len + p.alloc_len)
        values = {**TAKEN, STAYS: YES, ALLOCATED: YES, BY_RESULTS: kv_of_known_tokens(d, step.after)}
        return Expected((action.applies(d, s), *others, *given), step.after, step.effects, values)

    def prepare(scene: BatchScene) -> Any:
        batch, run = scene.round_batch(), scene.run
        if "." in function:
            owner = scene.new(module, function.partition(".")[0])
            scene.ask(owner, "prepare_for_decode", batch)
        else:
            run.call(run.imported(module, function), [batch], {})
        run.paths.assume(
            arithmetic.equal(scene.d, scene.length_of(scene.req, "kv_allocated_len"), scene.p.allocated_len)
        )

    def shows(scene: BatchScene, _: Any) -> dict[str, Any]:
        guards = {guard.sentence: guard.holds for guard in action.run(scene.d, scene.s, scene.p).guards}
        own = "kv_committed_len" if scene.layout.claims_ahead else BY_RESULTS
        found = {own: scene.length_of(scene.req, "kv_committed_len"), **scene.slots_taken()}
        return {**found, STAYS: guards[STAYS], ALLOCATED: guards[ALLOCATED]}

    return release.claim(
        "prepare_round",
        places,
        rule,
        prepare,
        shows,
        params={**action.params, "alloc_len": "length"},
        assumes=(OF_ROUND[1], NO_WINDOW_HERE, *PLAINLY, *RESERVE, *(() if is_clamped else (NO_MORE,))),
        kind=BatchScene,
    )
