"""A rule that was written down computes what the rule computes, and data that are no rule are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from kvproof.model.explore import reach
from kvproof.model.prove import step_question
from kvproof.model.questions import PROVED, ask_z3
from kvproof.model.written_rule import (
    MOST_VALUES,
    NotARuleError,
    WrittenFlag,
    WrittenRule,
    action_of,
    written_flag,
    written_rule,
)
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.effects import Free
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import LEDGER


def written(action: Action) -> Action:
    return action_of(action.name, *sent(action))


def sent(action: Action) -> tuple[WrittenRule, WrittenFlag]:
    """As another process would send it."""
    rule, flag = TypeAdapter(WrittenRule), TypeAdapter(WrittenFlag)
    as_json = rule.dump_json(written_rule(action.run, action.params, "file.py", 7))
    return rule.validate_json(as_json), flag.validate_json(flag.dump_json(written_flag(action.applies)))


def test_all_rules_written_down_reach_the_same_states() -> None:
    assert reach(1, 3, {name: written(action) for name, action in ACTIONS.items()}) == reach(1, 3)


@pytest.mark.parametrize("fault_id", ["F22862b", "F22790e", "S0511b"])
def test_a_faulty_rule_written_down_breaks_what_the_rule_breaks(fault_id: str) -> None:
    fault = FAULTS[fault_id]
    assert fault.machine is LEDGER
    for action in fault.deviations.values():
        assert _broken(written(action)) == _broken(action) != set()


def _broken(action: Action) -> set[str]:
    return {about for (about, _), answer in ask_z3(step_question(action).pose()).items() if answer.verdict != PROVED}


RIGHT = written_rule(ACTIONS["finish"].run, ACTIONS["finish"].params, "file.py", 7)
LAST = len(RIGHT.values)
CHANGES: dict[str, Callable[[WrittenRule], dict[str, Any]]] = {
    "no operation is named 'eval'": lambda r: {"values": (*r.values, ("eval", (0,)))},
    "999 is not the number of a value": lambda r: {"values": (*r.values, ("not", (999,)))},
    f"{LAST} is not the number of a value": lambda r: {"values": (*r.values, ("not", (LAST,)))},
    "-1 is not the number of a value": lambda r: {"guards": (("x", -1),)},
    "True is not the number of a value": lambda r: {"guards": (("x", True),)},
    "nothing to read is named p.dup_len": lambda r: {"values": (*r.values, ("read", ("p", "dup_len")))},
    "nothing to read is named d.page_size": lambda r: {"values": (*r.values, ("read", ("d", "page_size")))},
    "nothing to read is named .": lambda r: {"values": (*r.values, ("read", ("s",)))},
    "a constant is a flag or a number up to 2,147,483,648": lambda r: {"values": (*r.values, ("constant", ("x",)))},
    "a flag or a number up to": lambda r: {"values": (*r.values, ("constant", (2**40,)))},
    "the rule has 20,0": lambda r: {"values": r.values * (MOST_VALUES // len(r.values) + 1)},
    "the state after the step has other fields": lambda r: {"after": {"is_open": 0}},
    "row_end is a ghost field: only effects write it": lambda r: {"after": {**r.after, "row_end": 0}},
    "kv_valid is a ghost field: no server has it": lambda r: {
        "values": (*r.values, ("read", ("s", "kv_valid"))),
        "after": {**r.after, "prefix_len": LAST},
    },
    "turns is a ghost field: no server has it": lambda r: {
        "values": (*r.values, ("read", ("s", "turns")), ("equal", (LAST, LAST))),
        "guards": (("none runs", LAST + 1),),
    },
    "no effect is named Steal; valid: Begin": lambda r: {"effects": (("Steal", {}),)},
    "Free has other parts than these: start": lambda r: {"effects": (("Free", {"start": 0}),)},
    "it does not run: ": lambda r: {"values": (*r.values, ("floor_pages", (r.after["is_open"],)))},
}


@pytest.mark.parametrize("said", CHANGES)
def test_data_that_are_no_rule_are_refused(said: str) -> None:
    with pytest.raises(NotARuleError) as refused:
        action_of("finish", dataclasses.replace(RIGHT, **CHANGES[said](RIGHT)), None)
    assert said in str(refused.value)


def test_an_effect_of_a_class_of_its_own_is_refused() -> None:
    """It would come with side conditions of its own."""

    class Mine(Free):
        pass

    def run(d: Any, s: Any, p: Any) -> Any:
        step = ACTIONS["finish"].run(d, s, p)
        return dataclasses.replace(step, effects=(Mine(d.zero, d.one),))

    rule = written_rule(run, ACTIONS["finish"].params, "file.py", 7)
    with pytest.raises(NotARuleError, match="no effect is named Mine"):
        action_of("finish", rule, None)


def test_a_condition_reads_no_parameter() -> None:
    flag = WrittenFlag((("read", ("p", "finished_len")),), 0)
    with pytest.raises(NotARuleError, match=r"nothing to read is named p\.finished_len"):
        action_of("finish", RIGHT, flag)
