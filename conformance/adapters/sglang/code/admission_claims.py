"""Which waiting turn the scheduler offers to the adder, and what the adder may do with one that has a prefix."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.conformance.adapters.sglang.code.batch_stand_ins import NOTHING, Requests, known_of_any
from kvproof.conformance.adapters.sglang.code.claims import YES, Given, Release
from kvproof.conformance.adapters.sglang.code.request_scene import RequestScene
from kvproof.model.code.claims import Claim, Expected, Rule
from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.source import MENTIONS
from kvproof.model.code.values import Bound, Class, Function, Known, Opaque, Record
from kvproof.model.symbolic import Symbols
from kvproof.spec.state import WAITING, Ledger

SCHEDULER, POLICY = "sglang.srt.managers.scheduler", "sglang.srt.managers.schedule_policy"
ADMITS = {SCHEDULER: "Scheduler._get_new_batch_prefill_raw"}
COUNTS_ROWS = "num_held_rows"
OFFERED = "the turn that runs on its session's row is offered to the adder, whatever rows are free"
UNREAD = (
    "processed_tokens_counter",
    "page_size",
    "token_to_kv_pool_allocator",
    "max_prefill_tokens",
    "chunked_prefill_size",
    "priority_scheduling_preemption_threshold",
    "max_running_requests",
)
ADDS = {POLICY: "PrefillAdder.add_one_req"}
KEEPS_PREFIX = "a request that has a prefix is not added in the way that begins at 0"
CHOICE = ("which of the two ways adds the request is asked, and not what it does then",)
ALONE = (
    "the turn is the first of the queue, no chunk waits, and the running batch is not full by the number of its requests",
    "no LoRA, no beams, no host tier, no delayed prefill, no priority preemption and no pool for state spaces",
)


def admission(release: Release) -> Iterator[Claim]:
    """The claims about admission; none where the rows that a request holds are not counted."""
    if release.has_any(ADMITS) and release.sources.fact(MENTIONS, SCHEDULER, COUNTS_ROWS):
        yield _row(release)
        yield _prefix(release)


def _row(release: Release) -> Claim:
    rule = _every(release, OFFERED, lambda d, s: (s.phase == WAITING, s.slot_held, d.no(s.pre_aborted), d.no(s.plain)))
    return release.claim(
        "match_slot, admission", ADMITS, rule, _admit, _offered, action="match_slot", assumes=ALONE, kind=RequestScene
    )


def _prefix(release: Release) -> Claim:
    rule = _every(release, KEEPS_PREFIX, lambda d, s: (s.phase == WAITING, s.matched, d.one <= s.prefix_len))
    return release.claim(
        "extend, admission",
        ADDS,
        rule,
        _add,
        _added,
        params={"max_new_tokens": "length", "most_new_tokens": "length"},
        action="extend",
        assumes=CHOICE,
        kind=RequestScene,
    )


def _every(release: Release, sentence: str, waits: Given) -> Rule:
    """The sentence holds in every state of these, and nothing changes."""

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        return Expected((*waits(d, s), *release.given(d, s)), s, (), {sentence: YES})

    return rule


class Part(Record):
    """An object with these attributes, and the methods that its class itself defines. The bases, which are many, are not read:
    what a class defines itself no base overrides."""

    def __init__(self, run: Interpreter, module_name: str, name: str, **fields: Any) -> None:
        super().__init__(**fields)
        module = run.sources.module(module_name)
        node = module.definitions.get(name) if module is not None else None
        if module is None or not isinstance(node, ast.ClassDef) or module.is_uncertain(name):
            raise NotUnderstoodError(f"what {name!r} of {module_name} is by then")
        if node.decorator_list or node.keywords:
            raise NotUnderstoodError(f"{name}, which something else makes")
        self.kind = Class(node, module, ())

    def attribute(self, name: str) -> Any:
        if name in self.fields:
            return super().attribute(name)
        found = self.kind.module.definition(f"{self.kind.name}.{name}")
        if not isinstance(found, ast.FunctionDef) or found.decorator_list:
            raise NotUnderstoodError(f"the attribute {name!r} of {self.kind.name}")
        return Bound(Function(found, self.kind.module, self.kind), self)


def _admit(scene: RequestScene) -> list[Any]:
    scene.waits()
    offered: list[Any] = []
    results = Record(CONTINUE=0, NO_TOKEN=1, OTHER=2)

    def add_one_req(req: Any, **_: Any) -> Any:
        offered.append(req)
        return results.fields["OTHER"]

    adder = Record(
        can_run_list=[], preempt_list=[], budget_state=known_of_any(0), add_one_req=Known("add_one_req", add_one_req)
    )
    running, most, free = z3.Ints("running most free")
    scene.run.paths.assume(z3.And(running >= 1, running < most, free >= 0))
    scene.run.given = {
        **scene.run.given,
        f"{POLICY}.AddReqResult": results,
        f"{SCHEDULER}.TEST_RETRACT": False,
        f"{SCHEDULER}.get_parallel": known_of_any(Record(pp_max_micro_batch_size=most)),
        f"{SCHEDULER}.get_schedule": known_of_any(Record(prefill_max_requests=None)),
    }
    scene.req.fields |= {"beam_group": None, "token_indices_to_pool": None, "init_next_round_input": NOTHING}
    batch = scene.batch()
    batch.fields |= {
        "reqs": Requests(Opaque("a request that runs"), running),
        "batch_is_full": False,
        "is_empty": known_of_any(False),
    }
    scheduler = Part(scene.run, SCHEDULER, "Scheduler", **_scheduler(scene, adder, free))
    scene.run.call(scheduler.attribute("_get_new_batch_prefill_raw"), [None, batch], {})
    return offered


def _add(scene: RequestScene) -> bool:
    """Whether the request is added in the way that begins at 0."""
    scene.waits()

    def from_the_start(req: Any) -> Any:
        raise ChosenError(True)

    def behind_its_prefix(*_: Any, **__: Any) -> Any:
        raise ChosenError(False)

    d, s = scene.d, scene.s
    scene.run.given = {**scene.run.given, f"{POLICY}.CLIP_MAX_NEW_TOKENS": scene.p.most_new_tokens}
    scene.req.fields |= {
        "prefix_len": s.prefix_len,
        "sampling_params": Record(ignore_eos=z3.Bool("ignore_eos"), max_new_tokens=scene.p.max_new_tokens),
    }
    adder = Part(
        scene.run,
        POLICY,
        "PrefillAdder",
        prefill_max_requests=None,
        can_run_list=[],
        tree_cache=Record(disable=d.no(d.tree)),
        per_req_token_overhead=1,
        add_one_req_ignore_eos=Known("add_one_req_ignore_eos", from_the_start),
        _mamba_gap_budget_for_req=Known("_mamba_gap_budget_for_req", behind_its_prefix),
    )
    asked = {"has_chunked_req": False, "truncation_align_size": None}
    try:
        scene.run.call(adder.attribute("add_one_req"), [scene.req], asked)
    except ChosenError as chosen:
        return chosen.from_the_start
    raise NotUnderstoodError("a request that is added in a third way")


def _added(scene: RequestScene, from_the_start: Any) -> Mapping[str, Any]:
    return {KEEPS_PREFIX: not from_the_start}


class ChosenError(Exception):
    """In which way a request is added: what follows is not looked at."""

    def __init__(self, from_the_start: bool) -> None:
        super().__init__()
        self.from_the_start = from_the_start


def _scheduler(scene: RequestScene, adder: Record, free: Any) -> Mapping[str, Any]:
    pool = Record(available_size=known_of_any(free), mamba_allocator=None)
    off = ("enable_priority_preemption", "is_hybrid_swa", "enable_lora", "enable_hicache_storage", "enable_lmcache")
    nothing = ("min_free_slots_delayer", "chunked_req", "dynamic_chunk_sizer", "dllm_config", "truncation_align_size")
    return {
        **dict.fromkeys(off, False),
        **dict.fromkeys(nothing),
        **dict.fromkeys(UNREAD, Opaque("a setting that only the adder reads")),
        "tree_cache": scene.tree_cache,
        "max_prefill_bs": 0,
        "is_mixed_chunk": False,
        "new_token_ratio_tracker": Record(current=Opaque("a ratio")),
        "tp_worker": Record(model_runner=Record(attn_backend=Record(extend_attention_block_m=1))),
        "grammar_manager": Record(has_waiting_grammars=known_of_any(False)),
        "waiting_queue": [scene.req],
        "req_to_token_pool": pool,
        "beam_coordinator": Record(pending_member_rows=known_of_any(0)),
        "policy": Record(calc_priority=NOTHING),
        "get_prefill_adder_class": known_of_any(known_of_any(adder)),
    }


def _offered(scene: RequestScene, offered: Any) -> Mapping[str, Any]:
    return {OFFERED: len(offered) == 1 and offered[0] is scene.req}
