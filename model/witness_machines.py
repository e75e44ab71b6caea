"""Runs of the machines beside the ledger as events: requests do what the run says, and its last step is seen.

No event tells of a lock, a staged resource or a free that waits. They are seen by what they lead to: counters of the tree that a
memory check reads, a turn that is retracted in vain, pages that are freed in place of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from kvproof.model.explore import WALK_STEPS, Run, Taken, first_steps, states
from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle
from kvproof.model.witness import Scribe, Witness, witness, witness_of
from kvproof.spec.faults import FAULTS, Fault, actions_with
from kvproof.spec.machine import ADMISSION, DEFERRED, LEDGER, TREE
from kvproof.spec.tree import Node, recount


def witness_of_fault(fault: Fault, run: Run) -> Witness:
    """The trace of a fault's counterexample, of whatever machine."""
    if fault.machine is LEDGER:
        return witness_of(run)
    if fault.in_traces:
        return _of_the_ledger(fault, run)
    if fault.machine is TREE:
        return _of_the_tree(fault, run)
    if fault.machine is ADMISSION:
        return _of_an_admission(run)
    assert fault.machine is DEFERRED, fault.machine
    return _of_a_deferred_free(run)


@cache
def drifts(fault_id: str) -> frozenset[tuple[int, int]]:
    """How a fault of the tree can put its counters wrong, as a memory check sees it, within a few steps.

    Of each way the sign by which evictable and protected pages together are off, and that by which the protected ones are.
    """
    oracle = Oracle.of(1, 3, actions_with(FAULTS[fault_id], TREE))
    off = (drift(oracle.d, state) for state in states(oracle, TREE, WALK_STEPS))
    return frozenset((_sign(evictable + protected), _sign(protected)) for evictable, protected in off)


@cache
def lets_evict_what_is_held(fault_id: str) -> bool:
    """Whether a fault of the tree leads to the eviction of a node that someone's protected prefix goes through."""
    oracle = Oracle.of(1, 3, actions_with(FAULTS[fault_id], TREE))

    def evicts_what_is_held(step: Taken) -> bool:
        return step.outcome.action.name == "tree_evict" and step.outcome.before.holders >= 1

    return first_steps(oracle, TREE, evicts_what_is_held) is not None


def drift(d: Integers, s: Node) -> tuple[int, int]:
    """By how much the counters that a memory check reads are off what holders make of the tree: evictable, protected."""
    evictable, protected = recount(d, s, s.holders == 0)
    return s.evictable - evictable, s.protected - protected


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _of_the_ledger(fault: Fault, run: Run) -> Witness:
    """The shortest run of a ledger to a step that only the fault allows."""
    oracle = Oracle.of(run.page_size, run.row_width, actions_with(fault), **run.config)

    def is_wanted(step: Taken) -> bool:
        name, before = step.outcome.action.name, step.outcome.before
        return name in fault.in_traces and bool(oracle.step(LEDGER.actions[name], before, step.params).failed_guards)

    steps = first_steps(oracle, LEDGER, is_wanted)
    assert steps is not None, fault.id
    return witness([("run", step) for step in steps], run.page_size, run.row_width, **run.config)


def _of_the_tree(fault: Fault, run: Run) -> Witness:
    """Continues to the first state that a memory check sees to be wrong. The node is what an ordinary request left there."""
    oracle = Oracle.of(run.page_size, run.row_width, actions_with(fault, TREE), **run.config)
    steps = first_steps(oracle, TREE, lambda step: any(drift(oracle.d, step.outcome.after)))
    assert steps is not None, fault.id
    story = _TreeStory(oracle, steps)
    for step in steps:
        story.tell(step)
    evictable, protected = drift(oracle.d, steps[-1].outcome.after)
    story.scribe.check(evictable, protected)
    return story.scribe.finished()


class _TreeStory:
    """Who inserts, locks and unlocks the node: ordinary requests whose input is its tokens."""

    def __init__(self, oracle: Oracle, steps: Sequence[Taken]) -> None:
        self.scribe = Scribe(Oracle.of(oracle.d.page_size, oracle.d.row_width), [])
        self._tokens = oracle.d.tokens(steps[0].outcome.after.pages)
        self._holders: list[str] = []
        self._others = [f"other-{n}" for n, step in enumerate(steps) if _is_by_another(step)]
        for other in self._others:  # it came before the node was there, so it locks nothing
            self._arrive(other, matched_len=0, origin_len=self._tokens)

    def tell(self, step: Taken) -> None:
        name = step.outcome.action.name
        assert name in ("tree_insert", "tree_lock", "tree_unlock"), f"no request is known to do {name}"
        if name == "tree_insert":
            self.scribe.fill_tree(self._tokens)
        elif name == "tree_lock":
            self._holders.append(f"holder-{len(self._holders)}")
            self._arrive(self._holders[-1], matched_len=self._tokens, origin_len=self._tokens + 1)
        else:
            self._end((self._others if _is_by_another(step) else self._holders).pop())

    def _arrive(self, request: str, *, matched_len: int, origin_len: int) -> None:
        self.scribe.act(request, "arrive", origin_len=origin_len)
        self.scribe.act(request, "match_tree", matched_len=matched_len)
        self.scribe.act(request, "extend", seq_len=origin_len, last=True)
        self.scribe.act(request, "result", tokens=1)

    def _end(self, request: str) -> None:
        self.scribe.act(request, "finish_plain", finished_len=1, dup_len=self._tokens, inserted=True)


def _is_by_another(step: Taken) -> bool:
    """An unlock by someone who never locked the node."""
    is_unlock = step.outcome.action.name == "tree_unlock"
    return bool(is_unlock and step.outcome.after.holders == step.outcome.before.holders)


def _of_an_admission(run: Run) -> Witness:
    """A request is matched, and that it is not admitted then leaves a lock on the page that it found."""
    scribe = Scribe(Oracle.of(run.page_size, run.row_width), [])
    scribe.act("request", "arrive", origin_len=run.page_size + 1)
    scribe.act("request", "match_tree", matched_len=run.page_size)
    locked = int(run.steps[-1].outcome.after.held > 0)
    scribe.check(-locked, locked)
    return scribe.finished()


def _of_a_deferred_free(run: Run) -> Witness:
    """Two requests; when the first one ends, what is freed is what the second one's row names."""
    scribe = Scribe(Oracle.of(run.page_size, run.row_width), [])
    for request in ("request", "next"):
        scribe.act(request, "arrive", origin_len=1)
        scribe.act(request, "match_tree", matched_len=0)
        scribe.act(request, "extend", seq_len=1, last=True)
    scribe.act("request", "result", tokens=1)
    scribe.act("request", "finish_plain", finished_len=1, dup_len=0, inserted=False)
    told = scribe.finished()
    *before, ends = told.events
    taken_next = next(event.alloc for event in reversed(before) if event.alloc)
    return Witness(told.config, (*before, ends.model_copy(update={"free": taken_next})))
