"""The mutation test over what is under test can itself go red: chosen mutants are noticed by the check that is named, a harmless
one survives, and what nobody has read is said."""

from __future__ import annotations

import os
import time
from functools import cache

import pytest
from mutation import in_place, verdicts
from mutation.mistakes import mistakes
from mutation.rare_schedules import PARTING, parting
from mutation.results_page import report
from mutation.reviewed import ALLOWED, EQUIVALENT, MISSED, Review
from mutation.runs import Run, scenario_run, schedule_run
from mutation.sample import evenly
from mutation.subjects import reference, twins
from mutation.verdicts import KILLED, NO_MUTANT, SURVIVED, Case, Plan, judged
from rule_mutation.mutant_results import Result, Told
from rule_mutation.mutants import Mutant

from kvproof.conformance.fuzz.judging import Judging
from kvproof.conformance.fuzz.reference import Reference

SUBJECT = reference()
POP = "impl/pools.py RowPool.alloc swap twin: self._free_slots.popleft() -> pop"
"""A small mistake that only a policy speaks of."""
ACCUSED = {accused.path: accused for accused in SUBJECT.accused}


def case(key: str) -> Case:
    """The mutant of this name: its file, its function and the change."""
    path, function, _ = key.split(" ", 2)
    accused = ACCUSED[path]
    for mistake in mistakes(accused, in_place.source_of(accused)):
        if mistake.mutant.key == key:
            live = in_place.live_function(accused, function, mistake.function)
            return Case(key, live, in_place.mutated_code(live, mistake.function, mistake.tree), [0])
    raise AssertionError(f"no mutant {key}")


def verdict(of: Case, run: Run) -> Result:
    told = run.play(Judging)
    assert told.trouble is None, told.trouble
    return result_of(of, Plan([run], [told.told], Judging, twins()))


def result_of(of: Case, plan: Plan) -> Result:
    [(key, result)] = judged(iter([of]), plan, jobs=1)
    assert key == of.key
    return result


@cache
def all_mutants() -> list[Mutant]:
    return [m.mutant for a in SUBJECT.accused for m in mistakes(a, in_place.source_of(a))]


NOTICED = """
impl/session.py StreamingSessionCache.orphan_start
    swap twin: ceil_align(prefix_len, self.page_size) -> floor_align
    retract
    conformance
impl/chunk_cache.py ChunkCache.lock
    fix condition: node is not None -> False
    many-sessions
    census
impl/request.py Request.cut_output
    drop statement: del self.output_ids[self.max_new_tokens:] -> (dropped)
    rounds
    recomputation
impl/request.py Session.awaits_late_result
    flip comparison: self.turn_before.results_due > 0 -> self.turn_before.results_due >= 0
    in-flight
    drain
impl/window_eviction.py evict_window
    fix condition: pool is None -> True
    window
    census
impl/scheduler.py Scheduler.launch_step
    drop statement: self._launch(batch) -> (dropped)
    basic
    conformance
impl/pools.py RowPool.alloc
    swap twin: self._free_slots.popleft() -> pop
    basic
    policy
impl/pools.py KVAllocator._take
    fix condition: count > len(self._free_pages) -> False
    basic
    nobody
"""
"""Of each mutant: its file and function, the change, a scenario that meets it, and the check that notices it."""


def rows_of(table: str, lines: int) -> list[tuple[str, ...]]:
    """So many lines of it a row."""
    return list(zip(*[map(str.strip, table.strip().splitlines())] * lines, strict=True))


@pytest.mark.parametrize("row", rows_of(NOTICED, 4), ids=" ".join)
def test_a_mutant_is_noticed_by_the_check_that_is_named(row: tuple[str, ...]) -> None:
    place, what, scenario, by = row
    found = verdict(case(f"{place} {what}"), scenario_run(scenario, 4, {}))
    assert (found["outcome"], found.get("by", "nobody")) == (SURVIVED if by == "nobody" else KILLED, by), found


def test_a_match_that_ends_inside_of_a_page_is_noticed() -> None:
    """It had survived every run, until there were prompts that part there."""
    common = "common - common % self.page_size -> common + common % self.page_size"
    of = case(f"impl/radix.py RadixTree._common_len other sign: {common}")
    act = next(act for act in PARTING if act.shared == 9)
    found = verdict(of, schedule_run("parting", parting(act), Reference()))
    assert (found["outcome"], found["by"]) == (KILLED, "conformance")


def test_where_a_run_finds_something_anyway_only_another_finding_notices_a_mutant() -> None:
    of = case("impl/scheduler.py Scheduler.launch_step drop statement: self._launch(batch) -> (dropped)")
    run = scenario_run("basic", 4, {})
    noticed = result_of(of, Plan([run], [""], Judging, twins(), {0: "another"}))
    assert noticed["outcome"] == KILLED
    known = result_of(of, Plan([run], [""], Judging, twins(), {0: noticed["detail"]}))
    assert known["outcome"] == SURVIVED


