"""The page of a proof of code: what is in it, and that nothing of a source is read as HTML."""

from __future__ import annotations

import dataclasses

import pytest
from html_tags import Tags

from kvproof.conformance.code_proof.findings import KNOWN_FAULT, Call, Finding, Line, Shown
from kvproof.conformance.report.code_page import code_page
from kvproof.conformance.report.formats.run_events import NOT_REACHED
from kvproof.conformance.report.show_code_proof import Told
from kvproof.model.code.claims import ABSENT, DIFFERS, NOT_UNDERSTOOD, PROVED

HOSTILE = "</td></table><script>alert(1)</script><b onclick='x'>\"&amp;"
SCHEDULE = (Call("open", {}, ("is_open no → yes",)), Call("create", {"origin_len": 1, "too_long": False}))
LINES = (Line("m.py", 7, "c = 4", ("c = 4",)), Line("m.py", 8, HOSTILE), Line("n.py", 1, "pass", (HOSTILE,)))
SHOWN = Shown("C is as the rule has it", "4", "5", {"P": 2, "phase": 1, "output_len": 0}, LINES, SCHEDULE)
TOGETHER = dataclasses.replace(SHOWN, sentence="A is as the rule has it")
FAR = dataclasses.replace(SHOWN, sentence="E is as the rule has it", schedule=(), state={"P": 9})


def finding(verdict: str, *differences: Shown, rule: str = "finish") -> Finding:
    instead = "S0511a" if verdict == KNOWN_FAULT else None
    reasons = (f"m.py:3: {HOSTILE}",) if verdict == NOT_UNDERSTOOD else ()
    return Finding(
        "Cache.finish", rule, "m.py", 5, verdict, instead, differences, reasons, 3, seconds=1.25, assumes=("no GPU",)
    )


def page(*findings: Finding, before: tuple[Finding, ...] = ()) -> str:
    sides = [Told("old", "the rules", lambda path: path, before)] if before else []
    return code_page([*sides, Told(f"new {HOSTILE}", "the rules", lambda path: f"root/{path}", findings)], "DIFFERS")


def test_a_function_is_a_row_with_its_rule_its_numbers_and_its_place() -> None:
    text = page(finding(PROVED, rule="retract"), finding(DIFFERS, SHOWN))
    for part in (
        '<span class="word conforms">proved</span>',
        "<td>retract</td>",
        ">3</td>",
        ">1.2</td>",
        "root/m.py:5",
    ):
        assert part in text
    assert '<a href="#rule-finish">' in text and 'id="rule-finish"' in text and "#rule-retract" not in text
    assert "<li>no GPU</li>" in text


def test_a_link_leads_to_the_difference_of_a_rule_whose_name_is_two_words() -> None:
    text = page(finding(DIFFERS, SHOWN, rule="close, slot"))
    assert '<a href="#rule-close-slot">' in text and 'id="rule-close-slot"' in text


def test_a_difference_has_its_run_its_state_and_the_lines_of_its_path() -> None:
    text = page(finding(DIFFERS, SHOWN, TOGETHER, FAR))
    assert "<td>C is as the rule has it</td><td>4</td><td>5</td>" in text
    assert "2 statements fail after 2 actions" in text, "those of one run stand together"
    assert "<code>create(origin_len=1)</code>" in text and "is_open no → yes" in text
    assert "P = 2, phase = waiting" in text and "output_len" not in text
    assert (
        '<tr class="noted"><td class="number">7</td><td class="code">c = 4</td><td class="note">c = 4</td></tr>' in text
    )
    assert text.index("root/m.py</th>") < text.index("root/n.py</th>")


def test_a_difference_that_no_run_reaches_is_as_loud_as_the_verdict() -> None:
    text = page(finding(DIFFERS, FAR))
    assert f'<summary class="bad">1 statement fails, {NOT_REACHED}</summary>' in text
    assert '<ol class="run">' not in text and "perhaps the difference starts from a state that is never reached" in text


@pytest.mark.parametrize("verdict", [DIFFERS, NOT_UNDERSTOOD, KNOWN_FAULT])
def test_nothing_of_a_source_is_read_as_html_and_nothing_runs(verdict: str) -> None:
    text = page(finding(verdict, SHOWN, FAR))
    tags = Tags(text)
    assert tags.open == [] and "script" not in tags.names and "b" not in tags.names
    policy = next(of["content"] for tag, of in tags.seen if tag == "meta" and "http-equiv" in of)
    assert "default-src 'none'" in str(policy) and "script-src" not in str(policy)
    assert not any(name.startswith("on") for _, of in tags.seen for name in of)


def test_of_a_change_each_function_is_told_before_and_after() -> None:
    text = page(finding(DIFFERS, SHOWN), before=(finding(PROVED), finding(PROVED, rule="retract")))
    assert '<span class="word violates">newly differs</span>' in text and "newly absent" in text
    assert ABSENT in text and "From old" in text
