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
from kvproof.model.prove import induction_step, initial_state
from kvproof.model.questions import PROVED, Asker
from kvproof.model.small_instances import LARGE, SMALL
from kvproof.model.symbolic import Symbols
from kvproof.model.variant import REFUTING, NeverFires, prove_variant
from kvproof.spec.actions import ACTIONS
from kvproof.spec.effects import apply_effects
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import MACHINES

OLD, NEW = VARIANTS / "sglang_22862_old_design.py", VARIANTS / "sglang_22862_new_design.py"
AHEAD = VARIANTS / "decode_reserves_whole_pages.py"
VERIFIED = VARIANTS / "keeps_what_is_verified.py"
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
def test_a_session_that_keeps_what_is_verified_is_proved_and_refuted_if_its_window_cursor_stays(tmp_path: Path) -> None:
    """The rule behind two fixes of docs/findings."""
    result = require_exit(0, "prove", "--variant", VERIFIED)
    assert "no invariant changed its verdict" in result.stdout
    path = tmp_path / "not_cut.py"
    path.write_text(VERIFIED.read_text().replace("smaller(d, s.swa_evicted_seqlen, kept)", "s.swa_evicted_seqlen"))
    assert "✗ I9" in require_exit(1, "prove", "--variant", path).stdout


# --- helpers --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_right_rule_for_which_a_helper_is_too_narrow_is_proved_with_its_own(tmp_path: Path) -> None:
    assert "replaces the helper X3" in require_exit(0, "prove", "--variant", AHEAD).stdout
    path = tmp_path / "without.py"
    path.write_text(AHEAD.read_text().replace('HELPERS = {"X3"', 'NOT_HELPERS = {"X3"'))
    said = require_exit(3, "prove", "--variant", path).stdout
    assert "X3 fails after decode()" in said
    assert 'state what holds with your rule in HELPERS = {"X3": ...}' in said


def of_helpers(variant, of: str, rule: str = "ACTIONS['decode'].run(d, s, p)") -> dict[tuple[str, str], str]:
    """The cells that are not proved."""
    body = f"REPLACES = 'decode'\ndef run(d, s, p): return {rule}\ndef helper(d, s): return {of}\n"
    chosen = load_variant(variant(body + "HELPERS = {'X5': helper, 'X3': lambda d, s: d.true}\n"))
    cells = [cell for a in chosen.actions.values() for cell in induction_step(a, [], machine=chosen.machine)]
    cells += initial_state(chosen.machine, Asker())
    return {(cell.action, cell.invariant): cell.verdict for cell in cells if cell.verdict != PROVED}


def test_a_helper_must_hold_at_first_and_be_kept_by_actions_that_are_not_replaced(variant) -> None:
    assert ("(initial)", "X5") in of_helpers(variant, "s.is_open")
    assert ("open", "X5") in of_helpers(variant, "d.no(s.is_open)")


def test_a_helper_that_says_nothing_takes_away_what_the_built_in_one_gave(variant) -> None:
    """With X3 away the table is not proved: a helper cannot be left out to hide what it finds."""
    found = of_helpers(variant, "d.true")
    assert {invariant for _, invariant in found} >= {"I1", "I3"}


def test_a_helper_reads_ghosts_and_a_contradictory_one_is_refused(variant) -> None:
    assert ("decode", "X5") not in of_helpers(variant, "s.kv_valid <= s.kv_valid")
    body = "REPLACES = 'decode'\nrun = ACTIONS['decode'].run\nHELPERS = {'X5': lambda d, s: d.false}\n"
    with pytest.raises(NeverFires, match=r"its guards contradict the invariants"):
        prove_variant(load_variant(variant(body)))


@pytest.mark.parametrize(
    ("helpers", "said"),
    [
        ("[1]", "HELPERS is a dict from ids, X and a number, to functions (d, s) that give a flag"),
        ("{'X5': 3}", "HELPERS is a dict from ids"),
        ("{'I3': lambda d, s: d.true}", "the id of a helper is X and a number, not 'I3'"),
        ("{'X5': lambda d, s: s.plain and s.lent}", "cannot branch on the state"),
        ("{'X5': lambda d, s: s.kv_allocated_len}", "my_fix.py:8: Z3Exception: True, False or Z3 Boolean"),
        ("{'X5': lambda d, s: s.nothing}", "nothing"),
    ],
)
def test_a_mistake_in_a_helper_is_answered_with_the_line(variant, helpers: str, said: str) -> None:
    path = variant(f"REPLACES = 'decode'\nrun = ACTIONS['decode'].run\nHELPERS = {helpers}\n")
    assert said in refusal(path)


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