def test_a_mutant_that_ends_its_process_is_a_crash_and_takes_nobody_along() -> None:
    result = result_of(case(POP), Plan([Run("the end", lambda new: os._exit(3))], [""], Judging))
    assert (result["outcome"], result["by"], result["detail"]) == (KILLED, "crash", "exit: code 3")


def test_a_mutant_that_says_nothing_for_long_is_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "SILENT_SECONDS", 0.5)
    result = result_of(case(POP), Plan([Run("for ever", lambda new: time.sleep(60))], [""], Judging))
    assert (result["outcome"], result["by"]) == (KILLED, "hang")


def test_one_more_of_what_is_no_number_is_no_mutant() -> None:
    of = case("impl/request_exit.py RequestExit.end off by one: req.session -> req.session + 1")
    assert verdict(of, scenario_run("basic", 4, {}))["outcome"] == NO_MUTANT


def test_there_are_many_mutants_of_every_kind_and_each_is_named_once() -> None:
    mutants = all_mutants()
    keys = [mutant.key for mutant in mutants]
    assert len(keys) > 2000 and len(set(keys)) == len(keys)
    operators = {mutant.operator for mutant in mutants}
    assert operators > {"flip comparison", "off by one", "drop statement", "swap arguments"}


def test_what_tells_and_what_asserts_is_not_mutated() -> None:
    assert not [m for m in all_mutants() if "reporter." in m.original or m.original.startswith("assert")]


def test_the_same_code_is_seen_to_be_the_same_and_another_is_not() -> None:
    one, same, other = (compile(text, "x", "exec") for text in ("f(1 + 1, 'a')", "\n\nf(2, 'a')", "f(1 + 1, 'b')"))
    assert in_place.is_same(one, same) and not in_place.is_same(one, other)


def test_a_sample_has_each_file_and_kind_and_is_part_of_a_larger_one() -> None:
    mutants = all_mutants()
    small, large = evenly(mutants, 300, 7), evenly(mutants, 600, 7)
    assert len(small) == 300 and {m.key for m in small} < {m.key for m in large}
    assert {(m.path, m.operator) for m in mutants} == {(m.path, m.operator) for m in small}


def test_a_change_of_one_function_leaves_the_sample_of_other_files_as_it_is() -> None:
    mutants = all_mutants()
    changed = mutants[0]
    shorter = [mutant for mutant in mutants if (mutant.path, mutant.function) != (changed.path, changed.function)]
    before, after = (
        {mutant.key for mutant in evenly(some, 300, 7) if mutant.path != changed.path} for some in (mutants, shorter)
    )
    assert len(before - after) <= 2, "the last round of a smaller sample may end one group further"


def told(words: tuple[Review, ...], **outcomes: str) -> Told:
    mutants = [
        Mutant("m", "impl/pools.py", line, "f", "off by one", name, "x", f"impl/pools.py f {name}")
        for line, name in enumerate(outcomes)
    ]
    results = {f"impl/pools.py f {name}": {"outcome": outcome} for name, outcome in outcomes.items()}
    for result in results.values():
        if result["outcome"] == KILLED:
            result |= {"by": "census", "without_model": "census"}
    return report(SUBJECT, mutants, mutants, results, [], words)


def word(*names: str, verdict: str = EQUIVALENT) -> Review:
    return Review("impl/pools.py", "f", names, verdict, "because")


def test_a_survivor_that_nobody_read_is_said() -> None:
    assert any("has no word on it" in said for said in told((), a=KILLED, b=SURVIVED).complaints)
    assert told((word("b"),), a=KILLED, b=SURVIVED).complaints == []


def test_a_word_on_no_mutant_and_one_on_a_mutant_that_is_noticed_are_said() -> None:
    [stale] = told((word("gone"),), a=KILLED).complaints
    [wrong] = told((word("a"),), a=KILLED).complaints
    assert "no mutant is called" in stale and "is noticed" in wrong


def test_fewer_than_enough_are_said_also_where_the_others_are_allowed() -> None:
    few = told((word("b", verdict=MISSED),), a=KILLED, b=SURVIVED)
    assert any("1 of 2 were noticed: fewer than 95%" in said for said in few.complaints)
    allowed = told((word("b", verdict=ALLOWED),), a=KILLED, b=SURVIVED)
    assert any("1 of 2 were noticed: fewer than 95%" in said for said in allowed.complaints)
    assert "**1 of 1 (100.0%)**" in allowed.text and "1 of 2 (50.0%) of all that are not equivalent" in allowed.text
    assert told((word("b"),), a=KILLED, b=SURVIVED).complaints == []
