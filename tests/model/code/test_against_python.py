"""The interpreter gives what CPython gives, or says that it does not understand: small programs, generated, on numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from texts import Texts

from kvproof.model.code import arithmetic
from kvproof.model.code.claims import _number
from kvproof.model.code.errors import InfeasibleError, NotUnderstoodError, RaisedError
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.library import LIBRARY
from kvproof.model.code.paths import Paths
from kvproof.model.code.source import Sources
from kvproof.model.code.values import StandIn
from kvproof.model.questions import z3_solver
from kvproof.model.symbolic import Symbols

NOT_UNDERSTOOD = "not understood"


def by_python(code: str, numbers: tuple[int, ...], page_size: int) -> Any:
    names: dict[str, Any] = {}
    exec(code, names)
    try:
        return names["f"](*numbers, page_size)
    except Exception as raised:
        return type(raised).__name__


def by_interpreter(code: str, numbers: tuple[int, ...], page_size: int) -> Any:
    """The function on lengths (pages, offset) that are unknown terms, pinned to the numbers by assumptions alone."""
    d = Symbols()
    lengths = [d.length(f"x{number}") for number in range(len(numbers))]
    pins = [d.page_size == page_size]
    for length, number in zip(lengths, numbers, strict=True):
        pins += [length.pages == number // page_size, length.offset == number % page_size]
    paths = Paths(pins)
    solver = z3_solver()
    solver.add(*pins)
    assert str(solver.check()) == "sat"
    model = solver.model()

    def run() -> Any:
        interpreter = Interpreter(d, Sources(Texts({"code.py": code})), paths, {}, LIBRARY)
        try:
            function = interpreter.imported("code", "f")
            found = interpreter.call(function, [*lengths, arithmetic.page_size_of(d)], {})
            return in_numbers(model, found)
        except RaisedError as raised:
            return raised.name
        except (NotUnderstoodError, InfeasibleError):
            return NOT_UNDERSTOOD

    (found,) = [result for _, result in paths.all(run)]  # one state takes one path
    return found


def in_numbers(model: Any, value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(in_numbers(model, element) for element in value)
    if not (arithmetic.is_number(value) or arithmetic.is_flag(value)):
        raise NotUnderstoodError("a result that is no number")
    return _number(model, value)


NAMES = ("a", "b", "c")
PRELUDE = """
from dataclasses import dataclass, field

@dataclass
class Pair:
    left: int
    right: int = 1
    more: list = field(default_factory=list)

    @property
    def size(self):
        return self.right - self.left

    def grow(self, by=1):
        self.right += by
        return self

def half_open(x, y=2, *, z=0):
    if x < y:
        return x + z
    return y

def check(x):
    assert x >= 0, "below"
    return x
