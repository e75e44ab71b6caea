"""Expressions that only read and reckon make no paths; all others are evaluated where Python reaches them."""

from __future__ import annotations

from typing import Any

import pytest
import z3
from texts import Texts

from kvproof.model.code import arithmetic
from kvproof.model.code.errors import RaisedError
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.library import LIBRARY
from kvproof.model.code.paths import Paths
from kvproof.model.code.source import Sources
from kvproof.model.code.values import Deferred, Record
from kvproof.model.questions import z3_solver
from kvproof.model.symbolic import Symbols

HELPERS = """
def aligned(x, y):
    return -(-x // y) * y

def noted(x, seen):
    seen.append(x)
    return x

def endless(x):
    return endless(x)

class Row:
    def __init__(self, end):
        self.end = end
        self.reads = 0

    @property
    def counted(self):
        self.reads = self.reads + 1
        return self.end

"""


def paths_of(body: str) -> list[Any]:
    """Of each path of `f(a, b, P, server)` what it gives; `a` and `b` are any lengths that are not negative."""
    d = Symbols()
    a, b = d.length("a"), d.length("b")
    lines = "\n    ".join(body.splitlines())
    code = f"{HELPERS}def f(a, b, P, server):\n    {lines}\n"
    paths = Paths([d.page_size >= 1, a.is_well_formed(), b.is_well_formed(), a.pages >= 0, b.pages >= 0])

    def run() -> Any:
        interpreter = Interpreter(d, Sources(Texts({"code.py": code})), paths, {}, LIBRARY)
        server = Record(page_size=arithmetic.page_size_of(d), chosen=Deferred(lambda: paths.decide(z3.Bool("chosen"))))
        try:
            function = interpreter.imported("code", "f")
            return interpreter.call(function, [a, b, arithmetic.page_size_of(d), server], {})
        except RaisedError as raised:
            return raised.name

    return [result for _, result in paths.all(run)]


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ("if P > 1 and a < b:\n    return 1\nreturn 2", 2),
        ("if a < b and b < a:\n    return 1\nreturn 2", 1),
        ("if a < b or not b < a + 1:\n    return 1\nreturn 2", 2),
        ("if server.page_size > 1:\n    a = aligned(a, server.page_size)\nreturn a", 1),
        ("if a < b:\n    a = max(b, P)\nreturn a", 1),
        ("return aligned(a, P) if a < b else b", 1),
        ("row = Row(a)\nif a < b:\n    a = row.end + 1\nreturn a", 1),
    ],
)
def test_what_only_reads_and_reckons_makes_no_paths(body: str, paths: int) -> None:
    assert len(paths_of(body)) == paths


@pytest.mark.parametrize(
    "body",
    [
        "seen = []\nif a < b and noted(a, seen) < b:\n    pass\nreturn len(seen)",
        "seen = []\nif a < b:\n    a = noted(b, seen)\nreturn len(seen)",
        "row = Row(a)\nif a < b and row.counted < b:\n    pass\nreturn row.reads",
        "row = Row(a)\nif a < b:\n    a = row.counted\nreturn row.reads",
        "if a < b:\n    c = b\nreturn 1 if a < b else 0",
        "c = 0\nif a < b:\n    c = 1\nreturn c",
        "seen = []\ndef aligned(x, y):\n    seen.append(x)\n    return x\nif a < b:\n    a = aligned(a, P)\nreturn len(seen)",
        "a_is_less = 0\nif a < b:\n    a_is_less = endless(1) if b < a else 1\nreturn a_is_less",
    ],
)
def test_what_does_more_runs_only_where_python_reaches_it(body: str) -> None:
    assert sorted(paths_of(body)) == [0, 1]


def test_what_fails_where_python_does_not_reach_it_is_not_evaluated() -> None:
    assert sorted(map(str, paths_of("if a < b and c < b:\n    pass\nc = a\nreturn 0"))) == ["0", "UnboundLocalError"]
    assert sorted(map(str, paths_of("if a < b:\n    a = a // 0\nreturn 0"))) == ["0", "ZeroDivisionError"]


def test_a_choice_is_made_where_it_is_read() -> None:
    assert len(paths_of("if a < b and server.chosen:\n    return 1\nreturn 2")) == 3


@pytest.mark.parametrize(("a_in_tokens", "right"), [(7, 12), (9, 9), (10, 10)])
def test_the_length_is_the_one_that_the_flag_says(a_in_tokens: int, right: int) -> None:
    (found,) = paths_of("if a < b:\n    a = aligned(b, P)\nreturn a")
    d = Symbols()
    a, b = d.length("a"), d.length("b")
    solver = z3_solver()
    solver.add(d.page_size == 4, a.pages == a_in_tokens // 4, a.offset == a_in_tokens % 4, b.pages == 2, b.offset == 1)
    assert str(solver.check()) == "sat"
    pages, offset = (solver.model().eval(term, True).as_long() for term in (found.pages, found.offset))
    assert pages * 4 + offset == right
