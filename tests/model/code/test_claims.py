"""A function is proved where every path of it does what the rule says, and only there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import z3

from kvproof.conformance.adapters.sglang.code.stand_ins import Allocator, Indices
from kvproof.model.code.claims import (
    ABSENT,
    DIFFERS,
    NOT_UNDERSTOOD,
    PROVED,
    Claim,
    Expected,
    Verdict,
    check,
    follows_instead,
)
from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.source import Folder, Sources
from kvproof.model.code.values import Deferred, Opaque, Record
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import ACTIONS
from kvproof.spec.domain import orphan_start
from kvproof.spec.effects import Effect, Free
from kvproof.spec.profiles import PROFILES
from kvproof.spec.state import NONE, RUNNING, Ledger

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


class LeavesTokens(TailScene):
    """Describes that the function leaves tokens, which have a length."""

    def observed(self, result: Any) -> dict[str, Any]:
        return {"slot_kv_committed_len": result.length()}


class LeavesMatch(TailScene):
    """Describes that the function leaves a match, which has a prefix."""

    def observed(self, result: Any) -> dict[str, Any]:
        return {"slot_kv_committed_len": self.run.attribute(result, "prefix")}


@pytest.mark.parametrize(("scene", "left"), [(LeavesTokens, "[]"), (LeavesMatch, "None")])
def test_a_value_of_another_kind_than_is_described_is_not_understood(
    tmp_path: Path, scene: type[TailScene], left: str
) -> None:
    (tmp_path / "cache.py").write_text(f"{RIGHT}    return {left}\n")
    claim = Claim("tail", "cache", "free_tail", tail_of_an_idle_slot, {}, scene)
    found = check(claim, Sources(Folder(tmp_path)), {}, {})

    assert found.verdict == NOT_UNDERSTOOD
    assert "another kind" in found.paths[0].ended


class AsksSettings(TailScene):
    """Has an optional setting that is there in some states."""

    def call(self) -> Any:
        is_there = z3.Bool("the setting is there")
        choice = Deferred(lambda: Opaque("a setting") if self.run.paths.decide(is_there) else None)
        self.run.call(self.run.imported("cache", "free_tail"), [Record(setting=choice)], {})


NO_TAIL = Claim("no tail", "cache", "free_tail", lambda d, s, p: Expected((s.phase == NONE,), s), {}, AsksSettings)


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ("pass", 1),
        ("found = settings.setting", 2),
        ("assert settings.setting is None or settings.setting is not None", 2),
    ],
)
def test_a_choice_makes_paths_where_it_is_read(tmp_path: Path, body: str, paths: int) -> None:
    (tmp_path / "cache.py").write_text(f"def free_tail(settings):\n    {body}\n")
    found = check(NO_TAIL, Sources(Folder(tmp_path)), {}, {})

    assert (found.verdict, len(found.paths)) == (PROVED, paths)


def test_a_choice_that_is_read_is_tried_both_ways(tmp_path: Path) -> None:
    (tmp_path / "cache.py").write_text("def free_tail(settings):\n    assert settings.setting is not None\n")

    assert check(NO_TAIL, Sources(Folder(tmp_path)), {}, {}).verdict == DIFFERS


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
    assert first.failing is not None and first.failing.small_difference().state["P"] >= 1


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


RUNS_AT_IMPORT = {
    "a function that is called": "def install():\n    Slot.start = lambda self, a, b: a\ninstall()",
    "the body of a class": "class Other:\n    Slot.start = lambda self, a, b: a",
    "a decorator": "def hook(c):\n    c.start = None\n    return lambda f: f\n@hook(Slot)\ndef other():\n    pass",
    "a decorator without arguments": "def hook(f):\n    Slot.start = f\n    return f\n@hook\ndef other():\n    pass",
    "a default": "def patch():\n    Slot.start = None\ndef other(x=patch()):\n    pass",
    "an alias": "alias = Slot\nalias.start = lambda self, a, b: a",
    "a loop over classes": "for c in (Slot,):\n    c.start = lambda self, a, b: a",
    "the module by its own name": "import cache as me\nme.Slot.start = lambda self, a, b: a",
    "the module's table": "import sys\nsys.modules[__name__] = object()",
    "a hook of subclasses": "class Hook:\n    def __init_subclass__(cls):\n        Slot.start = None\nclass Z(Hook):\n    pass",
    "a name that is bound twice": "def free_tail(*a):\n    pass",
    "an annotation of the module's function": (
        "class P:\n    def __init__(self):\n        Slot.start = None\ndef other(x: P):\n    pass\n"
        "import cache as me\nme.other.__annotations__['x']()"
    ),
    "an annotation that is called": ("def patch():\n    Slot.start = None\ndef other(x: patch()):\n    pass"),
    "an annotation that a decorator reads": (
        "class P:\n    def __init__(self):\n        Slot.start = None\n"
        "def hook(f):\n    [P() for P in f.__annotations__.values()]\n    return f\n@hook\ndef other(x: P):\n    pass"
    ),
    "a walrus in a default": "def other(x=(Slot := None)):\n    pass",
}


@pytest.mark.parametrize("patch", RUNS_AT_IMPORT.values(), ids=RUNS_AT_IMPORT)
def test_what_an_import_may_change_is_never_a_pass(tmp_path: Path, patch: str) -> None:
    assert checked(tmp_path, f"{USES_A_CLASS}\n{patch}\n").verdict != PROVED


# (before the function, in it before its last `if`)
BEHAVES_OTHERWISE = {
    "a data descriptor": (
        "class D:\n    def __get__(self, o, t=None):\n        return 1\n    def __set__(self, o, v):\n        pass\n"
        "class S:\n    x = D()\n",
        "s = S()\n    s.x = 0\n    start = start + s.x",
    ),
    "an attribute that all objects share": (
        "class V:\n    pass\nclass S:\n    box = V()\n",
        "hidden = S().box is S().box",
    ),
    "a global dictionary": ("FLAGS = {'on': True}\ndef off():\n    FLAGS.update(on=False)\n", "hidden = FLAGS['on']"),
    "a global object": ("class C:\n    pass\nCONFIG = C()\n", "hidden = CONFIG"),
    "a class that says what it equals": (
        "class V:\n    def __ne__(self, o):\n        return True\n",
        "v = V()\n    hidden = v != v",
    ),
    "an object that equals None": ("class V:\n    def __eq__(self, o):\n        return True\n", "hidden = V() == None"),
    "keys that are equal": (
        "class V:\n    def __eq__(self, o):\n        return True\n    def __hash__(self):\n        return 1\n",
        "hidden = len({V(): 1, V(): 2})",
    ),
    "a destructor": ("class V:\n    def __del__(self):\n        pass\n", "V()"),
    "a copy by hand": ("import copy\nclass V:\n    def __copy__(self):\n        return 0\n", "hidden = copy.copy(V())"),
    "text of an object": ("class V:\n    def __repr__(self):\n        return ''\n", "hidden = f'{V()}'"),
    "a log of an object": (
        "import logging\nlogger = logging.getLogger('x')\nclass V:\n    def __str__(self):\n        return ''\n",
        "logger.info('%s', [V()])",
    ),
    "a width in a text": ("", "hidden = f'{1:{allocator.available_size()}}'"),
    "a generator that nobody asks": (
        "",
        "xs = []\n    g = (xs.append(n) for n in (1,))\n    start = start + 1 - len(xs)",
    ),
    "a generator that is asked late": ("", "n = start\n    g = (n for _ in (1,))\n    n = 0\n    start = list(g)[0]"),
    "an iterator that continues": ("", "it = iter((0, 1))\n    next(it)\n    start = start + next(it)"),
    "a zip that is used up": (
        "",
        "z = zip((1,), (2,))\n    list(z)\n    n = 1\n    for a, b in z:\n        n = 0\n    start = start + n",
    ),
    "a list that grows in its loop": (
        "",
        "xs = [0]\n    for x in xs:\n        if len(xs) < 2:\n            xs.append(1)",
    ),
    "an initializer beside the base": (
        "class A:\n    pass\nclass M:\n    def __init__(self):\n        self.x = 1\n"
        "class B(A):\n    def __init__(self):\n        self.x = 0\n        super().__init__()\nclass C(B, M):\n    pass\n",
        "start = start + C().x",
    ),
    "a list that shrinks in its loop": ("", "xs = [0, 1]\n    for x in xs:\n        xs.pop()"),
    "a sort of two": ("", "[1, 0].sort()"),
    "a sort by a key that frees": ("", "[0].sort(key=lambda n: allocator.free(row[0:end]))"),
    "a pop at a place that is a length": ("", "xs = [0, 1]\n    xs.pop(start)"),
    "a pop of an empty list": ("", "[].pop()"),
    "a dictionary that shrinks in its loop": ("", "t = {1: 1}\n    for x in t.values():\n        t.clear()"),
    "the name of a caught exception": (
        "",
        "e = 1\n    try:\n        {}[1]\n    except KeyError as e:\n        pass\n    hidden = e",
    ),
    "an exception of another class": (
        "class KeyError(Exception):\n    pass\n",
        "try:\n        {}[1]\n    except KeyError:\n        pass",
    ),
    "a cause that does something": (
        "",
        "try:\n        raise ValueError('') from allocator.free(row[0:end])\n    except ValueError:\n        pass",
    ),
    "the message of a failed assertion": (
        "",
        "try:\n        assert False, allocator.free(row[0:end])\n    except AssertionError:\n        pass",
    ),
    "a base by subscript": (
        "class A:\n    def __class_getitem__(cls, k):\n        return A\nclass B(A[int]):\n    def f(self):\n        return 0\n",
        "start = start + B().f()",
    ),
    "a private global": (
        "__zero = 0\n_S__zero = 1\nclass S:\n    def f(self):\n        return __zero\n",
        "start = start + S().f()",
    ),
    "a default of the class": (
        "STEP = 0\nclass S:\n    STEP = 1\n    def f(self, x=STEP):\n        return x\n",
        "start = start + S().f()",
    ),
    "a decorator of the class": (
        "class S:\n    staticmethod = classmethod\n    @staticmethod\n    def f(*xs):\n        return len(xs) - 1\n",
        "start = start + S().f(1)",
    ),
    "a class that goes by methods": (
        "from typing import Protocol, runtime_checkable\n@runtime_checkable\nclass P(Protocol):\n    x: int\n"
        "class S:\n    x = 1\n",
        "hidden = isinstance(S(), P)",
    ),
    "a tuple with names": (
        "from typing import NamedTuple\nclass N(NamedTuple):\n    x: int = 0\n",
        "n = N()\n    n.x = 1",
    ),
    "a walrus in a lambda": ("", "n = start\n    start = (lambda: (n, (n := 1)))()[0]"),
    "names that may be the same": ("", "hidden = {f'{row}', f'{end}'}"),
    "a default that all objects share": (
        "from dataclasses import dataclass\nclass V:\n    pass\n@dataclass\nclass S:\n    v: V = V()\n",
        "hidden = S().v",
    ),
    "an argument by place alone": ("def f(x, /):\n    return x\n", "start = f(x=start)"),
    "a call by an attribute": (
        "class V:\n    def __call__(self):\n        return 1\n",
        "v = V()\n    v.__call__ = lambda: 0\n    start = start + v()",
    ),
    "the truth of a tensor": ("", "hidden = 1 if row else 2"),
    "the smallest by a key": ("", "start = min(start, end, key=lambda x: 0 - x)"),
    "a match statement": ("", "match start:\n        case other:\n            start = other"),
    "a nonlocal name": ("", "n = 0\n    def f():\n        nonlocal n\n        n = 1\n    f()\n    start = start + n"),
    "a deleted name": ("", "n = 0\n    del n"),
    "a context": ("import contextlib\n", "with contextlib.suppress(Exception):\n        pass"),
    "a frozen object": (
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass V:\n    x: int = 0\n",
        "v = V()\n    v.x = 1",
    ),
    "an array": ("from array import array\n", "start = start + array('q', [0])[0]"),
    "slots": ("class V:\n    __slots__ = ()\n", "v = V()\n    v.x = 1"),
}


@pytest.mark.parametrize(("before", "hidden"), BEHAVES_OTHERWISE.values(), ids=BEHAVES_OTHERWISE)
def test_python_that_behaves_otherwise_than_it_looks_is_never_a_pass(tmp_path: Path, before: str, hidden: str) -> None:
    code = before + RIGHT.replace("    if start", f"    {hidden}\n    if start")

    assert checked(tmp_path, code).verdict != PROVED


def test_the_initializer_of_every_object_does_nothing(tmp_path: Path) -> None:
    classes = (
        "class A:\n    pass\nclass B(A):\n    def __init__(self):\n        super().__init__()\n        self.x = 0\n"
    )
    code = classes + RIGHT.replace("    if start", "    start = start + B().x\n    if start")
    assert checked(tmp_path, code).verdict == PROVED


UNDERSTOOD = {
    "a generator that is summed": "start = start + sum(n for n in (0, 0))",
    "any, which stops": "hidden = any(n == 1 or allocator.free(row[0:end]) for n in (1, 2))",
    "next of a generator": "start = start + next(n for n in (0, 1))",
    "a dictionary whose values change": "t = {1: 1, 2: 2}\n    for k, v in t.items():\n        t[k] = 0",
    "the largest of none": "start = start + max([], default=0)",
    "an iterator": "it = iter((0, 1))\n    start = start + next(it)",
    "a comprehension of a dictionary": "t = {n: n - 1 for n in (1, 2)}\n    start = start + t[1]",
    "the pair that came last": "t = {2: 1, 1: 0}\n    _, n = t.popitem()\n    start = start + n",
    "a sort of one": "xs = [0]\n    xs.sort(key=lambda n: n, reverse=True)\n    start = start + xs[0]",
    "the last of a list": "xs = [1, 0]\n    start = start + xs.pop() + len(xs) - 1",
    "what is no array": "from array import array\n    start = end if isinstance(None, array) else start",
}


@pytest.mark.parametrize("line", UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_what_is_understood_stays_proved(tmp_path: Path, line: str) -> None:
    assert checked(tmp_path, RIGHT.replace("    if start", f"    {line}\n    if start")).verdict == PROVED


DECORATED = {
    "the function itself": ("return function", PROVED),
    "the function itself, where it is given one": ("return function if function is not None else other", PROVED),
    "another function": ("return lambda *_: None", NOT_UNDERSTOOD),
    "nothing": ("pass", NOT_UNDERSTOOD),
    "an exception": ("raise ValueError", NOT_UNDERSTOOD),
}


@pytest.mark.parametrize(("body", "verdict"), DECORATED.values(), ids=DECORATED)
def test_a_decorator_of_the_tree_must_give_the_function_back(tmp_path: Path, body: str, verdict: str) -> None:
    decorator = f"def marked(*, name=None):\n    def decorate(function):\n        {body}\n    return decorate\n"
    code = RIGHT.replace("def free_tail", f"{decorator}\n@marked(name='tail')\ndef free_tail")

    assert checked(tmp_path, code).verdict == verdict


REPLACED = {
    "fields": ("", "replace(Tail(start), add=0)", PROVED),
    "fields of an object that fills in others": (
        "    def __post_init__(self):\n        self.add = 1\n",
        "replace(Tail(start), add=0)",
        NOT_UNDERSTOOD,
    ),
    "fields of something else": ("", "replace(start, add=0)", NOT_UNDERSTOOD),
}


@pytest.mark.parametrize(("more", "made", "verdict"), REPLACED.values(), ids=REPLACED)
def test_fields_are_replaced_in_a_new_object(tmp_path: Path, more: str, made: str, verdict: str) -> None:
    tail = f"@dataclass\nclass Tail:\n    start: int\n    add: int = 1\n{more}"
    code = f"from dataclasses import dataclass, replace\n{tail}{RIGHT}"
    line = f"    tail = {made}\n    start = tail.start + tail.add\n    if start"

    assert checked(tmp_path, code.replace("    if start", line)).verdict == verdict


def test_a_table_of_functions_does_not_change_them(tmp_path: Path) -> None:
    table = "from collections import defaultdict\nTABLE = defaultdict(lambda: free_tail)\n"

    assert checked(tmp_path, f"{RIGHT}\n{table}").verdict == PROVED
    assert checked(tmp_path, f"{RIGHT}\n{table.replace('collections', 'other')}").verdict == NOT_UNDERSTOOD


@pytest.mark.parametrize(
    ("read", "verdict"), [("", PROVED), ("TABLE[0]", NOT_UNDERSTOOD), ("print(TABLE)", NOT_UNDERSTOOD)]
)
def test_a_table_that_the_import_reads_may_run_its_functions(tmp_path: Path, read: str, verdict: str) -> None:
    patch = "def patch():\n    free_tail.__code__ = 0\n"
    table = f"from collections import defaultdict\n{patch}TABLE = defaultdict(lambda: patch())\n"

    assert checked(tmp_path, f"{RIGHT}\n{table}{read}\n").verdict == verdict


def test_a_package_is_imported_before_a_module_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "__init__.py").write_text("def free_tail(*a):\n    pass\n")

    assert checked(tmp_path, RIGHT).verdict == DIFFERS


def test_a_relative_import_of_a_package_starts_in_it(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "__init__.py").write_text("from .rounding import kept_of\n")
    (tmp_path / "box" / "rounding.py").write_text("def kept_of(kept):\n    return kept + 1\n")
    (tmp_path / "rounding.py").write_text("def kept_of(kept):\n    return kept\n")
    code = RIGHT.replace("    start =", "    kept = kept_of(kept)\n    start =")

    assert checked(tmp_path, f"from box import kept_of\n{code}").verdict == DIFFERS


def test_a_file_in_another_encoding_is_not_understood(tmp_path: Path) -> None:
    assert checked(tmp_path, f"# -*- coding: utf-7 -*-\n{RIGHT}").verdict == NOT_UNDERSTOOD


def test_a_module_that_changes_another_one_is_seen(tmp_path: Path) -> None:
    (tmp_path / "rounding.py").write_text("def rounded(x):\n    return x\n")
    (tmp_path / "patches.py").write_text("import rounding\nrounding.rounded = lambda x: 0\nZERO = 0\n")
    code = RIGHT.replace("    start =", "    kept = rounded(kept) + ZERO\n    start =")
    imports = "from rounding import rounded\nfrom patches import ZERO\n"

    assert checked(tmp_path, imports + code).verdict == NOT_UNDERSTOOD


@pytest.mark.parametrize("profile", [None, *PROFILES])
def test_no_action_leaves_a_phase_that_there_is_not(profile: str | None) -> None:
    """So what is claimed of code need not hold in other phases."""
    d = Symbols()
    before = d.arbitrary(Ledger)
    for action in (PROFILES[profile].actions if profile else ACTIONS).values():
        after = action.run(d, before, d.parameters(action.params)).after
        solver = z3.Solver()
        solver.add(before.phase >= NONE, before.phase <= RUNNING, z3.Or(after.phase < NONE, after.phase > RUNNING))
        assert solver.check() == z3.unsat, action.name


def test_a_rule_that_applies_in_no_state_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "cache.py").write_text(RIGHT)

    def never(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        return Expected((s.slot_held, z3.Not(s.slot_held)), s)

    found = check(Claim("tail", "cache", "free_tail", never, {}, TailScene), Sources(Folder(tmp_path)), {}, {})

    assert found.verdict == NOT_UNDERSTOOD


# (before the function, in it before its last `if`)
HOSTILE = {
    "an attribute that is set by a computed name": ("class S:\n    x = 0\n", "s = S()\n    setattr(s, 'x' + '', 1)"),
    "an attribute that is read by a computed name": ("", "getattr(allocator, 'fr' + 'ee')(row[0:end])"),
    "a metaclass": (
        "class M(type):\n    def __call__(cls):\n        return 1\nclass S(metaclass=M):\n    pass\n",
        "start = start + S()",
    ),
    "__getattribute__": (
        "class S:\n    x = 0\n    def __getattribute__(self, name):\n        return 1\n",
        "start = start + S().x",
    ),
    "__new__": ("class S:\n    x = 0\n    def __new__(cls):\n        return None\n", "start = start + S().x"),
    "__set_name__": (
        "class D:\n    def __set_name__(self, owner, name):\n        owner.x = 1\nclass S:\n    x = 0\n    d = D()\n",
        "start = start + S().x",
    ),
    "__set_name__ by a shared helper": (
        "def put(owner):\n    setattr(owner, chr(120), 1)\n"
        "class D:\n    def __set_name__(self, owner, name):\n        put(owner)\nclass S:\n    x = 0\n    d = D()\n",
        "start = start + S().x",
    ),
    "__missing__": ("class T(dict):\n    def __missing__(self, k):\n        return 1\n", "start = start + T()[0]"),
    "another class for an object": (
        "class A:\n    def f(self):\n        return 0\nclass B:\n    def f(self):\n        return 1\n",
        "a = A()\n    a.__class__ = B\n    start = start + a.f()",
    ),
    "another table of attributes": (
        "class A:\n    x = 0\n",
        "a = A()\n    a.__dict__ = {'x': 1}\n    start = start + a.x",
    ),
    "the table of attributes": ("class A:\n    x = 0\n", "a = A()\n    a.__dict__['x'] = 1\n    start = start + a.x"),
    "an attribute of a class": ("class A:\n    x = 0\n", "A.x = 1\n    start = start + A().x"),
    "a deleted attribute": (
        "class A:\n    x = 0\n",
        "a = A()\n    a.x = 1\n    del a.x\n    start = start + a.x",
    ),
    "a generator": ("def g():\n    yield 0\n", "start = start + list(g())[0]"),
    "a coroutine": ("async def g():\n    return 0\n", "hidden = g()"),
    "a walrus in a comprehension": ("", "hidden = [(n := x) for x in (0, 1)]"),
    "a global name": ("N = 0\ndef bump():\n    global N\n    N = 1\n", "bump()\n    start = start + N"),
    "a C extension": ("import _heapq\n", "_heapq.heapify([start])"),
    "ctypes": ("import ctypes\n", "ctypes.memset(0, 0, 0)"),
    "an object as a context": (
        "class C:\n    def __enter__(self):\n        return 1\n    def __exit__(self, *e):\n        return True\n",
        "with C() as n:\n        start = start + n",
    ),
    "a float": ("", "hidden = 0.5"),
    "bits": ("", "start = start | 0"),
    "a shift": ("", "start = start << 0"),
    "an inversion": ("", "start = -~start - 1"),
    "text by an operator": ("class V:\n    def __str__(self):\n        return ''\n", "hidden = '%s' % V()"),
    "text by format": ("", "hidden = '{}'.format(allocator)"),
    "a lambda that captures by its default": (
        "",
        "fs = [lambda n=n: n for n in (0, 1)]\n    start = start + fs[0]()",
    ),
    "a lambda that captures late": ("", "fs = [lambda: n for n in (0, 1)]\n    start = start + fs[0]()"),
    "a default that grows": (
        "def f(seen=[]):\n    seen.append(1)\n    return len(seen)\n",
        "f()\n    start = start + f() - 1",
    ),
    "an operator of a class": (
        "class N:\n    def __add__(self, other):\n        return 1\n",
        "start = start + (N() + 0)",
    ),
    "an operator from the right": (
        "class N:\n    def __radd__(self, other):\n        return other\n",
        "start = start + N()",
    ),
    "an order of a class": ("class N:\n    def __lt__(self, other):\n        return True\n", "hidden = N() < 0"),
    "membership of a class": ("class N:\n    def __contains__(self, x):\n        return True\n", "hidden = 0 in N()"),
    "an index of a class": ("class N:\n    def __index__(self):\n        return 1\n", "start = start + [0, 1][N()]"),
    "an iteration of a class": ("class N:\n    def __iter__(self):\n        return iter((1,))\n", "a, = N()"),
    "a truth of a class": ("class N:\n    def __bool__(self):\n        return False\n", "hidden = 1 if N() else 0"),
    "a property that frees": (
        "class S:\n    def __init__(self, a, r):\n        self.a, self.r = a, r\n"
        "    @property\n    def x(self):\n        self.a.free(self.r)\n        return 0\n",
        "start = start + S(allocator, row[0:end]).x",
    ),
    "a cached property": (
        "from functools import cached_property\nclass S:\n    @cached_property\n    def x(self):\n        return 0\n",
        "start = start + S().x",
    ),
    "an enumeration": ("from enum import IntEnum\nclass E(IntEnum):\n    A = 0\n", "start = start + E.A"),
    "a heir of int": ("class I(int):\n    pass\n", "start = start + I(0)"),
    "the name of a flag of Python": ("", "hidden = __debug__"),
    "a frame": ("import sys\n", "sys._getframe().f_locals['start'] = 0"),
}


@pytest.mark.parametrize(("before", "hidden"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_code_is_never_a_pass(tmp_path: Path, before: str, hidden: str) -> None:
    code = before + RIGHT.replace("    if start", f"    {hidden}\n    if start")

    assert checked(tmp_path, code).verdict != PROVED


AS_A_PROGRAM = 'if __name__ == "__main__":\n    free_tail = None\n'


def test_what_runs_only_as_a_program_changes_nothing(tmp_path: Path) -> None:
    assert checked(tmp_path, f"{RIGHT}\n{AS_A_PROGRAM}").verdict == PROVED
    assert checked(tmp_path, f'{RIGHT}\n__name__ = "__main__"\n{AS_A_PROGRAM}').verdict == NOT_UNDERSTOOD
    assert checked(tmp_path, f"{RIGHT}\n{AS_A_PROGRAM}else:\n    free_tail = None\n").verdict == NOT_UNDERSTOOD


@pytest.mark.parametrize(("arguments", "verdict"), [("more={}", PROVED), ("{}", NOT_UNDERSTOOD)])
def test_a_field_that_only_a_keyword_sets_is_set_by_no_place(tmp_path: Path, arguments: str, verdict: str) -> None:
    made = "@dataclass\nclass Params:\n    more: dict = field(default_factory=dict, kw_only=True)\n    least: int = 0\n"
    code = RIGHT.replace("    if start", f"    Params({arguments})\n    if start")

    assert checked(tmp_path, f"from dataclasses import dataclass, field\n{made}{code}").verdict == verdict


def test_a_slice_that_is_named_is_the_one_that_is_written(tmp_path: Path) -> None:
    assert checked(tmp_path, RIGHT.replace("row[start:end]", "row[slice(start, end)]")).verdict == PROVED
    assert checked(tmp_path, RIGHT.replace("row[start:end]", "row[slice(kept, end)]")).verdict == DIFFERS


class LeavesOne(TailScene):
    """Describes that the function leaves a length that it makes of two arbitrary ones."""

    def __init__(self, run: Interpreter, s: Ledger, p: SimpleNamespace) -> None:
        super().__init__(run, s, p)
        self.p = p

    def call(self) -> Any:
        return self.run.call(self.run.imported("cache", "free_tail"), [self.p.a, self.p.b], {})

    def observed(self, result: Any) -> dict[str, Any]:
        return {"left": result}


def leaves(less: str, otherwise: str, assumed: Callable[[SimpleNamespace], Any] = lambda p: z3.BoolVal(True)) -> Claim:
    """What is left: `less` where a < b, in states in which that is assumed."""

    def rule(d: Symbols, s: Ledger, p: SimpleNamespace) -> Expected:
        one, other = getattr(p, less), getattr(p, otherwise)
        return Expected((assumed(p),), s, (), {"left": d.where(p.a < p.b, one, other)})

    return Claim("one", "cache", "free_tail", rule, {"a": "length", "b": "length"}, LeavesOne)


LARGEST = """
def free_tail(a, b):
    if a < b:
        return b
    return a
