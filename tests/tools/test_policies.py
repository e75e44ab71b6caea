"""Every policy can be broken, by a small mistake in the reference that no other check notices; and none cries wolf."""

from __future__ import annotations

from functools import cache

import pytest
from fuzzing.campaigns import drawn
from mutation.runs import POLICY, Run, reference_runs
from mutation.verdicts import KILLED, SURVIVED, Case, Plan
from policies import PolicedReference
from rule_mutation.mutant_results import Result
from test_mutation import POP, case, result_of, rows_of

from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.judging import Judging, Unjudged
from kvproof.conformance.fuzz.play import play


@cache
def runs() -> dict[str, Run]:
    return {run.name: run for run in reference_runs(1, 0, 0)}


def verdict(of: Case, run: Run) -> Result:
    told = run.play(Judging)
    assert told.trouble is None, told.trouble
    return result_of(of, Plan([run], [told.told], Judging))


BROKEN = """
impl/pools.py RowPool.alloc
    swap twin: self._free_slots.popleft() -> pop
    seed 0
    row # is taken, and row # comes first
impl/radix.py RadixTree.insert
    drop statement: leaf.last_access = self._clock -> (dropped)
    scenario pressure, page size 4
    the tree gives up a prefix, and keeps one that was last used before it
impl/window_tree.py WindowTree.evict_window
    flip comparison: taken >= num_tokens -> taken > num_tokens
    scenario window, page size 4
    the tree gives up # tokens where # are missing
impl/state.py EngineState.make_available
    other sign: pages - self.allocator.available_pages -> pages + self.allocator.available_pages
    seed 0
    the tree is asked for # tokens, and # are missing
impl/state.py EngineState.make_available
    drop operand: was_short -> (dropped)
    seed 0
    an eviction from the tree gives no page back
impl/window_eviction.py evict_window
    off by one: req.swa_evicted_seqlen -> req.swa_evicted_seqlen - 1
    scenario window, page size 4
    an eviction of the window of s# gives no page back
impl/state.py EngineState.slot_row
    fix condition: slot is not None -> False
    seed 0
    the close of s# says that row None comes back, and it is #
impl/prefill.py Prefill.extend
    drop operand: req is state.chunked_req -> (dropped)
    seed 34
    the extend of r# names the pages of a prefix that its row has
impl/request_exit.py RequestExit.end
    flip flag: True -> False
    seed 10
    r# ends, and its pages do not go to the tree
impl/scheduler.py Scheduler.step
    fix condition: self.config.check_every_step -> False
    scenario basic, page size 4
    a step ends without the check that was asked for
impl/scheduler.py Scheduler.submit_turn
    flip flag: False -> True
    seed 13
    r# is refused, and told to have finished
impl/scheduler.py Scheduler.submit
    flip comparison: len(token_ids) > self.config.max_input_len -> len(token_ids) >= self.config.max_input_len
    a prompt of 55 tokens
    r# has # tokens of at most #, and is judged wrongly
impl/scheduler.py Scheduler._limit_output
    off by one: req.max_new_tokens -> req.max_new_tokens + 1
    seed 0
    r# may put out # tokens: # asked for, room for #
impl/prefill.py Prefill._budget
    fix condition: config.mixed_chunk -> True
    scenario chunked, page size 4
    s# is prefilled to #
impl/prefill.py Prefill.batch
    drop operand: len(state.running) + len(batch) < state.config.max_batch -> (dropped)
    three requests where two may run
    # requests run of #
impl/prefill.py Prefill.charge
    fix condition: others -> False
    a prompt that waits for the output that another one is expected to have
    r# is prefilled to #
impl/request.py Session._clear_marker
    drop operand: self.turn_in_flight.results_due -> (dropped)
    an abort in the queue behind a result in flight, after 4 steps
    r# takes a row that the step in flight of r# uses
impl/scheduler.py Scheduler._launch
    drop statement: self._launched_now = True -> (dropped)
    seed 4
    # steps stay in flight, not #
impl/results.py Results._take_no_token
    drop statement: self.exits.end(req) -> (dropped)
    an abort between two chunks, overlap False
    r# is over with its result, and continues
impl/scheduler.py Scheduler.abort
    drop operand: req.results_due -> (dropped)
    aborts between the halves of a step, overlap False
    r# is aborted, and continues
impl/scheduler.py Scheduler.retract
    drop operand: if req.rid == rid -> (dropped)
    seed 4
    r# is to go back to the queue, and r# goes
impl/scheduler.py Scheduler.retract
    drop not: not req.output_ids -> req.output_ids
    seed 0
    for r# results are taken early, and it has one
impl/decode.py _least
    swap twin: min(victims, key=lambda req: (req.priority, len(req.output_ids), -len(req.origin_input_ids))) -> max
    seed 4
    r# goes back to the queue, and another has less to lose
impl/decode.py Decode.retract
    drop statement: self.prepare_round(req) -> (dropped)
    seed 5
    the next round of r# is not prepared before it goes
impl/decode.py Decode.make_room
    flip comparison: len(state.live_requests()) > 1 -> len(state.live_requests()) >= 1
    scenario pressure, page size 4
    plain# goes back to the queue, and is the last
impl/decode.py Decode.make_room
    fix condition: state.launched -> False
    scenario rounds, page size 1
    plain# is given up, and a result in flight may end it or another
impl/request_exit.py RequestExit.abort
    drop operand: req.to_finish -> (dropped)
    an abort of a prompt of 56 tokens
    r# gets another reason than 'input too long'
impl/request_exit.py RequestExit.retract
    off by one: min(computed_len(state, req), len(req.origin_input_ids) + len(req.output_ids) - 1) -> \
min(computed_len(state, req), len(req.origin_input_ids) + len(req.output_ids) - 1) - 1
    retracts under a window, overlap False, prepared False
    the window of r# is given back up to #
"""
"""Of each mutant: its file and function, the change, a run that meets it, and what the policy says then."""


@pytest.mark.parametrize("row", rows_of(BROKEN, 4), ids=" ".join)
def test_a_policy_that_is_broken_is_said(row: tuple[str, ...]) -> None:
    place, what, run, said = row
    found = verdict(case(f"{place} {what}"), runs()[run])
    assert (found["outcome"], found.get("by")) == (KILLED, POLICY), found
    assert found["detail"] == f"own check: {said}"


def test_without_the_policies_nobody_notices() -> None:
    """So what they say is theirs."""
    run = runs()["seed 0"]
    row = case(POP)
    assert verdict(row, Run(run.name, run.play))["outcome"] == SURVIVED


def test_on_the_reference_as_it_is_no_policy_is_broken() -> None:
    target, played = PolicedReference(), 0
    for schedule in drawn(target, 150, 7, {}):
        try:
            found = play(schedule, target, new_judging=Unjudged)
        except UserError:
            continue
        played += 1
        assert found.trouble is None, (schedule.as_json(), found.trouble)
    assert played > 100
