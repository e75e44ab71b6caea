"""A session cache, run by CPython on numbers, does what the interpreter's path does in that state: fields and effects."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
import z3
from small_sglang import write_sglang

from kvproof.conformance.adapters.sglang.code.functions import GIVEN, LIBRARIES, claims_of
from kvproof.conformance.adapters.sglang.code.layout import LENGTHS
from kvproof.model.code.claims import CONFIGURATION, _number
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.library import LIBRARY
from kvproof.model.code.paths import Paths
from kvproof.model.code.source import Folder, Sources
from kvproof.model.questions import z3_solver
from kvproof.model.symbolic import PagedLength, Symbols
from kvproof.spec.actions import ACTIONS
from kvproof.spec.effects import DropRow, Free, Unlock
from kvproof.spec.machine import LEDGER
from kvproof.spec.state import Ledger, fill_len

RULES = ("match_slot", "detach", "finish", "abort_first", "abort_nth", "retract")
FEW, MANY = 100, 10_000
ROW = 7
KNOWN = z3.Bool("finished_len is known")


@dataclass(frozen=True)
class Explored:
    """All paths of one function: the condition of each, what it shows afterwards, and its effects."""

    d: Symbols
    before: Ledger
    params: SimpleNamespace
    assumptions: tuple[Any, ...]
    paths: tuple[tuple[tuple[Any, ...], Mapping[str, Any], tuple[Any, ...]], ...]


@cache
def explored(rule: str) -> Explored:
    with TemporaryDirectory() as folder:
        sources = Sources(Folder(write_sglang(Path(folder))))
        claim = next(claim for claim in claims_of(sources, ACTIONS) if claim.name == rule)
        d = Symbols()
        before, params = d.arbitrary(Ledger), d.parameters(claim.params)
        invariants = [invariant.holds(d, before) for invariant in LEDGER.all_invariants.values()]
        expected = claim.rule(d, before, params)
        assumptions = (*d.domain_facts(before, params, claim.params), *invariants, *expected.assumptions)
        paths = Paths(assumptions)

        def run() -> tuple[Mapping[str, Any], tuple[Any, ...]]:
            interpreter = Interpreter(d, sources, paths, GIVEN, {**LIBRARY, **LIBRARIES})
            scene = claim.scene(interpreter, before, params)
            return scene.observed(scene.call()), tuple(scene.effects)

        found = tuple(
            (tuple(branch.condition for branch in branches), observed, effects)
            for branches, (observed, effects) in paths.all(run)
        )
        return Explored(d, before, params, assumptions, found)


def states(of: Explored, count: int, seed: int) -> Iterator[z3.ModelRef]:
    """States that the invariants allow, some of their numbers drawn by chance."""
    chance = random.Random(seed)
    solver = z3_solver()
    solver.add(*of.assumptions, of.d.row_width.pages <= 12)
    if hasattr(of.params, "finished_len"):  # the scene leaves it open only where the code is told of none
        length = of.params.finished_len
        solver.add(z3.Or(KNOWN, length == of.before.output_len))
    fields = [*vars(of.before).values(), *vars(of.params).values()]
    lengths = [value for value in fields if isinstance(value, PagedLength)]
    flags = [*(value for value in fields if z3.is_bool(value)), of.d.windowed, KNOWN]
    for _ in range(count):
        page_size = chance.randint(1, 5)
        pins: list[Any] = [of.d.page_size == page_size]
        for length in chance.sample(lengths, 4):
            number = chance.randint(0, 5 * page_size)
            pins.append(z3.And(length.pages == number // page_size, length.offset == number % page_size))
        pins += [flag == chance.choice((True, False)) for flag in chance.sample(flags, 2)]
        while True:
            solver.push()
            solver.add(*pins)
            answer = str(solver.check())
            model = solver.model() if answer == "sat" else None
            solver.pop()
            if model is not None:
                yield model
                break
            pins.pop(chance.randrange(len(pins)))


def by_interpreter(of: Explored, model: z3.ModelRef) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """What the one path shows whose conditions hold in the state."""
    taken = [
        (observed, effects)
        for conditions, observed, effects in of.paths
        if all(z3.is_true(model.eval(condition, model_completion=True)) for condition in conditions)
    ]
    assert len(taken) == 1, "a state takes exactly one path"
    [(observed, effects)] = taken
    numbers = {name: _number(model, value) for name, value in observed.items()}
    done: list[tuple[Any, ...]] = []
    for effect in effects:
        if isinstance(effect, Free):
            start, end = _number(model, effect.start), _number(model, effect.end)
            done += [("free", start, end)] if start < end else []
        else:
            done.append((NAMES_OF_EFFECTS[type(effect)],))
    return numbers, done


NAMES_OF_EFFECTS = {Unlock: "unlock", DropRow: "row"}


class Server:
    """Plain Python objects that note what is done to them: row table, allocator, tree."""

    def __init__(self, page_size: int, row_width: int) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.page_size, self._width = page_size, row_width
        self.req_to_token_pool = SimpleNamespace(req_to_token=self, free=self._free_row)
        self.token_to_kv_pool_allocator = SimpleNamespace(free=self._free)
        self.asked = False

    def __getitem__(self, key: tuple[int, slice]) -> range:
        row, positions = key
        assert row == ROW
        return range(self._width)[positions]

    def _free(self, positions: range) -> None:
        self.done += [("free", positions.start, positions.stop)] if positions else []

    def _free_row(self, holder: Any) -> None:
        assert holder.kv.req_pool_idx == ROW
        holder.kv.req_pool_idx = None
        self.done.append(("row",))

    def dec_lock_ref(self, node: str, receipt: str) -> None:
        assert (node, receipt) == ("node", "receipt")
        self.done.append(("unlock",))

    def match_prefix(self, params: Any) -> None:
        self.asked = True


@contextmanager
def imported(folder: Path) -> Iterator[SimpleNamespace]:
    """The modules of the miniature, run by CPython."""
    names = {
        "cache": "session.streaming_session",
        "batch": "managers.schedule_batch",
        "controller": "session.session_controller",
    }
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield SimpleNamespace(**{short: importlib.import_module(f"sglang.srt.{name}") for short, name in names.items()})
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
            del sys.modules[name]


def by_python(
    code: SimpleNamespace, rule: str, of: Explored, model: z3.ModelRef
) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    s = SimpleNamespace(**{name: _number(model, value) for name, value in vars(of.before).items()})
    inner = Server(_number(model, of.d.page_size), _number(model, of.d.row_width))
    cache = code.cache.StreamingSession(inner)
    session = code.controller.Session(None)
    session.__dict__.update(session_id="s", streaming=True, _inflight=s.inflight, committed_origin_len=None)
    earlier = SimpleNamespace(req=SimpleNamespace(session=session, tokens=s.checkpoint_len))
    session.req_nodes = {"earlier": earlier} if s.checkpoint_len else {}
    waits = rule in ("match_slot", "detach")
    on_slot = record(code, s, "slot_") if waits else record(code, s, "")
    req = code.batch.Req()
    req.__dict__.update(rid="turn", session=session, last_node="node", lock_receipt="receipt", to_finish=None)
    req.__dict__.update(finished_reason=None, finished_len=None, kv=on_slot)
    req.origin_input_ids, req.output_ids = [0] * s.origin_len, [0] * s.output_len
    if s.slot_held:
        slot = code.cache.SessionSlot(kv=on_slot, last_node="node", lock_receipt="receipt")
        cache.slots["s"] = slot
    if waits and not (s.slot_held and s.lent):
        req.kv = code.batch.ReqKvInfo()
    result = called(code, rule, of, model, s, cache, req)
    shows: dict[str, Any] = {"inflight": session._inflight, "checkpoint_len": checkpoint(session)}
    held = cache.slots.get("s")
    shows["slot_held"] = held is not None and held.kv.req_pool_idx is not None
    if shows["slot_held"]:
        shows |= {f"slot_{name}": getattr(held.kv, name) for name in LENGTHS}
    if rule == "match_slot":
        shows |= {name: getattr(req.kv, name) for name in LENGTHS}
        shows |= {"first position": result.device_indices.start, "prefix_len": result.device_indices.stop}
        shows["cache_protected_len"] = result.cache_protected_len
    if rule == "detach":
        shows |= {"the turn leaves its session": req.session is None, "asked the tree": inner.asked}
    return shows, inner.done


def record(code: SimpleNamespace, s: SimpleNamespace, prefix: str) -> Any:
    return code.batch.ReqKvInfo(req_pool_idx=ROW, **{name: getattr(s, f"{prefix}{name}") for name in LENGTHS})


def called(
    code: SimpleNamespace, rule: str, of: Explored, model: z3.ModelRef, s: SimpleNamespace, cache: Any, req: Any
) -> Any:
    if rule in ("match_slot", "detach"):
        req.to_finish = code.batch.FINISH_ABORT() if s.pre_aborted else None
        tokens = [0] * (_number(model, fill_len(of.before)) - 1)
        return cache.match_prefix(SimpleNamespace(req=req, key=SimpleNamespace(token_ids=tokens)))
    if rule == "finish" and _number(model, KNOWN):
        req.finished_len = _number(model, of.params.finished_len)
    if rule.startswith("abort"):
        req.finished_reason = code.batch.FINISH_ABORT()
    return cache.cache_finished_req(req, is_insert=rule != "retract")


def checkpoint(session: Any) -> int:
    if not session.req_nodes:
        return 0
    [node] = session.req_nodes.values()
    if hasattr(node.req, "tokens"):
        return int(node.req.tokens)
    return int(session.committed_origin_len) + len(node.req.output_ids)


def differences(code: SimpleNamespace, rule: str, count: int, seed: int) -> list[str]:
    of = explored(rule)
    found = []
    for model in states(of, count, seed):
        expected, effects = by_interpreter(of, model)
        shows, done = by_python(code, rule, of, model)
        expected = {name: expected[name] for name in shows}
        if (expected, effects) != (shows, done):
            state = {name: _number(model, value) for name, value in vars(of.before).items()}
            state |= {name: _number(model, getattr(of.d, name)) for name in ("page_size", *CONFIGURATION)}
            found.append(f"{state}: {expected} {effects}, by Python {shows} {done}")
    return found


@pytest.mark.parametrize("rule", RULES)
def test_a_function_of_a_session_cache_does_what_python_does(tmp_path: Path, rule: str) -> None:
    with imported(write_sglang(tmp_path)) as code:
        assert differences(code, rule, FEW, 1) == []


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_in_ten_thousand_states_a_function_does_what_python_does(tmp_path: Path, rule: str) -> None:
    with imported(write_sglang(tmp_path)) as code:
        assert differences(code, rule, MANY, 2) == []


OTHER_CODE = {
    "match_slot": ("min(req.kv.kv_committed_len, len", "max(req.kv.kv_committed_len, len"),
    "detach": ("            req.session.abort_req()\n            req.session = None", "            req.session = None"),
    "finish": ("(target + page_size - 1) // page_size", "target // page_size"),
    "abort_first": ("        self.inner.req_to_token_pool.free(slot)\n", ""),
    "abort_nth": ("self._free(slot.kv, slot.kv.cache_protected_len,", "self._free(slot.kv, 0,"),
    "retract": ("        if is_insert:", "        if True:"),
}


@pytest.mark.parametrize("rule", RULES)
def test_code_that_python_runs_otherwise_is_seen(tmp_path: Path, rule: str) -> None:
    with imported(write_sglang(tmp_path, *OTHER_CODE[rule])) as code:
        try:
            found = differences(code, rule, FEW, 1)
        except AssertionError as raised:
            found = [str(raised)]
        assert found
