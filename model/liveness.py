"""Liveness, for every page size: each state of a turn has a way on, and each way on lowers the rank (`spec/liveness.py`).

So a turn ends, and a close that waits is done, if the scheduler takes the ways on: in no state of a turn can nothing happen, and
none comes twice. The input is assumed to fit into a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.model.arbitrary_step import any_state
from kvproof.model.page_lemmas import Lemma, as_one_lemma
from kvproof.model.questions import Asker, Posed
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import Action
from kvproof.spec.effects import apply_effects
from kvproof.spec.liveness import STAGES, Stage, rank
from kvproof.spec.machine import LEDGER, Machine
from kvproof.spec.state import NONE, PREFILL, RUNNING, WAITING, Ledger, fill_len

LIVENESS = "liveness"
GOES_ON = "a rule can be taken"
CHOSEN_BY_THE_SCHEDULER = ("seq_len", "last", "key_len")
"""Parameters of a way. Whatever the others are, which users and the tree decide, the way leads on."""
IN_A_STAGE = "every turn that fits into a row, and every close that waits, is in one of the stages"


def prove_liveness(asker: Asker, machine: Machine = LEDGER, stages: Iterable[Stage] = STAGES) -> Iterator[Lemma]:
    """One lemma for each stage, as bad as its worst goal, and that there is a stage for every turn and every close that waits."""
    asked = tuple(stages)
    for stage in asked:
        yield as_one_lemma(asker, LIVENESS, stage.waits_for, partial(pose, stage, machine))
    yield as_one_lemma(asker, LIVENESS, IN_A_STAGE, partial(_pose_covered, asked, machine))


def _pose_covered(stages: Sequence[Stage], machine: Machine) -> Posed:
    d, s, assumed = any_state(machine)
    turn = z3.Or(*(s.phase == phase for phase in (WAITING, PREFILL, RUNNING)))
    waits = z3.Or(turn, z3.And(s.closing, s.phase == NONE))
    fits = fill_len(s) <= d.row_width
    return Posed((*assumed, waits, fits), {(LIVENESS, IN_A_STAGE): z3.Or(*(stage.holds(d, s) for stage in stages))})


def pose(stage: Stage, machine: Machine) -> Posed:
    d, before, assumed = any_state(machine)
    can, goals = [], {}
    for name, params in stage.ways.items():
        action = machine.actions[name]
        free, chosen = vars(d.parameters(action.params)), params(d, before)
        can.append(_taken(d, action, before, {**free, **chosen})[0])
        of_scheduler = {param: value for param, value in chosen.items() if param in CHOSEN_BY_THE_SCHEDULER}
        well_formed = (d.is_well_formed(sort, free[param]) for param, sort in action.params.items())
        taken, after = _taken(d, action, before, {**free, **of_scheduler})
        leads_on = z3.Implies(d.every(taken, *well_formed), rank(d, after) < rank(d, before))
        goals[stage.waits_for, f"{name} leads on"] = leads_on
    goals[stage.waits_for, GOES_ON] = d.some(*can)
    return Posed((*assumed, stage.holds(d, before)), goals)


def _taken(d: Symbols, action: Action, before: Ledger, given: Mapping[str, Any]) -> tuple[Any, Ledger]:
    """Whether the rule can be taken, and what it leads to."""
    step = action.run(d, before, SimpleNamespace(**given))
    after, _ = apply_effects(d, step.after, step.effects)
    return d.every(action.applies(d, before), *(guard.holds for guard in step.guards)), after