@pytest.fixture
def only_some_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those with the longest rows."""
    for module in ("prove", "variant"):
        monkeypatch.setattr(f"kvproof.model.{module}.explored_whole", lambda *_: (SMALL, *LARGE[:3]))


def test_an_action_that_the_variant_makes_impossible_is_no_proof(variant, only_some_instances: None) -> None:
    """No session turn ever runs: all invariants hold, of nothing."""
    result = require_exit(3, "prove", "--variant", variant(guarded("extend", "s.plain")))
    assert "vacuous: retract: never happens any more in P=1 row width 3 (any configuration), P=2" in result.stdout
    assert "vacuous: a slot" not in result.stdout, "what follows from the right rules' own design is not asked"
    assert result.stdout.rstrip().endswith("NOT PROVED")


NEVER = {
    "a close of sessions that hold nothing": (
        guarded("close", "d.no(s.slot_held)"),
        "vacuous: a turn cannot end or a session cannot be closed from some states: 87 in P=1 row width 3, plain; ",
    ),
    "a finish of small pages only": (
        guarded("finish", "d.tokens(d.floor_pages(d.zero) + 1) <= d.one + d.one"),
        "vacuous: finish: never happens any more in P=3 row width 9 (any configuration)\n"
        "vacuous: finish: never happens any more with pages of more than 1,048,576 tokens",
    ),
    "an eviction that needs every result": (
        guarded("evict_window", "d.no(d.overlap)"),
        "vacuous: evict_window: never happens any more in P=1 row width 3 (overlap, window 1), P=1 row width 5 (",
    ),
}


@pytest.mark.parametrize("what", NEVER)
def test_a_variant_under_which_something_never_happens_any_more_is_not_proved(
    what: str, variant, only_some_instances: None
) -> None:
    """By induction each of them keeps everything."""
    body, answer = NEVER[what]
    path = variant(body)
    assert by_induction(path) == {"proved"}
    result = require_exit(3, "prove", "--variant", path)
    assert answer in result.stdout
    assert result.stdout.rstrip().endswith("NOT PROVED")


WHOLE_PAGES = """REPLACES = 'finish'
from kvproof.spec.domain import ceil_align, smaller
def run(d, s, p):
    step = ACTIONS[REPLACES].run(d, s, p)
    kept = smaller(d, ceil_align(d, s.origin_len + p.finished_len), s.kv_allocated_len)
    return Step(step.after.but(slot_kv_allocated_len=kept), step.guards, step.effects)
"""


def test_another_design_is_not_wrong_because_it_never_does_what_the_right_rules_do(variant) -> None:
    """A slot that keeps its last page whole: 'a slot with A beyond its tokens' must never be by the built-in design."""
    comparison = prove_variant(load_variant(variant(WHOLE_PAGES)), asker=Remembering(Store(cache_folder())))
    assert comparison.proof.vacuous == []


OF_A_FAULT = """REPLACES = 'finish'
from kvproof.spec.faults import FAULTS
run = FAULTS["F22900"].deviations[REPLACES].run
"""


def test_a_variant_with_the_effect_of_a_fault_is_refuted_by_a_run_as_the_fault_is(variant, tmp_path: Path) -> None:
    """It takes a window with drafts, and rows of six tokens."""
    require_exit(1, "prove", "--variant", variant(OF_A_FAULT), "--out", tmp_path / "run.jsonl", "-q")
    assert (tmp_path / "run.jsonl").exists()


FAR = """REPLACES = 'result'
def run(d, s, p):
    step = ACTIONS[REPLACES].run(d, s, p)
    far = d.tokens(8) <= s.kv_committed_len
    return Step(step.after.but(closing=d.some(s.closing, far)), step.guards, step.effects)
"""


def test_where_the_induction_fails_and_no_run_is_found_nothing_is_proved_and_nothing_refuted(
    variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvproof.model.variant.REFUTING", REFUTING[:1])
    result = require_exit(
        3, "prove", "--variant", variant(FAR), "--out", tmp_path / "run.jsonl", "--itf", tmp_path / "i"
    )
    said = result.stdout
    assert "✗ I15 proved → broken, by result" in said
    assert "I15 fails after result(tokens=" in said and "from a state that may never be reached:\n  page_size " in said
    assert "no run shows it; searched: runs of at most 16 steps and 2,000,000 states in P=1 row width 3\n" in said
    assert said.rstrip().endswith("NOT PROVED")
    assert "run.jsonl is not written: no run of" in result.stderr and not (tmp_path / "run.jsonl").exists()


NOWHERE = """REPLACES = 'finish'
from kvproof.spec.effects import Insert
def run(d, s, p):
    step = ACTIONS[REPLACES].run(d, s, p)
    return Step(step.after, step.guards, (*step.effects, Insert(d.true, 3, 2, 0)))
