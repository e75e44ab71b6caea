"""A maintainer's own rule: proved or refuted, and every mistake in its file answered with the line."""

from __future__ import annotations

import json
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest
from command_line import of_its_own, require_exit, run
from repository import DOCS, VARIANTS

from kvproof.conformance.cli.variant import load_variant
from kvproof.conformance.cli.variant_file import _no_silent_branches
from kvproof.model.cache import Remembering, Store
from kvproof.model.cache_folder import cache_folder
from kvproof.model.explore import shortest_run_of
from kvproof.model.prove import induction_step
from kvproof.model.symbolic import Symbols
from kvproof.model.variant import prove_variant
from kvproof.spec.effects import apply_effects
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import MACHINES

OLD, NEW = VARIANTS / "sglang_22862_old_design.py", VARIANTS / "sglang_22862_new_design.py"
HEAD = """

from kvproof.spec.actions import ACTIONS, Guard, Step
from kvproof.spec.effects import Free
from kvproof.spec.state import WAITING
"""


prove = partial(run, "prove")


@pytest.fixture
def variant(tmp_path: Path):
    def write(body: str) -> Path:
        path = tmp_path / "my_fix.py"
        path.write_text(HEAD + body)
        return path

    return write


def refusal(path: Path) -> str:
    """The one line that the file is answered with, below the warning."""
    result = prove("--variant", path, "--quiet")  # a slow machine says how far it is, too
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    warning, line = result.stderr.splitlines()
    assert "is executed now" in warning
    return line


def by_induction(path: Path) -> set[str]:
    """What becomes of the invariants under the rules of a file, where no small instance is asked whether they are ever used."""
    rules = load_variant(path).replaced.values()
    return {cell.verdict for rule in rules for cell in induction_step(rule, [], Remembering(Store(cache_folder())))}


# --- verdicts -------------------------------------------------------------------------------------------------------


def test_the_old_design_of_22862_is_refuted_with_its_shortest_run() -> None:
    result = require_exit(1, "prove", "--variant", OLD)
    assert "✗ I7  proved → broken, by match_slot" in " ".join(result.stdout.split()).replace("✗ I7 ", "✗ I7  ")
    assert "8 match_slot()" in result.stdout
    assert result.stdout.rstrip().endswith("REFUTED")


def test_the_new_design_of_22862_is_proved() -> None:
    result = require_exit(0, "prove", "--variant", NEW)
    assert "no invariant changed its verdict" in result.stdout
    assert result.stdout.rstrip().endswith("PROVED")


@pytest.mark.slow
def test_the_new_design_without_rounding_up_is_refuted_above_page_size_one(tmp_path: Path) -> None:
    """What the example's own comment promises."""
    path = tmp_path / "not_rounded.py"
    path.write_text(NEW.read_text().replace("Free(orphan_start(d, prefix_len),", "Free(prefix_len,"))
    result = require_exit(1, "prove", "--variant", path)
    assert "✗ I4" in result.stdout and "page size 2" in result.stdout


def test_that_the_file_is_executed_is_said_first(variant) -> None:
    command = of_its_own("prove", "--variant", variant("print('hello from the file')\nREPLACES = 7\n"))
    output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
    assert output.index("is executed now") < output.index("hello from the file")


def test_a_faulty_rule_as_a_variant_breaks_what_the_fault_breaks(variant) -> None:
    path = variant("from kvproof.spec.faults import FAULTS\nREPLACES = 'retract'\nrun = FAULTS['S0511a'].run\n")
    comparison = prove_variant(load_variant(path), asker=Remembering(Store(cache_folder())))
    assert {c.invariant for c in comparison.changes} >= set(FAULTS["S0511a"].breaks)
    run = comparison.proof.counterexample
    assert run == shortest_run_of(comparison.variant.actions, run.page_size, run.row_width)