"""


def numbers() -> st.SearchStrategy[str]:
    leaf = st.sampled_from([*NAMES, "P", *map(str, range(-2, 4))])

    def more(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        two = st.tuples(inner, inner)
        return st.one_of(
            st.builds(lambda op, xy: f"({xy[0]} {op} {xy[1]})", st.sampled_from(("+", "-")), two),
            st.builds(lambda op, x: f"({x} {op} P)", st.sampled_from(("//", "%")), inner),
            st.builds(lambda x: f"(({x} + P - 1) // P * P)", inner),
            st.builds(lambda op, x, k: f"({k} {op} {x})", st.sampled_from(("*", "//", "%")), inner, st.integers(-2, 2)),
            st.builds(lambda name, xy: f"{name}({xy[0]}, {xy[1]})", st.sampled_from(("min", "max", "half_open")), two),
            st.builds(lambda x: f"check({x})", inner),
            st.builds(lambda xy: f"half_open({xy[0]}, z={xy[1]})", two),
            st.builds(lambda xy: f"Pair({xy[0]}, {xy[1]}).grow().size", two),
            st.builds(lambda x: f"Pair({x}).right", inner),
            st.builds(lambda x: f"sum([{x}, 1, 2][1:])", inner),
            st.builds(lambda x, n: f"len([{x}, 1, 2][{n}:])", inner, st.integers(-4, 4)),
            st.builds(lambda x, n: f"[{x}, 1][{n}]", inner, st.integers(-3, 3)),
            st.builds(lambda x: f"sum(n for n in (1, {x}) if n > 0)", inner),
            st.builds(lambda x: f"max([n + {x} for n in range(3)], default=0)", inner),
            st.builds(lambda t, xy: f"({xy[0]} if {t} else {xy[1]})", conditions(inner), two),
            st.builds(lambda x: f"-{x}", inner),
        )

    return st.recursive(leaf, more, max_leaves=4)


def conditions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operator = st.sampled_from(("<", "<=", ">", ">=", "==", "!="))
    plain = st.builds(lambda x, op, y: f"({x} {op} {y})", inner, operator, inner)
    chained = st.builds(
        lambda x, op, y, other, z: f"({x} {op} {y} {other} {z})", inner, operator, inner, operator, inner
    )
    return st.one_of(
        plain,
        chained,
        st.builds(lambda op, x, y: f"({x} {op} {y})", st.sampled_from(("and", "or")), plain, st.one_of(plain, inner)),
        st.builds(lambda x: f"(not {x})", plain),
        st.builds(
            lambda op, xs: f"{op}([{', '.join(xs)}])", st.sampled_from(("any", "all")), st.lists(plain, max_size=2)
        ),
        st.builds(lambda x, y: f"({x} in ({y}, 1))", inner, inner),
    )


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def statements() -> st.SearchStrategy[list[str]]:
    number, name = numbers(), st.sampled_from(NAMES)
    test = conditions(number)
    simple = st.one_of(
        st.builds(lambda n, x: [f"{n} = {x}"], name, number),
        st.builds(lambda n, op, x: [f"{n} {op}= {x}"], name, st.sampled_from(("+", "-")), number),
        st.builds(lambda n, m, x, y: [f"{n}, {m} = {x}, {y}"], name, name, number, number),
        st.builds(lambda x: [f"return {x}"], st.one_of(number, test)),
        st.builds(lambda x: [f"assert {x}"], test),
        st.builds(lambda kind: [f"raise {kind}('no')"], st.sampled_from(("ValueError", "KeyError"))),
        st.builds(lambda n, x: [f"{n} = {{1: {x}}}.get({n} // P, 0)"], name, number),
        st.builds(lambda n, x: [f"{n} = {{}}[{x}]"], name, st.sampled_from(("1", "'k'"))),
        st.builds(lambda n, x: [f"if ({n} := {x}) > 0:", f"    {n} -= 1"], name, number),
    )

    def more(inner: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
        block = st.lists(inner, min_size=1, max_size=2).map(
            lambda parts: indented([line for part in parts for line in part])
        )
        kinds = st.sampled_from(("ValueError", "LookupError", "(KeyError, AssertionError)", "Exception"))
        return st.one_of(
            st.builds(lambda t, x, y: [f"if {t}:", *x, "else:", *y], test, block, block),
            st.builds(lambda t, u, x, y: [f"if {t}:", *x, f"elif {u}:", *y], test, test, block, block),
            st.builds(lambda n, k, x: [f"for {n} in range({k}):", *x], name, st.integers(0, 3), block),
            st.builds(lambda k, t, x: [f"for i in range({k}):", *x, f"    if {t}:", "        break", "else:", "    c = 3"],
                      st.integers(0, 3), test, block),
            st.builds(lambda x: ["n = 3", "while n > 0:", "    n -= 1", *x, "    if n == 1:", "        continue"], block),
            st.builds(lambda x, k, y: ["try:", *x, f"except {k}:", *y], block, kinds, block),
            st.builds(lambda x, y: ["try:", *x, "finally:", *y], block, block),
            st.builds(lambda x, k, y, z: ["try:", *x, f"except {k}:", *y, "else:", *z], block, kinds, block, block),
        )  # fmt: skip

    return st.recursive(simple, more, max_leaves=4)


@st.composite
def programs(draw: Callable[..., Any]) -> str:
    body = [line for part in draw(st.lists(statements(), min_size=1, max_size=4)) for line in part]
    result = draw(st.one_of(st.just("(a, b, c)"), numbers(), conditions(numbers())))
    return "\n".join([PRELUDE, f"def f({', '.join(NAMES)}, P):", *indented([*body, f"return {result}"]), ""])


LENGTHS = st.tuples(*(st.integers(0, 12) for _ in NAMES))
EXAMPLES = 60
MANY = 10_000


def is_understood(code: str, given_numbers: tuple[int, ...], page_size: int) -> bool:
    """Whether the interpreter says anything. What it says is right."""
    found = by_interpreter(code, given_numbers, page_size)
    right = by_python(code, given_numbers, page_size)
    assert found == NOT_UNDERSTOOD or (type(found), found) == (type(right), right), code
    return bool(found != NOT_UNDERSTOOD)


def _settings(examples: int) -> settings:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples, suppress_health_check=checks, derandomize=examples == EXAMPLES)


def understood(examples: int) -> int:
    """How many of so many programs the interpreter understands; each that it does gives what Python gives."""
    count = 0

    @_settings(examples)
    @given(programs(), LENGTHS, st.integers(1, 5))
    def each(code: str, numbers: tuple[int, ...], page_size: int) -> None:
        nonlocal count
        count += is_understood(code, numbers, page_size)

    each()
    return count


def test_a_program_gives_what_python_gives() -> None:
    assert understood(EXAMPLES) > EXAMPLES / 2, "most programs are understood"


@pytest.mark.slow
def test_ten_thousand_programs_give_what_python_gives() -> None:
    assert understood(MANY) > MANY / 2


@pytest.mark.parametrize(
    ("by_code", "right"), [("return a // 2 * 2", 6), ("return [a, b][1]", 3), ("assert a < b", "AssertionError")]
)
def test_a_wrong_meaning_is_seen(by_code: str, right: object) -> None:
    code = f"def f(a, b, c, P):\n    {by_code}\n"

    assert by_python(code, (7, 3, 0), 2) == right
    assert by_interpreter(code, (7, 3, 0), 2) in (right, NOT_UNDERSTOOD)
    assert by_interpreter(code, (2, 9, 0), 2) != right, "another state, another result"


UNDERSTOOD = {
    "a list grows in place": "xs = [a]\nys = xs\nxs += [b, c]\nreturn ys",
    "a list grows by itself": "xs = [a, b]\nxs += xs\nreturn xs",
    "a list of an object grows": "p = Pair(a)\nmore = p.more\np.more += (b, c)\nreturn more",
    "a list takes what a generator gives": "xs = [a]\nxs.extend(x + len(xs) for x in (b, c))\nreturn xs",
    "loops within a comprehension": "return [x + y for x in (a, b) if x > 1 for y in (x, c) if y > 0]",
    "any() stops within the inner loop": "return any(check(x) > 2 for xs in ((a, 3), (-1,)) for x in xs)",
    "next() stops within the inner loop": "return next(x for xs in ((), (a, b)) for x in xs)",
    "the page size times one": "return a // (P * 1) * (1 * P)",
    "a generator of arguments": "return [max(*(x + 1 for x in (a, b, c))), *(x for x in (a, b) if x > 3)]",
    "a list some times over": "return [a, b] * 2 + [c] * 0 + [0] * -1",
    "zip() of as many": "return [x - y for x, y in zip((a, b), [b, c], strict=True)]",
    "a string without an attribute": "return getattr('cuda', 'type', a)",
    "a string is split": "return [str('cuda:0').split(':')[0], 'a b c'.split(' ', 1)]",
    "the same object is in a list": "p = Pair(a)\nreturn p in (1, p)[1:]",
}


@pytest.mark.parametrize("body", UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_what_is_understood_gives_what_python_gives(body: str) -> None:
    code = "\n".join([PRELUDE, "def f(a, b, c, P):", *indented(body.split("\n")), ""])

    assert is_understood(code, (7, 3, 0), 2)


@pytest.mark.parametrize(
    "body", ["return id(Pair(a)) == id(Pair(b))", "return id(copy.copy(Pair(a))) == 0", "return id(a) == id(a)"]
)
def test_the_id_of_what_the_code_makes_is_not_understood(body: str) -> None:
    code = f"import copy\n{PRELUDE}\ndef f(a, b, c, P):\n    {body}\n"

    assert by_interpreter(code, (7, 3, 0), 2) == NOT_UNDERSTOOD


@pytest.mark.parametrize(("body", "right"), [("return Point(a).x", 7), ("p = Point(a)\n    p.x = 0", NOT_UNDERSTOOD)])
def test_a_frozen_object_is_read_and_not_set(body: str, right: object) -> None:
    frozen = "from dataclasses import dataclass\n\n@dataclass(frozen=True)\nclass Point:\n    x: int\n"

    assert by_interpreter(f"{frozen}\ndef f(a, b, c, P):\n    {body}\n", (7, 3, 0), 2) == right


class Tensor(StandIn):
    """Compared with anything, it gives a tensor."""

    def equals(self, other: Any) -> Any:
        return self


@pytest.mark.parametrize(("operator", "is_understood"), [("==", True), ("!=", False)])
def test_a_comparison_that_gives_no_flag_has_no_opposite(operator: str, is_understood: bool) -> None:
    sources = Sources(Texts({"code.py": f"def f(x):\n    return x {operator} 1\n"}))
    interpreter = Interpreter(d := Symbols(), sources, Paths([d.page_size == 1]), {}, LIBRARY)
    tensor = Tensor()
    try:
        found = interpreter.call(interpreter.imported("code", "f"), [tensor], {})
    except NotUnderstoodError:
        found = None

    assert (found is tensor) == is_understood


def test_objects_that_were_there_before_have_different_ids() -> None:
    code = f"{PRELUDE}\ndef f(one, other):\n    return [id(x) in {{id(one)}} for x in (one, other)]\n"
    interpreter = Interpreter(d := Symbols(), Sources(Texts({"code.py": code})), Paths([d.page_size == 1]), {}, LIBRARY)
    pair = interpreter.imported("code", "Pair")
    one, other = (interpreter.construct(pair, [d.one], {}) for _ in range(2))

    assert interpreter.call(interpreter.imported("code", "f"), [one, other], {}) == [True, False]