"""


@pytest.mark.parametrize(
    ("first", "other", "does"),
    [
        (leaves("a", "b"), leaves("b", "a"), True),
        (leaves("a", "b"), leaves("b", "b"), False),
        (leaves("a", "b"), leaves("a", "a"), False),
        (leaves("a", "a"), leaves("b", "b"), False),
        (leaves("a", "a"), leaves("b", "b", lambda p: p.a < p.b), True),
        (leaves("a", "a", lambda p: p.a < p.b), leaves("b", "a", lambda p: p.a < p.b), True),
        (leaves("a", "a", lambda p: p.a < p.b), leaves("b", "a"), None),
        (leaves("a", "b"), leaves("b", "a", lambda p: p.a < p.a), False),
    ],
    ids=[
        "it does",
        "wrong on one path",
        "on the other",
        "on a path that followed",
        "in fewer states",
        "in the same states",
        "in states that were not run",
        "in no state",
    ],
)
def test_a_rule_is_followed_instead_on_every_path_and_in_every_state_of_it(
    tmp_path: Path, first: Claim, other: Claim, does: bool | None
) -> None:
    (tmp_path / "cache.py").write_text(LARGEST)
    differs = check(first, Sources(Folder(tmp_path)), {}, {})

    assert differs.verdict == DIFFERS
    assert follows_instead(differs, other) is does
    assert (check(other, Sources(Folder(tmp_path)), {}, {}).verdict == PROVED) == (does is not False)


def test_what_is_not_understood_follows_nothing_instead(tmp_path: Path) -> None:
    (tmp_path / "cache.py").write_text(LARGEST.replace("return a", "return eval('a')"))
    differs = check(leaves("a", "b"), Sources(Folder(tmp_path)), {}, {})

    assert differs.verdict == DIFFERS
    assert follows_instead(differs, leaves("b", "a")) is False
    assert (
        follows_instead(differs, leaves("b", "a", lambda p: p.a < p.b)) is True
    )  # it is not run in any of these states


def test_a_check_that_stopped_early_says_nothing_of_other_rules(tmp_path: Path) -> None:
    (tmp_path / "cache.py").write_text(LARGEST)
    sources = Sources(Folder(tmp_path))
    stopped = check(leaves("a", "b"), sources, {}, {}, to_the_first_difference=True)
    whole = check(leaves("a", "b"), sources, {}, {})

    assert [follows_instead(differs, leaves("b", "a")) for differs in (stopped, whole)] == [None, True]


def test_an_import_that_depends_on_the_state_is_not_understood(tmp_path: Path) -> None:
    (tmp_path / "cache.py").write_text("LEFT = 1 if setting else 2\n" + LARGEST.replace("a < b", "a < b and LEFT"))
    given = {"cache.setting": z3.Bool("setting")}
    found = check(leaves("b", "a"), Sources(Folder(tmp_path)), {}, given)

    assert found.verdict == NOT_UNDERSTOOD
    assert "depends on the state" in found.paths[0].ended


def test_a_run_that_cannot_be_repeated_is_not_understood(tmp_path: Path) -> None:
    class Forgets(LeavesOne):
        runs = 0

        def call(self) -> Any:
            Forgets.runs += 1
            self.run.paths.decide(z3.Bool(f"chosen in run {Forgets.runs}"))
            return super().call()

    (tmp_path / "cache.py").write_text(LARGEST)
    found = check(dataclasses.replace(leaves("b", "a"), scene=Forgets), Sources(Folder(tmp_path)), {}, {})

    assert found.verdict == NOT_UNDERSTOOD
    assert "when it is repeated" in found.paths[1].ended
