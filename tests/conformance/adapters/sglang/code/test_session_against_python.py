"""A session cache, run by CPython on numbers, does what the interpreter's path does in that state: fields and effects. In a
miniature, and in the code of real releases."""

from __future__ import annotations

import importlib
import json
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import session_on_numbers
import z3
from session_on_numbers import Numbers, Outcome
from sglang_process import LATER, OLDEST_IN_FULL, RELEASES, called, site_of
from small_sglang import write_sglang

from kvproof.conformance.adapters.sglang.code.functions import GIVEN, LIBRARIES, claims_of
from kvproof.model.code.claims import CONFIGURATION, Posed, _number, pose
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.library import LIBRARY
from kvproof.model.code.paths import Paths
from kvproof.model.code.source import Folder, Sources
from kvproof.model.questions import z3_solver
from kvproof.model.symbolic import PagedLength
from kvproof.spec.actions import ACTIONS
from kvproof.spec.effects import DropRow, Free, Unlock
from kvproof.spec.state import fill_len, is_live

FEW, MANY = 100, 10_000
MOST_PAGES = 1000
AT_ONCE = 20_000
"""States that a release's own Python is asked about in one file: of ten times as many, the answers take 12 GB to read."""
KNOWN, COVERS = z3.Bool("finished_len is known"), z3.Bool("the lock covers the window")
RELEASED = z3.Bool("the window lock is released")
COMMITTED = "C of the turn, before"


@dataclass(frozen=True)
class Explored:
    """All paths of one function: the condition of each, what it shows afterwards, and its effects."""

    posed: Posed
    paths: tuple[tuple[tuple[Any, ...], Mapping[str, Any], tuple[Any, ...]], ...]


def explored_in(folder: Path, rule: str) -> Explored:
    sources = Sources(Folder(folder))
    claim = next(claim for claim in claims_of(sources, ACTIONS) if claim.name == rule)
    posed = pose(claim)
    paths = Paths(posed.assumptions)

    def run() -> tuple[Mapping[str, Any], tuple[Any, ...]]:
        interpreter = Interpreter(posed.d, sources, paths, GIVEN, {**LIBRARY, **LIBRARIES})
        scene = claim.scene(interpreter, posed.before, posed.params)
        committed_len = scene.committed_len
        return {**scene.observed(scene.call()), COMMITTED: committed_len}, tuple(scene.effects)

    found = tuple(
        (tuple(branch.condition for branch in branches), observed, effects)
        for branches, (observed, effects) in paths.all(run)
    )
    return Explored(posed, found)


@cache
def explored(rule: str) -> Explored:
    with TemporaryDirectory() as folder:
        return explored_in(write_sglang(Path(folder)), rule)


def states(of: Explored, count: int, seed: int) -> Iterator[z3.ModelRef]:
    """States that the invariants allow, some of their numbers drawn by chance."""
    chance = random.Random(seed)
    solver, posed = z3_solver(), of.posed
    solver.add(*posed.assumptions, posed.d.row_width.pages <= 12)
    if hasattr(posed.params, "finished_len"):  # the scene leaves it open only where the code gets none
        length = posed.params.finished_len
        solver.add(z3.Or(KNOWN, length == posed.before.output_len))
    fields = [*vars(posed.before).values(), *vars(posed.params).values()]
    lengths = [value for value in fields if isinstance(value, PagedLength)]
    solver.add(*(length.pages <= MOST_PAGES for length in lengths))  # Python makes lists of these lengths
    flags = [*(value for value in fields if z3.is_bool(value)), posed.d.windowed, KNOWN, COVERS]
    for _ in range(count):
        page_size = chance.randint(1, 5)
        pins: list[Any] = [posed.d.page_size == page_size]
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


def by_interpreter(of: Explored, model: z3.ModelRef) -> Outcome:
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


def numbers_of(of: Posed, model: z3.ModelRef, committed_len: int) -> Numbers:
    """The state, as a server's objects are made of it."""
    numbers = {name: _number(model, value) for name, value in (vars(of.before) | vars(of.params)).items()}
    numbers |= {name: _number(model, getattr(of.d, name)) for name in ("page_size", "row_width", *CONFIGURATION)}
    numbers |= {str(flag): _number(model, flag) for flag in (KNOWN, COVERS, RELEASED)}
    numbers |= {"fill_len": _number(model, fill_len(of.before)), "is live": _number(model, is_live(of.d, of.before))}
    return {**numbers, "committed_len": committed_len}


def pairs(of: Explored, count: int, seed: int) -> Iterator[tuple[Numbers, Outcome]]:
    """States, and what the interpreter's path does in each."""
    for model in states(of, count, seed):
        shows, done = by_interpreter(of, model)
        yield numbers_of(of.posed, model, shows.pop(COMMITTED)), (shows, done)


def difference(state: Numbers, expected: Outcome, found: Outcome) -> list[str]:
    shows, done = found
    wanted = {name: expected[0][name] for name in shows}
    return (
        [] if (wanted, expected[1]) == (shows, done) else [f"{state}: {wanted} {expected[1]}, by Python {shows} {done}"]
    )


