"""A function is proved where every path of it does what the rule says, and only there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import z3
from code_proof.claims import ABSENT, DIFFERS, NOT_UNDERSTOOD, PROVED, Claim, Expected, Verdict, check
from code_proof.interpreter import Interpreter
from code_proof.sglang_objects import Allocator, Indices
from code_proof.source import Folder, Sources

from kvproof.model.symbolic import Symbols
from kvproof.spec.domain import orphan_start
from kvproof.spec.effects import Effect, Free
from kvproof.spec.state import NONE, Ledger

RIGHT = """
def free_tail(row, allocator, page_size, kept, end):
    start = (kept + page_size - 1) // page_size * page_size
    if start < end:
        allocator.free(row[start:end])
"""


def tail_of_an_idle_slot(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
    idle = (s.slot_held, s.phase == NONE)
    return Expected(idle, s, (Free(orphan_start(d, s.slot_kv_committed_len), s.slot_kv_allocated_len),))


class TailScene:
    def __init__(self, run: Interpreter, s: Ledger, p: SimpleNamespace) -> None:
        self.run, self.s = run, s
        self.effects: list[Effect] = []

    def call(self) -> Any:
        d = self.run.d
        function = self.run.imported("cache", "free_tail")
        row, allocator = Indices(self.run, d.zero, d.row_width), Allocator(self.run, self.effects)
        page_size = d.tokens(z3.IntVal(1))
        return self.run.call(
            function, [row, allocator, page_size, self.s.slot_kv_committed_len, self.s.slot_kv_allocated_len], {}
        )

    def observed(self, result: Any) -> dict[str, Any]:
        return {}


def checked(folder: Path, code: str, function: str = "free_tail") -> Verdict:
    (folder / "cache.py").write_text(code)
    return check(Claim("tail", "cache", function, tail_of_an_idle_slot, {}, TailScene), Sources(Folder(folder)), {}, {})


def test_right_code_is_proved_on_every_path(tmp_path: Path) -> None:
    found = checked(tmp_path, RIGHT)

    assert found.verdict == PROVED
    assert len(found.paths) >= 2, "a tail that holds a page, and one that does not"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(kept + page_size - 1) // page_size * page_size", "kept"),
        ("(kept + page_size - 1)", "(kept + page_size)"),
        ("(kept + page_size - 1)", "kept"),
        ("row[start:end]", "row[start:end - 1]"),
        ("row[start:end]", "row[start + page_size:end]"),
        ("start < end", "start > end"),
        ("allocator.free(row[start:end])", "pass"),
        ("allocator.free(row[start:end])", "allocator.free(row[start:end]); allocator.free(row[start:end])"),
        ("start < end", "start < end and kept < 3"),
    ],
)
def test_wrong_code_differs_in_a_state_with_numbers(tmp_path: Path, right: str, wrong: str) -> None:
    assert right in RIGHT
    found = checked(tmp_path, RIGHT.replace(right, wrong))

    assert found.verdict == DIFFERS
    first = next(difference for path in found.paths for difference in path.differences)
    assert first.state["P"] >= 1


@pytest.mark.parametrize(
    "hidden",
    [
        "eval('start')",
        "exec('start = 0')",
        "globals()['start']",
        "row.__class__",
        "type(start)",
        "id(start)",
        "start + (kept // page_size)",
        "start ** 2",
        "[x async for x in row]",
        "__import__('os')",
        "open('x')",
        "start.real",
        "(lambda: (yield))()",
        "kept / 2",
        "start is kept",
        "hash(start)",
        "allocator.available_size()",
        "row[0]",
        "row[::2]",
        "100000 < start",
    ],
)
def test_what_the_interpreter_cannot_see_is_never_a_pass(tmp_path: Path, hidden: str) -> None:
    code = RIGHT.replace("    if start", f"    hidden = {hidden}\n    if start")
    if "async" in hidden:
        code = code.replace("def free_tail", "async def free_tail")

    found = checked(tmp_path, code)

    assert found.verdict in (NOT_UNDERSTOOD, ABSENT)


@pytest.mark.parametrize(
    "patch",
    ["free_tail = print", "if True:\n    def free_tail(*a): pass", "setattr(free_tail, 'x', 1)"],
)
def test_a_function_that_the_module_changes_is_not_taken_at_its_word(tmp_path: Path, patch: str) -> None:
    assert checked(tmp_path, f"{RIGHT}\n{patch}\n").verdict != PROVED


def test_a_function_that_is_not_there_is_absent(tmp_path: Path) -> None:
    assert checked(tmp_path, RIGHT, "free_head").verdict == ABSENT
