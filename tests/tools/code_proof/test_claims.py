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


REBINDS_A_NAME = {
    "by a tuple": "len, x = helper, 1",
    "by a walrus": "x = (len := helper)",
    "by a star": "from evil import *",
    "by an import after it": "from evil import helper as free_tail",
    "by the import of another branch": "if x:\n    import os\nelse:\n    from evil import helper as len",
    "by a function": "def other():\n    global len\n    len = helper",
    "by a string": "import sys\nsetattr(sys.modules[__name__], 'len', helper)",
    "by a call": "register(free_tail)",
}


@pytest.mark.parametrize("patch", REBINDS_A_NAME.values(), ids=REBINDS_A_NAME)
def test_a_name_that_may_be_another_thing_is_never_a_pass(tmp_path: Path, patch: str) -> None:
    code = RIGHT.replace("    start =", "    len([])\n    start =")
    assert checked(tmp_path, code).verdict == PROVED
    (tmp_path / "evil.py").write_text("def helper(x=None):\n    return 0\n")

    assert checked(tmp_path, f"def helper(x=None):\n    return 0\n{code}\n{patch}\n").verdict != PROVED


USES_A_CLASS = """
class First:
    def start(self, kept, page_size):
        return (kept + page_size - 1) // page_size * page_size

class Slot(First):
    pass

def free_tail(row, allocator, page_size, kept, end):
    start = Slot().start(kept, page_size)
    if start < end:
        allocator.free(row[start:end])
"""

CHANGES_A_CLASS = {
    "an import in its body": ("    pass", "    from evil import helper as start"),
    "a tuple in its body": ("    pass", "    start, x = helper, 1"),
    "a branch in its body": (
        "    pass",
        "    if True:\n        def start(self, kept, page_size):\n            return kept",
    ),
    "a base that nobody knows": ("Slot(First)", "Slot(Unknown, First)"),
    "a diamond": (
        "class Slot(First):\n    pass",
        "class A(First):\n    pass\n\nclass B(First):\n    def start(self, kept, page_size):\n        return kept\n\n"
        "class Slot(A, B):\n    pass",
    ),
    "a dataclass with options": ("class Slot", "from dataclasses import dataclass\n@dataclass(init=False)\nclass Slot"),
    "a decorator that nobody knows": ("    def start", "    @helper\n    def start"),
    "a property that is no property": ("    def start", "    property = helper\n    @other.property\n    def start"),
    "a heir of a dataclass": (
        "class Slot(First)",
        "from dataclasses import dataclass\n@dataclass\nclass Data:\n    x: int = 0\n\nclass Slot(First, Data)",
    ),
    "a private name": (
        "    pass",
        "    __start = First.start\n    def start(self, kept, page_size):\n        return self.__start(kept)",
    ),
    "a foreign base of a harmless name": ("class Slot(First)", "from evil import ABC\nclass Slot(ABC, First)"),
}


@pytest.mark.parametrize(("right", "wrong"), CHANGES_A_CLASS.values(), ids=CHANGES_A_CLASS)
def test_a_member_that_may_be_another_one_is_never_a_pass(tmp_path: Path, right: str, wrong: str) -> None:
    assert right in USES_A_CLASS and checked(tmp_path, USES_A_CLASS).verdict == PROVED

    assert checked(tmp_path, USES_A_CLASS.replace(right, wrong)).verdict == NOT_UNDERSTOOD


def test_the_default_of_an_inner_function_is_not_the_global_of_that_name(tmp_path: Path) -> None:
    inner = "    rounded = kept\n    def start_of(x=rounded):\n        return x\n    start = start_of()"
    code = RIGHT.replace("    start = (kept + page_size - 1) // page_size * page_size", inner)

    assert checked(tmp_path, f"rounded = 0\n{code}").verdict == NOT_UNDERSTOOD