"""


def test_a_run_that_no_trace_can_tell_is_refuted_all_the_same(variant, tmp_path: Path) -> None:
    result = require_exit(1, "prove", "--variant", variant(NOWHERE), "--out", tmp_path / "run.jsonl", "-q")
    assert "run.jsonl is not written: the run moves pages that nobody has" in result.stderr
    assert result.stdout.rstrip().endswith("REFUTED")


# --- what the file does to the program that reads it ------------------------------------------------------------------

HOSTILE = """import kvproof.model.cache, kvproof.model.explore, kvproof.spec.actions.finish, kvproof.spec.domain, z3
from kvproof.spec.invariants import ALL_INVARIANTS, INVARIANTS
from kvproof.spec.domain import smaller
for module in (kvproof.spec.domain, kvproof.spec.actions.finish):
    module.larger = smaller
z3.Solver.check = lambda *_: z3.unsat
kvproof.model.explore.reach = kvproof.model.cache.Store.write = None
INVARIANTS.clear()
REPLACES = 'abort_nth'
run = ACTIONS[REPLACES].run
"""


def test_a_file_that_patches_modules_changes_only_its_own_rule(variant, tmp_path: Path) -> None:
    """By the patched `larger` its rule frees too little. All other rules are proved, and so is this one without the patch."""
    path, folder = variant(HOSTILE), tmp_path / "cache"
    asker = Remembering(Store(cache_folder()))
    (rule,) = load_variant(path).replaced.values()
    assert "broken" in {cell.verdict for cell in induction_step(rule, [], asker)}
    require_exit(1, "prove", "--variant", path, "--cache", folder, "-q")
    kept = Remembering(Store(folder))
    assert {cell.verdict for cell in induction_step(ACTIONS["abort_nth"], [], kept)} == {"proved"}
    assert kept.asked == 0


def test_what_a_file_keeps_is_kept_for_nobody(variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    body = """
from kvproof.model.cache_folder import cache_folder
from kvproof.spec.actions import ACTIONS
(cache_folder() / "forged").touch()
REPLACES = "close"
run = ACTIONS[REPLACES].run
"""
    assert load_variant(variant(body)).replaced
    assert not list((tmp_path / "cache").iterdir())


def test_a_rule_that_does_not_end_is_ended(variant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.conformance.cli.variant.MOST_SECONDS", 0.5)
    body = "REPLACES = 'close'\ndef run(d, s, p):\n    while True: pass\n"
    assert "my_fix.py: its rules did not come to an end (limits: " in refusal(variant(body))


SENT = {
    b"no json": "its process sent no rules: Invalid JSON",
    b'{"rules": {"close": 7}}': "its process sent no rules: Input should be",
    b'{"rules": {"closes": {"values": [], "after": {}, "guards": [], "effects": [], "path": "", "line": 1}}}': (
        "no action is named 'closes'"
    ),
    b'{"rules": {"close": {"values": [], "after": {}, "guards": [], "effects": [], "path": "", "line": 1}}}': (
        "the state after the step has other fields than a ledger"
    ),
    b'{"rules": {"close": {"values": [["eval", [1]]], "after": {}, "guards": [], "effects": [], "path": "", "line": 1}}}': (
        "no operation is named 'eval'"
    ),
    b'{"rules": {"close": {"values": [["read", ["s", "__class__"]]], "after": {}, "guards": [], "effects": [], "path": "",'
    b' "line": 1}}}': "nothing to read is named s.__class__",
    b'{"rules": {"close": {"values": [["not", [0]]], "after": {}, "guards": [], "effects": [], "path": "", "line": 1}}}': (
        "0 is not the number of a value"
    ),
}


@pytest.mark.parametrize("sent", SENT)
def test_what_the_process_sends_is_read_as_data_and_nothing_else(
    sent: bytes, variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvproof.conformance.cli.variant._serve", lambda connection, path: connection.send_bytes(sent))
    assert SENT[sent] in refusal(variant(""))


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
    "return Step(s.but(checkpoint_len=s.success_len))": "my_fix.py:7: success_len is a ghost field: no server has it",
    "return Step(s.but(is_open=7))": "my_fix.py:7: it does not run: ",
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
