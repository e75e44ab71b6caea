"""A proof of code as people read it."""

from __future__ import annotations

import dataclasses

import pytest

from kvproof.conformance.code_proof.findings import KNOWN_FAULT, Call, Finding, Line, Shown
from kvproof.conformance.report.formats.run_events import NOT_REACHED
from kvproof.conformance.report.show_code_proof import change_of, explanations, summary, verdict_of
from kvproof.model.code.claims import ABSENT, DIFFERS, NOT_UNDERSTOOD, PROVED

STATE = {"origin_len": 3, "P": 2, "output_len": 0}
SHOWN = Shown(
    "C is as the rule has it", "4", "5", STATE, (Line("m.py", 7, "c = 4", ("c = 4",)), Line("m.py", 8, "pass"))
)


def finding(verdict: str, *differences: Shown, rule: str = "finish") -> Finding:
    instead = "S0511a" if verdict == KNOWN_FAULT else None
    reasons = ("m.py:3: a loop",) if verdict == NOT_UNDERSTOOD else ()
    return Finding("Cache.finish", rule, "m.py", 5, verdict, instead, differences, reasons)


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ([PROVED, ABSENT], "proved"),
        ([PROVED, KNOWN_FAULT], "proved"),
        ([PROVED, NOT_UNDERSTOOD], "open"),
        ([NOT_UNDERSTOOD, DIFFERS], "differs"),
        ([ABSENT], "nothing"),
        ([], "nothing"),
    ],
)
def test_all_are_as_bad_as_the_worst_and_nothing_is_no_pass(words: list[str], verdict: str) -> None:
    assert verdict_of([finding(word) for word in words]) == verdict


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (finding(PROVED), finding(PROVED), "proved before and after"),
        (finding(PROVED), finding(DIFFERS, SHOWN), "newly differs"),
        (finding(DIFFERS, SHOWN), finding(PROVED), "newly proved"),
        (finding(DIFFERS, SHOWN), finding(DIFFERS, SHOWN), "differs before and after"),
        (finding(DIFFERS), finding(DIFFERS, SHOWN), "differs in another way"),
        (None, finding(PROVED), "newly proved"),
        (finding(PROVED), None, "newly absent"),
    ],
)
def test_a_change_is_told_in_a_word(before: Finding | None, after: Finding | None, said: str) -> None:
    assert change_of(before, after) == said


def told(*findings: Finding) -> str:
    return "\n".join(line.plain for line in explanations(findings, lambda path: f"root/{path}"))


def test_a_difference_is_told_with_its_state_and_the_lines_that_ask_and_set() -> None:
    text = told(finding(DIFFERS, SHOWN))

    assert "root/m.py:5" in text
    assert "in the state P = 2, origin_len = 3: the code leaves 4, the rule 5" in text
    assert "7  c = 4    # c = 4" in text and "pass" not in text


def test_the_run_to_a_difference_is_told_and_that_none_was_found_is_as_loud() -> None:
    run = (Call("open", {}, ("is_open no → yes",)), Call("finish", {"finished_len": 1}, ("C 4 → 5",)))
    shown = dataclasses.replace(SHOWN, schedule=run)
    text = told(finding(DIFFERS, shown, SHOWN))

    assert "    1 open()  is_open no → yes\n" in text and "    2 finish(finished_len=1)  the rule: C 4 → 5\n" in text
    assert text.count(NOT_REACHED) == 1 and f"not so: {SHOWN.sentence} ({NOT_REACHED})" in text
    assert f"  {NOT_REACHED}: perhaps" in told(finding(DIFFERS, SHOWN))


def test_of_a_known_fault_its_name_is_enough_and_what_is_not_understood_has_its_place() -> None:
    assert told(finding(KNOWN_FAULT, SHOWN)).endswith("every path does exactly what this says: S0511a")
    assert "not understood: m.py:3: a loop" in told(finding(NOT_UNDERSTOOD))
    assert told(finding(PROVED)) == ""


def test_functions_count_once_and_as_followed_only_where_each_path_follows_a_rule() -> None:
    one = dataclasses.replace(finding(PROVED), paths=2, understood=2, ran=("m.py:Cache.finish", "m.py:trim"))
    two = dataclasses.replace(finding(DIFFERS), paths=3, understood=3, ran=("m.py:Cache.match", "m.py:trim"))
    three = dataclasses.replace(finding(NOT_UNDERSTOOD), paths=4, understood=1, ran=("m.py:Cache.retract",))

    assert summary([one, two, three, finding(ABSENT)]) == (
        "3 claims; 4 functions of the code ran, 2 of them where each path follows a rule; 6 of 9 paths understood"
    )