def test_json_holds_the_changes(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    require_exit(1, "prove", "--variant", OLD, "--json", out, "-q")
    result = json.loads(out.read_text())
    assert result["verdict"] == "broken"
    assert result["variant"]["replaces"] == ["retract", "match_slot"]
    wanted = {"action": "match_slot", "invariant": "I7", "built_in": "proved", "variant": "broken"}
    assert any(wanted.items() <= change.items() for change in result["variant"]["changes"])


def test_the_run_of_a_variant_is_saved_as_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "run.jsonl"
    require_exit(1, "prove", "--variant", OLD, "--out", trace, "-q")
    assert run("replay", trace).exit_code == 1


def test_when_a_rule_applies_can_be_replaced_too(variant) -> None:
    applies = "d.every(ACTIONS[REPLACES].applies(d, s), d.no(s.matched))"
    body = f"REPLACES = 'match_slot'\nrun = ACTIONS[REPLACES].run\ndef applies(d, s): return {applies}\n"
    assert by_induction(variant(body)) == {"proved"}


def guarded(action: str, guard: str) -> str:
    """A file that adds a guard to an action."""
    return f"""REPLACES = {action!r}
def run(d, s, p):
    step = ACTIONS[REPLACES].run(d, s, p)
    return Step(step.after, (*step.guards, Guard("a guard more", {guard})), step.effects)
"""


def test_an_action_that_the_variant_makes_impossible_is_no_proof(variant) -> None:
    """No session turn ever runs: all invariants hold, of nothing."""
    result = require_exit(1, "prove", "--variant", variant(guarded("extend", "s.plain")))
    assert "vacuous: retract: never happens any more" in result.stdout


def test_no_rule_of_the_specification_branches_on_a_symbol() -> None:
    """Else Z3 would quietly prove one branch of it."""
    rules = [(m, a) for m in MACHINES for a in m.actions.values()]
    rules += [(f.machine, a) for f in FAULTS.values() for a in f.deviations.values()]
    run = 0
    with _no_silent_branches():
        for machine, action in rules:
            d = Symbols()
            before = d.arbitrary(machine.state)
            step = action.run(d, before, d.parameters(action.params))
            after, _ = apply_effects(d, step.after, step.effects)
            action.applies(d, before)
            for invariant in machine.all_invariants.values():
                invariant.holds(d, after)
            run += 1
    assert run == len(rules) > len(FAULTS)


# --- mistakes in the file -------------------------------------------------------------------------------------------

FILES = {
    "": "my_fix.py: no REPLACES: name the action",
    "def run(d, s, p)\n    pass\n": "my_fix.py:6: syntax error: expected ':'",
    "REPLACES = 'close'\n": "my_fix.py:6: no function run(d, s, p)",
    "REPLACES = 7\n": "my_fix.py:6: REPLACES is the name of an action",
    "REPLACES = {}\n": "my_fix.py:6: REPLACES is the name of an action",
    "REPLACES = {'close': 7}\n": "my_fix.py:6: REPLACES['close'] is not a function",
    "REPLACES = undefined\n": "my_fix.py:6: NameError: name 'undefined'",
    "REPLACES = 'close'\nraise SystemExit(0)\n": "my_fix.py:7: SystemExit: 0",
    "REPLACES = 'match_slots'\nrun = print\n": "my_fix.py:6: unknown action 'match_slots'; did you mean match_slot",
    "REPLACES = 'close'\nSUMMARY = 7\nrun = print\n": "my_fix.py: SUMMARY is a sentence, not int",
    "REPLACES = 'close'\ndef run(d, s):\n    pass\n": "my_fix.py:7: TypeError: run() takes 2 positional arguments",
    "REPLACES = 'close'\nrun = ACTIONS['close'].run\ndef applies(d, s):\n    return s.opened\n": (
        "my_fix.py:9: AttributeError"
    ),
}
RULES = {
    "1 / 0": "my_fix.py:8: ZeroDivisionError",
    "s.row_ends": "my_fix.py:8: AttributeError: 'Ledger'",
    "p.kept_len": "(parameters of finish: finished_len",
    "return s": "my_fix.py:7: a rule returns Step(...)",
    "return Step(7)": "my_fix.py:7: Step takes the state",
    "return Step(s.but(prefix_len=0))": "my_fix.py:7: prefix_len is a length, not int: use d.zero",
    "return Step(s, effects=(Free(0, s.prefix_len),))": "my_fix.py:7: ",
    "s.prefix_len == 0": "my_fix.py:8: AssertionError (lengths",
    "s.prefix_len + 1": "my_fix.py:8: AttributeError",
    "if s.phase == WAITING: s = s.but(turns=0)": "my_fix.py:8: a rule cannot branch on the state",
    "s.slot_held and s.lent": "my_fix.py:8: a rule cannot branch",
    "min(s.turns, s.rows)": "my_fix.py:8: a rule cannot branch",
    "return Step(s, guards={'a turn runs': s.inflight})": (
        'my_fix.py:7: guards are a tuple of Guard("a sentence", flag), not dict'
    ),
    "return Step(s, (s.inflight,))": 'my_fix.py:7: guards are a tuple of Guard("a sentence", flag); one is ',
    "return Step(s, effects=('free',))": (
        "my_fix.py:7: effects are a tuple of those of kvproof.spec.effects; one is str"
    ),
    "d.page_size": "my_fix.py:8: AttributeError",
    "raise MemoryError": "my_fix.py:8: MemoryError",
    "import os; os._exit(0)": "my_fix.py: its process ended without an answer, with exit code 0 (limits: ",
    "return Step(s.but(orphans=0))": "my_fix.py:7: orphans is a ghost field: only effects write it",
    "return Step(s.but(is_open=7))": "my_fix.py:7: it does not run: ",
    "from kvproof.spec.effects import Require; return Step(s, effects=(Require('I99', d.true, 'x'),))": (
        "my_fix.py:7: Require names 'I99', which is no invariant; valid: I1, "
    ),
    "return Step(s, effects=(type('Mine', (Free,), {})(d.zero, d.one),))": "my_fix.py:7: no effect is named Mine",
}
GUARDS = {
    "s.inflight": "close can never happen: its guards contradict the invariants",
    "d.tokens(d.floor_pages(d.row_width)) < d.zero + d.one": (
        "close can never happen: not in any state of the instances P=1 row width 3"
    ),
}
"""Of a guard that is added to `close`."""


def rule(line: str, answer: str) -> str:
    """A file whose rule does this first."""
    action = "finish" if "parameters of finish" in answer else "close"
    return f"REPLACES = {action!r}\ndef run(d, s, p):\n    {line}\n    return ACTIONS[REPLACES].run(d, s, p)\n"


MISTAKES = {
    **FILES,
    **{rule(line, answer): answer for line, answer in RULES.items()},
    **{guarded("close", guard): answer for guard, answer in GUARDS.items()},
}


@pytest.mark.parametrize("body", MISTAKES, ids=[*FILES, *RULES, *GUARDS])
def test_a_mistake_is_answered_with_its_line(body: str, variant) -> None:
    said = re.sub(
        r": assert .*?(?= \(lengths)", "", refusal(variant(body)), flags=re.S
    )  # pytest may explain an assertion
    assert MISTAKES[body] in said


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "null.py").write_bytes(b"x = 1\x00")
    assert "cannot read" in refusal(tmp_path / "missing.py")
    assert "cannot read" in refusal(tmp_path)
    assert "not a Python file in UTF-8" in refusal(tmp_path / "bytes.py")
    assert "null.py" in refusal(tmp_path / "null.py")


def test_branches_are_watched_only_while_a_rule_runs() -> None:
    import z3

    x = z3.Int("x")
    with pytest.raises(TypeError, match="cannot branch"), _no_silent_branches():
        bool(x == x + 1)
    assert not bool(x == x + 1)


def test_the_rule_in_the_documentation_is_one(tmp_path: Path) -> None:
    page = (DOCS / "proving.md").read_text()
    path = tmp_path / "documented.py"
    path.write_text(page.split("```python\n")[1].split("```")[0])
    assert by_induction(path) == {"proved"}
