"""Liveness, for every page size: each state of a turn has a way on, and each way on lowers the rank (`spec/liveness.py`).

So a turn ends, and a close that waits is done, if the scheduler takes the ways on: in no state of a turn can nothing happen, and
none comes twice. The input is assumed to fit into a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace

import z3

from kvproof.model.page_lemmas import Lemma
from kvproof.model.questions import BROKEN, PROVED, UNKNOWN, Asker, Posed, Question
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.effects import apply_effects
from kvproof.spec.liveness import STAGES, Stage, rank
from kvproof.spec.machine import LEDGER
from kvproof.spec.state import Ledger

LIVENESS = "liveness"
GOES_ON = "a rule can be taken"


def prove_liveness(
    asker: Asker, actions: Mapping[str, Action] = ACTIONS, stages: Iterable[Stage] = STAGES
) -> Iterator[Lemma]:
    """One lemma for each stage, as bad as its worst goal."""
    for stage in stages:
        answers = asker.answers(Question(f"liveness: {stage.waits_for}", partial(pose, stage, actions))).values()
        verdicts = {answer.verdict for answer in answers}
        worst = next(verdict for verdict in (BROKEN, UNKNOWN, PROVED) if verdict in verdicts)
        yield Lemma(LIVENESS, stage.waits_for, worst, sum(answer.seconds for answer in answers))


def pose(stage: Stage, actions: Mapping[str, Action]) -> Posed:
    d = Symbols()
    before = d.arbitrary(Ledger)
    invariants = [invariant.holds(d, before) for invariant in LEDGER.all_invariants.values()]
    can, goals = [], {}
    for name, params in stage.ways.items():
        action = actions[name]
        given = {**vars(d.parameters(action.params)), **params(d, before)}
        step = action.run(d, before, SimpleNamespace(**given))
        after, _ = apply_effects(d, step.after, step.effects)
        taken = d.every(action.applies(d, before), *(guard.holds for guard in step.guards))
        can.append(taken)
        goals[stage.waits_for, f"{name} leads on"] = z3.Implies(taken, rank(d, after) < rank(d, before))
    goals[stage.waits_for, GOES_ON] = d.some(*can)
    facts = d.domain_facts(before, SimpleNamespace(), {})
    return Posed((*facts, *invariants, stage.holds(d, before)), goals)