# --- A miniature ----------------------------------------------------------------------------------------------------


OTHER_CODE = {
    "match_slot": ("min(req.kv.kv_committed_len, len", "max(req.kv.kv_committed_len, len"),
    "detach": ("            req.session.abort_req()\n            req.session = None", "            req.session = None"),
    "finish": ("(target + page_size - 1) // page_size", "target // page_size"),
    "abort_first": ("        self.inner.req_to_token_pool.free(slot)\n", ""),
    "abort_nth": ("self._free(slot.kv, slot.kv.cache_protected_len,", "self._free(slot.kv, 0,"),
    "retract": ("        if is_insert:", "        if True:"),
    "match_tree, asked": (
        "return self.inner.match_prefix(params)\n        if req.to_finish",
        "return None\n        if req.to_finish",
    ),
    "close, slot": ("        self.inner.dec_lock_ref(slot.last_node, slot.lock_receipt)\n", ""),
    "stash": ("row[req.kv.req_pool_idx, 0:req.fill_len]", "row[req.kv.req_pool_idx, 1:req.fill_len]"),
    "check, slots": ("- start", "- start + 1"),
    "check, slots' window": ("max(kv.cache_protected_len, ", "min(kv.cache_protected_len, "),
    "check, slots' rows": ("return len(self._idle(active_pool_idxs))", "return len(self.slots)"),
    "check, a record's row": ("return self.req_pool_idx is not None", "return self.req_pool_idx is None"),
}
"""Of each rule that the miniature has a function for: an edit that makes it wrong."""


@contextmanager
def imported(folder: Path) -> Iterator[session_on_numbers.Code]:
    """The code of the miniature, run by this Python."""
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield session_on_numbers.code()
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
            del sys.modules[name]


def differences(code: session_on_numbers.Code, rule: str, count: int, seed: int) -> list[str]:
    return [
        told
        for state, expected in pairs(explored(rule), count, seed)
        for told in difference(state, expected, session_on_numbers.outcome(code, rule, state))
    ]


@pytest.mark.parametrize("rule", OTHER_CODE)
def test_a_function_of_a_session_cache_does_what_python_does(tmp_path: Path, rule: str) -> None:
    with imported(write_sglang(tmp_path)) as code:
        assert differences(code, rule, FEW, 1) == []


@pytest.mark.slow
@pytest.mark.parametrize("rule", OTHER_CODE)
def test_in_ten_thousand_states_a_function_does_what_python_does(tmp_path: Path, rule: str) -> None:
    with imported(write_sglang(tmp_path)) as code:
        assert differences(code, rule, MANY, 2) == []


@pytest.mark.parametrize("rule", OTHER_CODE)
def test_code_that_python_runs_otherwise_is_seen(tmp_path: Path, rule: str) -> None:
    with imported(write_sglang(tmp_path, *OTHER_CODE[rule])) as code:
        try:
            found = differences(code, rule, FEW, 1)
        except AssertionError as raised:
            found = [str(raised)]
        assert found


# --- Releases -------------------------------------------------------------------------------------------------------


def differences_on(release: str, count: int, folder: Path, sources: str | None = None) -> list[str]:
    """Of all rules that have a claim: in what the release's own Python differs from the interpreter on the sources of this
    release."""
    site = site_of(sources or release)
    claimed = {claim.name for claim in claims_of(Sources(Folder(site)), ACTIONS)}
    rules = [rule for rule in session_on_numbers.RULES if rule in claimed]
    asked = [(rule, *pair) for rule in rules for pair in pairs(explored_in(site, rule), count, 3)]
    file = folder / "states.json"
    found = []
    for first in range(0, len(asked), AT_ONCE):
        file.write_text(json.dumps([(rule, state) for rule, state, _ in asked[first : first + AT_ONCE]]))
        found += called(release, "session_on_numbers:outcomes_in", file)
    assert len(found) == len(asked) == count * len(rules) > 0
    return [
        told
        for (_, state, expected), (shows, done) in zip(asked, found, strict=True)
        for told in difference(state, expected, (shows, [tuple(step) for step in done]))
    ]


@pytest.mark.parametrize("release", OLDEST_IN_FULL)
def test_the_functions_of_a_release_do_what_its_own_python_does(release: str, tmp_path: Path) -> None:
    assert differences_on(release, FEW, tmp_path) == []


@pytest.mark.sglang_full
@pytest.mark.parametrize("release", [*RELEASES, *LATER])
def test_the_functions_of_a_release_do_so_in_ten_thousand_states_each(release: str, tmp_path: Path) -> None:
    assert differences_on(release, MANY, tmp_path) == []


@pytest.mark.sglang_full
def test_the_python_of_another_release_is_seen_to_differ(tmp_path: Path) -> None:
    assert len(differences_on("0.5.11", FEW, tmp_path, sources="0.5.10.post1")) > FEW
